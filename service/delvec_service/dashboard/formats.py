"""Formats numbers and times for people.

Tested in `tests/integration/service/dashboard/test_formats.py`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from delvec_errors import texts
from delvec_kernel.table_properties import byte_size_text
from delvec_maintenance.health.health_findings import score_band

__all__ = [
    "FILTERS",
    "age",
    "columns",
    "count",
    "counted",
    "did",
    "instant",
    "measured",
    "metrics",
    "parameters",
    "rate",
    "short",
    "size",
    "span",
]

_NO_VALUE: Final = "-"
_TENTHS: Final = 10
_TITLES: Final = {
    "forget_table": "Drop table",
    "system.data-compaction": "Compaction",
    "system.dv-purge": "Purge",
    "system.dv-compaction": "Compaction of deletion vectors",
    "system.checkpoint": "Checkpoint",
    "system.vacuum": "VACUUM",
    "ConcurrentWriteException": "Another commit took the version",
    "MetadataChangedException": "The table's metadata changed",
    "ProtocolChangedException": "The table's protocol changed",
    "ConcurrentAppendException": "Rows were added that it should have read",
    "ConcurrentDeleteReadException": "A file that it had read was removed",
    "ConcurrentDeleteDeleteException": "Both removed or changed the same rows or files",
    "ConcurrentTransactionException": "Both were the same step of an application",
}
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD_ENDS: Final = re.compile(r"[_-]|(?<=[a-z0-9])(?=[A-Z])")
_SPANS: Final = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "min"))


def size(value: float | None) -> str:
    """Return a number of bytes with a unit."""
    return _NO_VALUE if value is None else byte_size_text(value)


def count(value: float | None) -> str:
    """Return a number with separators."""
    return _NO_VALUE if value is None else f"{value:,.0f}"


def rate(value: float) -> str:
    """Return how often something happens; a tenth matters below ten."""
    if 0 < value < 1 / _TENTHS:
        return "< 0.1"
    return f"{value:.1f}".replace(".0", "") if value < _TENTHS else count(value)


def counted(value: float | None, noun: str) -> str:
    """Return a number of things, such as ``1 file`` or ``2,000 files``."""
    return f"{_NO_VALUE} {noun}s" if value is None else texts.counted(value, noun)


def measured(value: float | None, unit: str) -> str:
    """Return a number of a table's health."""
    return {"bytes": size, "percent": percent, "seconds": span}.get(unit, count)(value)


def percent(value: float | None) -> str:
    """Return a share as a percentage."""
    return _NO_VALUE if value is None else f"{value * 100:.1f} %"


def moment(value: str | float | None) -> str:
    """Return a time in UTC, from ISO 8601 or milliseconds."""
    if value is None:
        return _NO_VALUE
    try:
        return f"{instant(value):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return str(value)[:40]


def age(value: str | float | None) -> str:
    """Return how long ago a time was, in words."""
    if value is None:
        return _NO_VALUE
    try:
        seconds = (datetime.now(UTC) - instant(value)).total_seconds()
    except (ValueError, OverflowError, OSError):
        return str(value)[:40]
    return f"in {span(-seconds)}" if seconds <= -1 else "just now" if seconds < 1 else f"{span(seconds)} ago"


def span(value: float | None) -> str:
    """Return seconds in the largest unit that fits; a tenth of it matters below ten."""
    if value is None:
        return _NO_VALUE
    for seconds, unit in (*_SPANS, (1, "s")):
        if value >= seconds:
            number = value / seconds
            return f"{number:.1f} {unit}".replace(".0", "") if number < _TENTHS else f"{number:,.0f} {unit}"
    return "0 s" if value <= 0 else "< 1 s"


def whole(score: float | None) -> str:
    """Return a score, rounded down so that an insufficient one does not look sufficient."""
    return _NO_VALUE if score is None else f"{int(score)}"


def band(score: float | None) -> str:
    """Return the label of a score."""
    return "unknown" if score is None else score_band(score)


def title(name: str) -> str:
    """Return a name of the service or of Delta, such as ``grant_role`` or ``numOutputRows``, in words."""
    if name in _TITLES:
        return _TITLES[name]
    words = _WORD_ENDS.sub(" ", name.removeprefix("num") if name[3:4].isupper() else name)
    return words.capitalize()


