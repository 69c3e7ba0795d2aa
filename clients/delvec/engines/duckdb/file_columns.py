"""A table's columns as files have them: what DuckDB is asked to read, and the value that this is in the table.

Columns are found by physical name, or by field id, and get neutral names inside.
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
    "variant": BINARIES,
}


def stored(item: StructField, inner: str, mode: str, *, without_zone: bool) -> tuple[str, str]:
    """Return what to read of a file for a column, entries of read_parquet's ``schema``, and its value from that.

    For a column with variants that is its copy, too, which is there where variants are shredded.

    Args:
        item: the column.
        inner: what the statement calls it.
        mode: of column mapping.
        without_zone: whether timestamps, nested ones too, are read as local times, as DuckDB has INT96. To cast it, DuckDB
            looks into the calendar of the session's zone: 70 ns for each, and another moment where that is not UTC.
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
    kind = sql_type(item.type, mapped=mode != "none", without_zone=without_zone, variant=VARIANT_IN_FILE)
    return _entry(key, inner, kind)


def _entry(key: str, inner: str, kind: str) -> str:
    return f"{key}: {{name: '{inner}', type: {string_literal(kind)}, default_value: NULL}}"


def _with_variants(kind: DataType) -> DataType:
    """Return a type without those fields of its structs in which there is no variant."""
    if isinstance(kind, StructType):
        fields = (item for item in kind.fields if has_variant(item.type))
        return StructType(tuple(replace(item, type=_with_variants(item.type)) for item in fields))
    if isinstance(kind, ArrayType):
        return ArrayType(_with_variants(kind.element))
    if isinstance(kind, MapType):
        return MapType(kind.key, _with_variants(kind.value) if has_variant(kind.value) else kind.value)
    return kind


def sql_type(kind: DataType, *, mapped: bool, without_zone: bool = False, variant: str = BINARIES) -> str:
    """Return DuckDB's type, struct fields under their physical names if ``mapped``, with ``variant`` for variants."""

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
    """How what is read of a column differs from the table: physical names in structs, timestamps without a zone."""

    column: str
    mapped: bool
    without_zone: bool


def _logical(kind: DataType, value: str, form: _Form, depth: int = 0, copy: str = "NULL") -> str:
    """Return ``value`` as the table has it: a predicate finds nested fields by their names, and timestamps are moments.

    Args:
        kind: its type.
        value: what is read.
        form: how it differs from the table.
        depth: how many lambda functions it is in.
        copy: what is read of the column's copy at the same place.
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
