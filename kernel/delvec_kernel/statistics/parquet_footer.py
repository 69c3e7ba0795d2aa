"""Schema and statistics from the footers of Parquet files that another program wrote."""

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delvec_errors import InvalidSchema
from delvec_kernel.schema.column_mapping import with_fields
from delvec_kernel.schema.types import (
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    nullable_type,
)
from delvec_kernel.statistics.file_statistics import Number, Path, bound, dump, indexed_columns, tree
from delvec_kernel.statistics.literal_bounds import DECIMAL_DIGITS

__all__ = ["footer_schema", "footer_statistics"]

_EXACT: Final = Context(prec=DECIMAL_DIGITS)  # the default context rounds to 28 digits, which would skip rows
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long", "date"})
_TIMESTAMPS: Final = frozenset({"timestamp", "timestamp_ntz"})
_PER_MICROSECOND: Final = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}


def footer_schema(footer: pq.FileMetaData) -> StructType:
    """Return the columns of a file as Spark reads them: all nullable, INT96 as timestamp.

    Raises:
        InvalidSchema: a column has a type that Delta does not support.
    """
    try:
        arrow = footer.schema.to_arrow_schema()
    except (pa.ArrowException, ValueError, RecursionError) as error:
        raise InvalidSchema(f"its columns cannot be read: {str(error)[:200]}") from error
    numbers = _column_numbers(arrow)
    instants = {
        path[0]
        for path, number in numbers.items()
        if len(path) == 1 and footer.schema.column(number).physical_type == "INT96"
    }
    schema = StructType.from_arrow(arrow)
    return StructType(
        tuple(
            StructField(
                field.name,
                PrimitiveType("timestamp") if field.name in instants else _nullable(field.type),
            )
            for field in schema.fields
        )
    )


def _nullable(kind: DataType) -> DataType:
    """Return a type with every level nullable, since other files may have nulls where this one has none."""
    return with_fields(nullable_type(kind), lambda field: StructField(field.name, field.type))


def footer_statistics(
    footer: pq.FileMetaData,
    schema: StructType,
    partition_columns: Sequence[str],
    configuration: Mapping[str, str],
) -> str:
    """Return the ``stats`` of an add action from a file's footer; what the footer lacks is omitted.

    Floating-point columns have no bounds: those of a footer ignore NaN, which sorts above every number.

    Args:
        footer: of the file.
        schema: of the table, without column mapping.
        partition_columns: these get no statistics.
        configuration: table properties that select the columns with statistics.
    """
    arrow = footer.schema.to_arrow_schema()
    numbers = _column_numbers(arrow)
    lows: list[tuple[Path, str | Number | None]] = []
    highs: list[tuple[Path, str | Number | None]] = []
    nulls: list[tuple[Path, str | Number | None]] = []
    names = {name.lower() for name in arrow.names}
    for path in indexed_columns(schema, partition_columns, configuration):
        number = numbers.get(tuple(item.name for item in path))
        if number is None:
            if path[0].name.lower() not in names:
                nulls.append((path, Number(footer.num_rows)))
            continue
        column = footer.schema.column(number)
        found = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
        if all(each is not None and each.has_null_count and each.null_count >= 0 for each in found):
            nulls.append((path, Number(sum(each.null_count for each in found))))
        rows = [
            each
            for group, each in enumerate(found)
            if each is None or each.null_count != footer.row_group(group).num_rows
        ]
        if rows and all(each is not None and each.has_min_max for each in rows):
            kind = path[-1].type
            low = [_value(each.min_raw, column, kind) for each in rows]
            high = [_value(each.max_raw, column, kind) for each in rows]
            known = None not in low and None not in high
            # Reversed bounds say that the writer compares in another order.
            if known and all(least <= greatest for least, greatest in zip(low, high, strict=True)):
                lows.append((path, bound(min(low), kind, upper=False)))
                highs.append((path, bound(max(high), kind, upper=True)))
    return dump(
        {
            "numRecords": Number(footer.num_rows),
            "minValues": tree(lows),
            "maxValues": tree(highs),
            "nullCount": tree(nulls),
            "tightBounds": True,
        }
    )


def _column_numbers(schema: pa.Schema) -> dict[tuple[str, ...], int]:
    """Map the path of each primitive column outside lists and maps to its number; names may contain dots."""
    numbers_by_path: dict[tuple[str, ...], int] = {}
    number = 0

    def walk(kind: pa.DataType, path: tuple[str, ...], *, is_plain: bool) -> None:
        nonlocal number
        children = [kind.field(place) for place in range(kind.num_fields)]
        if not children:
            if is_plain:
                numbers_by_path[path] = number
            number += 1
        for child in children:
            walk(child.type, (*path, child.name), is_plain=is_plain and pa.types.is_struct(kind))

    for field in schema:
        walk(field.type, (field.name,), is_plain=True)
    return numbers_by_path


def _value(raw: Any, column: pq.ColumnSchema, kind: Any) -> Any:  # noqa: PLR0911 - one answer per type
    """Return a footer's bound as :func:`bound` takes it; None where it may be wrong."""
    if isinstance(kind, DecimalType):
        if isinstance(raw, bytes):
            raw = int.from_bytes(raw, "big", signed=True)
        return (
            Decimal(raw).scaleb(-kind.scale, _EXACT)
            if isinstance(raw, int) and column.scale == kind.scale
            else None
        )
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name == "string" and isinstance(raw, bytes):
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return None
    if not isinstance(raw, int) or isinstance(raw, bool):
        return None
    logical = column.logical_type
    if name in _TIMESTAMPS:
        unit = _unit(column)
        if unit is None:
            return None
        times, parts = _PER_MICROSECOND[unit]
        return raw * times // parts
    if name in _INTEGERS:
        # pyarrow returns unsigned integers as signed ones.
        return None if "isSigned=false" in str(logical) else raw
    return None


def _unit(column: pq.ColumnSchema) -> str | None:
    text = str(column.logical_type)
    return next(
        (short for long, short in (("milli", "ms"), ("micro", "us"), ("nano", "ns")) if long in text), None
    )
