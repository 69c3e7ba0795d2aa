"""Adding and dropping CHECK constraints."""

import pytest
from tests.support.altered_table import MAP, Table

from delvec_errors import BadRequest, InvalidTableChange, UnknownColumn
from delvec_kernel.actions.actions import Protocol


def test_adding_a_constraint_sets_property_feature_and_requirement():
    table = Table(protocol=Protocol(1, 2))

    made = table.alter({"change": "add-constraint", "name": "Near", "expression": "home.zip < 1000"})

    assert table.metadata.configuration == {"delta.constraints.near": "home.zip < 1000"}
    assert table.protocol == Protocol(1, 3)
    assert (made.operation, made.parameters) == (
        "ADD CONSTRAINT",
        {"name": "Near", "expr": "home.zip < 1000"},
    )
    assert [each.condition for each in made.requirements] == ["home.zip < 1000"]
    with pytest.raises(InvalidTableChange, match="already"):
        table.alter({"change": "add-constraint", "name": "NEAR", "expression": "true"})

    dropped = table.alter({"change": "drop-constraint", "name": "NEAR"})

    assert table.metadata.configuration == {}
    assert dropped.parameters == {"name": "NEAR", "expr": "home.zip < 1000", "existed": "true"}
    with pytest.raises(InvalidTableChange, match="does not exist"):
        table.alter({"change": "drop-constraint", "name": "near"})
    assert table.alter({"change": "drop-constraint", "name": "near", "if-exists": True}).is_empty


@pytest.mark.parametrize(
    ("name", "expression", "error"),
    [
        ("c", "id +", BadRequest),
        ("c", "id", BadRequest),
        ("c", "nothing > 1", UnknownColumn),
        ("c", "rand() < 0.5", InvalidTableChange),
        ("a b", "id > 1", InvalidTableChange),
    ],
)
def test_invalid_constraints_are_refused(name, expression, error):
    with pytest.raises(error):
        Table().alter({"change": "add-constraint", "name": name, "expression": expression})


def test_constraints_and_renames_of_their_columns_cannot_share_a_request():
    with pytest.raises(InvalidTableChange, match="two requests"):
        Table().alter(
            MAP,
            {"change": "rename-column", "column": "name", "to": "n"},
            {"change": "add-constraint", "name": "c", "expression": "n <> ''"},
        )
