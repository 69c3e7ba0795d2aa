import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from delvec_errors import InvalidSchema, UnknownColumn
from delvec_kernel.schema.types import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_type,
    data_type_from_arrow,
    data_type_from_json,
    has_geospatial,
    schema_from,
)

PRIMITIVES = {
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
    "variant": pa.struct([("metadata", pa.binary()), ("value", pa.binary())]),
}

metadata = st.dictionaries(
    st.text(max_size=5), st.one_of(st.integers(), st.text(), st.booleans()), max_size=2
)
VOID = PrimitiveType("void")
leaves = st.one_of(
    st.sampled_from(sorted(PRIMITIVES.keys() - {"variant"})).map(PrimitiveType),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s))),
)


def structs(types):
    names = st.lists(st.text(min_size=1, max_size=6), max_size=4, unique_by=str.lower)
    return names.flatmap(
        lambda found: st.tuples(
            *(st.builds(StructField, st.just(n), types, st.booleans(), metadata) for n in found)
        ).map(StructType)
    )


data_types = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(ArrayType, inner, st.booleans()),
        st.builds(MapType, inner.filter(lambda kind: kind != VOID), inner, st.booleans()),
        structs(inner),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(structs(data_types))
def test_schema_json_round_trips(schema):
    assert StructType.from_json(json.dumps(schema.to_json())) == schema
    assert schema_from(schema.to_json()) == schema


def as_arrow_keeps_it(kind):
    match kind:
        case StructType(fields):
            return StructType(
                [StructField(f.name, as_arrow_keeps_it(f.type), f.nullable or f.type == VOID) for f in fields]
            )
        case ArrayType(element, contains_null):
            return ArrayType(as_arrow_keeps_it(element), contains_null or element == VOID)
        case MapType(key, value, value_contains_null):
            return MapType(
                as_arrow_keeps_it(key), as_arrow_keeps_it(value), value_contains_null or value == VOID
            )
        case _:
            return kind


@settings(deadline=None)
@given(data_types)
def test_arrow_types_round_trip(kind):
    assert data_type_from_arrow(arrow_type(kind)) == as_arrow_keeps_it(kind)


@pytest.mark.parametrize(("name", "arrow"), PRIMITIVES.items())
def test_primitives_have_one_arrow_type(name, arrow):
    schema = StructType.from_json({"type": "struct", "fields": [{"name": "x", "type": name}]})
    assert schema.to_arrow() == pa.schema([("x", arrow)])


def test_nested_types_keep_their_nullability():
    document = {
        "type": "struct",
        "fields": [
            {
                "name": "a",
                "type": {
                    "type": "array",
                    "elementType": {
                        "type": "struct",
                        "fields": [{"name": "p", "type": "decimal(12,2)", "nullable": False, "metadata": {}}],
                    },
                    "containsNull": False,
                },
                "nullable": True,
                "metadata": {},
            },
            {
                "name": "m",
                "type": {
                    "type": "map",
                    "keyType": "string",
                    "valueType": "integer",
                    "valueContainsNull": False,
                },
                "nullable": False,
                "metadata": {"comment": "counts"},
            },
        ],
    }
    schema = StructType.from_json(document)
    assert schema.to_json() == document
    a, m = schema.to_arrow()
    assert a.type.value_field.nullable is False
    assert a.type.value_type == pa.struct([pa.field("p", pa.decimal128(12, 2), nullable=False)])
    assert not m.nullable
    assert m.type.item_field.nullable is False


def test_as_nullable_reaches_every_level():
    strict = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    kinds = (
        pa.list_(pa.field("element", strict, nullable=False)),
        pa.map_(pa.string(), pa.field("value", strict, nullable=False)),
    )
    schema = StructType.from_arrow(
        pa.schema([pa.field(f"c{n}", kind, nullable=False) for n, kind in enumerate(kinds)])
    )
    text = json.dumps(schema.as_nullable().to_json())
    assert "false" in json.dumps(schema.to_json())
    assert "false" not in text


def test_column_mapping_gives_physical_names():
    schema = StructType.from_json(
        {
            "type": "struct",
            "fields": [
                {
                    "name": "id",
                    "type": "long",
                    "metadata": {
                        "delta.columnMapping.id": 7,
                        "delta.columnMapping.physicalName": "col-1f",
                    },
                },
                {"name": "plain", "type": "long", "metadata": {}},
            ],
        }
    )
    assert [(f.physical_name, f.field_id) for f in schema.fields] == [("col-1f", 7), ("plain", None)]


