"""The columns of an Iceberg table as those of a Delta table, and their names in its files.

Tested in `tests/integration/client/test_iceberg_import.py`.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from delvec_errors import InvalidSchema
from delvec_kernel.schema.column_mapping import NESTED_IDS
from delvec_kernel.schema.type_widening import widens, with_type_change
from delvec_kernel.schema.types import (
    FIELD_ID,
    PARQUET_FIELD_ID,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    data_type_from_arrow,
    data_type_from_json,
)
from delvec_service.cloning.iceberg_metadata import IcebergSource, refusal, unsupported

__all__ = ["ColumnsInFiles", "delta_schema"]

_TYPES: Final = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}
_Mapping: TypeAlias = Sequence[Mapping[str, Any]] | None
_Parent: TypeAlias = tuple[int | str, ...]


def delta_schema(table: IcebergSource) -> StructType:
    """Return the columns with their ids; physical names are not known yet.

    Raises:
        UnsupportedOperation: a column has a type, or a default for earlier rows, that Delta does not support.
        InvalidSchema: two names differ only by case, so they are the same name in Delta.
        InvalidTableChange: the schema is damaged.
    """
    try:
        schema = _type(table, table.schema, "")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise refusal(
            table.location,
            f"the schema in {table.metadata} is damaged ({error!r}). Use an older metadata file.",
            file=table.metadata,
        ) from error
    assert isinstance(schema, StructType)  # noqa: S101 - a schema is a struct
    return schema


def _type(table: IcebergSource, kind: Any, column: str) -> DataType:
    if isinstance(kind, str):
        return _primitive(table, kind.replace(" ", ""), column)
    match kind["type"]:
        case "struct":
            return StructType(tuple(_field(table, each, column) for each in kind["fields"]))
        case "list":
            return ArrayType(_type(table, kind["element"], f"{column}.element"), not kind["element-required"])
        case "map":
            return MapType(
                _type(table, kind["key"], f"{column}.key"),
                _type(table, kind["value"], f"{column}.value"),
                not kind["value-required"],
            )
    raise _unknown_type(table, str(kind["type"]), column)


def _field(table: IcebergSource, each: Mapping[str, Any], above: str) -> StructField:
    name = str(each["name"])
    column = f"{above}.{name}" if above else name
    if each.get("initial-default") is not None:
        raise unsupported(
            table.location,
            f"column '{column}' has a default for rows written before it, which Delta does not support. Rewrite the "
            "table's data files with Iceberg, and drop the default.",
            column=column,
        )
    metadata: dict[str, Any] = {FIELD_ID: int(each["id"])}
    if nested := dict(_nested_ids(each["type"], name)):
        metadata[NESTED_IDS] = nested
    if each.get("doc"):
        metadata["comment"] = str(each["doc"])
    return StructField(name, _type(table, each["type"], column), not each["required"], metadata)


def _nested_ids(kind: Any, path: str) -> Iterator[tuple[str, int]]:
    """Yield the ids of elements, keys and values outside nested structs, by a path such as ``c.value.element``."""
    inside = {"list": ("element",), "map": ("key", "value")}
    for part in inside.get(kind["type"], ()) if isinstance(kind, dict) else ():
        yield f"{path}.{part}", int(kind[f"{part}-id"])
        yield from _nested_ids(kind[part], f"{path}.{part}")


def _primitive(table: IcebergSource, kind: str, column: str) -> DataType:
    if kind.startswith("fixed["):
        return PrimitiveType("binary")
    if kind.startswith("decimal("):
        return data_type_from_json(kind)
    if kind not in _TYPES:
        raise _unknown_type(table, kind, column)
    return PrimitiveType(_TYPES[kind])


def _unknown_type(table: IcebergSource, kind: str, column: str) -> Exception:
    return unsupported(
        table.location,
        f"column '{column}' has type {kind[:80]}, which Delvec cannot import. Drop the column, or write the rows to "
        "a new table with another type.",
        column=column,
        type=kind[:80],
    )


@dataclass
class ColumnsInFiles:
    """Collects the columns from the footers of a table's data files, one file after the other.

    Args:
        table: the table of the files.
        schema: the schema of the table.
        elsewhere: ids of columns whose values are in the log, so that files need not have them.
    """

    table: IcebergSource
    schema: StructType
    elsewhere: frozenset[int]
    _names: dict[int, dict[str, None]] = field(default_factory=dict)
    _owners: dict[tuple[_Parent, str], set[int | None]] = field(default_factory=dict)
    _narrower: dict[int, dict[tuple[str, ...], set[str]]] = field(default_factory=dict)
    _renamed: tuple[str, str] | None = None
    _without_ids: str | None = None

    def take(self, path: str, footer: pq.FileMetaData) -> frozenset[int]:
        """Add a file, and return the ids of its columns and fields.

        Raises:
            InvalidTableChange: the type of a column differs from the table's, or a required column is missing.
        """
        try:
            arrow = footer.schema.to_arrow_schema()
        except (pa.ArrowException, ValueError, RecursionError) as error:
            raise refusal(
                self.table.location, f"the columns of '{path}' cannot be read: {str(error)[:200]}", file=path
            ) from error
        field_ids: set[int] = set()
        old_timestamps = any(
            footer.schema.column(number).physical_type == "INT96" for number in range(len(footer.schema))
        )
        _SchemaVisitor(self, path, field_ids, old_timestamps=old_timestamps).struct(
            self.schema, list(arrow), (), self.table.name_mapping
        )
        return frozenset(field_ids)

    def note(self, parent: _Parent, name: str, owner: int | None, path: str, *, has_id: bool) -> None:
        """Record the name that a file has for a column; ``owner`` is None if the table no longer has the column."""
        if not has_id and self._without_ids is None:
            self._without_ids = path
        owners, names = self._owners.setdefault((parent, name), set()), {}
        owners.add(owner)
        if owner is not None:
            names = self._names.setdefault(owner, {})
            names[name] = None
        if (len(owners) > 1 or len(names) > 1) and self._renamed is None:
            self._renamed = (name, path)

    def narrower(self, field_id: int, inside: tuple[str, ...], kind: str) -> None:
        """Record that a file has values of a narrower type."""
        self._narrower.setdefault(field_id, {}).setdefault(inside, set()).add(kind)

    @property
    def widens_types(self) -> bool:
        """Whether any file has a narrower type than the table."""
        return bool(self._narrower)

    def mapped(self) -> tuple[str, StructType]:
        """Return how columns are mapped, ``name`` or ``id``, and the schema with physical names.

        Raises:
            UnsupportedOperation: files without ids have different names for a column.
        """
        schema = self._named(self.schema, ())
        if self._renamed is None:
            return "name", schema
        if self._without_ids is not None:
            name, path = self._renamed
            raise unsupported(
                self.table.location,
                f"column '{name}' of file '{path}' has another name in other files, and '{self._without_ids}' has "
                "no field ids to identify it. Rewrite the table's data files with Iceberg first.",
                file=path,
                column=name,
            )
        return "id", schema

    def _physical_name(self, parent: _Parent, each: StructField) -> str:
        """Return a name that a file has for this column and no other file has, if any: not all readers use ids."""
        number = int(each.metadata[FIELD_ID])
        called: list[str] = [*self._names.get(number, {}), each.name]
        for name in called:
            if self._owners.get((parent, name), {number}) == {number}:
                return name
        return f"col-{uuid.uuid4()}"

    def _named(self, kind: Any, parent: _Parent) -> Any:
        match kind:
            case StructType():
                return StructType(tuple(self._named_field(each, parent) for each in kind.fields))
            case ArrayType():
                return replace(kind, element=self._named(kind.element, (*parent, "element")))
            case MapType():
                key = self._named(kind.key, (*parent, "key"))
                return replace(kind, key=key, value=self._named(kind.value, (*parent, "value")))
            case _:
                return kind

    def _named_field(self, each: StructField, parent: _Parent) -> StructField:
        number = each.metadata[FIELD_ID]
        physical_name = self._physical_name(parent, each)
        metadata = {**each.metadata, PHYSICAL_NAME: physical_name}
        if nested := each.metadata.get(NESTED_IDS):
            metadata[NESTED_IDS] = {
                physical_name + path.removeprefix(each.name): nested_id for path, nested_id in nested.items()
            }
        struct_field = replace(each, type=self._named(each.type, (number,)), metadata=metadata)
        for inside, narrower in self._narrower.get(number, {}).items():
            kind = each.type
            for step in inside:
                kind = getattr(kind, step)
            steps = [*_ascending(narrower), str(kind.to_json())]
            for before, after in pairwise(steps):
                struct_field = with_type_change(struct_field, before, after, inside)
        return struct_field


def _ascending(kinds: Iterable[str]) -> list[str]:
    found: list[str] = []
    for kind in kinds:
        place = next((place for place, other in enumerate(found) if widens(kind, other)), len(found))
        found.insert(place, kind)
    return found


@dataclass
class _SchemaVisitor:
    """One file's columns compared with the table's."""

    columns: ColumnsInFiles
    path: str
    found: set[int]
    old_timestamps: bool

    def struct(self, kind: StructType, there: Sequence[pa.Field], parent: _Parent, mapping: _Mapping) -> None:
        fields_by_id = {each.metadata[FIELD_ID]: each for each in kind.fields}
        for item in there:
            text = (item.metadata or {}).get(PARQUET_FIELD_ID)
            field_mapping = _mapped(mapping, item.name)
            number = (
                int(text)
                if text is not None
                else None
                if field_mapping is None
                else field_mapping.get("field-id")
            )
            if text is None and self.columns.table.name_mapping is None:
                raise refusal(
                    self.columns.table.location,
                    f"file '{self.path}' has no field ids and the table has no schema.name-mapping.default, so its "
                    "columns cannot be identified. Set the mapping, or rewrite the file.",
                    file=self.path,
                )
            each = None if number is None else fields_by_id.get(number)
            self.columns.note(
                parent, item.name, None if each is None else number, self.path, has_id=text is not None
            )
            if each is not None and number is not None:
                self.found.add(number)
                self._compare(
                    each,
                    each.type,
                    item.type,
                    (),
                    None if field_mapping is None else field_mapping.get("fields"),
                )
        for number, each in fields_by_id.items():
            if number not in self.found and not (each.nullable or number in self.columns.elsewhere):
                raise refusal(
                    self.columns.table.location,
                    f"file '{self.path}' lacks column '{each.name}', which is required. Make the column optional "
                    "first.",
                    file=self.path,
                    column=each.name,
                )

    def _compare(
        self,
        each: StructField,
        kind: DataType,
        there: pa.DataType,
        inside: tuple[str, ...],
        mapping: _Mapping,
    ) -> None:
        number = each.metadata[FIELD_ID]
        if isinstance(kind, StructType) and pa.types.is_struct(there):
            self.struct(kind, list(there), (number, *inside), mapping)
        elif isinstance(kind, ArrayType) and (pa.types.is_list(there) or pa.types.is_large_list(there)):
            self._compare(
                each, kind.element, there.value_type, (*inside, "element"), _inner(mapping, "element")
            )
        elif isinstance(kind, MapType) and pa.types.is_map(there):
            self._compare(each, kind.key, there.key_type, (*inside, "key"), _inner(mapping, "key"))
            self._compare(each, kind.value, there.item_type, (*inside, "value"), _inner(mapping, "value"))
        else:
            self._compare_leaf(each, kind, there, inside)

    def _compare_leaf(
        self, each: StructField, kind: DataType, there: pa.DataType, inside: tuple[str, ...]
    ) -> None:
        if pa.types.is_timestamp(there) and there.unit == "ns":
            # INT96, which has no time zone in the file and means UTC, is the only such timestamp that Delta readers
            # support.
            if self.old_timestamps and kind == PrimitiveType("timestamp"):
                return
            name = str(there)
        else:
            try:
                stored = data_type_from_arrow(there)
            except InvalidSchema:
                stored = None
            if stored == kind:
                return
            name = str(there) if stored is None else str(stored.to_json())
            if widens(name, str(kind.to_json())):
                self.columns.narrower(each.metadata[FIELD_ID], inside, name)
                return
        raise refusal(
            self.columns.table.location,
            f"column '{each.name}' is {kind.to_json()} in the table but {name} in file '{self.path}', which Delta "
            "readers do not convert. Rewrite the file with Iceberg.",
            file=self.path,
            column=each.name,
        )


def _mapped(mapping: _Mapping, name: str) -> Mapping[str, Any] | None:
    return next((each for each in mapping or () if name in each.get("names", ())), None)


def _inner(mapping: _Mapping, name: str) -> _Mapping:
    found = _mapped(mapping, name)
    return None if found is None else found.get("fields")
