"""Column mapping by field id: resolves the name of each column in each file.

Spark finds columns by field id only if the session's ``spark.sql.parquet.fieldId.read.enabled`` is on when the
query runs, not when it is created; otherwise columns are silently NULL. Even then, filters are pushed into
files by name (Spark 4.1), so that row groups of files from before a rename are skipped by the statistics of another
column. So field ids are resolved here from footers, and Spark reads by name.

Tested in `tests/integration/spark/test_spark_scan.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from delvec_engines.internal_names import INTERNAL
from delvec_kernel.schema.types import PHYSICAL_NAME, ArrayType, DataType, MapType, StructField, StructType
from delvec_parquet.file_schema import FileField, FileSchema

__all__ = ["named_as_in"]

_ABSENT: Final = INTERNAL("absent") + "_"


def named_as_in(file: FileSchema, stored: StructType) -> StructType:
    """Return the columns with their names in a file of this schema; missing columns get unused names."""
    return StructType(_named(stored.fields, file))


def _named(fields: Sequence[StructField], present: Sequence[FileField]) -> tuple[StructField, ...]:
    by_id = {each.field_id: each for each in present if each.field_id is not None}
    taken_names = {each.name.lower() for each in present}
    named_fields = []
    for item in fields:
        field = by_id.get(item.field_id) if item.field_id is not None else None
        if field is not None:
            kind, name = _named_type(item.type, field), field.name
        else:
            # Missing, even if another column has its name, so use a name that no column has.
            kind, name = item.type, item.physical_name
            if name.lower() in taken_names:
                name = f"{_ABSENT}{item.field_id}"
        named_fields.append(replace(item, type=kind, metadata={**item.metadata, PHYSICAL_NAME: name}))
    return tuple(named_fields)


def _named_type(kind: DataType, file_field: FileField) -> DataType:
    match kind:
        case StructType(fields) if file_field.shape == "struct":
            return StructType(_named(fields, file_field.inside))
        case ArrayType(element) if file_field.shape == "list":
            return replace(kind, element=_named_type(element, file_field.inside[0]))
        case MapType(key, value) if file_field.shape == "map" and len(file_field.inside) > 1:
            keys, values = file_field.inside
            return replace(kind, key=_named_type(key, keys), value=_named_type(value, values))
        case _:
            return kind
