"""Synchronizing identity columns with their numbers."""

import pytest
from tests.support.altered_table import Table, field, struct

from delvec_errors import InvalidTableChange, UnknownColumn


def numbered(start=1, step=1, mark=None):
    metadata = {"delta.identity.start": start, "delta.identity.step": step}
    metadata |= {"delta.identity.allowExplicitInsert": True}
    metadata |= {} if mark is None else {"delta.identity.highWaterMark": mark}
    return Table(struct(field("id", **metadata), field("name", "string")), partitioned=())


def sync(reached=None, column="id"):
    return {"change": "sync-identity", "column": column, "reached": reached}


@pytest.mark.parametrize(
    ("column", "reached", "mark"),
    [
        ((1, 1, None), 7, 7),
        ((1, 1, 5), 7, 7),
        ((1, 1, 9), 7, 9),
        ((10, 3, None), 14, 16),
        ((10, 3, None), 16, 16),
        ((10, 3, None), 9, None),
        ((10, 3, 4), 9, 10),
        ((10, 3, 4), 3, 4),
        ((-1, -2, None), -4, -5),
        ((-1, -2, -9), -4, -9),
        ((-1, -2, None), 4, None),
        ((1, 1, 5), None, 5),
    ],
)
def test_sync_rounds_to_the_sequence_of_the_column(column, reached, mark):
    table = numbered(*column)
    made = table.alter(sync(reached))

    assert table.field("id")["metadata"].get("delta.identity.highWaterMark") == mark
    assert made.is_empty is (mark == column[2])
    assert made.operation == "CHANGE COLUMN"


def test_sync_requires_that_no_row_is_beyond_the_mark():
    beyond = {1: "`id` IS NULL OR `id` <= 7", -1: "`id` IS NULL OR `id` >= -7"}
    for step, condition in beyond.items():
        (required,) = numbered(step, step).alter(sync(7 * step)).requirements
        assert required.condition == condition
    assert numbered(mark=9).alter(sync(7)).requirements == ()


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (sync(1, "name"), InvalidTableChange, "is not an identity column"),
        (sync(1, "nothing"), UnknownColumn, "nothing"),
        (sync(2**63 - 1), InvalidTableChange, "run out of numbers"),
    ],
)
def test_invalid_syncs_are_refused(change, kind, message):
    with pytest.raises(kind, match=message):
        numbered(2, 2).alter(change)
