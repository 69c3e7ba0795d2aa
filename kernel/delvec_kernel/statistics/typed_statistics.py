"""Statistics from a checkpoint's typed columns (``stats_parsed``): bounds without parsing JSON."""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType
from delvec_kernel.statistics.bounds import Bounds, Path, stated_bounds

__all__ = ["STATS_PARSED", "fields_of_bounds", "typed_bounds", "typed_columns"]

STATS_PARSED: Final = "stats_parsed"
"""The extra column, after those of FILES_SCHEMA, that holds typed statistics in a checkpoint's batches."""

_SIDES: Final = ("minValues", "maxValues", "nullCount")
_TIGHT: Final = "tightBounds"
_MAX_COLUMNS: Final = 64
"""Columns; a wider table's other columns are parsed on demand."""
_OLDEST_DATE: Final = date(1582, 10, 15)
_OLDEST_TIME: Final = datetime(1900, 1, 1, tzinfo=UTC)
"""Spark 2, and Spark 3 in legacy mode, write earlier values in the Julian calendar and local mean time."""
_PRIMITIVES: Final[Mapping[pa.DataType, str]] = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.date32(): "date",
}


def typed_bounds(
    parsed_stats: pa.StructArray, stats: pa.Array, num_records: pa.Array
) -> Mapping[Path, tuple[DataType, Bounds]]:
    """Return bounds by physical path, each with the column's type in the checkpoint.

    Args:
        parsed_stats: ``stats_parsed`` of the files.
        stats: the same statistics as JSON text.
        num_records: physical rows of each file, or null.

    Returns:
        The bounds that :func:`~delvec_kernel.statistics.bounds.parsed_bounds` would find in the text, for types that
        have bounds. Empty if a file has its statistics as text only.
    """
    if pc.any(pc.and_(pc.is_valid(stats), pc.is_null(parsed_stats))).as_py():
        return {}
    sides = {name: _child(parsed_stats, name) for name in _SIDES}
    if not pa.types.is_struct(sides["minValues"].type):
        return {}
    tight = _child(parsed_stats, _TIGHT).cast(pa.bool_())
    column_bounds: dict[Path, tuple[DataType, Bounds]] = {}
    for names, low in _leaves(sides["minValues"], ()):
        data_type = _delta_type(low.type)
        high, nulls = (_at(sides[side], names) for side in ("maxValues", "nullCount"))
        if (
            data_type is None
            or len(column_bounds) == _MAX_COLUMNS
            or (high is not None and high.type != low.type)
        ):
            continue
        if nulls is None or not pa.types.is_integer(nulls.type):
            nulls = pa.nulls(len(parsed_stats), pa.int64())
        high = pa.nulls(len(parsed_stats), low.type) if high is None else high
        bounds = stated_bounds(_comparable(low), _comparable(high), data_type, nulls, num_records, tight)
        column_bounds[names] = (data_type, bounds)
    return column_bounds


def typed_columns(stats_type: pa.StructType) -> Mapping[Path, DataType]:
    """Return the columns, by physical path with their types, that :func:`typed_bounds` supports."""
    place = stats_type.get_field_index("minValues")
    if place < 0 or not pa.types.is_struct(stats_type.field(place).type):
        return {}
    found = {}
    for names, leaf in _leaves(pa.nulls(0, stats_type.field(place).type), ()):
        data_type = _delta_type(leaf.type)
        if data_type is not None:
            found[names] = data_type
    return found


def fields_of_bounds(parsed: pa.StructType, names: Path) -> list[str]:
    """Return the dotted names of the fields from which :func:`typed_bounds` computes one column's bounds."""
    sides = [".".join((side, *names)) for side in _SIDES]
    return ["numRecords", *sides, *([_TIGHT] if parsed.get_field_index(_TIGHT) >= 0 else [])]


def _child(value: pa.Array, name: str) -> pa.Array:
    place = value.type.get_field_index(name)
    # Unlike StructArray.field, struct_field keeps the parents' nulls.
    return pa.nulls(len(value)) if place < 0 else pc.struct_field(value, [place])


def _leaves(value: pa.StructArray, path: Path) -> Iterator[tuple[Path, pa.Array]]:
    for field in value.type:
        child = _child(value, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaves(child, (*path, field.name))
        else:
            yield (*path, field.name), child


def _at(value: pa.Array, names: Path) -> pa.Array | None:
    for name in names:
        if not pa.types.is_struct(value.type) or value.type.get_field_index(name) < 0:
            return None
        value = _child(value, name)
    return value


def _delta_type(kind: pa.DataType) -> DataType | None:
    """Return the column type of such a bound; None where it is ambiguous or has no bounds."""
    if pa.types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind) and kind.unit in {"us", "ms"}:
        return PrimitiveType("timestamp" if kind.tz else "timestamp_ntz")
    return PrimitiveType(_PRIMITIVES[kind]) if kind in _PRIMITIVES else None


def _comparable(values: pa.Array) -> pa.Array:
    """Return timestamps in microseconds; null for values that may be in the Julian calendar."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz))
    oldest = _OLDEST_DATE if pa.types.is_date(kind) else _OLDEST_TIME
    if not pa.types.is_date(kind) and not pa.types.is_timestamp(kind):
        return values
    return pc.if_else(
        pc.less(values, pa.scalar(oldest).cast(values.type)), pa.scalar(None, values.type), values
    )
