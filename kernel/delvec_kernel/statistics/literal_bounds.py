"""Bounds of a predicate literal in the type of the column it is compared with.

Tested in `tests/unit/kernel/data_skipping/test_skipping.py`.
"""

import datetime as dt
import math
import re
import struct
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from delvec_kernel.expressions.expression_kinds import INTEGER_TYPES
from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType

__all__ = [
    "DECIMAL_DIGITS",
    "ZONE_MARGIN",
    "DateTimeLiteral",
    "in_equals_comparisons",
    "literal_bounds",
    "literal_value",
]

DECIMAL_DIGITS: Final = 38
ZONE_MARGIN: Final = 18 * 3600 * 1_000_000
"""Microseconds: the largest UTC offset (java.time.ZoneOffset allows 18 hours)."""

_INTEGER_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_MINIMUMS: Final = {-(1 << bits - 1) for bits in _INTEGER_BITS.values()}
_EXACT_DOUBLE: Final = 2**53
_INTEGER: Final = re.compile(r"\s*([+-]?\d{1,19})\s*")
_CANONICAL_INTEGER: Final = re.compile(r"0|-?[1-9]\d*")
_CANONICAL_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_DATE: Final = re.compile(r"\s*(\d{4})-(\d{1,2})-(\d{1,2})\s*")
_TIMESTAMP: Final = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6})\d*)?)?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{2}:\d{2})?\s*"
)
_INTEGER_CASTS: Final = {
    exp.DType.TINYINT: "byte",
    exp.DType.SMALLINT: "short",
    exp.DType.INT: "integer",
    exp.DType.BIGINT: "long",
}
_DATE_TIME_CASTS: Final = {
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
}
_NUMBERS: Final = Context(prec=400)
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the caller distinguishes local times from instants


