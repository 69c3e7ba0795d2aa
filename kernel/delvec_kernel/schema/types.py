"""The types of a Delta schema, with conversion from and to schema JSON and Arrow (PROTOCOL.md, "Schema Serialization Format").

Tested in `tests/unit/kernel/schema/test_delta_types.py`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from delvec_errors import InvalidSchema, UnknownColumn
from delvec_kernel.schema.char_varchar import CHARACTER_TYPE, as_texts

__all__ = [
    "ArrayType",
    "DataType",
    "DecimalType",
    "GeospatialType",
    "MapType",
    "PrimitiveType",
    "StructField",
    "StructType",
    "all_types",
    "arrow_type",
    "data_type_from_arrow",
    "data_type_from_json",
    "has_float",
    "has_geospatial",
    "has_variant",
    "has_void",
    "leaves",
    "nullable_type",
    "schema_from",
    "type_name",
]

PHYSICAL_NAME = "delta.columnMapping.physicalName"
FIELD_ID = "delta.columnMapping.id"
IDENTITY_START = "delta.identity.start"
IDENTITY_STEP = "delta.identity.step"
IDENTITY_HIGH_WATER_MARK = "delta.identity.highWaterMark"
IDENTITY_ALLOWS_EXPLICIT = "delta.identity.allowExplicitInsert"
GENERATION = "delta.generationExpression"
"""Keys of a field's metadata."""
PARQUET_FIELD_ID = b"PARQUET:field_id"
"""Arrow's metadata key for the field id of a Parquet column."""

INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
INTEGER_NAMES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
"""Names of integers in SQL."""

_PRIMITIVES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    # As in Parquet: the encoded value, and a dictionary of the field names in it.
    "variant": pa.struct([("metadata", pa.binary()), ("value", pa.binary())]),
}
_ALIASES = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte", "null": "void"}
_GEOSPATIAL = re.compile(r"(?:geometry|geography)\s*\(\s*[^()\s][^()]*\)", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(-?\d{1,2})\s*\)")
_MAX_PRECISION = 38
_MAX_LEVELS = 64
"""Answers are JSON of at most 255 levels, of which a struct in a struct makes three."""


@dataclass(frozen=True)
class PrimitiveType:
    """A type without parameters; ``name`` is Delta's, such as string, long, integer, void or variant."""

    name: str

    def to_json(self) -> str:
        """Return Delta's name."""
        return self.name

    def to_arrow(self) -> pa.DataType:
        """Return the Arrow type of read data."""
        return _PRIMITIVES[self.name]


@dataclass(frozen=True)
class GeospatialType(PrimitiveType):
    """``geometry(<crs>)`` or ``geography(<crs>, <algorithm>)``: Well-Known Binary, read as binary.

    Attributes:
        name: ``binary``.
        text: the type in the schema (Delta's protocol_rfcs/geospatial-types.md, "Type definitions").
    """

    text: str

    def to_json(self) -> str:
        """Return the type as in the schema."""
        return self.text


@dataclass(frozen=True)
class DecimalType:
    """A decimal of ``precision`` digits, ``scale`` of them after the point."""

    precision: int
    scale: int

    def to_json(self) -> str:
        """Return ``decimal(p,s)``."""
        return f"decimal({self.precision},{self.scale})"

    def to_arrow(self) -> pa.DataType:
        """Return Arrow's 128-bit decimal."""
        return pa.decimal128(self.precision, self.scale)


@dataclass(frozen=True)
class ArrayType:
    """A list of ``element``."""

    element: "DataType"
    contains_null: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return Delta's JSON object."""
        element = self.element.to_json()
        return {"type": "array", "elementType": element, "containsNull": self.contains_null}

    def to_arrow(self) -> pa.DataType:
        """Return Arrow's list."""
        return pa.list_(_arrow_field("element", self.element, self.contains_null))


@dataclass(frozen=True)
class MapType:
    """A map from ``key`` to ``value``.

    Raises:
        InvalidSchema: the key is void, since keys are never null.
    """

    key: "DataType"
    value: "DataType"
    value_contains_null: bool = True

    def __post_init__(self) -> None:
        if self.key == PrimitiveType("void"):
            raise InvalidSchema("the key of a map cannot be of type 'void'", type="void")

    def to_json(self) -> dict[str, Any]:
        """Return Delta's JSON object."""
        return {
            "type": "map",
            "keyType": self.key.to_json(),
            "valueType": self.value.to_json(),
            "valueContainsNull": self.value_contains_null,
        }

    def to_arrow(self) -> pa.DataType:
        """Return Arrow's map."""
        value = _arrow_field("value", self.value, self.value_contains_null)
        return pa.map_(_arrow_field("key", self.key, nullable=False), value)


