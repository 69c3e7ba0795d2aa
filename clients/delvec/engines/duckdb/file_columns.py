"""Maps table columns to columns of data files: read_parquet's schema, and the expression for the table's value.

Columns are found by physical name or field id, and get internal names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.engines.duckdb.lookup import quoted, string_literal
from delvec.engines.duckdb.variant_footers import BINARIES, VARIANT_IN_FILE, copy_id, copy_name, variant_value
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
    has_variant,
)

__all__ = ["TYPES", "holds_timestamps", "is_without_zone", "mapping", "sql_type", "stored", "whole"]

_WORTH_A_FOOTER: Final = 1 << 18
"""Minimum rows of a file for which reading its footer pays off."""
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
    # void occurs only inside other types; DuckDB has no such type.
    "void": "INTEGER",
    "variant": BINARIES,
}


def stored(item: StructField, inner: str, mode: str, *, without_zone: bool) -> tuple[str, str]:
    """Return the entries of read_parquet's ``schema`` for a column, and the SQL of its value.

    A column with variants has a second entry for its copy, which exists where variants are shredded.

    Args:
        item: the column.
        inner: its internal name.
        mode: of column mapping.
        without_zone: whether timestamps, including nested ones, are read as TIMESTAMP, DuckDB's type for INT96. Casts to
            TIMESTAMPTZ would cost 70 ns each, and give another instant if the session's time zone is not UTC.
    """
    form = _Form(item.name, mapped=mode != "none", without_zone=without_zone)
    read = mapping(item, inner, mode, without_zone=without_zone)
    if not has_variant(item.type):
        return read, _logical(item.type, f"f.{inner}", form)
    kind = _with_variants(item.type)
    copied = sql_type(kind, mapped=mode != "none", variant="VARIANT")
    name = copy_name(item.physical_name if mode != "none" else item.name)
    key = str(copy_id(item.field_id or 0)) if mode == "id" else string_literal(name)
    read = f"{read}, {_entry(key, f'{inner}copy', copied)}"
    copy = f"f.{inner}copy"
    copy = whole(copy) if isinstance(kind, StructType) else copy
    return read, _logical(item.type, f"f.{inner}", form, copy=copy)


def is_without_zone(scan: Scan, files: pa.Table, fields: Sequence[StructField]) -> bool:
    """Whether the timestamps among these columns are INT96 in the first and last file; false for few rows.

    A wrong guess for other files is slower, without row group pruning, but in UTC the values are the same.
    """
    timestamps = {item.physical_name.lower() for item in fields if item.type == _TIMESTAMP}
    if not timestamps or (pc.sum(files["num_records"]).as_py() or 0) < _WORTH_A_FOOTER:
        return False
    paths = {files["path"][place].as_py() for place in (0, -1)}
    return all(timestamps <= int96_columns(scan, path) for path in paths)


def holds_timestamps(kind: DataType) -> bool:
    """Whether values of this type are or contain timestamps with UTC normalization."""
    return sql_type(kind, mapped=False, without_zone=True) != sql_type(kind, mapped=False)


def whole(value: str) -> str:
    """Return a column in a form that stops DuckDB from pushing expressions into the Parquet reader.

    DuckDB 2.0 pushes the extraction of a struct field by its position in the requested schema, and reads
    another field, or fails, if a file has fewer fields or another order. It also prunes row groups by the bounds of
    floating-point columns, which leave out NaN, although NaN is greater than all other values.
    """
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE {value} END"


def mapping(item: StructField, inner: str, mode: str, *, without_zone: bool = False) -> str:
    """Return an entry of read_parquet's ``schema``: the column's key in the file, and its type."""
    key = (
        str(item.field_id)
        if mode == "id"
        else string_literal(item.physical_name if mode != "none" else item.name)
    )
    kind = sql_type(item.type, mapped=mode != "none", without_zone=without_zone, variant=VARIANT_IN_FILE)
    return _entry(key, inner, kind)


def _entry(key: str, inner: str, kind: str) -> str:
    return f"{key}: {{name: '{inner}', type: {string_literal(kind)}, default_value: NULL}}"


def _with_variants(kind: DataType) -> DataType:
    """Return a type with only those struct fields that contain a variant."""
    if isinstance(kind, StructType):
        fields = (item for item in kind.fields if has_variant(item.type))
        return StructType(tuple(replace(item, type=_with_variants(item.type)) for item in fields))
    if isinstance(kind, ArrayType):
        return ArrayType(_with_variants(kind.element))
    if isinstance(kind, MapType):
        return MapType(kind.key, _with_variants(kind.value) if has_variant(kind.value) else kind.value)
    return kind


def sql_type(kind: DataType, *, mapped: bool, without_zone: bool = False, variant: str = BINARIES) -> str:
    """Return the DuckDB type, with physical names of struct fields if ``mapped``, and ``variant`` for variants."""

    def inside(kind: DataType) -> str:
        return sql_type(kind, mapped=mapped, without_zone=without_zone, variant=variant)

    if kind == _VARIANT:
        return variant
    if isinstance(kind, PrimitiveType):
        return TYPES["timestamp_ntz" if without_zone and kind == _TIMESTAMP else kind.name]
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if isinstance(kind, ArrayType):
        return f"{inside(kind.element)}[]"
    if isinstance(kind, MapType):
        return f"MAP({inside(kind.key)}, {inside(kind.value)})"
    fields = (
        f"{quoted(item.physical_name if mapped else item.name)} {inside(item.type)}" for item in kind.fields
    )
    return f"STRUCT({', '.join(fields)})"


@dataclass(frozen=True)
class _Form:
    """How a file's column differs from the table's: physical names in structs, timestamps without time zone."""

    column: str
    mapped: bool
    without_zone: bool


def _logical(kind: DataType, value: str, form: _Form, depth: int = 0, copy: str = "NULL") -> str:
    """Return the SQL of the table's value: structs with logical field names, timestamps with time zone.

    Args:
        kind: its type.
        value: SQL of the file's value.
        form: how it differs from the table.
        depth: number of enclosing lambda functions.
        copy: SQL of the same place in the column's copy.
    """
    if not _differs(kind, form):
        return value
    element, place = f"e{depth}", f"i{depth}"
    if isinstance(kind, StructType):
        fields = []
        for item in kind.fields:
            name = quoted(item.physical_name if form.mapped else item.name)
            below = f"({copy}).{name}" if has_variant(item.type) else "NULL"
            inner = _logical(item.type, f"{value}.{name}", form, depth, below)
            fields.append(f"{quoted(item.name)} := {inner}")
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({', '.join(fields)}) END"
    if isinstance(kind, ArrayType):
        below = f"({copy})[{place}]" if has_variant(kind.element) else "NULL"
        inner = _logical(kind.element, element, form, depth + 1, below)
        return f"list_transform({value}, lambda {element}, {place}: {inner})"
    if isinstance(kind, MapType):
        below = f"map_values({copy})[{place}]" if has_variant(kind.value) else "NULL"
        keys = _logical(kind.key, f"{element}.key", form, depth + 1)
        values = _logical(kind.value, f"{element}.value", form, depth + 1, below)
        pairs = f"list_transform(map_entries({value}), lambda {element}, {place}: struct_pack(key := {keys}, value := {values}))"
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE map_from_entries({pairs}) END"
    if kind == _VARIANT:
        return variant_value(value, copy, form.column)
    # Infinity has no epoch in microseconds.
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