def test_unknown_types_are_named_with_their_column():
    place = {"name": "g", "type": "interval year", "nullable": True, "metadata": {}}
    inner = {"type": "array", "elementType": {"type": "struct", "fields": [place]}, "containsNull": True}
    schema = {"type": "struct", "fields": [{"name": "s", "type": inner, "nullable": True, "metadata": {}}]}
    with pytest.raises(
        InvalidSchema, match=r"^column 's\.g': type 'interval year' is not supported"
    ) as caught:
        StructType.from_json(schema)
    assert caught.value.details == {"type": "interval year", "column": "s.g"}


@pytest.mark.parametrize(
    "text",
    [
        "geometry(OGC:CRS84)",
        "geography(OGC:CRS84, spherical)",
        "Geometry( srid:4326 )",
        "geometry(projjson:Key)",
    ],
)
def test_geospatial_types_read_as_binary_and_keep_their_schema_type(text):
    kind = data_type_from_json(text)
    assert (kind.to_json(), kind.to_arrow(), kind.name) == (text, pa.binary(), "binary")
    assert kind != PrimitiveType("binary")
    inside = data_type_from_json({"type": "array", "elementType": text, "containsNull": True})
    assert has_geospatial(inside)
    assert not has_geospatial(PrimitiveType("binary"))


@pytest.mark.parametrize("name", ["char(10)", "varchar( 255 )", "VARCHAR(3)"])
def test_char_and_varchar_are_strings(name):
    assert data_type_from_json(name) == PrimitiveType("string")


def test_char_lengths_are_kept_in_the_metadata():
    field = {
        "name": "x",
        "type": "string",
        "nullable": True,
        "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"},
    }
    schema = StructType.from_json({"type": "struct", "fields": [field]})
    assert schema.to_json()["fields"] == [field]


@pytest.mark.parametrize(
    "name",
    [
        "interval day to second",
        "calendar_interval",
        "geometry",
        "geography( )",
        "geometry(a(b))",
        "decimal(39,2)",
        "decimal(10,-2)",
        "decimal(3,5)",
        "decimal(0,0)",
        "nonsense",
        "",
    ],
)
def test_an_unknown_type_is_named(name):
    document = {"type": "struct", "fields": [{"name": "x", "type": name}]}
    with pytest.raises(InvalidSchema) as caught:
        StructType.from_json(document)
    assert repr(name) in str(caught.value)


def test_the_error_for_an_invalid_dictionary_explains_schema_json():
    with pytest.raises(InvalidSchema, match=r"or text, such as 'id long, name string'") as caught:
        StructType.from_json({"id": "long"})
    assert "KeyError" not in caught.value.message


@pytest.mark.parametrize(
    "document",
    [
        "",
        "not json",
        "null",
        "[]",
        '"string"',
        {"type": "array", "elementType": "long"},
        {"type": "struct"},
        {"type": "struct", "fields": [{"type": "long"}]},
        {"type": "struct", "fields": [{"name": "x"}]},
        {"type": "struct", "fields": {"x": "long"}},
        {"type": "struct", "fields": None},
        {"type": "struct", "fields": [{"name": "x", "type": {"type": "set"}}]},
        {"type": "struct", "fields": [{"name": "x", "type": {"type": "map", "keyType": "long"}}]},
        {"type": "struct", "fields": [{"name": "x", "type": 3}]},
        {
            "type": "struct",
            "fields": [{"name": "x", "type": {"type": "map", "keyType": "void", "valueType": "long"}}],
        },
        '{"type":"array","elementType":' * 5000,
    ],
)
def test_invalid_schemas_are_refused(document):
    with pytest.raises(InvalidSchema):
        StructType.from_json(document)


def test_a_schema_nested_without_end_is_refused():
    kind = "long"
    for _ in range(100_000):
        kind = {"type": "array", "elementType": kind}
    with pytest.raises(InvalidSchema):
        StructType.from_json({"type": "struct", "fields": [{"name": "x", "type": kind}]})


