"""Bounds that generated partition columns imply for their source columns.

In a table partitioned by ``day GENERATED ALWAYS AS (CAST(ts AS DATE))`` each file's partition value bounds ``ts``,
even without statistics (PROTOCOL.md, "Generated Columns"). Timestamp bounds are widened by the largest UTC offset,
because the log does not record the time zone in which the expression was evaluated.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from delvec_errors import InvalidPredicate, UnknownColumn
from delvec_kernel.data_skipping.monotone import DAY, computed
from delvec_kernel.expressions.expression_kinds import INTEGER_TYPES, column_path, column_type
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.schema.types import GENERATION, DataType, PrimitiveType, StructType
from delvec_kernel.statistics.bounds import Bounds, Path
from delvec_kernel.statistics.literal_bounds import ZONE_MARGIN

__all__ = ["Implied", "implied_bounds", "intersected"]

_HOUR: Final = DAY // 24
_DATE: Final = PrimitiveType("date")
_DATE_TIME_TYPES: Final = {"date", "timestamp", "timestamp_ntz"}
_UNITS: Final = {
    "YEAR": "Y",
    "YYYY": "Y",
    "YY": "Y",
    "MONTH": "M",
    "MON": "M",
    "MM": "M",
    "DAY": "D",
    "HOUR": "h",
}
_PARTS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Year: "Y",
    exp.Month: "M",
    exp.Day: "D",
    exp.DayOfMonth: "D",
    exp.Hour: "h",
}
_FORMATS: Final = {"yyyy": "Y", "yyyy-MM": "M", "yyyy-MM-dd": "D", "yyyy-MM-dd-HH": "h"}
_FORMATTED: Final = {
    "Y": re.compile(r"[0-9]{4}"),
    "M": re.compile(r"[0-9]{4}-[0-9]{2}"),
    "D": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "h": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9]{2}"),
}
_MAX_UNITS: Final = {"Y": 200_000, "M": 2_400_000, "D": 70_000_000, "h": 1_700_000_000}
"""Units from 1970 that fit in 64 bits as microseconds."""
_YEARS: Final = (-1_000_000, 1_000_000)
"""Out of range of any timestamp; a year clipped to these counts as unknown."""
_LAST: Final = 0x10FFFF

_Ends: TypeAlias = tuple[pa.Array, pa.Array]


@dataclass(frozen=True)
class Implied:
    """A column whose bounds follow from partition columns.

    Attributes:
        path: the path of the column.
        partition_columns: its source partition columns, by logical name.
        bounds: computes the bounds of ``path`` from those of ``partition_columns``.
    """

    path: Path
    partition_columns: tuple[str, ...]
    bounds: Callable[[Sequence[Bounds]], Bounds | None]


@dataclass(frozen=True)
class _Generated:
    name: str
    type: DataType
    path: Path
    base: DataType
    node: exp.Expr


def implied_bounds(schema: StructType, partition_columns: Sequence[str]) -> list[Implied]:
    """Return what the table's generated partition columns imply; unsupported expressions are ignored."""
    generated = [one for name in partition_columns if (one := _generated(schema, name)) is not None]
    found = [implied for one in generated if (implied := _single(one)) is not None]
    for path in dict.fromkeys(each.path for each in generated):
        found += _calendar([each for each in generated if each.path == path])
    return found


def intersected(known: Sequence[Bounds]) -> Bounds:
    """Return the intersection of several bounds of one column."""
    return reduce(_both, known)


def _both(one: Bounds, other: Bounds) -> Bounds:
    return Bounds(
        _tighter(pc.max_element_wise, one.low, other.low),
        _tighter(pc.min_element_wise, one.high, other.high),
        one.nullable & other.nullable,
        one.only_null | other.only_null,
    )


def _tighter(
    choose: Callable[[pa.Array, pa.Array], pa.Array], one: pa.Array | None, other: pa.Array | None
) -> pa.Array | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)  # ignores nulls


# --- expressions --------------------------------------------------------------------------------------------


def _generated(schema: StructType, name: str) -> _Generated | None:
    field = schema.field(name)
    text = field.metadata.get(GENERATION)
    if not isinstance(text, str) or not isinstance(field.type, PrimitiveType):
        return None
    try:
        node = parse(f"({text}) IS NULL", schema).expression
    except (InvalidPredicate, UnknownColumn):
        return None
    node = node.this.unnest() if isinstance(node, exp.Is) else node
    paths = [path for each in _outermost(node) if (path := column_path(each)) is not None]
    base = column_type(paths[0], schema) if len(paths) == 1 else None
    return None if base is None else _Generated(field.name, field.type, paths[0], base, node)


def _outermost(root: exp.Expr) -> list[exp.Expr]:
    column_references: list[exp.Expr] = []
    for node in root.find_all(exp.Column):
        outer: exp.Expr = node
        while isinstance(outer.parent, exp.Dot) and outer.parent.this is outer:
            outer = outer.parent
        column_references.append(outer)
    return column_references


