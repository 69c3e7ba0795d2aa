"""Schemas that the change data feed can read across, by the rules of delta-spark."""

import json

import pytest

from delvec_kernel.actions.actions import Metadata
from delvec_kernel.change_feed.feed_schema import is_readable_with


def field(name, kind="long", *, physical=None, nullable=True):
    metadata = {} if physical is None else {"delta.columnMapping.physicalName": physical}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def metadata(*fields, mode="none", partition_by=()):
    text = json.dumps({"type": "struct", "fields": list(fields)})
    return Metadata("1", text, tuple(partition_by), {"delta.columnMapping.mode": mode})


def array(element, *, nulls=True):
    return {"type": "array", "elementType": element, "containsNull": nulls}


def nested(*fields):
    return {"type": "struct", "fields": list(fields)}


A, B = field("a"), field("b")
MAPPED = [field("a", physical="x"), field("b", physical="y")]


@pytest.mark.parametrize(
    ("earlier", "later", "readable"),
    [
        ([A], [A, B], True),
        ([A, B], [A], False),
        ([A], [field("a", "string")], False),
        ([A], [field("A")], False),
        ([field("a", nullable=False)], [A], True),
        ([A], [field("a", nullable=False)], False),
        ([field("s", nested(A))], [field("s", nested(A, B))], True),
        ([field("s", nested(A, B))], [field("s", nested(A))], False),
        ([field("s", array("long", nulls=False))], [field("s", array("long"))], True),
        ([field("s", array("long"))], [field("s", array("integer"))], False),
        ([field("v", "void")], [field("v", "string")], True),
    ],
)
def test_later_schemas_may_only_add_columns(earlier, later, readable):
    assert is_readable_with(metadata(*later), 5, metadata(*earlier), 2) is readable


def test_versions_after_the_read_schema_may_add_columns():
    assert is_readable_with(metadata(A), 2, metadata(A, B), 5)
    assert not is_readable_with(metadata(A, B), 2, metadata(A), 5)


@pytest.mark.parametrize(
    ("later", "readable"),
    [
        (MAPPED, True),
        ([*MAPPED, field("c", physical="z")], True),
        (MAPPED[:1], False),
        ([MAPPED[0], field("c", physical="y")], False),
        ([MAPPED[0], field("b", physical="other")], False),  # dropped and added again
    ],
)
def test_mapped_columns_keep_their_names(later, readable):
    assert is_readable_with(metadata(*later, mode="name"), 5, metadata(*MAPPED, mode="name"), 2) is readable


def test_column_mapping_may_be_enabled_but_not_disabled():
    on = metadata(field("a", physical="a"), field("b", physical="b"), mode="name")
    assert is_readable_with(on, 5, metadata(A, B), 2)
    renamed = metadata(field("a", physical="a"), field("c", physical="b"), mode="name")
    assert not is_readable_with(renamed, 5, metadata(A, B), 2)
    assert not is_readable_with(metadata(A, B), 5, on, 2)


@pytest.mark.parametrize("mode", ["none", "name"])
@pytest.mark.parametrize("others", [["b"], [], ["a", "b"]])
def test_partition_columns_must_not_change(mode, others):
    before, after = (metadata(*MAPPED, mode=mode, partition_by=each) for each in (["a"], others))
    assert not is_readable_with(after, 5, before, 2)
