"""Times of time travel that are written as expressions without columns: ``current_timestamp() - INTERVAL 1 DAY``.

Tested in `tests/integration/client/sql/test_time_travel.py`.
"""

import calendar
from datetime import UTC, datetime, timedelta
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from delvec_kernel.expressions.spark_dialect import SPARK

__all__ = ["constant_time", "parse_constant_time"]

_SECONDS: Final = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}
_MONTHS: Final = {"MONTH": 1, "YEAR": 12}
_NOW: Final = frozenset({"now", "current_timestamp", "localtimestamp"})


def parse_constant_time(text: str) -> str | None:
    """Return the time that an expression is, as text; None if it is no constant time."""
    try:
        value = sqlglot.parse_one(text, dialect=SPARK)
    except (SqlglotError, ValueError, RecursionError):
        return None
    return constant_time(value)


def constant_time(value: exp.Expr) -> str | None:
    """Return the time that an expression is, as text that time travel takes, UTC; None if it is no constant time."""
    if isinstance(value, exp.Literal):
        return value.name if value.is_string else None
    if isinstance(value, exp.Cast) and isinstance(value.this, exp.Literal) and value.this.is_string:
        return value.this.name if value.to.is_type(*exp.DataType.TEMPORAL_TYPES) else None
    moment = _moment(value)
    return None if moment is None else moment.isoformat()


def _moment(value: exp.Expr) -> datetime | None:
    match value:
        case exp.Paren():
            return _moment(value.this)
        case exp.CurrentTimestamp():
            return datetime.now(UTC)
        case exp.CurrentDate():
            return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        case exp.Anonymous() if value.name.lower() in _NOW and not value.expressions:
            return datetime.now(UTC)
        case exp.Add() | exp.Sub() if isinstance(value.expression, exp.Interval):
            return _moved(_moment(value.this), value.expression, -1 if isinstance(value, exp.Sub) else 1)
    return None


def _moved(moment: datetime | None, interval: exp.Interval, sign: int) -> datetime | None:
    count, unit = interval.this, interval.text("unit").upper().removesuffix("S")
    if moment is None or not isinstance(count, exp.Literal) or not count.name.isdecimal():
        return None
    number = sign * int(count.name)
    try:
        if unit in _SECONDS:
            return moment + timedelta(seconds=number * _SECONDS[unit])
        return _months_later(moment, number * _MONTHS[unit]) if unit in _MONTHS else None
    except (OverflowError, ValueError):
        return None


def _months_later(moment: datetime, months: int) -> datetime:
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)
