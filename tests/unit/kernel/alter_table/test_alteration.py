"""Several changes in one request, and changes that change nothing."""

import json

from tests.support.altered_table import MAP, Table, add, change, put


def test_mixed_changes_share_a_version_that_lists_them():
    table = Table()

    made = table.alter(MAP, add("x"), {"change": "rename-column", "column": "x", "to": "y"})

    assert table.names[-1] == "y"
    assert made.operation == "ALTER TABLE"
    assert [each["operation"] for each in json.loads(made.parameters["changes"])] == [
        "SET TBLPROPERTIES",
        "ADD COLUMNS",
        "RENAME COLUMN",
    ]


def test_no_op_changes_are_empty():
    table = Table(configuration={"delta.appendOnly": "false"})

    assert table.alter(put(appendOnly="false")).is_empty
    assert table.alter(change("id", nullable=False), change("name", nullable=True)).is_empty