def _date_time_base(one: _Generated) -> str | None:
    """Return the base column's type if it is a date or timestamp."""
    name = one.base.name if isinstance(one.base, PrimitiveType) else ""
    return name if name in _DATE_TIME_TYPES else None


def _of_base(node: exp.Expr, kinds: tuple[type[exp.Expr], ...]) -> bool:
    """Whether ``node`` is one of ``kinds`` applied directly to a column."""
    if type(node) not in kinds:  # not isinstance: TryCast is a subclass of Cast
        return False
    inner = node.this
    if isinstance(inner, exp.TsOrDsToDate | exp.TimeStrToTime) and not inner.args.get("format"):
        inner = inner.this
    return column_path(inner) is not None


def _single(one: _Generated) -> Implied | None:
    """Return what a single generated column implies."""
    node, base_type = one.node, _date_time_base(one)
    ends: Callable[[Bounds], _Ends | None] | None = None
    if column_path(node) is not None:
        ends = _identity if one.type == one.base else None
    elif base_type and one.type == _DATE and _of_base(node, (exp.Cast, exp.TsOrDsToDate)):
        if isinstance(node, exp.TsOrDsToDate) or node.args["to"].this == exp.DType.DATE:
            ends = _days(base_type)
    elif base_type and _of_base(node, (exp.TimestampTrunc, exp.DateTrunc)):
        unit = _UNITS.get(node.args["unit"].name.upper())
        ends = None if unit is None else _truncated(unit, base_type, one.type)
    elif base_type and one.type == PrimitiveType("string") and _of_base(node, (exp.TimeToStr,)):
        unit = _DATE_FORMATS.get(node.args["format"].name)
        ends = None if unit is None else _formatted(unit, base_type)
    elif one.base == one.type == PrimitiveType("string") and isinstance(node, exp.Left | exp.Substring):
        start = node.args.get("start")
        from_start = start is None or (isinstance(start, exp.Literal) and start.name in {"0", "1"})
        ends = _prefixed if from_start and column_path(node.this) is not None else None
    if ends is None:
        return None
    return Implied(one.path, (one.name,), lambda known: _bounds(known[0], ends))


def _calendar(columns: Sequence[_Generated]) -> list[Implied]:
    """Return what year, month, day and hour columns imply together; a month without a year implies nothing."""
    parts: dict[str, _Generated] = {}
    for one in columns:
        whole = isinstance(one.type, PrimitiveType) and one.type.name in INTEGER_TYPES
        part = _PARTS.get(type(one.node))
        if part is not None and whole and _date_time_base(one) and _of_base(one.node, tuple(_PARTS)):
            parts.setdefault(part, one)
    units = [unit for unit in "YMDh" if unit in parts]
    while units and "".join(units) != "YMDh"[: len(units)]:
        units.pop()
    if not units:
        return []
    base_type = _date_time_base(parts["Y"])
    assert base_type is not None  # noqa: S101 - checked above
    names = tuple(parts[unit].name for unit in units)
    return [Implied(parts["Y"].path, names, lambda known: _from_parts(known, units[-1], base_type))]


# --- from values to bounds ----------------------------------------------------------------------------------


def _bounds(bounds: Bounds, ends: Callable[[Bounds], _Ends | None]) -> Bounds | None:
    if bounds.low is None or bounds.high is None:
        return None
    found = ends(bounds)
    return None if found is None else _open(*found)


def _open(low: pa.Array, high: pa.Array) -> Bounds:
    """Return bounds with unknown nullability."""
    count = len(low)
    return Bounds(low, high, np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_))


def _identity(bounds: Bounds) -> _Ends | None:
    return bounds.low, bounds.high


def _days(base_type: str) -> Callable[[Bounds], _Ends | None]:
    return lambda known: _spans(known.low, known.low, "D", base_type)


def _truncated(unit: str, base_type: str, kind: DataType) -> Callable[[Bounds], _Ends | None]:
    """Return a function from bounds of a truncated date or timestamp to (low, high) of its source."""

    def ends(bounds: Bounds) -> _Ends | None:
        if kind == _DATE:
            return _spans(bounds.low, bounds.high, "D" if unit == "h" else unit, base_type)
        if base_type == "date" or not (isinstance(kind, PrimitiveType) and kind.name in _DATE_TIME_TYPES):
            return None
        # The value's bounds already include the zone margin; the upper end is one unit later.
        longest = {"Y": 366 * DAY, "M": 31 * DAY, "D": DAY, "h": _HOUR}[unit]
        # Spark truncates a timestamp_ntz as an instant in the writer's zone.
        margin = ZONE_MARGIN if "timestamp" in {base_type, kind.name} else 0
        return pc.subtract(bounds.low, margin), pc.add(pc.add(bounds.high, longest), margin)

    return ends


