"""Bounds of monotone expressions of a column: casts, dates of timestamps, prefixes.

The expression's bounds are its values at the column's bounds.

Tested in `tests/unit/kernel/data_skipping/test_skipping.py` and
`tests/unit/kernel/data_skipping/test_skipping_rows.py`.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from delvec_kernel.expressions.expression_kinds import CAST_TYPES
from delvec_kernel.schema.types import INTEGER_BITS, DataType, DecimalType, PrimitiveType
from delvec_kernel.statistics.bounds import Bounds
from delvec_kernel.statistics.literal_bounds import DECIMAL_DIGITS, ZONE_MARGIN

__all__ = ["DAY", "computed", "monotone_bounds"]

DAY: Final = 86_400_000_000
"""Microseconds."""

Typed: TypeAlias = tuple[Bounds, DataType]
_Column: TypeAlias = Callable[[exp.Expr], Typed | None]

_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_MAX_DAYS: Final = 10**8
"""Days from 1970 that fit in 64 bits as microseconds."""
_LENGTH_DIGITS: Final = 9
_TARGETS: Final = {cast: name for cast, name in CAST_TYPES.items() if name != "decimal"}


def monotone_bounds(node: exp.Expr, column: _Column) -> Typed | None:
    """Return the bounds of an expression over one column, and its type.

    Args:
        node: a column, or casts, ``to_date``, ``year``, ``left`` and ``substring`` from the start around one.
        column: returns bounds and type of a column; None for other expressions or if unknown.

    Returns:
        None for other expressions, or if the value may depend on session settings other than the time zone.
    """
    if isinstance(node, exp.Paren):
        return monotone_bounds(node.this, column)
    if type(node) is exp.Cast:
        inner = monotone_bounds(node.this, column)
        target = _target(node.to)
        return None if inner is None or target is None else _cast(inner, target)
    rule = _RULES.get(type(node))
    return column(node) if rule is None else rule(node, column)


def _date_of(node: exp.Expr, column: _Column) -> Typed | None:
    inner = None if node.args.get("format") else monotone_bounds(node.this, column)
    return None if inner is None else _to_date(inner)


def _year_of(node: exp.Expr, column: _Column) -> Typed | None:
    inner = monotone_bounds(node.this, column)
    return None if inner is None or inner[1] != PrimitiveType("date") else _year(inner[0])


def _prefix(node: exp.Expr, column: _Column) -> Typed | None:
    length = _prefix_length(node)
    inner = None if length is None else monotone_bounds(node.this, column)
    if inner is None or inner[1] != PrimitiveType("string"):
        return None
    return _mapped(inner[0], lambda text: pc.utf8_slice_codeunits(text, 0, length)), inner[1]


_RULES: Final[dict[type[exp.Expr], Callable[[exp.Expr, _Column], Typed | None]]] = {
    exp.TsOrDsToDate: _date_of,
    exp.Year: _year_of,
    exp.Left: _prefix,
    exp.Substring: _prefix,
}
"""The functions whose value rises with their argument."""


def _prefix_length(node: exp.Expr) -> int | None:
    start = node.args.get("start")
    if isinstance(node, exp.Substring) and not (isinstance(start, exp.Literal) and start.name in {"0", "1"}):
        return None
    length = node.args.get("length" if isinstance(node, exp.Substring) else "expression")
    if not isinstance(length, exp.Literal) or length.is_string or not length.name.isdecimal():
        return None
    return int(length.name) if len(length.name) <= _LENGTH_DIGITS and int(length.name) else None


def _target(to: exp.DataType) -> DataType | None:
    if to.this == exp.DType.DECIMAL:
        numbers = [int(each.name) for each in to.expressions] or [10, 0]
        precision, scale = (*numbers, 0)[:2]
        return DecimalType(precision, scale) if 0 <= scale <= precision <= DECIMAL_DIGITS else None
    name = _TARGETS.get(to.this)
    return None if name is None or to.expressions else PrimitiveType(name)


def _cast(inner: Typed, target: DataType) -> Typed | None:  # noqa: PLR0911 - one answer per pair of types
    """Cast if that can neither fail nor overflow, so that ANSI makes no difference."""
    bounds, source = inner
    if source == target:
        return inner
    if isinstance(target, DecimalType):
        return _to_decimal(inner, target)
    if not (isinstance(source, PrimitiveType) and isinstance(target, PrimitiveType)):
        return None
    old, new = source.name, target.name
    if old in INTEGER_BITS and new in INTEGER_BITS:
        return (bounds, target) if INTEGER_BITS[old] <= INTEGER_BITS[new] else None
    if new in {"float", "double"} and (old in INTEGER_BITS or old in {"float", "double"}):
        single = new == "float"
        return _mapped(bounds, lambda each: _floating(each, single=single)), target
    if new == "date":
        return _to_date(inner)
    if new in {"timestamp", "timestamp_ntz"} and old in {"date", "timestamp", "timestamp_ntz"}:
        if old == "date":
            bounds = _mapped(bounds, _midnight)
        margin = 0 if "timestamp" not in {old, new} else ZONE_MARGIN
        return _widened(bounds, margin), target
    return None


def _to_decimal(inner: Typed, target: DecimalType) -> Typed | None:
    bounds, source = inner
    if isinstance(source, DecimalType):
        whole, scale = source.precision - source.scale, source.scale
    elif isinstance(source, PrimitiveType) and source.name in _DIGITS:
        whole, scale = _DIGITS[source.name], 0
    else:
        return None
    if scale > target.scale or whole > target.precision - target.scale:
        return None
    kind = pa.decimal128(DECIMAL_DIGITS, target.scale)
    try:
        return _mapped(bounds, lambda each: each.cast(kind)), target
    except pa.ArrowInvalid:  # statistics out of range of the column's type
        return None


def _to_date(inner: Typed) -> Typed | None:
    bounds, source = inner
    name = source.name if isinstance(source, PrimitiveType) else ""
    date = PrimitiveType("date")
    if name == "date":
        return inner
    if name not in {"timestamp", "timestamp_ntz"}:
        return None
    local = _widened(bounds, ZONE_MARGIN if name == "timestamp" else 0)
    return _mapped(local, lambda each: computed(each, lambda micros: micros // DAY)), date


def _year(dates: Bounds) -> Typed:
    def years(days: np.ndarray) -> np.ndarray:
        found: np.ndarray = days.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64) + 1970
        return found

    return _mapped(dates, lambda each: computed(each, years)), PrimitiveType("integer")


# --- arithmetic on bounds -----------------------------------------------------------------------------------


def _mapped(bounds: Bounds, function: Callable[[pa.Array], pa.Array]) -> Bounds:
    low = None if bounds.low is None else function(bounds.low)
    high = None if bounds.high is None else function(bounds.high)
    return bounds.with_ends(low, high)


def _widened(bounds: Bounds, margin: int) -> Bounds:
    if not margin:
        return bounds
    low = None if bounds.low is None else computed(bounds.low, lambda micros: _added(micros, -margin))
    high = None if bounds.high is None else computed(bounds.high, lambda micros: _added(micros, margin))
    return bounds.with_ends(low, high)


def _added(micros: np.ndarray, margin: int) -> np.ndarray:
    """Add, saturating at the limits of 64 bits."""
    ends = np.iinfo(np.int64)
    moved: np.ndarray = np.clip(micros, ends.min + abs(margin), ends.max - abs(margin)) + margin
    return moved


def computed(values: pa.Array, function: Callable[[np.ndarray], np.ndarray]) -> pa.Array:
    """Apply a NumPy function to integers, keeping nulls."""
    null = pc.is_null(values).to_numpy(zero_copy_only=False)
    found = function(pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64))
    return pa.array(found, pa.int64(), mask=null)


def _midnight(days: pa.Array) -> pa.Array:
    near = pc.less_equal(pc.abs(days), _MAX_DAYS)
    return pc.multiply(pc.if_else(near, days, pa.scalar(None, pa.int64())), DAY)


def _floating(values: pa.Array, *, single: bool) -> pa.Array:
    if single:
        values = values.cast(pa.float32(), safe=False)
    return values.cast(pa.float64(), safe=False)
