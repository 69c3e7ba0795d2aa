"""Variants on DuckDB: two binaries, from a column and its copy, as footers made for DuckDB list them.

See :mod:`delvec_parquet.variant_footer`. Tested in `tests/integration/engines/test_variants.py`.
"""

from typing import Final

from delvec_engines.duckdb.lookup import string_literal
from delvec_engines.internal_names import INTERNAL
from delvec_kernel.schema.types import DataType, StructType, all_types
from delvec_parquet.variant_footer import HIDDEN, is_shredded

__all__ = ["BINARIES", "INCOMPLETE", "VARIANT_IN_FILE", "copy_name", "looks_shredded", "variant_value"]

BINARIES: Final = "STRUCT(metadata BLOB, value BLOB)"
VARIANT_IN_FILE: Final = f"STRUCT(metadata BLOB, value BLOB, {HIDDEN} BLOB)"
INCOMPLETE: Final = "has a variant without metadata"

_COPY: Final = INTERNAL("copy")


def variant_value(value: str, copy: str, column: str) -> str:
    """Return the SQL of a variant as two binaries, from a column and its copy.

    A value that is neither present nor shredded is ``null`` (Parquet's VariantShredding.md, "Value Shredding").
    """
    reason = string_literal(f"delvec: column '{column}' {INCOMPLETE}")
    return (
        f"CASE WHEN {value} IS NULL THEN NULL "
        f"WHEN {value}.{HIDDEN} IS NOT NULL THEN CAST(variant_to_parquet_variant({copy}) AS {BINARIES}) "
        f"WHEN {value}.metadata IS NULL THEN error({reason}) "
        f"ELSE struct_pack(metadata := {value}.metadata, value := coalesce({value}.value, '\\x00'::BLOB)) END"
    )


def copy_name(name: str) -> str:
    """Return the name of the copy of a column with a shredded variant."""
    return f"{_COPY}_{name}"


def looks_shredded(kind: DataType) -> bool:
    """Whether a type is or contains a struct that looks like a shredded variant without annotation."""
    structs = (each.fields for each in all_types(kind) if isinstance(each, StructType))
    return any(is_shredded({item.physical_name for item in fields}) for fields in structs)
