"""Lists and maps in the older forms of Hive, Thrift and Avro; LogicalTypes.md, "Backward-compatibility rules"."""

import pytest
from tests.unit.parquet.test_file_schema import element, footer, shape

from delvec_kernel.schema.file_types import FileTypeMismatch, check_file
from delvec_kernel.schema.types import MapType, PrimitiveType, StructField
from delvec_parquet.file_schema import schema_of_footer

MAP, MAP_KEY_VALUE, LIST, REQUIRED, REPEATED = 1, 2, 3, 0, 2
KEY, VALUE = element("key", repetition=REQUIRED), element("value")


def field(*elements):
    (found,), _ = schema_of_footer(footer(element("root", children=1), *elements))
    return found


@pytest.mark.parametrize(
    ("outer", "inner", "legacy"),
    [(MAP, None, False), (MAP, MAP_KEY_VALUE, False), (MAP_KEY_VALUE, None, True)],
)
def test_a_map_is_annotated_outside_or_inside(outer, inner, legacy):
    found = field(
        element("m", children=1, converted=outer),
        element("map", children=2, repetition=REPEATED, converted=inner),
        KEY,
        VALUE,
    )
    assert (found.name, shape(found), found.legacy) == ("m", "MAP(INTEGER, INTEGER)", legacy)


def test_a_map_without_values_matters_to_those_who_read_it():
    found = field(
        element("m", children=1, converted=MAP),
        element("key_value", children=1, repetition=REPEATED),
        KEY,
    )
    assert (found.shape, found.legacy) == ("map", True)
    number = PrimitiveType("integer")
    check_file((found,), [StructField("other", number)], "name")
    with pytest.raises(FileTypeMismatch, match="map without values"):
        check_file((found,), [StructField("m", MapType(number, number))], "name")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("list", "INTEGER[]"),
        ("bag", "INTEGER[]"),
        ("array", "STRUCT(x INTEGER)[]"),
        ("a_tuple", "STRUCT(x INTEGER)[]"),
    ],
)
def test_a_repeated_group_of_one_field_is_an_element_by_its_name(name, expected):
    found = field(
        element("a", children=1, converted=LIST),
        element(name, children=1, repetition=REPEATED),
        element("x"),
    )
    assert shape(found) == expected
    # DuckDB takes the field for the element.
    assert found.converted == (expected == "INTEGER[]")


def test_a_repeated_group_of_one_field_without_annotation_is_a_list_of_structs():
    found = field(element("a", children=1, repetition=REPEATED), element("x"))
    assert shape(found) == "STRUCT(x INTEGER)[]"