def test_columns_that_differ_by_case_are_refused_at_every_level():
    twins = [{"name": "Id", "type": "long"}, {"name": "iD", "type": "string"}]
    for document in (
        {"type": "struct", "fields": twins},
        {"type": "struct", "fields": [{"name": "s", "type": {"type": "struct", "fields": twins}}]},
    ):
        with pytest.raises(InvalidSchema, match="'Id' occurs twice"):
            StructType.from_json(document)
    with pytest.raises(InvalidSchema):
        StructType.from_arrow(pa.schema([("a", pa.int8()), ("A", pa.int8())]))


def test_column_lookup_is_case_insensitive():
    schema = StructType([StructField("Id", PrimitiveType("long")), StructField("n", PrimitiveType("string"))])
    assert schema.field("ID").name == "Id"
    assert "iD" in schema
    assert "x" not in schema
    assert 1 not in schema
    assert schema.names == ["Id", "n"]
    assert schema.without(["ID"]).names == ["n"]
    assert schema.select(["N", "id"]).names == ["n", "Id"]
    with pytest.raises(UnknownColumn, match=r"'x'.*Id, n"):
        schema.field("x")


def test_schemas_compare_by_value():
    one, two = (
        StructType([StructField("x", PrimitiveType("long"), metadata={"comment": "c"})]) for _ in range(2)
    )
    assert one == two
    assert len({one, two}) == 1


@pytest.mark.parametrize(
    ("arrow", "delta"),
    [
        (pa.uint8(), PrimitiveType("short")),
        (pa.uint16(), PrimitiveType("integer")),
        (pa.uint32(), PrimitiveType("long")),
        (pa.uint64(), DecimalType(20, 0)),
        (pa.float16(), PrimitiveType("float")),
        (pa.large_string(), PrimitiveType("string")),
        (pa.string_view(), PrimitiveType("string")),
        (pa.binary(16), PrimitiveType("binary")),
        (pa.large_binary(), PrimitiveType("binary")),
        (pa.date64(), PrimitiveType("date")),
        (pa.timestamp("ns", "Europe/Berlin"), PrimitiveType("timestamp")),
        (pa.timestamp("s"), PrimitiveType("timestamp_ntz")),
        (pa.decimal256(38, 3), DecimalType(38, 3)),
        (pa.dictionary(pa.int8(), pa.string()), PrimitiveType("string")),
        (pa.run_end_encoded(pa.int32(), pa.int16()), PrimitiveType("short")),
        (pa.large_list(pa.uint8()), ArrayType(PrimitiveType("short"))),
        (pa.list_(pa.int8(), 3), ArrayType(PrimitiveType("byte"))),
        (pa.list_view(pa.int8()), ArrayType(PrimitiveType("byte"))),
    ],
)
def test_arrow_types_become_the_delta_type_that_holds_them(arrow, delta):
    assert data_type_from_arrow(arrow) == delta


@pytest.mark.parametrize(
    "arrow",
    [
        pa.time64("us"),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.decimal256(40, 2),
        pa.decimal128(10, -2),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.list_(pa.time32("s")),
    ],
)
def test_an_arrow_type_without_equivalent_is_refused_with_its_column(arrow):
    with pytest.raises(InvalidSchema, match="'odd'"):
        StructType.from_arrow(pa.schema([("odd", arrow)]))


def test_all_user_schema_formats_are_accepted():
    expected = StructType([StructField("x", PrimitiveType("long"))])

    class Exporter:
        def __arrow_c_schema__(self):
            return pa.schema([("x", pa.int64())]).__arrow_c_schema__()

    class LikeSpark:
        def jsonValue(self):  # noqa: N802
            return expected.to_json()

    for schema in (
        expected,
        pa.schema([("x", pa.int64())]),
        expected.to_json(),
        json.dumps(expected.to_json()),
        Exporter(),
        LikeSpark(),
    ):
        assert schema_from(schema) == expected
    with pytest.raises(InvalidSchema, match="int"):
        schema_from(3)


def nested_structs(levels):
    kind = "long"
    for _ in range(levels):
        kind = {"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": True, "metadata": {}}]}
    return kind


def test_a_schema_nested_deeper_than_answers_can_be_is_refused():
    class Answer(BaseModel):
        table_schema: dict[str, Any]

    deepest = StructType.from_json(nested_structs(63))
    assert Answer(table_schema=deepest.to_json()).model_dump_json()
    for levels in (64, 200):
        with pytest.raises(InvalidSchema, match="nested too deeply: more than 64 levels"):
            StructType.from_json(nested_structs(levels))
