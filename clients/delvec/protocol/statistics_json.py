"""The JSON of statistics: numbers that keep all their digits, and bounds in the types that JSON lacks.

PROTOCOL.md, "Per-file Statistics".
"""

import json
from datetime import date, datetime, timedelta
from math import isfinite
from typing import Any, Final

from delvec.protocol.errors import CorruptLog
from delvec.protocol.types import DataType, PrimitiveType

__all__ = ["MAX_STRING", "Number", "bound", "dump", "load", "with_plain_text"]

MAX_STRING: Final = 32
"""Code points of a string bound; a longer maximum has one more, greater than what was cut off."""

_LAST_ASCII: Final = "\x7f"
_LAST_CHARACTER: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - zones are told apart by the column's type
_EPOCH_DAY: Final = date(1970, 1, 1)


class Number(str):
    """A JSON number as it is written: a float would round decimals and long integers."""

    __slots__ = ()


def load(stats: str) -> dict[str, Any]:
    """Parse the statistics of a file; numbers become :class:`Number`.

    Raises:
        CorruptLog: they are no JSON object.
    """
    try:
        found = json.loads(stats, parse_float=Number, parse_int=Number, parse_constant=Number)
    except (ValueError, RecursionError) as error:
        raise CorruptLog(f"the log has statistics that are not JSON: {stats[:200]!r}") from error
    if not isinstance(found, dict):
        raise CorruptLog(f"the log has statistics that are not a JSON object: {stats[:200]!r}")
    return found


def dump(value: Any) -> str:
    """Return the JSON of what :func:`load` gives; characters stand as themselves."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{dump(key)}:{dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def with_plain_text(stats: str | None) -> str | None:
    """Return statistics with characters in place of their escapes, which readers built on arrow-rs decode wrongly.

    What is no statistics, or escapes half of a surrogate pair, stays as it is.
    """
    if stats is None or "\\u" not in stats:
        return stats
    try:
        plain = dump(load(stats))
        plain.encode()
    except (CorruptLog, UnicodeEncodeError):
        return stats
    return plain


def bound(value: Any, kind: DataType, *, upper: bool) -> str | Number | None:
    """Return a column's least or greatest value as a bound in statistics, None where there is no way to write it.

    Args:
        value: dates are days and timestamps microseconds since the epoch, other types are Python's.
        kind: the column's.
        upper: strings and timestamps are shortened: a lower bound downwards, an upper one upwards.
    """
    name = kind.name if isinstance(kind, PrimitiveType) else "decimal"
    match name:
        case "decimal":
            return Number(f"{value:f}")
        case "string":
            return _string_above(value) if upper else value[:MAX_STRING]
        case "date":
            return _day(value)
        case "timestamp" | "timestamp_ntz":
            milliseconds = -(-value // 1000) if upper else value // 1000
            return _millisecond(milliseconds, "Z" if name == "timestamp" else "")
        case "float" | "double":
            # -0.0 and 0.0 are equal, but not to every reader.
            widest = value or (0.0 if upper else -0.0)
            return Number(repr(widest)) if isfinite(widest) else None
        case _:
            return Number(value)


def _string_above(text: str) -> str | None:
    """Return a short string that ``text`` is not above, None where that takes too many characters.

    Readers compare UTF-8 bytes, whose order is that of code points.
    """
    cut = MAX_STRING
    while cut < len(text) and text[cut] == _LAST_CHARACTER:
        cut += 1
    if cut > 2 * MAX_STRING:
        return None
    if cut >= len(text):
        return text
    return text[:cut] + (_LAST_ASCII if text[cut] < _LAST_ASCII else _LAST_CHARACTER)


def _day(days: int) -> str | None:
    try:
        return (_EPOCH_DAY + timedelta(days=days)).isoformat()
    except OverflowError:  # before the year 1 or after 9999
        return None


def _millisecond(milliseconds: int, zone: str) -> str | None:
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds") + zone
