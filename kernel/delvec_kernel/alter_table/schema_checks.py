"""Checks of the columns and partition columns of tables that Delvec writes.

Tested in `tests/unit/kernel/alter_table/test_columns.py` and
`tests/unit/kernel/alter_table/test_first_version.py`.
"""

import json
from collections.abc import Sequence
from typing import Final

from delvec_errors import InvalidSchema, UnsupportedWriterFeature
from delvec_kernel.constraints import computed_columns
from delvec_kernel.constraints.declared import DEFAULT, constraints_of
from delvec_kernel.schema.char_varchar import CHARACTERS
from delvec_kernel.schema.column_mapping import all_fields
from delvec_kernel.schema.types import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    all_types,
    has_geospatial,
    has_variant,
)

__all__ = ["check_column_name", "check_columns", "checked_partition_columns"]


def check_columns(schema: StructType, *, has_mapping: bool = False, allow_computed: bool = False) -> None:
    """Reject a schema that Delvec cannot write.

    Args:
        schema: partition columns included.
        has_mapping: whether column mapping is enabled, so that names may contain any character.
        allow_computed: whether default, generated and identity columns are allowed.

    Raises:
        InvalidSchema: names the column.
    """
    if not schema.fields:
        raise InvalidSchema("A table needs at least one column.")
    known = computed_columns.check(schema) if allow_computed else frozenset()
    for field in all_fields(schema):
        check_column_name(field.name, has_mapping=has_mapping)
        for key in field.metadata:
            if (field.name, key) in known:
                continue
            if key == CHARACTERS and field in schema.fields:
                _check_lengths(field)
                continue
            if key.startswith("delta.") or key in (DEFAULT, CHARACTERS):
                raise InvalidSchema(
                    f"The column '{field.name}' has '{key}', which Delvec does not enforce yet; leave it out.",
                    column=field.name,
                )
    if any(kind == PrimitiveType("void") for kind in all_types(schema)):
        raise InvalidSchema("A column of type void cannot hold values; give it another type.")
    if has_variant(schema):
        raise InvalidSchema("Delvec can read columns of type variant but cannot write them yet; use strings.")
    if has_geospatial(schema):
        raise InvalidSchema(
            "Delvec can read columns of type geometry and geography but cannot write them yet; use binary, with "
            "Well-Known Binary in it."
        )


def checked_partition_columns(schema: StructType, requested_columns: Sequence[str]) -> list[str]:
    """Return partition columns as spelled in the schema.

    Raises:
        InvalidSchema: a column is unknown, repeated or of an unsupported type, or no other columns are left.
    """
    partition_columns: list[str] = []
    for name in requested_columns:
        if name not in schema:
            raise InvalidSchema(f"The partition column '{name}' is not in the schema.", column=name)
        field = schema.field(name)
        if field.name in partition_columns:
            raise InvalidSchema(f"The partition column '{name}' is listed twice.", column=name)
        if isinstance(field.type, StructType | ArrayType | MapType):
            raise InvalidSchema(
                f"The column '{name}' of type {json.dumps(field.type.to_json())[:80]} cannot partition a table.",
                column=name,
            )
        partition_columns.append(field.name)
    if len(partition_columns) == len(schema.fields):
        raise InvalidSchema("A table needs at least one column that is not a partition column.")
    return partition_columns


def _check_lengths(field: StructField) -> None:
    """Reject malformed char and varchar metadata."""
    try:
        constraints_of(StructType((field,)), {})
    except UnsupportedWriterFeature as error:
        raise InvalidSchema(error.message, column=field.name) from error


_FORBIDDEN: Final = " ,;{}()\n\t="
_RESERVED: Final = frozenset({"_metadata", "_change_type", "_commit_version", "_commit_timestamp"})


def check_column_name(name: str, *, has_mapping: bool = False) -> None:
    """Reject an invalid column name.

    Args:
        name: the name of a column or struct field.
        has_mapping: whether column mapping is enabled, so that names may contain any character.

    Raises:
        InvalidSchema: the name is empty or reserved, or has characters that Parquet readers reject.
    """
    if not name or (not has_mapping and any(character in _FORBIDDEN for character in name)):
        raise InvalidSchema(
            f"The column name '{name}' is empty or contains a space, tab, newline or one of ,;{{}}()=, "
            "which is only possible with column mapping; rename the column.",
            column=name,
        )
    if name.lower() in _RESERVED:
        raise InvalidSchema(f"The column name '{name}' is reserved; rename it.", column=name)
