"""The oracle detects every kind of broken promise."""

import json
from collections import Counter

import pytest
from tests.chaos import oracle
from tests.chaos.oracle import BrokenPromiseError, Oracle


@pytest.fixture
def told(tmp_path):
    (tmp_path / "_delta_log").mkdir()
    return Oracle(tmp_path)


def commit(told, version, *keys, adds=(), removes=()):
    info = {"txnId": keys[0]}
    if len(keys) > 1:
        info |= {"txnId": "group", "tags": {"delvec.members": json.dumps([{"key": key} for key in keys])}}
    actions = [{"commitInfo": info}]
    actions += [{"remove": {"path": path}} for path in removes]
    actions += [{"add": {"path": path}} for path in adds]
    text = "\n".join(map(json.dumps, actions))
    (told.folder / "_delta_log" / f"{version:020}.json").write_text(text)


def appended(told, key, ids, version):
    operation = told.begin("append", key, ids)
    told.acknowledge(operation, version)
    return operation


def test_a_table_that_matches_all_answers_passes(told):
    appended(told, "a", [1, 2], 0)
    appended(told, "b", [3], 0)
    told.acknowledge(told.begin("delete", "c", [2]), 1)
    told.begin("append", "never arrived", [7])
    told.begin("append", "arrived unseen", [8])
    commit(told, 0, "a", "b", adds=["x"])
    commit(told, 1, "c", removes=["x"], adds=["x"])
    commit(told, 2, "arrived unseen")

    told.check_log()
    told.check_rows("a reader", [1, 3, 8])
    assert told.outcomes() == Counter(
        {"append acknowledged": 2, "delete acknowledged": 1, "append unknown": 2}
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [([1], "1 rows lost"), ([1, 2, 2], "1 twice"), ([1, 2, 3], "1 that must not be there")],
)
def test_lost_doubled_and_resurrected_rows_are_detected(told, rows, message):
    appended(told, "a", [1, 2, 3], 0)
    told.acknowledge(told.begin("delete", "b", [3]), 1)
    commit(told, 0, "a")
    commit(told, 1, "b")
    told.check_log()

    with pytest.raises(BrokenPromiseError, match=message):
        told.check_rows("a reader", rows)


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        (["b"], "is in the log 0 times"),
        (["a", "a"], "is in the log 2 times"),
        (["b", "a"], "is not at version 0"),
    ],
)
def test_an_answer_that_contradicts_the_log_is_detected(told, versions, message):
    appended(told, "a", [1], 0)
    for version, key in enumerate(versions):
        commit(told, version, key)

    with pytest.raises(BrokenPromiseError, match=message):
        told.check_log()


def test_a_conflict_that_took_effect_is_detected(told):
    told.begin("delete", "a", [1]).outcome = oracle.CONFLICT
    commit(told, 0, "a")

    with pytest.raises(BrokenPromiseError, match="is in the log all the same"):
        told.check_log()


def test_a_gap_in_the_log_is_detected(told):
    commit(told, 0, "a")
    commit(told, 2, "b")

    with pytest.raises(BrokenPromiseError, match="version 1 is missing"):
        told.check_log()


@pytest.mark.parametrize(
    ("changes", "message"), [({"removes": ["y"]}, "removes what is not live"), ({"adds": ["x"]}, "is live")]
)
def test_files_added_twice_or_removed_unseen_are_detected(told, changes, message):
    commit(told, 0, "a", adds=["x"])
    commit(told, 1, "b", **changes)

    with pytest.raises(BrokenPromiseError, match=message):
        told.check_log()
