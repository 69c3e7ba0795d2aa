"""Whether a constant can be cast to a column's type, by the rules of ANSI SQL, Spark's default.

Doubtful cases pass; the engine decides when it evaluates the cast.
"""

import re
from collections.abc import Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from sqlglot import exp

from delvec_kernel.expressions.expression_kinds import (
    INTEGER_TYPES,
    NUMERIC_KINDS,
    TEMPORAL_TYPES,
    kind_of,
    kind_of_type,
)
from delvec_kernel.schema.types import (
    INTEGER_BITS,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
)
from delvec_kernel.statistics.literal_bounds import DateTimeLiteral, literal_value

__all__ = ["is_impossible"]

_ALL: Final = NUMERIC_KINDS | TEMPORAL_TYPES | {"string", "boolean", "binary"}
_CASTABLE_TO: Final[Mapping[str, frozenset[str]]] = {
    "string": _ALL,
    "boolean": NUMERIC_KINDS | {"boolean", "string"},
    **dict.fromkeys(NUMERIC_KINDS, NUMERIC_KINDS | {"boolean", "string", "timestamp"}),
    "date": TEMPORAL_TYPES | {"string"},
    "timestamp": TEMPORAL_TYPES | NUMERIC_KINDS | {"string"},
    "timestamp_ntz": TEMPORAL_TYPES | {"string"},
    "binary": frozenset({"binary", "string"}),
}
"""Kinds to which a valid value of a kind can be cast; other kinds are not checked."""
_TYPES: Final[Mapping[exp.DType, DataType]] = {
    exp.DType.BOOLEAN: PrimitiveType("boolean"),
    exp.DType.TINYINT: PrimitiveType("byte"),
    exp.DType.SMALLINT: PrimitiveType("short"),
    exp.DType.INT: PrimitiveType("integer"),
    exp.DType.BIGINT: PrimitiveType("long"),
    exp.DType.FLOAT: PrimitiveType("float"),
    exp.DType.DOUBLE: PrimitiveType("double"),
}

_NO_COLUMNS: Final = StructType(())
_BLANK: Final = "".join(map(chr, range(0x21))) + "\x7f"
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_REAL: Final = re.compile(
    rf"{_NUMBER.pattern}[dDfF]?|[+-]?(?:nan|inf|infinity)|[+-]?0x.*", re.ASCII | re.IGNORECASE
)
_BOOLEANS: Final = frozenset({"t", "true", "y", "yes", "1", "f", "false", "n", "no", "0"})
_DATE: Final = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIME: Final = re.compile(r"T?\d{1,2}:.*", re.ASCII | re.DOTALL)
_MAX_LENGTH: Final = 400
_NUMBERS: Final = Context(prec=2 * _MAX_LENGTH)


_SPECIAL = ("epoch", "now", "today", "tomorrow", "yesterday")


def is_impossible(node: exp.Expr, kind: DataType) -> bool:
    """Whether an expression without columns certainly cannot be cast to a type.

    Args:
        node: resolved, as in a :class:`~delvec_kernel.expressions.predicate.Predicate`.
        kind: the target type.
    """
    while isinstance(node, exp.Paren):
        node = node.this
    if type(node) is exp.Cast and node.to.this in _TYPES and is_impossible(node.this, _TYPES[node.to.this]):
        return True
    value = literal_value(node)
    if isinstance(kind, ArrayType | MapType | StructType):
        return value is not None
    given = value[0] if isinstance(value, DateTimeLiteral) else kind_of(node, _NO_COLUMNS)
    wanted = kind_of_type(kind)
    if wanted in _ALL and given is not None and wanted not in _CASTABLE_TO.get(given, _ALL):
        return True
    return not _is_valid(value, kind)


def _is_valid(value: Any, kind: DataType) -> bool:
    """Whether a literal's value is valid for a type; True for other expressions."""
    if isinstance(value, DateTimeLiteral):
        text = value[1].strip(_BLANK)
        # Typed literals accept these words, casts of strings do not.
        return text.lower().startswith(_SPECIAL) or _may_be_date_time(text, alone=value[0] == "date")
    if isinstance(value, str):
        return len(value) > _MAX_LENGTH or _reads_as(value.strip(_BLANK), kind)
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return not is_number or _fits(value, kind)


def _reads_as(text: str, kind: DataType) -> bool:
    if isinstance(kind, DecimalType):
        return _NUMBER.fullmatch(text) is not None and _fits(Decimal(text), kind)
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name in INTEGER_BITS:
        return _INTEGER.fullmatch(text) is not None and _fits(int(text), kind)
    if name in ("float", "double"):
        return _REAL.fullmatch(text) is not None
    if name == "boolean":
        return text.lower() in _BOOLEANS
    if name in TEMPORAL_TYPES:
        return _may_be_date_time(text, alone=name == "date")
    return True


def _may_be_date_time(text: str, *, alone: bool = False) -> bool:
    """Whether a text may be a date or a time; ``alone`` if a time without a date is invalid."""
    found = _DATE.fullmatch(text)
    if found is None:
        return not alone and _TIME.fullmatch(text) is not None
    year, month, day = (int(part or 1) for part in found.groups())
    try:
        date(2000 + year % 400, month, day)  # the Gregorian calendar repeats every 400 years
    except ValueError:
        return False
    return True


def _fits(value: Any, kind: DataType) -> bool:
    """Whether a number, truncated to the type's scale, is in its range."""
    if isinstance(kind, DecimalType):
        try:
            scaled = Decimal(value).scaleb(kind.scale, _NUMBERS).to_integral_value(ROUND_HALF_UP)
        except ArithmeticError:
            return False
        limit = 10**kind.precision
        # Comparison is exact, whereas abs() rounds to the precision of the decimal context.
        return bool(-limit < scaled < limit)
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name not in INTEGER_TYPES:
        return True
    limit = 1 << INTEGER_BITS[name] - 1
    return bool(-limit - 1 < value < limit)
