"""What the service can prove about new files without opening them, and what is no proof."""

import json
from types import SimpleNamespace

import pytest
from tests.support.schema_json import field

from delvec_errors import ConstraintViolation, UnsupportedWriterFeature
from delvec_kernel.actions.actions import AddFile, Protocol
from delvec_kernel.schema.types import StructType
from delvec_kernel.transaction.proven_violations import proven


def table(*fields, partition_by=(), features=("generatedColumns",), **constraints):
    """Return a stand-in for a snapshot."""
    return SimpleNamespace(
        location="file:///people",
        schema=StructType.from_json({"type": "struct", "fields": list(fields)}),
        partition_columns=tuple(partition_by),
        protocol=Protocol(1, 7, None, features),
        configuration={f"delta.constraints.{name}": text for name, text in constraints.items()},
    )


def file(low=None, high=None, nulls=None, *, rows=10, values=None, **more):
    stats = {
        "numRecords": rows,
        "minValues": low or {},
        "maxValues": high or {},
        "nullCount": nulls or {},
        **more,
    }
    return AddFile("part-1.parquet", values or {}, 100, 5, stats=json.dumps(stats))


def test_nulls_in_not_null_columns():
    people = table(field("id", "long", nullable=False), field("name", "string"))

    assert proven([file(nulls={"id": 0, "name": 10})], people) is None
    found = proven([file(nulls={"id": 0}), file(nulls={"id": 3})], people)
    assert isinstance(found, ConstraintViolation)
    assert "NOT NULL constraint violated for column: id" in found.message
    assert found.details == {"constraint": "NOT NULL", "column": "id", "file": "part-1.parquet"}


def test_nulls_inside_structs_by_physical_names():
    mapped = {"delta.columnMapping.physicalName": "col-7"}
    inner = {"type": "struct", "fields": [field("a", "long", nullable=False, **mapped)]}
    people = table(field("n", inner, **{"delta.columnMapping.physicalName": "col-1"}))

    assert proven([file(nulls={"n": {"a": 1}})], people) is None
    assert "column: n.a" in proven([file(nulls={"col-1": {"col-7": 1}})], people).message


@pytest.mark.parametrize("value", [None, ""])
def test_null_partition_values(value):
    people = table(field("id", "long"), field("day", "date", nullable=False), partition_by=["day"])

    assert proven([file(values={"day": "2024-01-02"})], people) is None
    assert "column: day" in proven([file(values={"day": value})], people).message


def test_constraints_that_no_row_can_satisfy():
    people = table(field("id", "long"), field("name", "string"), positive="id > 0")

    assert proven([file({"id": -5}, {"id": 1})], people) is None
    assert proven([file({"id": -5}, {"id": 0}, rows=0)], people) is None
    found = proven([file({"id": -5}, {"id": 0})], people)
    assert "positive (id > 0) is violated by each of the 10 rows" in found.message
    assert found.details["constraint"] == "positive"
    # NULL violates a constraint, too.
    assert proven([file(nulls={"id": 10})], people) is not None


def test_invariants_and_constraints_on_partition_values():
    rule = json.dumps({"expression": {"expression": "x > 3"}})
    people = table(
        field("x", "integer", **{"delta.invariants": rule}),
        field("p", "string"),
        partition_by=["p"],
        p="p <> 'z'",
    )

    assert proven([file({"x": 4}, {"x": 9}, values={"p": "a"})], people) is None
    assert "EXPRESSION(x > 3)" in proven([file({"x": 1}, {"x": 3}, values={"p": "a"})], people).message
    assert "p <> 'z'" in proven([file({"x": 4}, {"x": 9}, values={"p": "z"})], people).message


def test_generated_columns_that_are_certainly_wrong():
    fields = (
        field("n", "long"),
        field("same", "long", **{"delta.generationExpression": "n"}),
    )
    assert proven([file({"n": 1, "same": 1}, {"n": 2, "same": 2})], table(*fields)) is None
    wrong = file({"n": 1, "same": 5}, {"n": 2, "same": 6}, {"n": 0, "same": 0})
    assert "Generated Column" in proven([wrong], table(*fields)).message
    assert proven([wrong], table(*fields, features=())) is None


def test_bounds_that_are_longer_than_their_column():
    short = field("v", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)")

    assert proven([file({"v": "abc"}, {"v": "é€𝄞"})], table(short)) is None
    found = proven([file({"v": "a"}, {"v": "abcd"})], table(short))
    assert found.details == {"constraint": "char/varchar length", "column": "v", "limit": 3}
    assert proven([file({"v": "abcd"}, {"v": "b"})], table(short)) is not None
    people = table(field("id", "long"), short, partition_by=["v"])
    assert proven([file(values={"v": "abc"})], people) is None
    assert proven([file(values={"v": "abcd"})], people) is not None


def test_lengths_inside_arrays_are_for_engines():
    array = {"type": "array", "elementType": "string", "containsNull": True}
    people = table(field("l", array, __CHAR_VARCHAR_TYPE_STRING="array<varchar(2)>"))
    assert proven([file({"l": "abc"}, {"l": "abc"})], people) is None


def test_inconclusive_statistics_pass():
    people = table(
        field("id", "long", nullable=False),
        field("v", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)"),
        positive="id > 0",
        unknown="some_function(id) = 1",
    )
    wide = file({"v": "abcd"}, {"v": "abcd"}, {"id": 3}, tightBounds=False)
    for stats in (None, "", "{}", "[]", "no json", '{"nullCount":{"id":"7"}}', '{"numRecords":3}'):
        assert proven([AddFile("a", {}, 1, 1, stats=stats)], people) is None, stats
    assert proven([wide], people) is None
    assert proven([], people) is None


def test_malformed_constraints_are_refused():
    with pytest.raises(UnsupportedWriterFeature, match=r"delta\.invariants"):
        proven([file()], table(field("x", "long", **{"delta.invariants": "{}"})))
