"""Column mapping: ids and physical names of columns (PROTOCOL.md, "Column Mapping")."""

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delvec_errors import CorruptLog, InvalidSchema
from delvec_kernel.schema.types import (
    FIELD_ID,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    all_types,
)

__all__ = [
    "MAX_COLUMN_ID",
    "MODE",
    "NESTED_IDS",
    "NestedIds",
    "all_fields",
    "check_mapping",
    "is_mapped",
    "known_ids",
    "mapped",
    "mapping_mode",
    "max_column_id",
    "physical_names",
    "with_fields",
    "without_physical_names",
]

MODE: Final = "delta.columnMapping.mode"
MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
_MAX_DIGITS: Final = 18
_NAMES: Final = uuid.UUID("9f2d1c5e-4c36-4f0c-9a35-0a4b3b1f6f0e")
NESTED_IDS: Final = "delta.columnMapping.nested.ids"
"""Ids of list elements, map keys and map values (PROTOCOL.md, "IcebergCompatV2"): Iceberg's readers for Java need them."""


def physical_names(transaction_id: str) -> Callable[[], str]:
    """Return a generator of physical names, the same ones when the transaction begins and when it is committed."""
    numbers = itertools.count()
    return lambda: f"col-{uuid.uuid5(_NAMES, f'{transaction_id}/{next(numbers)}')}"


def mapping_mode(configuration: Mapping[str, str]) -> str:
    """Return the mode: ``none``, ``name`` or ``id``."""
    return configuration.get(MODE, "none").strip().lower()


def is_mapped(configuration: Mapping[str, str]) -> bool:
    """Whether column mapping is enabled."""
    return mapping_mode(configuration) != "none"


def check_mapping(schema: StructType, configuration: Mapping[str, str]) -> None:
    """Check that no two columns are the same one in files.

    Raises:
        InvalidSchema: two columns, or fields of a struct, have the same physical name, or in mode ``id`` the same id.
            Elsewhere in the schema the same id may occur, because files are searched struct by struct.
    """
    by_id = mapping_mode(configuration) == "id"
    for struct in all_types(schema):
        if isinstance(struct, StructType):
            _check_distinct(struct.fields, "physical name", [item.physical_name for item in struct.fields])
        if isinstance(struct, StructType) and by_id:
            fields = [item for item in struct.fields if item.field_id is not None]
            _check_distinct(fields, "column id", [item.field_id for item in fields])


def _check_distinct(fields: Sequence[StructField], what: str, values: Sequence[str | int | None]) -> None:
    names_by_value: dict[str | int | None, str] = {}
    for item, value in zip(fields, values, strict=True):
        if value in names_by_value:
            raise InvalidSchema(
                f"columns {names_by_value[value]!r} and {item.name!r} have the same {what}, {value!r}",
                column=item.name,
            )
        names_by_value[value] = item.name


