"""Iceberg schemas of Delta tables: types, field ids, and the name mapping for files without ids.

With column mapping, field ids are Delta's. Without it, Delta identifies columns by name, so each name keeps its id
forever, and ``schema.name-mapping.default`` maps the names in files to ids.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from delvec_errors import IcebergUnsupported
from delvec_kernel.schema.column_mapping import MAX_COLUMN_ID, NestedIds, is_mapped, known_ids
from delvec_kernel.schema.type_widening import TYPE_CHANGES
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    GeospatialType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

__all__ = [
    "V3",
    "IcebergSchema",
    "Leaf",
    "field_ids",
    "field_types",
    "iceberg_schema",
    "merged_name_mapping",
    "promotes",
]

Path: TypeAlias = tuple[str, ...]

V3: Final = 3
"""The format version with deletion vectors, row lineage and variants."""
_FIRST_RESERVED: Final = 2147483440
"""Field ids from here on are reserved."""
_TYPES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "string": "string",
    "binary": "binary",
}
_V3_TYPES: Final[Mapping[str, str]] = {"variant": "variant"}
_PROMOTIONS: Final = frozenset({("int", "long"), ("float", "double")})


@dataclass(frozen=True)
class Leaf:
    """A column or struct field that may have statistics.

    Attributes:
        field_id: the field id of the Iceberg field.
        path: physical names, from the column down.
        type: the Delta type.
    """

    field_id: int
    path: Path
    type: DataType


@dataclass(frozen=True)
class IcebergSchema:
    """The Iceberg schema of a Delta table.

    Attributes:
        fields: the fields of the schema's JSON, without ``schema-id``.
        last_column_id: the highest field id ever assigned.
        leaves: columns of primitive types outside arrays and maps.
        name_mapping: ``schema.name-mapping.default``, parsed: names in data files.
    """

    fields: Sequence[Mapping[str, Any]]
    last_column_id: int
    leaves: Sequence[Leaf]
    name_mapping: Sequence[Mapping[str, Any]]

    def to_json(self, schema_id: int) -> dict[str, Any]:
        """Return the schema's JSON object."""
        return {"type": "struct", "schema-id": schema_id, "fields": list(self.fields)}

    def id_of(self, name: str) -> int:
        """Return the field id of a column, case-insensitive."""
        return next(int(item["id"]) for item in self.fields if item["name"].lower() == name.lower())


def iceberg_schema(
    schema: StructType,
    configuration: Mapping[str, str],
    *,
    format_version: int,
    earlier: Sequence[Mapping[str, Any]] = (),
    last_column_id: int = 0,
) -> IcebergSchema:
    """Convert a Delta schema to an Iceberg schema.

    Args:
        schema: the Delta schema.
        configuration: table properties.
        format_version: 2 or 3.
        earlier: the table's Iceberg schemas so far, oldest first, whose ids are kept.
        last_column_id: the highest field id ever assigned.

    Raises:
        IcebergUnsupported: Iceberg cannot represent a column's type or its widening; names the column.
    """
    has_mapping = is_mapped(configuration)
    ids_by_path: dict[Path, int] = {}
    for document in earlier:
        ids_by_path.update(field_ids(document["fields"]))
    highest = last_column_id
    if has_mapping:
        most = configuration.get(MAX_COLUMN_ID, "0")
        highest = max(highest, int(most) if most.isascii() and most.isdigit() else 0, *known_ids(schema), 0)
    work = _Conversion(
        has_mapping=has_mapping, known=ids_by_path, highest=highest, format_version=format_version
    )
    fields, mapping = work.struct(schema, (), ())
    return IcebergSchema(fields, work.highest, work.leaves, mapping)


