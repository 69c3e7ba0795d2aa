"""Column mapping: ids and physical names of columns (PROTOCOL.md, "Column Mapping")."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from delvec_kernel.schema.types import (
    FIELD_ID,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

__all__ = ["MAX_COLUMN_ID", "MODE", "all_fields", "is_mapped", "mapped", "without_physical_names"]

MODE: Final = "delta.columnMapping.mode"
MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"


def is_mapped(configuration: Mapping[str, str]) -> bool:
    """Whether column mapping is enabled."""
    return configuration.get(MODE, "none").strip().lower() != "none"


def all_fields(kind: DataType) -> Iterator[StructField]:
    """Yield all fields of a type, including nested ones, each before those inside it."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield field
            yield from all_fields(field.type)
    elif isinstance(kind, ArrayType):
        yield from all_fields(kind.element)
    elif isinstance(kind, MapType):
        yield from all_fields(kind.key)
        yield from all_fields(kind.value)


def _with_fields(kind: DataType, change: Callable[[StructField], StructField]) -> DataType:
    """Return a type with ``change`` applied to all fields, in the order of :func:`all_fields`."""
    if isinstance(kind, ArrayType):
        return replace(kind, element=_with_fields(kind.element, change))
    if isinstance(kind, MapType):
        return replace(kind, key=_with_fields(kind.key, change), value=_with_fields(kind.value, change))
    if not isinstance(kind, StructType):
        return kind
    changed = map(change, kind.fields)
    return StructType(tuple(replace(field, type=_with_fields(field.type, change)) for field in changed))


def mapped(
    schema: StructType, max_id: int, *, enabling: bool, new_name: Callable[[], str]
) -> tuple[StructType, int]:
    """Return a schema in which every field has an id and a physical name, and the highest id ever assigned.

    Args:
        schema: fields without id or physical name are new.
        max_id: the highest id so far, including those of dropped columns.
        enabling: whether mapping is being enabled, so that existing files use the schema's names.
        new_name: returns a new physical name.
    """
    known = [int(field.metadata[FIELD_ID]) for field in all_fields(schema) if FIELD_ID in field.metadata]
    numbers = _Numbers(max([max_id, *known]))

    def assign(field: StructField) -> StructField:
        metadata = dict(field.metadata)
        if FIELD_ID not in metadata:
            metadata[FIELD_ID] = numbers.next()
        if PHYSICAL_NAME not in metadata:
            metadata[PHYSICAL_NAME] = field.name if enabling else new_name()
        return replace(field, metadata=metadata)

    result = _with_fields(schema, assign)
    assert isinstance(result, StructType)  # noqa: S101 - changing fields keeps the struct
    return result, numbers.last


def without_physical_names(schema: StructType) -> StructType:
    """Return the schema without ids and physical names."""
    if not any(PHYSICAL_NAME in field.metadata for field in all_fields(schema)):
        return schema

    def strip(field: StructField) -> StructField:
        kept = {key: value for key, value in field.metadata.items() if key != PHYSICAL_NAME}
        return replace(field, metadata=kept)

    result = _with_fields(schema, strip)
    assert isinstance(result, StructType)  # noqa: S101 - changing fields keeps the struct
    return result


class _Numbers:
    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last