def literal_bounds(  # noqa: PLR0911 - one answer per type
    node: exp.Expr, column: DataType
) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return the (low, high) bounds of a literal after Spark casts it to the column's type.

    The two are equal where the cast is exact. Numbers are int64, float64 or decimal128(38, scale); dates are days,
    timestamps microseconds and Booleans 0 or 1, all as int64; text is string.

    Returns:
        None if ``node`` is not a literal, or if the comparison depends on session settings.
    """
    value = literal_value(node)
    if value is None:
        return None
    if isinstance(column, DecimalType):
        return _for_decimal(value, column.scale)
    if not isinstance(column, PrimitiveType):
        return None
    name = column.name
    if name in INTEGER_TYPES:
        return _for_integer(value, _INTEGER_BITS[name])
    if name in {"float", "double"}:
        return _for_double(value, single=name == "float")
    if name == "string":
        return _both(value, pa.string()) if isinstance(value, str) else None
    if name == "boolean":
        return _both(int(value), pa.int64()) if isinstance(value, bool) else None
    if name == "date":
        return _for_date(value)
    if name in {"timestamp", "timestamp_ntz"}:
        return _for_timestamp(value, is_zoned=name == "timestamp")
    return None


def in_equals_comparisons(members: Sequence[exp.Expr], column: DataType) -> bool:
    """Whether IN over these members equals one ``=`` comparison per member; IN coerces all members to a common type.

    With strings among the members that type is string, unless ANSI is on. The two then agree only for strings
    in Spark's canonical format of the column's type.
    """
    values = [literal_value(each) for each in members]
    kinds = {each[0] if isinstance(each, DateTimeLiteral) else type(each) for each in values}
    name = column.name if isinstance(column, PrimitiveType) else ""
    if name == "string" or str not in kinds:
        return len(kinds) == 1 or (kinds == {int, Decimal} and name != "float")
    if name in INTEGER_TYPES and kinds <= {int, str}:
        return all(isinstance(each, int) or _CANONICAL_INTEGER.fullmatch(each) for each in values)
    if name == "date" and kinds <= {"date", str}:
        texts = (each[1] if isinstance(each, DateTimeLiteral) else each for each in values)
        return all(_CANONICAL_DATE.fullmatch(text) for text in texts)
    return False


class DateTimeLiteral(tuple[str, str]):
    """A typed literal: ``date``, ``timestamp`` or ``timestamp_ntz``, and its text."""

    __slots__ = ()


def literal_value(node: exp.Expr) -> Any:
    """Return a bool, int, Decimal, float, str or :class:`DateTimeLiteral`; None if the node is not a literal."""
    if isinstance(node, exp.Paren):
        return literal_value(node.this)
    if isinstance(node, exp.Neg):
        return _negated(literal_value(node.this))
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        return node.name if node.is_string else _number(node.name)
    if type(node) is exp.Cast:
        return _converted(literal_value(node.this), node.to)
    return None


def _negated(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value.copy_negate()  # unary minus rounds to the precision of the decimal context
    if isinstance(value, int) and value in _MINIMUMS:
        return None  # may be the minimum of its type, whose negation overflows
    return -value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _converted(value: Any, to: exp.DataType) -> Any:
    """Return the result of casting a literal, for typed and suffixed literals, which no session setting affects."""
    if isinstance(value, str):
        if to.this in _DATE_TIME_CASTS:
            return DateTimeLiteral((_DATE_TIME_CASTS[to.this], value))
        # 1.5BD arrives as CAST('1.5' AS DECIMAL(2, 1)).
        value = _number(value) if to.this == exp.DType.DECIMAL else None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if to.this in _INTEGER_CASTS and isinstance(value, int):
        bits = _INTEGER_BITS[_INTEGER_CASTS[to.this]]
        return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None
    if to.this == exp.DType.DOUBLE:
        return float(value)
    fits = to.this == exp.DType.DECIMAL and to.expressions and _fits(value, to)
    return Decimal(value) if fits else None


def _fits(value: Any, to: exp.DataType) -> bool:
    precision = int(to.expressions[0].name)
    scale = int(to.expressions[1].name) if len(to.expressions) > 1 else 0
    scaled = Decimal(value).scaleb(scale, _NUMBERS)
    return bool(scaled == scaled.to_integral_value() and abs(scaled) < 10**precision)


def _number(text: str) -> int | float | Decimal | None:
    try:
        if "e" in text.lower():
            return float(text)
        if "." in text:
            return Decimal(text)
        # int() rejects strings of thousands of digits, and no column holds such a number.
        return int(text) if len(text) <= 2 * DECIMAL_DIGITS else None
    except (ValueError, InvalidOperation):
        return None


def _both(value: Any, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    scalar = pa.scalar(value, kind)
    return scalar, scalar


def _for_integer(value: Any, bits: int) -> tuple[pa.Scalar, pa.Scalar] | None:
    limit = 1 << bits - 1
    if isinstance(value, str):
        # An integer in the column's range casts to the same value with and without ANSI.
        match = _INTEGER.fullmatch(value)
        if match is None or not -limit <= int(match[1]) < limit:
            return None
        return _both(int(match[1]), pa.int64())
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, float) and not abs(value) < _EXACT_DOUBLE:
        return None
    low, high = math.floor(value), math.ceil(value)
    if low < -(1 << 63) or high >= 1 << 63:
        return None
    return pa.scalar(low, pa.int64()), pa.scalar(high, pa.int64())


def _for_double(value: Any, *, single: bool) -> tuple[pa.Scalar, pa.Scalar] | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    # ANSI decides whether an integer is compared with a FLOAT column as FLOAT or as DOUBLE.
    if single and isinstance(value, int) and not _is_single(number, value):
        return None
    return _both(number, pa.float64())


def _is_single(number: float, value: int) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", number))[0] == value)
    except OverflowError:
        return False


def _for_decimal(value: Any, scale: int) -> tuple[pa.Scalar, pa.Scalar] | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    step = Decimal(1).scaleb(-scale)
    try:
        low = Decimal(value).quantize(step, ROUND_FLOOR, _NUMBERS)
        high = Decimal(value).quantize(step, ROUND_CEILING, _NUMBERS)
        kind = pa.decimal128(DECIMAL_DIGITS, scale)
        return pa.scalar(low, kind), pa.scalar(high, kind)
    except (InvalidOperation, pa.ArrowInvalid):
        return None


def _for_date(value: Any) -> tuple[pa.Scalar, pa.Scalar] | None:
    if isinstance(value, DateTimeLiteral):
        if value[0] != "date":
            return None
        value = value[1]
    match = _DATE.fullmatch(value) if isinstance(value, str) else None
    micros = _local_micros(match.groups()) if match else None
    return None if micros is None else _both(micros // 86_400_000_000, pa.int64())


def _for_timestamp(value: Any, *, is_zoned: bool) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return a timestamp's bounds; text without a zone gets a margin on zoned columns, as the session's zone is unknown."""
    kind, text = value if isinstance(value, DateTimeLiteral) else ("", value)
    match = (_DATE if kind == "date" else _TIMESTAMP).fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    groups: tuple[str | None, ...] = match.groups()
    local, zone = (groups, None) if kind == "date" else (groups[:-1], groups[-1])
    micros = _local_micros(local)
    if micros is None:
        return None
    margin = ZONE_MARGIN
    if is_zoned and kind != "timestamp_ntz" and zone is not None:
        micros -= _offset_micros(zone)
        margin = 0
    elif not is_zoned and kind in {"timestamp_ntz", "date", ""}:
        if zone is not None:
            return None
        margin = 0
    elif not is_zoned:
        if zone is not None:
            micros -= _offset_micros(zone)
        margin = 2 * ZONE_MARGIN
    elif zone is not None:
        return None
    return pa.scalar(micros - margin, pa.int64()), pa.scalar(micros + margin, pa.int64())


def _offset_micros(zone: str) -> int:
    if zone in {"Z", "UTC", "GMT"}:
        return 0
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 60 + int(zone[4:6])) * 60_000_000


def _local_micros(groups: tuple[str | None, ...]) -> int | None:
    padding: tuple[str | None, ...] = (None,) * (7 - len(groups))
    year, month, day, hour, minute, second, fraction = groups + padding
    try:
        local_time = dt.datetime(  # noqa: DTZ001 - see _EPOCH
            int(year or 0),
            int(month or 0),
            int(day or 0),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0").ljust(6, "0")),
        )
    except ValueError:
        return None
    return (local_time - _EPOCH) // dt.timedelta(microseconds=1)
