"""A table's columns as files have them: what DuckDB is asked to read, and the value that this is in the table.

Columns are found by physical name, or by field id, and get neutral names inside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.engines.duckdb.lookup import quoted, string_literal
from delvec.engines.duckdb.variant_footers import VARIANT_TYPE, variant_value
from delvec.engines.footers import int96_columns
from delvec.scan import Scan
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

__all__ = ["TYPES", "holds_timestamps", "is_without_zone", "mapping", "sql_type", "stored", "whole"]

_WORTH_A_FOOTER: Final = 1 << 18
"""Minimum rows for which reading the footer is comparatively cheap."""
_TIMESTAMP: Final = PrimitiveType("timestamp")
_VARIANT: Final = PrimitiveType("variant")

TYPES: Final = {
    "string": "VARCHAR",
    "binary": "BLOB",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    # Only inside other types; DuckDB has no column of nothing.
    "void": "INTEGER",
    "variant": VARIANT_TYPE,
}


def stored(item: StructField, inner: str, mode: str, *, without_zone: bool) -> tuple[str, str]:
    """Return what to read of a file for a column, and its value from that.

    Args:
        item: the column.
        inner: what the statement calls it.
        mode: of column mapping.
        without_zone: whether timestamps, nested ones too, are read as local times, as DuckDB has INT96. To cast it, DuckDB
            looks into the calendar of the session's zone: 70 ns for each, and another moment where that is not UTC.
    """
    value = _logical(
        item.type, f"f.{inner}", _Form(item.name, mapped=mode != "none", without_zone=without_zone)
    )
    return mapping(item, inner, mode, without_zone=without_zone), value


def is_without_zone(scan: Scan, files: pa.Table, fields: Sequence[StructField]) -> bool:
    """Whether the first and the last file, if rows are many, have all of these columns that are timestamps as INT96.

    They stand for all: in UTC other files give the same, but slower, and comparisons leave out none of their row groups.
    """
    moments = {item.physical_name.lower() for item in fields if item.type == _TIMESTAMP}
    if not moments or (pc.sum(files["num_records"]).as_py() or 0) < _WORTH_A_FOOTER:
        return False
    paths = {files["path"][place].as_py() for place in (0, -1)}
    return all(moments <= int96_columns(scan, path) for path in paths)


def holds_timestamps(kind: DataType) -> bool:
    """Whether values of this type are, or hold, moments in UTC."""
    return sql_type(kind, mapped=False, without_zone=True) != sql_type(kind, mapped=False)


def whole(value: str) -> str:
    """Return a column in a form through which DuckDB pushes nothing into the reader of the file.

    DuckDB 2.0 pushes the extraction of a struct's field by its position in the schema asked for, and then reads
    another field where a file has fewer fields or another order, or fails. And it skips row groups by the bounds of
    floating-point columns, in which NaN is not, though NaN is above everything.
    """
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE {value} END"


def mapping(item: StructField, inner: str, mode: str, *, without_zone: bool = False) -> str:
    """Return an entry of read_parquet's ``schema``: where a column is in a file, and what it is."""
    key = (
        str(item.field_id)
        if mode == "id"
        else string_literal(item.physical_name if mode != "none" else item.name)
    )
    kind = string_literal(sql_type(item.type, mapped=mode != "none", without_zone=without_zone))
    return f"{key}: {{name: '{inner}', type: {kind}, default_value: NULL}}"


def sql_type(kind: DataType, *, mapped: bool, without_zone: bool = False) -> str:
    """Return DuckDB's type, struct fields under their physical names if ``mapped``."""
    if isinstance(kind, PrimitiveType):
        return TYPES["timestamp_ntz" if without_zone and kind == _TIMESTAMP else kind.name]
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if isinstance(kind, ArrayType):
        return f"{sql_type(kind.element, mapped=mapped, without_zone=without_zone)}[]"
    if isinstance(kind, MapType):
        inner = (sql_type(each, mapped=mapped, without_zone=without_zone) for each in (kind.key, kind.value))
        return f"MAP({', '.join(inner)})"
    fields = (
        f"{quoted(item.physical_name if mapped else item.name)} {sql_type(item.type, mapped=mapped, without_zone=without_zone)}"
        for item in kind.fields
    )
    return f"STRUCT({', '.join(fields)})"


@dataclass(frozen=True)
class _Form:
    """How what is read of a column differs from the table: physical names in structs, timestamps without a zone."""

    column: str
    mapped: bool
    without_zone: bool


def _logical(kind: DataType, value: str, form: _Form, depth: int = 0) -> str:
    """Return ``value`` as the table has it: a predicate finds nested fields by their names, and timestamps are moments."""
    if not _differs(kind, form):
        return value
    element = f"e{depth}"
    if isinstance(kind, StructType):
        fields = ", ".join(
            f"{quoted(item.name)} := "
            + _logical(
                item.type, f"{value}.{quoted(item.physical_name if form.mapped else item.name)}", form, depth
            )
            for item in kind.fields
        )
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({fields}) END"
    if isinstance(kind, ArrayType):
        inner = _logical(kind.element, element, form, depth + 1)
        return f"list_transform({value}, lambda {element}: {inner})"
    if isinstance(kind, MapType):
        keys = _logical(kind.key, f"{element}.key", form, depth + 1)
        values = _logical(kind.value, f"{element}.value", form, depth + 1)
        pairs = f"list_transform(map_entries({value}), lambda {element}: struct_pack(key := {keys}, value := {values}))"
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE map_from_entries({pairs}) END"
    if kind == _VARIANT:
        return variant_value(value, form.column)
    # Infinity is no number of microseconds.
    return f"coalesce(make_timestamptz(epoch_us({value})), CAST({value} AS TIMESTAMP WITH TIME ZONE))"


def _differs(kind: DataType, form: _Form) -> bool:
    if isinstance(kind, StructType):
        return any(
            (form.mapped and item.physical_name != item.name) or _differs(item.type, form)
            for item in kind.fields
        )
    if isinstance(kind, ArrayType):
        return _differs(kind.element, form)
    if isinstance(kind, MapType):
        return _differs(kind.key, form) or _differs(kind.value, form)
    return kind == _VARIANT or (form.without_zone and kind == _TIMESTAMP)