class _Conversion:
    def __init__(
        self, *, has_mapping: bool, known: Mapping[Path, int], highest: int, format_version: int
    ) -> None:
        self._mapped = has_mapping
        self._known = known
        self._format_version = format_version
        self._given: set[int] = set()
        self.highest = highest
        self.leaves: list[Leaf] = []

    def struct(
        self, kind: StructType, path: Path, physical: Path | None
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the fields and their name mappings; ``physical`` is None inside arrays and maps."""
        # As in Delta, number all fields of a struct before the fields nested in them.
        ids = [self._id_of(field, (*path, field.name)) for field in kind.fields]
        fields, mapping = [], []
        for field, field_id in zip(kind.fields, ids, strict=True):
            where = (*path, field.name)
            here = None if physical is None else (*physical, field.physical_name)
            _check_changes(field, where)
            json_type, names = self._type(field.type, where, here, NestedIds.of(field))
            if here is not None and not isinstance(field.type, StructType | ArrayType | MapType):
                self.leaves.append(Leaf(field_id, here, field.type))
            document = {
                "id": field_id,
                "name": field.name,
                "required": not field.nullable,
                "type": json_type,
            }
            comment = field.metadata.get("comment")
            if isinstance(comment, str):
                document["doc"] = comment
            fields.append(document)
            entry: dict[str, Any] = {"field-id": field_id, "names": [field.physical_name]}
            mapping.append(entry | ({"fields": names} if names else {}))
        return fields, mapping

    def _type(
        self, kind: DataType, where: Path, here: Path | None, nested_ids: NestedIds
    ) -> tuple[Any, list[dict[str, Any]]]:
        if isinstance(kind, StructType):
            fields, names = self.struct(kind, where, here)
            return {"type": "struct", "fields": fields}, names
        if isinstance(kind, ArrayType):
            element_id = self._inner_id(nested_ids.child("element"), (*where, "element"))
            element, names = self._type(kind.element, (*where, "element"), None, nested_ids.child("element"))
            document = {
                "type": "list",
                "element-id": element_id,
                "element": element,
                "element-required": not kind.contains_null,
            }
            return document, [_mapped_name(element_id, "element", names)]
        if isinstance(kind, MapType):
            key_id = self._inner_id(nested_ids.child("key"), (*where, "key"))
            value_id = self._inner_id(nested_ids.child("value"), (*where, "value"))
            key, key_names = self._type(kind.key, (*where, "key"), None, nested_ids.child("key"))
            value, value_names = self._type(kind.value, (*where, "value"), None, nested_ids.child("value"))
            document = {
                "type": "map",
                "key-id": key_id,
                "key": key,
                "value-id": value_id,
                "value": value,
                "value-required": not kind.value_contains_null,
            }
            return document, [
                _mapped_name(key_id, "key", key_names),
                _mapped_name(value_id, "value", value_names),
            ]
        return self._primitive(kind, where), []

    def _primitive(self, kind: DataType, where: Path) -> str:
        if isinstance(kind, DecimalType):
            return f"decimal({kind.precision}, {kind.scale})"
        if isinstance(kind, GeospatialType):
            # Mapping it to binary would contradict the type in the data files.
            raise IcebergUnsupported(
                f"Column '{'.'.join(where)}' is of type {kind.text}, which Delvec does not convert to Iceberg; drop the column.",
                column=".".join(where),
                data_type=kind.text,
            )
        name = kind.name if isinstance(kind, PrimitiveType) else str(kind.to_json())
        iceberg_type = _TYPES.get(name) or (_V3_TYPES.get(name) if self._format_version >= V3 else None)
        if iceberg_type is None:
            column = ".".join(where)
            advice = (
                "convert with format version 3"
                if name in _V3_TYPES
                else "drop the column, or rewrite it with another type"
            )
            raise IcebergUnsupported(
                f"Column '{column}' has type {name}, which Iceberg tables of format version "
                f"{self._format_version} do not support; {advice}.",
                column=column,
                data_type=name,
            )
        return iceberg_type

    def _id_of(self, field: StructField, where: Path) -> int:
        if self._mapped:
            if field.field_id is None:
                column = ".".join(where)
                raise IcebergUnsupported(
                    f"Column '{column}' has no column id, although the table has column mapping; repair the "
                    "table's schema.",
                    column=column,
                )
            return self._take(field.field_id, where)
        return self._take(self._known.get(where), where)

    def _inner_id(self, nested_ids: NestedIds, where: Path) -> int:
        return self._take(
            nested_ids.id if self._mapped and nested_ids.id is not None else self._known.get(where), where
        )

    def _take(self, field_id: int | None, where: Path) -> int:
        if field_id is None:
            self.highest += 1
            field_id = self.highest
        if field_id in self._given or not 0 < field_id < _FIRST_RESERVED:
            column = ".".join(where)
            raise IcebergUnsupported(
                f"Column '{column}' has the id {field_id}, which another column has as well or which is "
                "reserved in Iceberg; repair the table's schema.",
                column=column,
            )
        self._given.add(field_id)
        self.highest = max(self.highest, field_id)
        return field_id


def _mapped_name(field_id: int, name: str, inside: list[dict[str, Any]]) -> dict[str, Any]:
    return {"field-id": field_id, "names": [name]} | ({"fields": inside} if inside else {})


def _check_changes(field: StructField, where: Path) -> None:
    """Reject a column whose older files have a type that Iceberg cannot promote to the current one."""
    for change in field.metadata.get(TYPE_CHANGES) or ():
        before, after = str(change.get("fromType")), str(change.get("toType"))
        if not _reads_as(before, after):
            column = ".".join((*where, *str(change.get("fieldPath") or "").split("."))).rstrip(".")
            raise IcebergUnsupported(
                f"Column '{column}' was widened from {before} to {after}, which Iceberg does not support; "
                "rewrite the files that have the old type, and drop the feature typeWidening.",
                column=column,
                data_type=after,
            )


def _reads_as(before: str, after: str) -> bool:
    old, new = _TYPES.get(before), _TYPES.get(after)
    if old is not None and new is not None:
        return old == new or (old, new) in _PROMOTIONS
    return promotes(before, after)


def promotes(before: Any, after: Any) -> bool:
    """Whether Iceberg can promote one primitive type to another, or they are the same."""
    if before == after or (before, after) in _PROMOTIONS:
        return True
    if not (isinstance(before, str) and isinstance(after, str)):
        return False
    if not (before.startswith("decimal(") and after.startswith("decimal(")):
        return False
    (old_precision, old_scale), (precision, scale) = _digits(before), _digits(after)
    return old_scale == scale and old_precision <= precision


def _digits(text: str) -> tuple[int, int]:
    precision, scale = text.removeprefix("decimal(").rstrip(")").split(",")
    return int(precision), int(scale)


def field_types(fields: Sequence[Mapping[str, Any]]) -> dict[int, Any]:
    """Return the primitive types in a schema's JSON by field id; structs, lists and maps by their kind."""
    found: dict[int, Any] = {}
    for item in fields:
        _collect_types(int(item["id"]), item["type"], found)
    return found


def _collect_types(field_id: int, kind: Any, types_by_id: dict[int, Any]) -> None:
    if not isinstance(kind, Mapping):
        types_by_id[field_id] = kind
        return
    types_by_id[field_id] = kind["type"]
    if kind["type"] == "struct":
        types_by_id.update(field_types(kind["fields"]))
    elif kind["type"] == "list":
        _collect_types(int(kind["element-id"]), kind["element"], types_by_id)
    else:
        _collect_types(int(kind["key-id"]), kind["key"], types_by_id)
        _collect_types(int(kind["value-id"]), kind["value"], types_by_id)


def field_ids(fields: Sequence[Mapping[str, Any]], path: Path = ()) -> Iterator[tuple[Path, int]]:
    """Yield (path, field id) for a schema's JSON; path parts in lists and maps are ``element``, ``key`` and ``value``."""
    for item in fields:
        yield (*path, item["name"]), int(item["id"])
        yield from _ids_inside(item["type"], (*path, item["name"]))


def _ids_inside(kind: Any, path: Path) -> Iterator[tuple[Path, int]]:
    if not isinstance(kind, Mapping):
        return
    if kind["type"] == "struct":
        yield from field_ids(kind["fields"], path)
        return
    for part in ("element",) if kind["type"] == "list" else ("key", "value"):
        yield (*path, part), int(kind[f"{part}-id"])
        yield from _ids_inside(kind[part], (*path, part))


def merged_name_mapping(
    earlier: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Merge the name mappings of earlier schemas, whose dropped columns older snapshots still read.

    Current columns win where a name was reused.
    """
    taken_names = {name for entry in now for name in entry["names"]}
    before = {int(entry["field-id"]): entry for entry in earlier}
    mapping: list[dict[str, Any]] = []
    for entry in now:
        old = before.pop(int(entry["field-id"]), None)
        inside = merged_name_mapping((old or {}).get("fields") or (), entry.get("fields") or ())
        mapping.append({**entry, **({"fields": inside} if inside else {})})
    for entry in before.values():
        names = [name for name in entry["names"] if name not in taken_names]
        if names:
            mapping.append({**entry, "names": names})
    return mapping