@dataclass(frozen=True)
class StructField:
    """A column, or a field of a nested struct."""

    name: str
    type: "DataType"
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def physical_name(self) -> str:
        """The name in files, statistics and partition values (PROTOCOL.md, "Column Mapping")."""
        return str(self.metadata.get(PHYSICAL_NAME, self.name))

    @property
    def field_id(self) -> int | None:
        """The column's id under column mapping."""
        found = self.metadata.get(FIELD_ID)
        return None if found is None else int(found)

    def to_json(self) -> dict[str, Any]:
        """Return Delta's JSON object."""
        return {
            "name": self.name,
            "type": self.type.to_json(),
            "nullable": self.nullable,
            "metadata": dict(self.metadata),
        }

    def to_arrow(self) -> pa.Field:
        """Return Arrow's field, without the metadata."""
        return _arrow_field(self.name, self.type, self.nullable)


@dataclass(frozen=True)
class StructType:
    """A schema, or a nested struct.

    Raises:
        InvalidSchema: two field names are equal ignoring case.
    """

    fields: tuple[StructField, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        if len(self._by_name) != len(self.fields):
            names = [item.name.lower() for item in self.fields]
            twice = next(item.name for item in self.fields if names.count(item.name.lower()) > 1)
            raise InvalidSchema(
                f"column {twice!r} occurs twice; column names are not case-sensitive", column=twice
            )

    @cached_property
    def _by_name(self) -> dict[str, StructField]:
        return {item.name.lower(): item for item in self.fields}

    @property
    def names(self) -> list[str]:
        """The columns' names, in order."""
        return [item.name for item in self.fields]

    def field(self, name: str) -> StructField:
        """Return the column with that name, case-insensitive.

        Raises:
            UnknownColumn: no such column.
        """
        try:
            return self._by_name[name.lower()]
        except KeyError:
            known = ", ".join(self.names[:20])
            raise UnknownColumn(
                f"column {name!r} does not exist; the table has {known}", column=name
            ) from None

    def get(self, name: str) -> StructField | None:
        """Return the column with that name, case-insensitive; None if there is none."""
        return self._by_name.get(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._by_name

    def as_nullable(self, *, elements: bool = True) -> "StructType":
        """Return the schema with every column and field nullable, and with ``elements`` those of arrays and maps."""
        fields = (
            replace(item, type=nullable_type(item.type, elements=elements), nullable=True)
            for item in self.fields
        )
        return StructType(tuple(fields))

    def select(self, names: Iterable[str]) -> "StructType":
        """Return the schema with only these columns, in the given order."""
        return StructType(tuple(self.field(name) for name in names))

    def without(self, names: Iterable[str]) -> "StructType":
        """Return the schema without these columns."""
        gone = {name.lower() for name in names}
        return StructType(tuple(item for item in self.fields if item.name.lower() not in gone))

    @classmethod
    def from_json(cls, document: str | Mapping[str, Any]) -> "StructType":
        """Parse Delta's schema JSON.

        Raises:
            InvalidSchema: it is not a struct, or has an unknown type, which the error names.
        """
        if isinstance(document, str):
            try:
                document = json.loads(document)
            except (ValueError, RecursionError) as error:
                raise InvalidSchema(f"the schema is not JSON: {error}") from error
        parsed = data_type_from_json(document)
        if not isinstance(parsed, cls):
            raise InvalidSchema("a table's schema must be a struct")
        parsed.check_nesting()
        return parsed

    def check_nesting(self) -> None:
        """Reject a schema that is nested so deeply that its JSON could not be sent in an answer.

        Raises:
            InvalidSchema: it is.
        """
        level: list[DataType] = [self]
        for _ in range(_MAX_LEVELS):
            level = [inner for kind in level for inner in _inner_types(kind)]
            if not level:
                return
        raise InvalidSchema(f"the schema is nested too deeply: more than {_MAX_LEVELS} levels")

    def to_json(self) -> dict[str, Any]:
        """Return Delta's JSON object."""
        return {"type": "struct", "fields": [item.to_json() for item in self.fields]}

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> "StructType":
        """Convert an Arrow schema.

        Raises:
            InvalidSchema: a type has no Delta equivalent.
        """
        return cls(tuple(_field_from_arrow(item) for item in schema))

    def to_arrow(self) -> pa.Schema:
        """Return the Arrow schema of read data."""
        return pa.schema([item.to_arrow() for item in self.fields])


DataType: TypeAlias = PrimitiveType | DecimalType | ArrayType | MapType | StructType


def has_variant(kind: "DataType") -> bool:
    """Whether a type is ``variant`` or contains one at any depth."""
    return any(found == PrimitiveType("variant") for found in leaves(kind))


def has_geospatial(kind: "DataType") -> bool:
    """Whether a type is a geometry or geography, or contains one at any depth."""
    return any(isinstance(found, GeospatialType) for found in leaves(kind))


def has_void(kind: "DataType") -> bool:
    """Whether a type is ``void`` or contains it at any depth."""
    return any(found == PrimitiveType("void") for found in leaves(kind))


def has_float(kind: "DataType") -> bool:
    """Whether a type is ``float`` or ``double``, or a struct that contains one at any depth."""
    if isinstance(kind, StructType):
        return any(has_float(item.type) for item in kind.fields)
    return kind in (PrimitiveType("float"), PrimitiveType("double"))


def _inner_types(kind: "DataType") -> Sequence["DataType"]:
    if isinstance(kind, StructType):
        return [item.type for item in kind.fields]
    if isinstance(kind, ArrayType):
        return [kind.element]
    return [kind.key, kind.value] if isinstance(kind, MapType) else []


def all_types(kind: "DataType") -> Iterator["DataType"]:
    """Yield a type, and the types inside it."""
    yield kind
    for inner in _inner_types(kind):
        yield from all_types(inner)


def leaves(kind: "DataType") -> Iterator["DataType"]:
    """Yield the non-nested types in a type."""
    return (each for each in all_types(kind) if not isinstance(each, StructType | ArrayType | MapType))


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of ``kind``; a StructType becomes a struct type, not a schema."""
    if isinstance(kind, StructType):
        return pa.struct([item.to_arrow() for item in kind.fields])
    return kind.to_arrow()


def nullable_type(kind: DataType, *, elements: bool = True) -> DataType:
    """Return a type with every field in it nullable, and with ``elements`` those of arrays and maps."""
    match kind:
        case StructType():
            return kind.as_nullable(elements=elements)
        case ArrayType(element, nullable):
            return ArrayType(nullable_type(element, elements=elements), elements or nullable)
        case MapType(key, value, nullable):
            return MapType(
                nullable_type(key, elements=elements),
                nullable_type(value, elements=elements),
                elements or nullable,
            )
        case _:
            return kind


def _arrow_field(name: str, kind: DataType, nullable: bool) -> pa.Field:
    # Arrow does not allow a non-nullable null column, Delta does.
    return pa.field(name, arrow_type(kind), nullable or kind == PrimitiveType("void"))


def data_type_from_json(document: Any) -> DataType:
    """Parse a type of Delta's schema JSON.

    Raises:
        InvalidSchema: the type is unknown or malformed.
    """
    try:
        return _primitive(document) if isinstance(document, str) else _nested(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidSchema(
            f"the schema is malformed at {str(document)[:200]!r}: give a dictionary in Delta's JSON, such as "
            """{"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}}]}; """
            "or text, such as 'id long, name string'"
        ) from error
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None


def _primitive(text: str) -> DataType:
    name = text.strip().lower()
    name = _ALIASES.get(name, name)
    if name in _PRIMITIVES:
        return PrimitiveType(name)
    if name == "decimal":
        return DecimalType(10, 0)
    if CHARACTER_TYPE.fullmatch(name):
        return PrimitiveType("string")
    if _GEOSPATIAL.fullmatch(name):
        return GeospatialType("binary", text.strip())
    found = _DECIMAL.fullmatch(name)
    if found:
        precision, scale = int(found.group(1)), int(found.group(2))
        if 0 < precision <= _MAX_PRECISION and 0 <= scale <= precision:
            return DecimalType(precision, scale)
    raise InvalidSchema(f"type {text!r} is not supported", type=text)


def _nested(document: Mapping[str, Any]) -> DataType:
    kind = document["type"]
    if kind == "struct":
        return StructType(tuple(_field_from_json(item) for item in document["fields"]))
    if kind == "array":
        return ArrayType(
            data_type_from_json(document["elementType"]), bool(document.get("containsNull", True))
        )
    if kind == "map":
        key, value = data_type_from_json(document["keyType"]), data_type_from_json(document["valueType"])
        return MapType(key, value, bool(document.get("valueContainsNull", True)))
    raise InvalidSchema(f"type {kind!r} is not supported", type=str(kind))


def _field_from_json(item: Mapping[str, Any]) -> StructField:
    name = str(item["name"])
    try:
        kind = data_type_from_json(item["type"])
    except InvalidSchema as error:
        if "type" not in error.details:
            raise
        path, reason = name, f": {error.message}"
        if "column" in error.details:
            inside = error.details["column"]
            path, reason = f"{name}.{inside}", error.message.removeprefix(f"column {inside!r}")
        raise InvalidSchema(f"column {path!r}{reason}", type=error.details["type"], column=path) from None
    return StructField(
        name,
        kind,
        bool(item.get("nullable", True)),
        dict(item.get("metadata") or {}),
    )


def _field_from_arrow(item: pa.Field) -> StructField:
    try:
        return StructField(item.name, data_type_from_arrow(item.type), item.nullable)
    except InvalidSchema as error:
        raise InvalidSchema(f"column {item.name!r}: {error.message}", column=item.name) from None


_NAMES = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.null(): "void",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
    pa.date64(): "date",
}
_FROM_ARROW = {kind: PrimitiveType(name) for kind, name in _NAMES.items()} | {pa.uint64(): DecimalType(20, 0)}
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def data_type_from_arrow(kind: pa.DataType) -> DataType:
    """Return the smallest Delta type that holds all values of an Arrow type; widens narrow and unsigned types.

    Raises:
        InvalidSchema: Delta has no equivalent type.
    """
    if kind in _FROM_ARROW:
        return _FROM_ARROW[kind]
    if pa.types.is_decimal(kind) and kind.precision <= _MAX_PRECISION and 0 <= kind.scale <= kind.precision:
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return PrimitiveType("timestamp" if kind.tz else "timestamp_ntz")
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return data_type_from_arrow(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json":
        return PrimitiveType("string")
    nested = _nested_from_arrow(kind)
    if nested is None:
        raise InvalidSchema(f"Arrow type {kind} has no equivalent in Delta", type=str(kind))
    return nested


def _nested_from_arrow(kind: pa.DataType) -> DataType | None:
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.parquet.variant":
        return PrimitiveType("variant")
    if pa.types.is_struct(kind):
        return StructType(tuple(_field_from_arrow(item) for item in kind))
    if pa.types.is_map(kind):
        value = data_type_from_arrow(kind.item_type)
        return MapType(data_type_from_arrow(kind.key_type), value, kind.item_field.nullable)
    if any(is_list(kind) for is_list in _LISTS):
        return ArrayType(data_type_from_arrow(kind.value_type), kind.value_field.nullable)
    return PrimitiveType("binary") if pa.types.is_fixed_size_binary(kind) else None


def schema_from(schema: Any) -> StructType:
    """Convert a user's schema: StructType, Arrow schema, PySpark StructType, or Delta's schema JSON.

    Objects that export Arrow's C interface also count as Arrow schemas.

    Raises:
        InvalidSchema: it is none of these, or has a type without a Delta equivalent.
    """
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, pa.Schema):
        return StructType.from_arrow(schema)
    if hasattr(schema, "jsonValue"):
        schema = schema.jsonValue()
    if isinstance(schema, Mapping):
        schema = as_texts(schema)
    if isinstance(schema, str | Mapping):
        return StructType.from_json(schema)
    if hasattr(schema, "__arrow_c_schema__"):
        return StructType.from_arrow(pa.schema(schema))
    raise InvalidSchema(
        f"a schema must be an Arrow schema, a Spark schema or Delta's JSON, not {type(schema).__name__}"
    )


def type_name(data_type: DataType) -> str:
    """Return a type's name, for messages."""
    shown = data_type.to_json()
    return shown if isinstance(shown, str) else str(shown["type"])
