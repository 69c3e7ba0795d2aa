"""Ids of columns, and of the elements, keys and values inside them."""

from itertools import count

import pytest

from delvec_errors import InvalidSchema
from delvec_kernel.schema.column_mapping import MODE, NESTED_IDS, NestedIds, check_mapping, known_ids, mapped
from delvec_kernel.schema.types import FIELD_ID, PHYSICAL_NAME, StructType


def array(element):
    return {"type": "array", "elementType": element, "containsNull": True}


def map_of(key, value):
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def struct(*fields):
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields],
    }


def assigned(schema, highest=0, *, nested=True):
    names = (f"col-{number}" for number in count(1))
    return mapped(schema, highest, enabling=False, with_nested_ids=nested, new_name=lambda: next(names))


def test_elements_keys_and_values_get_ids_after_all_columns():
    schema = StructType.from_json(
        struct(
            ("a", array(map_of("string", array("long")))),
            ("s", struct(("inner", array(struct(("leaf", array("long"))))))),
            ("b", "long"),
        )
    )

    found, highest = assigned(schema)

    a, s, b = found.fields
    [inner] = s.type.fields
    [leaf] = inner.type.element.fields
    assert [field.field_id for field in (a, s, inner, leaf, b)] == [1, 2, 3, 4, 5]
    assert a.metadata[NESTED_IDS] == {
        "col-1.element": 6,
        "col-1.element.key": 7,
        "col-1.element.value": 8,
        "col-1.element.value.element": 9,
    }
    assert inner.metadata[NESTED_IDS] == {"col-3.element": 10}
    assert leaf.metadata[NESTED_IDS] == {"col-4.element": 11}
    assert NESTED_IDS not in s.metadata
    assert NESTED_IDS not in b.metadata
    assert highest == 11
    assert sorted(known_ids(found)) == list(range(1, 12))


def test_without_being_asked_for_they_get_none():
    found, highest = assigned(StructType.from_json(struct(("a", array("long")))), nested=False)
    assert (highest, dict(found.fields[0].metadata)) == (1, {FIELD_ID: 1, PHYSICAL_NAME: "col-1"})


@pytest.mark.parametrize("nested", [True, False])
def test_columns_beside_one_that_has_them_get_some_too(nested):
    document = struct(("old", array("long")), ("new", array("long")))
    document["fields"][0]["metadata"] = {FIELD_ID: 1, PHYSICAL_NAME: "a", NESTED_IDS: {"a.element": 9}}

    found, highest = assigned(StructType.from_json(document), nested=nested)

    assert [field.metadata[NESTED_IDS] for field in found.fields] == [{"a.element": 9}, {"col-1.element": 11}]
    assert ([field.field_id for field in found.fields], highest) == ([1, 10], 11)


def test_ids_are_never_given_twice():
    once, highest = assigned(StructType.from_json(struct(("a", array("long")))))
    assert assigned(once) == (once, highest)


@pytest.mark.parametrize("damaged", [7, "x", [], {"a.element": "8"}, {"a.element": True}, {"b.element": 3}])
def test_what_is_no_id_counts_as_absent(damaged):
    document = struct(("a", array("long")))
    document["fields"][0]["metadata"] = {FIELD_ID: 1, PHYSICAL_NAME: "a", NESTED_IDS: damaged}
    [field] = StructType.from_json(document).fields
    assert NestedIds.of(field).child("element").id is None


def in_files(name, number, physical, kind="long"):
    metadata = {FIELD_ID: number, PHYSICAL_NAME: physical}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


@pytest.mark.parametrize(
    ("fields", "mode", "what"),
    [
        (
            [in_files("a", 1, "x"), in_files("b", 2, "x")],
            "name",
            "'a' and 'b' have the same physical name, 'x'",
        ),
        ([in_files("a", 1, "x"), in_files("b", 1, "y")], "id", "'a' and 'b' have the same column id, 1"),
        (
            [
                in_files(
                    "a",
                    1,
                    "x",
                    array({"type": "struct", "fields": [in_files("c", 3, "z"), in_files("d", 3, "y")]}),
                )
            ],
            "id",
            "'c' and 'd' have the same column id, 3",
        ),
        ([in_files("a", 1, "x"), in_files("b", 1, "y")], "name", None),
        ([in_files("a", 1, "b"), in_files("b", 2, "a")], "id", None),
    ],
)
def test_two_columns_are_not_the_same_in_files(fields, mode, what):
    schema = StructType.from_json({"type": "struct", "fields": fields})
    if what is None:
        check_mapping(schema, {MODE: mode})
    else:
        with pytest.raises(InvalidSchema, match=what):
            check_mapping(schema, {MODE: mode})
