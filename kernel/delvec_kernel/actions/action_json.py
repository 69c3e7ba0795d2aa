"""JSON of the log: parsing commit files, reading fields, and locating errors.

Tested in `tests/unit/kernel/actions/test_actions.py` and `tests/unit/kernel/log/test_commit_file.py`.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from delvec_errors import CorruptDeletionVector, CorruptLog
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor

__all__ = [
    "MAX_ACTION_BYTES",
    "LogFile",
    "MalformedActionError",
    "check_text",
    "documents",
    "json_text",
    "present",
    "read_boolean",
    "read_descriptor",
    "read_integer",
    "read_map",
    "read_object",
    "read_text",
    "read_texts",
    "required_integer",
    "required_path",
    "required_text",
    "shown",
    "without_infinities",
]

MAX_ACTION_BYTES: Final = 1 << 26
"""Of one action's JSON, which is parsed in one go: no other thread of the process runs meanwhile."""
_INT64: Final = 2**63
_MAX_SHOWN: Final = 120
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class _Number(float):
    """A number with a point or an exponent, or NaN or an infinity, which JSON lacks.

    Attributes:
        text: as written.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        found = super().__new__(cls, text)
        found.text = text
        return found


_DECODER: Final = json.JSONDecoder(parse_constant=_Number, parse_float=_Number)
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LogFile:
    """Identifies the log file that is being read.

    Attributes:
        table: the table's name in errors.
        version: the version that the file belongs to.
        name: the file's name in ``_delta_log``.
    """

    table: str
    version: int | None
    name: str

    def corrupt(self, problem: str, *, line: int | None = None) -> CorruptLog:
        """Return the error for a corrupt file; ``line`` counts from 1."""
        where = self.name if line is None else f"line {line} of {self.name}"
        version = "" if self.version is None else f" at version {self.version}"
        return CorruptLog(
            f"The log of table '{self.table}' is damaged{version}: {where} {problem}. "
            "Restore that file from a backup, or read another version.",
            table=self.table,
            version=self.version,
            file=self.name,
            line=line,
        )


class MalformedActionError(Exception):
    """An action violates the protocol; the caller adds the file and line."""


def documents(data: bytes, where: LogFile) -> Iterator[tuple[int, Any]]:
    """Yield (line number, value) of each JSON document of a file.

    Blank lines, carriage returns, a byte order mark and a missing last line end are allowed. If a field
    occurs twice, the last one wins, as in delta-spark.

    Raises:
        CorruptLog: a document is truncated, is not JSON, or exceeds 64 MiB.
    """
    count = 0
    data = data.removeprefix(_BYTE_ORDER_MARK)
    for number, line in enumerate(data.split(b"\n"), start=1):
        text = line.strip()
        if not text:
            continue
        if len(text) > MAX_ACTION_BYTES:
            raise where.corrupt(
                f"has an action of {len(text):,} bytes, more than the limit of {MAX_ACTION_BYTES:,}",
                line=number,
            )
        try:
            document = _parse(text.decode())
        except (ValueError, RecursionError) as error:
            # Some writers indent their JSON. A truncated document also fails this way.
            whole = _spanning_lines(data)
            if whole is None:
                problem = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else "is not complete JSON"
                raise where.corrupt(problem, line=number) from error
            yield from whole[count:]
            return
        count += 1
        yield number, document


def _spanning_lines(data: bytes) -> list[tuple[int, Any]] | None:
    """Return the documents of a file, which may span lines; None if it is corrupt."""
    if len(data) > MAX_ACTION_BYTES:
        return None
    try:
        text = data.decode()
        numbered_documents: list[tuple[int, Any]] = []
        position, line, last_position = 0, 1, 0
        while True:
            while position < len(text) and text[position].isspace():
                position += 1
            if position == len(text):
                return numbered_documents
            line += text.count("\n", last_position, position)
            last_position = position
            document, position = _DECODER.raw_decode(text, position)
            check_text(text, document)
            numbered_documents.append((line, document))
    except (ValueError, RecursionError):
        return None


def _parse(text: str) -> Any:
    document = _DECODER.decode(text)
    check_text(text, document)
    return document


def check_text(source: str, document: Any) -> None:
    """Reject lone surrogates, which neither Arrow nor file names can encode.

    Args:
        source: the document as JSON.
        document: its value.

    Raises:
        UnicodeEncodeError: the document contains one.
    """
    if _SURROGATE.search(source):
        json.dumps(document, ensure_ascii=False).encode()


def json_text(value: Any) -> str:
    """Return a value as the log's JSON: compact, with non-ASCII characters unescaped.

    delta-spark does not escape them either, and readers built on arrow-rs (deltalake, DuckDB's ``delta``, polars)
    decode the escaped surrogate pairs from U+20000 on wrongly.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def without_infinities(document: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN, infinities and numbers beyond a double's range, which occur in metrics, by null."""
    waiting: list[dict[str, Any] | list[Any]] = [document]
    while waiting:
        container: Any = waiting.pop()
        for key, item in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(item, dict | list):
                waiting.append(item)
            elif isinstance(item, _Number):
                container[key] = float(item) if math.isfinite(item) else None
    return document


def shown(value: Any) -> str:
    """Return a value for an error message, shortened."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def required_path(value: Mapping[str, Any]) -> str:
    """Return the required field ``path``."""
    path = required_text(value, "path")
    if not path:
        raise MalformedActionError("has an empty path")
    return path


def required_text(value: Mapping[str, Any], name: str) -> str:
    """Return a required string field."""
    found = read_text(value, name)
    if found is None:
        raise MalformedActionError(f"has no '{name}'")
    return found


def read_text(value: Mapping[str, Any], name: str) -> str | None:
    """Return a string field, or None if absent."""
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise MalformedActionError(f"has {shown(found)} as '{name}', which is not a string")
    return found


def required_integer(value: Mapping[str, Any], name: str) -> int:
    """Return a required 64-bit integer field."""
    found = read_integer(value, name)
    if found is None:
        raise MalformedActionError(f"has no '{name}'")
    return found


def read_integer(value: Mapping[str, Any], name: str) -> int | None:
    """Return a 64-bit integer field, or None if absent."""
    found = value.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not -_INT64 <= found < _INT64:
        raise MalformedActionError(f"has {shown(found)} as '{name}', which is not a 64-bit integer")
    return found


def read_boolean(value: Mapping[str, Any], name: str) -> bool | None:
    """Return a Boolean field, or None if absent."""
    found = value.get(name)
    if found is not None and not isinstance(found, bool):
        raise MalformedActionError(f"has {shown(found)} as '{name}', which is neither true nor false")
    return found


def read_object(value: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return an object field, or None if absent."""
    found = value.get(name)
    if found is not None and not isinstance(found, dict):
        raise MalformedActionError(f"has {shown(found)} as '{name}', which is not an object")
    return found


def read_map(value: Mapping[str, Any], name: str) -> dict[str, str | None] | None:
    """Return a field that maps strings to strings; other scalars are converted as written, as in delta-spark."""
    found = read_object(value, name)
    if found is None:
        return None
    texts: dict[str, str | None] = {}
    for key, item in found.items():
        if item is None or isinstance(item, str):
            texts[key] = item
        elif isinstance(item, _Number) and item.text[-1].isdigit():
            texts[key] = item.text
        elif isinstance(item, int) or (isinstance(item, float) and math.isfinite(item)):
            texts[key] = json.dumps(item)
        else:
            raise MalformedActionError(f"has {shown(item)} in '{name}', which is not a string")
    return texts


def read_texts(value: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """Return a field that is a list of strings, or None if absent."""
    found = value.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise MalformedActionError(f"has {shown(found)} as '{name}', which is not a list of strings")
    return tuple(found)


def read_descriptor(value: Any) -> Descriptor | None:
    """Return an action's deletion vector; None if absent, null, empty or without a storage type."""
    if value is None or value == "" or (isinstance(value, dict) and not value.get("storageType")):
        return None
    if not isinstance(value, dict):
        raise MalformedActionError(f"has {shown(value)} as its deletion vector, which is not an object")
    try:
        return Descriptor.from_json(value)
    except CorruptDeletionVector as error:
        raise MalformedActionError(f"has a deletion vector that cannot be used: {error.message}") from error


def present(**values: Any) -> dict[str, Any]:
    """Return an object without the None values: the log omits absent fields."""
    return {name: value for name, value in values.items() if value is not None}