def _formatted(unit: str, base_type: str) -> Callable[[Bounds], _Ends | None]:
    def ends(known: Bounds) -> _Ends | None:
        values: pa.Array = known.low
        dictionary_array = values.dictionary_encode()
        texts = dictionary_array.dictionary.to_pylist()
        starts = pa.array([None if text is None else _start(text, unit) for text in texts], pa.int64())
        low, high = _spans_of_units(starts, unit, base_type)
        if base_type != "timestamp":
            # Spark formats instants: a local time in a DST gap moves forward, by a day at most.
            low = pc.subtract(low, DAY if base_type == "timestamp_ntz" else 1)
        return low.take(dictionary_array.indices), high.take(dictionary_array.indices)

    return ends


def _start(text: str, unit: str) -> int | None:
    """Return a formatted time as a count of units since 1970."""
    if not _FORMATTED[unit].fullmatch(text):
        return None
    day, hour = (text[:10], int(text[11:])) if unit == "h" else (text, 0)
    measure = "D" if unit == "h" else unit
    try:
        number = int(np.array([day], f"datetime64[{measure}]").astype(np.int64)[0])
    except ValueError:
        return None
    return number * 24 + hour if unit == "h" else number


def _spans(low: pa.Array, high: pa.Array, unit: str, base_type: str) -> _Ends:
    """Return the first and last timestamp of the units that contain the days ``low`` and ``high``."""
    first, last = (computed(days, lambda each: _in_units(each, unit)) for days in (low, high))
    starts, ends = _spans_of_units(first, unit, base_type), _spans_of_units(last, unit, base_type)
    return (starts[0], ends[1])


def _in_units(days: np.ndarray, unit: str) -> np.ndarray:
    found: np.ndarray = days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64)
    return found


def _spans_of_units(numbers: pa.Array, unit: str, base_type: str) -> _Ends:
    """Return the first and last timestamp of units counted from 1970, in the base's resolution, with zone margins."""
    near = pc.less_equal(pc.abs_checked(numbers), _MAX_UNITS[unit])
    numbers = pc.if_else(near, numbers, pa.scalar(None, pa.int64()))
    if base_type == "date":
        return (
            computed(numbers, lambda each: _from_units(each, unit, "D")),
            computed(numbers, lambda each: _from_units(each + 1, unit, "D", up=unit == "h") - 1),
        )
    margin = ZONE_MARGIN if base_type == "timestamp" else 0
    return (
        computed(numbers, lambda each: _from_units(each, unit, "us") - margin),
        computed(numbers, lambda each: _from_units(each + 1, unit, "us") - 1 + margin),
    )


def _from_units(numbers: np.ndarray, unit: str, measure: str, *, up: bool = False) -> np.ndarray:
    found: np.ndarray = (
        numbers.astype(f"datetime64[{unit}]").astype(f"datetime64[{measure}]").astype(np.int64)
    )
    return found + 1 if up else found


def _from_parts(part_bounds: Sequence[Bounds], finest: str, base_type: str) -> Bounds | None:
    if any(each.low is None for each in part_bounds):
        return None
    null = reduce(pc.or_, [pc.is_null(each.low) for each in part_bounds])
    year, *rest = (
        np.clip(pc.fill_null(each.low, 1).to_numpy(zero_copy_only=False).astype(np.int64), *_YEARS)
        for each in part_bounds
    )
    months = (year - 1970) * 12 + ((rest[0] - 1) if rest else 0)
    numbers = {"Y": year - 1970, "M": months}.get(finest)
    if numbers is None:
        days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + rest[1] - 1
        numbers = days if finest == "D" else days * 24 + rest[2]
    return _open(
        *_spans_of_units(pa.array(numbers, mask=null.to_numpy(zero_copy_only=False)), finest, base_type)
    )


def _prefixed(bounds: Bounds) -> _Ends | None:
    """Return the bounds of strings with this prefix: at least the value, at most the next string without it."""
    low: pa.Array = bounds.low
    encoded = low.dictionary_encode()
    above = [None if text is None else _next(text) for text in encoded.dictionary.to_pylist()]
    return low, pa.array(above, pa.string()).take(encoded.indices)


def _next(text: str) -> str | None:
    for length in range(len(text), 0, -1):
        code = ord(text[length - 1])
        if code < _LAST:
            following = 0xE000 if code + 1 == 0xD800 else code + 1  # noqa: PLR2004 - skip the surrogates
            return text[: length - 1] + chr(following)
    return None


def _format_names() -> dict[str, str]:
    """Return the date formats as the parser spells them."""
    schema = StructType.from_json({"type": "struct", "fields": [_FIELD]})
    found = {}
    for text, unit in _FORMATS.items():
        node = parse(f"date_format(t, '{text}') IS NULL", schema).expression.this
        found[node.args["format"].name] = unit
    return found


_FIELD: Final = {"name": "t", "type": "timestamp", "nullable": True, "metadata": {}}
_DATE_FORMATS: Final = _format_names()
