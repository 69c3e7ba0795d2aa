"""What is wrong with a request: text that neither the log nor the database could keep, and invalid values.

Tested in `tests/integration/service/commits/test_text_in_commits.py`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from delvec_contract.codec import canonical_json
from delvec_errors import BadRequest
from delvec_kernel.transaction.transaction_changes import Changes

__all__ = ["check_body", "check_text", "check_texts", "invalid", "printable"]

_SUSPECT_ESCAPES: Final = ("\\u0000", "\\ud")
"""What NUL and lone surrogates are in JSON of ASCII, as are halves of other characters."""


def check_body(body: BaseModel | Changes | None) -> str:
    """Return the canonical text of a body, after checking its texts as :func:`check_texts` does."""
    text = canonical_json(body)
    if any(each in text for each in _SUSPECT_ESCAPES):
        check_texts(json.loads(text))
    return text


def check_texts(document: Any) -> None:
    """Reject NUL, which PostgreSQL cannot store, and lone surrogates, which UTF-8 cannot encode.

    Raises:
        BadRequest: a text, or a name, has one.
    """
    pending: list[tuple[str, Any]] = [("", document)]
    while pending:
        where, node = pending.pop()
        if isinstance(node, str):
            check_text(node, f"body field '{where}'" if where else "body")
        elif isinstance(node, dict):
            for key, value in node.items():
                check_text(key, f"body: the name of a field{f' of {where!r}' if where else ''}")
                if isinstance(value, str) and _is_partition_value(where):
                    check_halves(value, f"body field '{where}.{key}'")
                elif not isinstance(value, int | float):
                    pending.append((f"{where}.{key}" if where else key, value))
        elif isinstance(node, list):
            pending.extend((f"{where}.{index}", value) for index, value in enumerate(node))


def check_text(text: str, where: str) -> None:
    """Reject a text with NUL or a lone surrogate.

    Raises:
        BadRequest: it has one.
    """
    if "\0" in text:
        raise BadRequest(
            f"The request is not valid: {where[:300]}: the character NUL (U+0000) is not allowed."
        )
    check_halves(text, where)


def _is_partition_value(where: str) -> bool:
    """Whether the fields there are partition values.

    In a binary partition value NUL is an ordinary byte, and the log can store it.
    """
    return where.endswith(".partitionValues")


def check_halves(text: str, where: str) -> None:
    """Reject a text with a lone surrogate.

    Raises:
        BadRequest: it has one.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(
            f"The request is not valid: {printable(where[:300])}: it contains a lone surrogate, which UTF-8 "
            "cannot encode."
        ) from None


def printable(text: str) -> str:
    """Return the text with everything that cannot be encoded replaced."""
    return text.encode("utf-8", "replace").decode()


_MESSAGES: Final = {
    "missing": "it is required",
    "extra_forbidden": "this field does not exist",
    "dict_type": "it must be a JSON object",
    "model_type": "it must be a JSON object",
    "model_attributes_type": "it must be a JSON object",
    "list_type": "it must be a JSON array",
    "tuple_type": "it must be a JSON array",
}
"""Replacements for pydantic's messages that use Python's words."""


def invalid(errors: Sequence[Mapping[str, Any]]) -> BadRequest:
    """Return the error for pydantic's validation errors of a request."""
    # The value is left out: it may be large, or a secret in the wrong field.
    problems = [
        {
            "field": printable(".".join(str(part)[:100] for part in problem["loc"][1:])),
            "in": str(problem["loc"][0]) if problem["loc"] else "body",
            "message": _MESSAGES.get(problem["type"])
            or printable(problem["msg"])[:500].removeprefix("Value error, "),
        }
        for problem in errors[:20]
    ]
    return BadRequest(f"The request is not valid: {_sentence(problems)}.", problems=problems)


def _sentence(problems: Iterable[dict[str, str]]) -> str:
    first = next(iter(problems), {"field": "", "in": "body", "message": "it cannot be parsed"})
    where = f"{first['in']} field '{first['field']}'" if first["field"] else first["in"]
    message = first["message"]
    starts_with_a_word = message[1:2].islower()  # not with an abbreviation such as JSON
    return f"{where}: {message[:1].lower() if starts_with_a_word else message[:1]}{message[1:]}"
