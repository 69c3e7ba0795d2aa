"""Base classes of request and response bodies, Base64 fields, and size limits for requests.

Every string, list and map in a request has a limit, and validation of a list stops at the first error, so that the time to
reject a request does not depend on the number of errors in it.

Tested in `tests/integration/service/test_limits.py` and `tests/integration/contract/test_requests.py`.
"""

import base64
import binascii
import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    EncodedBytes,
    EncoderProtocol,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

__all__ = [
    "FILES",
    "Answer",
    "Base64",
    "Column",
    "Columns",
    "Delta",
    "Envelope",
    "ErrorBody",
    "ErrorEnvelope",
    "Expression",
    "FilePath",
    "Identifier",
    "JsonObject",
    "Long",
    "Metrics",
    "NamePattern",
    "PartitionValues",
    "Properties",
    "Tags",
    "Text",
    "Timestamp",
    "TransactionId",
    "few",
    "in_words",
]

_MAX_DEPTH: Final = 200
_MAX_NODES: Final = 250_000
_MAX_UNKNOWN: Final = 64
FILES: Final = 1_000_000
"""Maximum files, or runs of rows, in one list of a request."""


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def in_words(pattern: str, words: str) -> BeforeValidator:
    """Return the check of a ``pattern`` whose error says what is allowed; that of ``Field`` shows the regular expression."""
    expression = re.compile(pattern)

    def check(value: Any) -> Any:
        if isinstance(value, str) and not expression.fullmatch(value):
            raise ValueError(words)
        return value

    return BeforeValidator(check)


_NAMES: Final = r"^[A-Za-z0-9_.\-*?]+$"
NamePattern: TypeAlias = Annotated[
    str,
    Field(min_length=1, max_length=128, pattern=_NAMES),
    in_words(
        _NAMES,
        "a pattern of names has letters, digits and _ . -, and the wildcards * (any text) and ? (one character): sales.*",
    ),
]
"""Names of tables, with wildcards."""


class _StrictBase64(EncoderProtocol):
    """Base64 without line breaks; pydantic's decoder skips invalid characters, so that junk decodes to other bytes."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise PydanticCustomError(
                "base64_decode",
                "Not standard base64 ({error}): send the bytes in one line, with '+', '/' and the padding '='",
                {"error": str(error)},
            ) from error

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return base64.b64encode(value)

    @classmethod
    def get_json_format(cls) -> Literal["base64"]:
        return "base64"


Base64 = Annotated[bytes, EncodedBytes(encoder=_StrictBase64)]


def few(value: Any) -> Any:
    """Reject a large map before validating its entries, since pydantic would report every invalid one."""
    if isinstance(value, dict) and len(value) > 1000:  # noqa: PLR2004 - as the schema of such maps says
        raise PydanticCustomError(
            "too_long", "at most 1000 entries are accepted, but there are {n}", {"n": len(value)}
        )
    return value


def _bounded(value: dict[str, Any]) -> dict[str, Any]:
    """Reject JSON with more nesting or nodes than a table definition can have."""
    pending: list[tuple[int, Any]] = [(1, value)]
    nodes = 0
    while pending:
        depth, node = pending.pop()
        parts = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else ()
        nodes += len(parts)
        if nodes > _MAX_NODES:
            raise PydanticCustomError("too_long", "at most {n} values are accepted", {"n": _MAX_NODES})
        if parts and depth == _MAX_DEPTH:
            raise PydanticCustomError("too_deep", "at most {n} levels are accepted", {"n": _MAX_DEPTH})
        pending.extend((depth + 1, part) for part in parts if isinstance(part, dict | list))
    return value


Long: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Identifier: TypeAlias = Annotated[str, Field(max_length=1024)]
"""The name of a property, a feature or an application."""
TransactionId: TypeAlias = Annotated[str, Field(max_length=128, pattern=r"^[!-~]+$")]
"""Printable ASCII without spaces, such as a UUID."""
Timestamp: TypeAlias = Annotated[str, Field(max_length=64)]
FilePath: TypeAlias = Annotated[str, Field(max_length=16_384)]
Expression: TypeAlias = Annotated[str, Field(max_length=100_000)]
Text: TypeAlias = Annotated[str, Field(max_length=1_000_000)]
Column: TypeAlias = Annotated[str, Field(max_length=4096)]
Columns: TypeAlias = Annotated[list[Column], Field(max_length=10_000, fail_fast=True)]
Properties: TypeAlias = Annotated[dict[Identifier, Text], Field(max_length=1000), BeforeValidator(few)]
PartitionValues: TypeAlias = Annotated[
    dict[Column, Text | None], Field(max_length=1000), BeforeValidator(few)
]
Tags: TypeAlias = Annotated[dict[Identifier, Text | None], Field(max_length=1000), BeforeValidator(few)]
Metrics: TypeAlias = Annotated[
    dict[Identifier, Annotated[int, Field(ge=-(2**63), lt=2**63)]],
    Field(max_length=1000),
    BeforeValidator(few),
]
JsonObject: TypeAlias = Annotated[dict[str, Any], AfterValidator(_bounded)]


class Envelope(BaseModel):
    """Delvec's own request bodies: kebab-case; unknown fields are errors, so that misspelled ones are not ignored."""

    model_config = ConfigDict(alias_generator=_kebab, populate_by_name=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_unknown(cls, data: Any) -> Any:
        if isinstance(data, dict) and len(data) > _MAX_UNKNOWN:
            raise PydanticCustomError(
                "too_long", "{n} fields are more than this object has", {"n": len(data)}
            )
        return data


class Answer(BaseModel):
    """Response bodies; fields added by newer services are ignored."""

    model_config = ConfigDict(alias_generator=_kebab, populate_by_name=True, extra="ignore")


class Delta(BaseModel):
    """Structures of the Delta protocol, in Delta's camelCase."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore")


class ErrorBody(Answer):
    """An error: what happened, where, and whether a retry may help."""

    message: str = Field(description="One sentence: what happened, where, what to do.")
    type: str = Field(description="The exception's name, as in Delta where Delta has one.")
    code: str = Field(description="A stable code for programs.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    details: dict[str, Any] = Field(default_factory=dict, description="Facts: table, version, file, ...")


class ErrorEnvelope(Answer):
    """The shape of every error response."""

    error: ErrorBody
