"""Schema changes for new rows: added columns, widened types, or a replaced schema.

Tested in `tests/integration/engines/test_schema_evolution.py` and
`tests/integration/engines/test_schemas.py`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from delvec_commands.table_service import request
from delvec_engines.input_data import to_reader
from delvec_errors import InvalidSchema, SchemaMismatch
from delvec_kernel.alter_table.change_types import (
    AddColumns,
    ChangeColumn,
    NewColumn,
    ReplaceSchema,
    WriteChange,
)
from delvec_kernel.schema.column_mapping import with_fields
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    data_type_from_arrow,
    has_void,
    nullable_type,
    schema_from,
)

__all__ = ["evolved", "replaced", "with_schema"]

_COMMENT: Final = "comment"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+")
_WIDER: Final = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long",),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
"""Automatic type widenings; integers are never widened to other kinds automatically, as in delta-spark."""


def with_schema(data: Any, table: StructType, *, widens: bool) -> tuple[Any, StructType]:
    """Return rows as an engine takes them, and their Delta schema.

    Args:
        data: the rows.
        table: schema for rows of plain Python values; types are inferred if it has no columns.
        widens: whether the table allows type widening for values that do not fit.

    Raises:
        SchemaMismatch: the data is not tabular, a column has no Delta type, or a value does not fit its column.
    """
    try:
        if type(data).__module__.startswith("pyspark.sql."):
            return data, schema_from(data.schema)
        reader = to_reader(data, table, widens=_takes if widens else None)
        return reader, StructType.from_arrow(reader.schema)
    except InvalidSchema as error:
        raise SchemaMismatch(
            f"The rows have columns whose types Delta does not have: {error.message}."
        ) from error


def evolved(table: StructType, data: StructType, *, widens: bool) -> list[WriteChange]:
    """Return the changes that add the columns and struct fields that the table lacks, and widen types.

    Args:
        table: schema of the table.
        data: schema of the rows. Columns that the rows lack become NULL; the writer checks other type differences.
        widens: whether the table allows type widening.

    Raises:
        SchemaMismatch: a new column has no type, because all its values are NULL.
    """
    columns: list[NewColumn] = []
    wider: list[WriteChange] = []
    for path, column_type, value_type in _differences(table, data, ()):
        name = ".".join(_quoted(part) for part in path)
        if column_type is None:
            _check_typed(value_type, path)
            columns.append(request(NewColumn, column=name, type=_nullable(value_type).to_json()))
        elif widens and _is_wider(column_type, value_type):
            wider.append(request(ChangeColumn, column=name, type=value_type.to_json()))
    if not columns:
        return wider
    return [*wider, request(AddColumns, columns=columns)]


def replaced(
    table: StructType,
    partition_columns: Sequence[str],
    data: StructType,
    new_partition_columns: Sequence[str] | None,
) -> list[WriteChange]:
    """Return the change that replaces the table's schema by that of the rows; empty if they are equal.

    Args:
        table: schema of the table.
        partition_columns: the table's.
        data: schema of the rows.
        new_partition_columns: the new partition columns; None keeps those of the table.

    Raises:
        SchemaMismatch: a column has no type, because all its values are NULL; or the rows lack a partition column.
    """
    for field in data.fields:
        _check_typed(field.type, (field.name,))
    partitions = list(partition_columns if new_partition_columns is None else new_partition_columns)
    for name in partitions:
        if name not in data:
            raise SchemaMismatch(
                f"The table would be partitioned by '{name}', which the rows do not have; give partition_by, or [] for "
                "no partition columns.",
                column=name,
            )
    new, old = _nullable(data), _nullable(table)
    assert isinstance(new, StructType)  # noqa: S101 - a struct stays one
    if _without_comments(new) == _without_comments(old) and partitions == list(partition_columns):
        return []
    return [request(ReplaceSchema, table_schema=new.to_json(), partition_columns=partitions)]


def _differences(
    table: DataType, data: DataType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], DataType | None, DataType]]:
    """Yield each differing or additional column or field: path, the table's type or None, the rows' type."""
    match table, data:
        case StructType(), StructType():
            for field in data.fields:
                if field.name not in table:
                    yield (*path, field.name), None, field.type
                else:
                    known = table.field(field.name)
                    yield from _differences(known.type, field.type, (*path, known.name))
        case ArrayType(), ArrayType():
            yield from _differences(table.element, data.element, (*path, "element"))
        case MapType(), MapType():
            yield from _differences(table.key, data.key, (*path, "key"))
            yield from _differences(table.value, data.value, (*path, "value"))
        case _:
            if table != data:
                yield path, table, data


def _takes(value_type: pa.DataType, column_type: DataType) -> bool:
    try:
        return _is_wider(column_type, data_type_from_arrow(value_type))
    except InvalidSchema:
        return False


def _is_wider(column_type: DataType, value_type: DataType) -> bool:
    if isinstance(column_type, DecimalType) and isinstance(value_type, DecimalType):
        whole = value_type.precision - value_type.scale
        return value_type.scale >= column_type.scale and whole >= column_type.precision - column_type.scale
    if isinstance(column_type, PrimitiveType) and isinstance(value_type, PrimitiveType):
        return value_type.name in _WIDER.get(column_type.name, ())
    return False


def _check_typed(kind: DataType, path: Sequence[str]) -> None:
    if has_void(kind):
        name = ".".join(path)
        raise SchemaMismatch(
            f"The type of the new column '{name}' is unknown, because all its values are NULL. Cast it to a type, or "
            "leave it out.",
            column=name,
        )


def _nullable(kind: DataType) -> DataType:
    """Return the type with NULL allowed everywhere, since later rows may contain NULLs."""
    return with_fields(
        nullable_type(kind), lambda field: StructField(field.name, field.type, metadata=_comment(field))
    )


def _comment(field: StructField) -> dict[str, Any]:
    return {key: value for key, value in field.metadata.items() if key == _COMMENT}


def _without_comments(kind: DataType) -> DataType:
    return with_fields(kind, lambda field: replace(field, metadata={}))


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else backticked(name)