def max_column_id(configuration: Mapping[str, str]) -> int:
    """Return the highest column id that a table has used; 0 if it says nothing.

    Raises:
        CorruptLog: the property is not a valid column id.
    """
    text = configuration.get(MAX_COLUMN_ID, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise CorruptLog(
            f"The table property {MAX_COLUMN_ID} is {text[:100]!r}, which is not a valid column id."
        )
    return int(text)


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


def with_fields(kind: DataType, change: Callable[[StructField], StructField]) -> DataType:
    """Return a type with ``change`` applied to all fields, in the order of :func:`all_fields`."""
    if isinstance(kind, ArrayType):
        return replace(kind, element=with_fields(kind.element, change))
    if isinstance(kind, MapType):
        return replace(kind, key=with_fields(kind.key, change), value=with_fields(kind.value, change))
    if not isinstance(kind, StructType):
        return kind
    changed = map(change, kind.fields)
    return StructType(tuple(replace(field, type=with_fields(field.type, change)) for field in changed))


def mapped(
    schema: StructType, max_id: int, *, enabling: bool, with_nested_ids: bool, new_name: Callable[[], str]
) -> tuple[StructType, int]:
    """Return a schema in which every field has an id and a physical name, and the highest id ever assigned.

    Args:
        schema: fields without id or physical name are new.
        max_id: the highest id so far, including those of dropped columns.
        enabling: whether mapping is being enabled, so that existing files use the schema's names.
        with_nested_ids: whether elements, keys and values get ids, too; they also do if some have.
        new_name: returns a new physical name.
    """
    numbers = _Numbers(max([max_id, *known_ids(schema)]))

    def assign(field: StructField) -> StructField:
        metadata = dict(field.metadata)
        if FIELD_ID not in metadata:
            metadata[FIELD_ID] = numbers.next()
        if PHYSICAL_NAME not in metadata:
            metadata[PHYSICAL_NAME] = field.name if enabling else new_name()
        return replace(field, metadata=metadata)

    result = with_fields(schema, assign)
    if with_nested_ids or any(NESTED_IDS in field.metadata for field in all_fields(schema)):
        # After all others, as in delta-spark.
        result = with_fields(result, lambda field: _with_nested_ids(field, numbers.next))
    assert isinstance(result, StructType)  # noqa: S101 - changing fields keeps the struct
    return result, numbers.last


def known_ids(kind: DataType) -> Iterator[int]:
    """Yield all ids in a schema, nested ones included; what is not an integer is left out."""
    for field in all_fields(kind):
        if field.field_id is not None:
            yield field.field_id
        yield from NestedIds.of(field).all()


def _with_nested_ids(field: StructField, new_id: Callable[[], int]) -> StructField:
    """Return the field with ids for the elements, keys and values of its type, except inside nested fields."""
    known = NestedIds.of(field)
    ids = {path: known.get(path) or new_id() for path in _nested_paths(field.type, field.physical_name)}
    return replace(field, metadata={**field.metadata, NESTED_IDS: ids}) if ids else field


def _nested_paths(kind: DataType, path: str) -> Iterator[str]:
    """Yield paths such as ``c.key`` and ``c.value.element``, in which ``c`` is the physical name."""
    if isinstance(kind, ArrayType):
        yield f"{path}.element"
        yield from _nested_paths(kind.element, f"{path}.element")
    elif isinstance(kind, MapType):
        yield f"{path}.key"
        yield from _nested_paths(kind.key, f"{path}.key")
        yield f"{path}.value"
        yield from _nested_paths(kind.value, f"{path}.value")


class NestedIds:
    """The ids of a field's elements, keys and values, at one path inside its type (PROTOCOL.md, "IcebergCompatV2").

    Args:
        path: the field's physical name, then ``element``, ``key`` or ``value``.
        ids: by path; anything but integers counts as absent.
    """

    def __init__(self, path: str, ids: Mapping[str, Any]) -> None:
        self._path = path
        self._ids = ids

    @classmethod
    def of(cls, field: StructField) -> "NestedIds":
        """Return the ids of a field, at its root."""
        found = field.metadata.get(NESTED_IDS)
        return cls(field.physical_name, found if isinstance(found, dict) else {})

    def child(self, part: str) -> "NestedIds":
        """Return the ids inside ``element``, ``key`` or ``value``."""
        return NestedIds(f"{self._path}.{part}", self._ids)

    @property
    def id(self) -> int | None:
        """The id of this path."""
        return self.get(self._path)

    def get(self, path: str) -> int | None:
        """Return the id of a path."""
        found = self._ids.get(path)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def all(self) -> Iterator[int]:
        """Yield all ids of the field."""
        yield from (one for one in self._ids.values() if isinstance(one, int) and not isinstance(one, bool))


def without_physical_names(schema: StructType) -> StructType:
    """Return the schema without ids and physical names."""
    if not any(PHYSICAL_NAME in field.metadata for field in all_fields(schema)):
        return schema

    def strip(field: StructField) -> StructField:
        kept = {key: value for key, value in field.metadata.items() if key != PHYSICAL_NAME}
        return replace(field, metadata=kept)

    result = with_fields(schema, strip)
    assert isinstance(result, StructType)  # noqa: S101 - changing fields keeps the struct
    return result


class _Numbers:
    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last
