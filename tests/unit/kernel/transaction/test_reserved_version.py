"""Versions that reserve the next one: what they record, and that nothing else is taken for one."""

import json
from dataclasses import dataclass, replace

import pytest

from delvec_kernel.actions.actions import CommitInfo, RemoveFile
from delvec_kernel.transaction.reserved_version import (
    OPERATION,
    Reservation,
    actions_of,
    reservation_of,
    with_group,
)

RESERVATION = Reservation("key-1", "file:///lake", f"{'0' * 32}-0.json")
FACTS = {"transactionId": "key-1", "warehouse": "file:///lake", "record": f"{'0' * 32}-0.json"}


@dataclass
class Newest:
    version: int = 7
    in_commit_timestamp: int | None = 5000


def info(**changes):
    (found,) = actions_of(RESERVATION, Newest(), "Delvec/1", 6000)
    return replace(found, **changes)


def test_a_reservation_is_read_as_it_was_written():
    found = info()
    assert reservation_of([CommitInfo.from_json(json.loads(json.dumps(found.to_json())))]) == RESERVATION
    assert found.txn_id != "key-1"


@pytest.mark.parametrize(("now", "stamp"), [(6000, 6000), (4000, 5001)])
def test_its_time_rises(now, stamp):
    (found,) = actions_of(RESERVATION, Newest(), "Delvec/1", now)
    assert found.in_commit_timestamp == stamp


def tagged(**facts):
    return [info(tags={"delvec.reservation": json.dumps({**FACTS, **facts})})]


@pytest.mark.parametrize(
    "actions",
    [
        [],
        [RemoveFile("a", 1)],
        [info(), RemoveFile("a", 1)],
        [info(operation="WRITE")],
        [info(tags=None)],
        [info(tags={"delvec.reservation": "{"})],
        [info(tags={"delvec.reservation": "[1]"})],
        [info(tags={"delvec.reservation": 7})],
        tagged(record="../../elsewhere.json"),
        tagged(record=7),
        tagged(warehouse=None),
    ],
)
def test_nothing_else_is_taken_for_one(actions):
    assert reservation_of(actions) is None


def test_the_group_is_in_the_commit_info():
    first, second = with_group(
        [CommitInfo(operation="WRITE"), RemoveFile("a", 1)], "key-1", {"t2": 4, "t1": 8}
    )
    assert first.to_json()["transactionGroup"] == {
        "transactionId": "key-1",
        "participants": [{"tableId": "t1", "version": 8}, {"tableId": "t2", "version": 4}],
    }
    assert second == RemoveFile("a", 1)
    assert OPERATION == "RESERVE VERSION"
