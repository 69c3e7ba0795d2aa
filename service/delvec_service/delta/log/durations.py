"""Durations as table properties give them: ``interval 30 days``, ``1 week 2 hours`` (Spark's interval text)."""

import re
from datetime import timedelta
from typing import Final

from delvec.protocol.errors import CorruptTable

__all__ = ["parse_duration"]

_MICROSECONDS: Final = {
    "week": 7 * 86_400_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1000,
    "microsecond": 1,
}
_CALENDAR: Final = ("month", "year")
_PART: Final = re.compile(r"\s*([+-]?)\s*(\d{1,15})(?:\.(\d{0,9}))?\s+([a-z]+)(?=\s|$)")
_MAX: Final = timedelta(days=3_650_000)


def parse_duration(text: str, name: str) -> timedelta:
    """Return the duration that a table property gives.

    Args:
        text: numbers with units from microsecond to week, ``interval`` before them or not, in any case.
        name: of the property, for errors.

    Raises:
        CorruptTable: it is no such text, it is negative, or it counts months or years, which differ in length.
    """
    rest = text.strip().lower()
    rest = rest.removeprefix("interval").lstrip() if rest.startswith("interval ") else rest
    micros, position = 0, 0
    while found := _PART.match(rest, position):
        sign, whole, fraction, unit = found.groups()
        unit = unit.removesuffix("s")
        if unit in _CALENDAR:
            raise _refused(text, name, "counts months or years, which are not all equally long")
        if unit not in _MICROSECONDS or (fraction is not None and unit != "second"):
            raise _refused(text, name, "is no duration")
        part = int(whole) * _MICROSECONDS[unit] + (int(fraction.ljust(9, "0")) // 1000 if fraction else 0)
        micros += -part if sign == "-" else part
        position = found.end()
    if not position or rest[position:].strip():
        raise _refused(text, name, "is no duration")
    if micros < 0:
        raise _refused(text, name, "is negative")
    return min(timedelta(microseconds=min(micros, 2**62)), _MAX)


def _refused(text: str, name: str, problem: str) -> CorruptTable:
    return CorruptTable(
        f"The table property {name} is '{text[:80]}', which {problem}; set it to text like 'interval 30 days'.",
        property=name,
        value=text[:80],
    )
