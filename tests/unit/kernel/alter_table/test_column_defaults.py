"""Setting and dropping the defaults of columns."""

import json

import pytest
from tests.support.altered_table import Table, change, field, struct

from delvec_errors import InvalidSchema, InvalidTableChange, UnknownColumn
from delvec_kernel.constraints import computed_columns
from delvec_kernel.schema.types import StructType


def test_a_default_is_set_changed_and_dropped():
    table = Table()
    made = table.alter(change("name", default="'nobody'"))
    shown = {"name": "name", "type": "string", "nullable": True, "metadata": {"CURRENT_DEFAULT": "'nobody'"}}

    assert (made.operation, json.loads(made.parameters["column"])) == ("CHANGE COLUMN", shown)
    assert "allowColumnDefaults" in table.protocol.writer_features
    assert table.alter(change("name", default="'nobody'")).is_empty
    table.alter(change("name", default="concat('a', 'b')"))
    assert table.field("name")["metadata"] == {"CURRENT_DEFAULT": "concat('a', 'b')"}
    table.alter(change("name", default=""))
    assert table.field("name")["metadata"] == {}
    assert "allowColumnDefaults" in table.protocol.writer_features


@pytest.mark.parametrize(
    ("column", "default", "kind"),
    [
        ("home.city", "'x'", InvalidTableChange),
        ("tags.element", "1", InvalidTableChange),
        ("nothing", "1", UnknownColumn),
        ("name", "country", InvalidSchema),
        ("name", "1, 2", InvalidSchema),
        ("name", "(SELECT 1)", InvalidSchema),
        ("name", "'x' AS other", InvalidSchema),
        ("name", "concat('x', max('y'))", InvalidSchema),
        ("name", "explode(array('x'))", InvalidSchema),
    ],
)
def test_invalid_defaults_are_refused(column, default, kind):
    with pytest.raises(kind):
        Table().alter(change(column, default=default))


@pytest.mark.parametrize(
    ("default", "reason"),
    [
        ("(" * 300 + "1" + ")" * 300, "nested too deeply"),
        ("NOT " * 5000 + "TRUE", "nested too deeply"),
        ("+".join(["1"] * 20_000), "names, operators and brackets"),
        ("'" + "x" * 200_000 + "'", "characters"),
    ],
    ids=["brackets", "prefixes", "operators", "text"],
)
def test_a_default_that_takes_long_to_parse_is_refused(default, reason):
    schema = StructType.from_json(struct(field("name", "string", CURRENT_DEFAULT=default)))

    with pytest.raises(InvalidSchema, match=f"(?s)cannot be parsed: .*{reason}"):
        computed_columns.check(schema)


def test_a_default_that_cannot_be_cast_to_the_column_is_refused():
    """Otherwise every later append that omits the column would fail."""
    with pytest.raises(InvalidSchema, match="cannot be cast to its type long"):
        Table().alter(change("id", default="'abc'"))


@pytest.mark.parametrize("rule", ["delta.generationExpression", "delta.identity.start"])
def test_computed_columns_cannot_have_defaults(rule):
    table = Table(struct(field("id"), field("made", **{rule: "id"})), partitioned=())
    with pytest.raises(InvalidSchema, match="cannot have a default"):
        table.alter(change("made", default="1"))
