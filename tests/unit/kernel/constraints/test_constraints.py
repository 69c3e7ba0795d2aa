"""Constraints declared in a table's schema and properties."""

import json

import pytest
from tests.support.schema_json import field, struct

from delvec_errors import ExpressionNotAllowed, UnsupportedWriterFeature
from delvec_kernel.constraints.declared import (
    Check,
    Generated,
    MaxLength,
    constraints_of,
    generates,
    mentioned,
)
from delvec_kernel.schema.types import StructType


def schema(*fields):
    return StructType.from_json({"type": "struct", "fields": list(fields)})


def rule(text):
    return {"delta.invariants": json.dumps({"expression": {"expression": text}})}


def characters(text):
    return {"__CHAR_VARCHAR_TYPE_STRING": text}


def test_no_constraints():
    found = constraints_of(schema(field("id", "long")), {"owner": "me"})
    assert found == constraints_of(schema(), {})
    assert not found.has_expressions
    assert not found.append_only


def test_properties():
    people = schema(field("id", "long"), field("Name", "string"))
    found = constraints_of(
        people,
        {"delta.constraints.b": "name <> 'id'", "Delta.Constraints.A": "id > 0", "delta.appendOnly": "TRUE"},
    )

    assert found.checks == (Check("A", "id > 0", ("id",)), Check("b", "name <> 'id'", ("Name",)))
    assert found.append_only
    assert found.has_expressions


def test_not_null_and_invariants_of_columns_and_fields_of_structs():
    inner = struct(field("a", "long", nullable=False), field("b", "long", **rule("s.b > 1")))
    array = {"type": "array", "elementType": inner, "containsNull": False}
    people = schema(
        field("id", "long", nullable=False, **rule("id > 9")), field("s", inner), field("list", array)
    )

    found = constraints_of(people, {})

    # delta-spark checks neither inside arrays, and ignores invariants of NOT NULL columns.
    assert found.not_null == (("id",), ("s", "a"))
    assert found.checks == (Check("EXPRESSION(s.b > 1)", "s.b > 1", ("s",)),)


@pytest.mark.parametrize(
    "text", ["", "x > 1", "{}", '{"expression":null}', '{"expression":{"expression":1}}', 7]
)
def test_malformed_invariants_are_refused(text):
    with pytest.raises(UnsupportedWriterFeature, match="'x'"):
        constraints_of(schema(field("x", "long", **{"delta.invariants": text})), {})


def test_generated_columns():
    people = schema(field("id", "long"), field("twice", "long", **{"delta.generationExpression": "ID * 2"}))

    (found,) = constraints_of(people, {}).generated

    assert found == Generated("twice", "ID * 2", ("id",))
    assert found.check == Check("Generated Column", "`twice` <=> (ID * 2)", ("twice", "id"))
    assert constraints_of(people, {}, generates_columns=False).generated == ()


def test_names_and_comments_do_not_end_a_check_early():
    found = Generated("a`b", "id -- the same", ("id",)).check
    assert found.expression == "`a``b` <=> (id -- the same\n)"


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ({"minWriterVersion": 3}, False),
        ({"minWriterVersion": 4}, True),
        ({"minWriterVersion": 6}, True),
        ({"minWriterVersion": 7, "writerFeatures": ["invariants"]}, False),
        ({"minWriterVersion": 7, "writerFeatures": ["generatedColumns"]}, True),
        ({}, False),
    ],
)
def test_protocols_that_enforce_generated_columns(protocol, expected):
    assert generates(protocol) is expected


MAP = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("string", "char(5)", [(("v",), 5)]),
        ("string", "VARCHAR( 10 )", [(("v",), 10)]),
        (MAP, "map<char(1),varchar(2)>", [(("v", "key"), 1), (("v", "value"), 2)]),
        (MAP, "map<string,varchar(2)>", [(("v", "value"), 2)]),
        (
            struct(field("x", "decimal(10,2)"), field("a:b", "string"), field("m", MAP)),
            "struct<x:decimal(10,2),a:b:varchar(3),m:map<string,string>>",
            [(("v", "a:b"), 3)],
        ),
        # A field renamed afterwards.
        (struct(field("new", "string")), "struct<old:varchar(3)>", [(("v", "new"), 3)]),
    ],
)
def test_string_lengths(kind, text, expected):
    found = constraints_of(schema(field("v", kind, **characters(text))), {}).lengths
    assert found == tuple(MaxLength(path, limit) for path, limit in expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("long", "varchar(3)"),
        ("string", "varchar(3)>"),
        ("string", ""),
        (MAP, "varchar(3)"),
        (MAP, "map<string>"),
        (struct(field("a", "string")), "struct<a:varchar(2),b:string>"),
        (struct(field("a", "string")), "struct<a>"),
    ],
)
def test_lengths_that_do_not_fit_the_schema_are_refused(kind, text):
    with pytest.raises(UnsupportedWriterFeature, match="'v'"):
        constraints_of(schema(field("v", kind, **characters(text))), {})


def test_columns_are_found_in_unparsable_expressions():
    people = schema(field("id", "long"), field("my col", "long"), field("tags", MAP))
    assert mentioned("forall(map_keys(TAGS), x -> x <> 'id') and `my col` >>> 3", people) == (
        "tags",
        "my col",
    )
    # Text that cannot be tokenized may contain any column.
    assert mentioned("id ?? 3", people) == ("id", "my col", "tags")


@pytest.mark.parametrize("text", ["", "  -- nothing", "(SELECT 1) = 1", "id > 1; id > 2", "'open"])
def test_non_row_expressions_are_refused(text):
    (check,) = constraints_of(schema(field("id", "long")), {"delta.constraints.c": text}).checks
    with pytest.raises(ExpressionNotAllowed, match="constraint 'c'"):
        _ = check.sql


def test_a_violation_names_constraint_expression_and_values():
    error = Check("c", "a > b", ("a", "b")).violated({"b": None, "a": "x" * 500}, "the table at file:///t")
    first, a, b, _ = error.message.split("\n")
    assert first == "CHECK constraint c (a > b) of the table at file:///t violated by row with values:"
    assert (a, b) == (f" - a : {'x' * 197}...", " - b : null")