def did(operation: str, change: str | None) -> str:
    """Return an operation and what it changed: ``set_policy`` and ``policy nightly`` as ``Set policy: nightly``."""
    words = title(operation)
    return f"{words}: {change.removeprefix(words.rpartition(' ')[2] + ' ')}" if change else words


def short(identifier: str) -> str:
    """Return the first digits of a UUID, which tell it from others on a page; other identifiers as they are."""
    return identifier[:8] if _UUID.fullmatch(identifier) else identifier


def parameters(values: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return the parameters of a commit in words: lists, which Delta writes as JSON, without brackets; no empty ones."""
    pairs = []
    for name, value in (values or {}).items():
        text = "" if value is None else str(value)
        with suppress(ValueError, RecursionError):
            parsed = json.loads(text)
            if isinstance(parsed, list) and not any(isinstance(one, list | dict) for one in parsed):
                text = ", ".join(map(str, parsed))
        if text not in ("", "{}"):
            pairs.append((title(name), text))
    return pairs


def metrics(values: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return the metrics of a commit, which Spark writes as text, with units; zeros say nothing and are left out."""
    pairs = []
    for name, value in (values or {}).items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            pairs.append((title(name), str(value)))
            continue
        if not number:
            continue
        if name.endswith("TimeMs"):
            pairs.append((title(name.removesuffix("Ms")), span(number / 1000)))
        elif name.endswith(("Bytes", "FileSize")):
            pairs.append((title(name), size(number)))
        else:
            pairs.append((title(name), count(number)))
    return pairs


def instant(value: str | float) -> datetime:
    """Return a time from ISO 8601 or milliseconds."""
    if isinstance(value, str):
        return datetime.fromisoformat(value).astimezone(UTC)
    return datetime.fromtimestamp(value / 1000, UTC)


FILTERS: Final = {
    "size": size,
    "count": count,
    "counted": counted,
    "measured": measured,
    "percent": percent,
    "moment": moment,
    "span": span,
    "age": age,
    "title": title,
    "did": did,
    "short": short,
    "parameters": parameters,
    "metrics": metrics,
    "minute": lambda value: f"{instant(value):%Y-%m-%d %H:%M} UTC",
    "rate": rate,
    "iso": lambda value: f"{instant(value):%Y-%m-%dT%H:%M:%SZ}",
    "band": band,
    "whole": whole,
}

_NESTED_COLUMNS: Final = 2000


def columns(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the columns of a schema, with the fields of structs below them: name, type, depth, nullable, comment."""
    found: list[dict[str, Any]] = []
    _add_columns(found, schema["fields"], 0)
    return found


def _add_columns(
    table_columns: list[dict[str, Any]], fields: Sequence[Mapping[str, Any]], depth: int
) -> None:
    for field in fields:
        if len(table_columns) >= _NESTED_COLUMNS:
            return
        comment = (field.get("metadata") or {}).get("comment")
        table_columns.append(
            {
                "name": field["name"],
                "type": _type_text(field["type"]),
                "depth": min(depth, 6),
                "nullable": field["nullable"],
                "comment": "" if comment is None else comment,
            }
        )
        _add_columns(table_columns, _inner_fields(field["type"]), depth + 1)


def _inner_fields(kind: Any) -> Sequence[Mapping[str, Any]]:
    """Return the fields that have rows of their own: those of a struct, and key and value of a map that has structs."""
    while not isinstance(kind, str) and kind["type"] == "array":
        kind = kind["elementType"]
    if isinstance(kind, str):
        return ()
    if kind["type"] == "struct":
        fields: Sequence[Mapping[str, Any]] = kind["fields"]
        return fields
    parts = (("key", kind["keyType"], False), ("value", kind["valueType"], kind["valueContainsNull"]))
    return [
        {"name": name, "type": part, "nullable": nullable}
        for name, part, nullable in parts
        if _inner_fields(part)
    ]


def _type_text(kind: Any) -> str:
    """Return a type in Spark's notation; the fields of a struct have their own rows."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "array":
            return f"array<{_type_text(kind['elementType'])}>"
        case "map":
            return f"map<{_type_text(kind['keyType'])}, {_type_text(kind['valueType'])}>"
    return "struct"
