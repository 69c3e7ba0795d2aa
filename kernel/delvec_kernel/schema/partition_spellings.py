"""Spellings of partition values that delta-spark also reads, because it casts the text as SQL does.

Other writers leave dates such as ``2020-1-2``, and texts with spaces. Spellings with a plain meaning are changed to those
that Arrow reads. The others are left alone, to be refused: those for which the cast drops digits (``1.5`` as an integer), and
those that do not say all (``03:04``, which is today; ``CET``). Of these delta-spark makes NULL, or what the cast says.
"""

import re
from typing import Final

from delvec_kernel.schema.types import DataType, PrimitiveType

__all__ = ["respelled"]

_TRIMMED: Final = "".join(map(chr, [*range(0x21), 0x7F]))
_DAY: Final = r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:%s)?)?)?"
_DATE: Final = re.compile(_DAY % r"[ T].*", re.ASCII | re.DOTALL)
_OFFSET: Final = r"([+-])(?:(\d{1,2})(?::(\d{1,2}))?|(\d\d)(\d\d))"
_ZONE: Final = rf"\s?(?:(Z|UTC|GMT)|(?:UTC|GMT)?{_OFFSET})"
_CLOCK: Final = rf"[ T](\d{{1,2}})(?::(\d{{1,2}})(?::(\d{{1,2}})(?:\.(\d*))?(?:{_ZONE})?)?)?"
_TIMESTAMP: Final = re.compile(_DAY % _CLOCK, re.ASCII)
_BOOLEANS: Final = {"t": "true", "y": "true", "yes": "true", "f": "false", "n": "false", "no": "false"}
_FLOAT: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]", re.ASCII)
_MICROSECOND_DIGITS: Final = 6


def respelled(text: str, kind: DataType) -> str:
    """Return the text of a partition value as Arrow reads it; unchanged if it has no plain meaning.

    Fractions of a second beyond microseconds are dropped, as by every reader.
    """
    content = text.strip(_TRIMMED)
    match kind.name if isinstance(kind, PrimitiveType) else "decimal":
        case "string" | "binary":
            plain = text
        case "date":
            day = _DATE.fullmatch(content)
            plain = _date(*day.groups()) if day else text
        case "timestamp" | "timestamp_ntz":
            moment = _TIMESTAMP.fullmatch(content)
            plain = _timestamp(*moment.groups()) if moment else text
        case "boolean":
            plain = _BOOLEANS.get(content.lower(), content)
        case "float" | "double":
            number = _FLOAT.fullmatch(content)
            plain = number[1] if number else content
        case "decimal":
            plain = content
        case _:
            plain = content.removeprefix("+") if content[1:2].isdigit() else content
    return plain


def _date(year: str, month: str | None, day: str | None) -> str:
    return f"{year}-{month or 1:0>2}-{day or 1:0>2}"


def _timestamp(  # noqa: PLR0917 - the groups of the pattern
    year: str,
    month: str | None,
    day: str | None,
    hour: str | None,
    minute: str | None,
    second: str | None,
    fraction: str | None,
    utc: str | None,
    sign: str | None,
    hours: str | None,
    minutes: str | None,
    two_hours: str | None,
    two_minutes: str | None,
) -> str:
    clock = f"{hour or 0:0>2}:{minute or 0:0>2}:{second or 0:0>2}"
    digits = f".{fraction[:_MICROSECOND_DIGITS]}" if fraction else ""
    offset = f"{sign}{hours or two_hours:0>2}:{minutes or two_minutes or 0:0>2}" if sign else ""
    return f"{_date(year, month, day)} {clock}{digits}{'Z' if utc else offset}"
