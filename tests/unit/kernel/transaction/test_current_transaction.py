"""What a commit reads, and its isolation level."""

import pytest
from pyroaring import BitMap64
from tests.support.rows_in_files import Facts, changes

from delvec_kernel.actions.actions import (
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    Txn,
)
from delvec_kernel.transaction.conflict_checker import (
    CurrentTransaction,
)
from delvec_kernel.transaction.current_transaction import isolation_level
from delvec_kernel.transaction.transaction_changes import Reads


@pytest.mark.parametrize(
    ("what", "level"),
    [
        ({}, "Serializable"),
        ({"data_change": False, "removes": ["a"]}, "SnapshotIsolation"),
        (
            {"data_change": False, "removes": ["a"], "domains": [DomainMetadata("delta.rowTracking", "{}")]},
            "SnapshotIsolation",
        ),
        ({"data_change": False, "removes": ["a"], "domains": [DomainMetadata("mine", "{}")]}, "Serializable"),
        ({"data_change": False, "removes": ["a"], "app_transaction": Txn("stream", 1)}, "Serializable"),
        ({"data_change": False, "removes": ["a"], "metadata": Metadata("table", "{}")}, "Serializable"),
        ({"data_change": False, "removes": ["a"], "protocol": Protocol(1, 2)}, "Serializable"),
        ({"data_change": False, "adds": [AddFile("a", {}, 1, 0)]}, "SnapshotIsolation"),
        ({"data_change": False, "row_deletes": {"a": BitMap64([1])}}, "SnapshotIsolation"),
        ({"data_change": False, "again": ["a"]}, "SnapshotIsolation"),
        ({"data_change": False}, "Serializable"),
    ],
)
def test_the_isolation_level_follows_from_what_a_commit_does(what, level):
    assert isolation_level(changes("OPTIMIZE", 1, **what), {}) == level


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ("WriteSerializable", "WriteSerializable"),
        ("Serializable", "Serializable"),
        ("Whatever", "Serializable"),
    ],
)
def test_the_isolation_level_is_the_tables(said, level):
    assert isolation_level(changes("DELETE", 1), {"delta.isolationLevel": said}) == level


@pytest.mark.parametrize(
    ("operation", "what", "rests_on"),
    [
        ("WRITE", {}, "nothing"),
        ("STREAMING UPDATE", {}, "nothing"),
        ("WRITE", {"removes": ["a"]}, "anything"),
        ("WRITE", {"removes": ["a"], "predicate": "id = 1"}, "matching"),
        ("WRITE", {"parameters": {"mode": "Overwrite"}}, "anything"),
        ("WRITE", {"removes": ["a"], "reads": Reads()}, "nothing"),
        ("DELETE", {"removes": ["a"]}, "nothing"),
        ("DELETE", {"removes": ["a"], "predicate": "id = 1"}, "matching"),
        ("DELETE", {"removes": ["a"], "reads": Reads()}, "nothing"),
        ("UPDATE", {"removes": ["a"]}, "anything"),
        ("MERGE", {"removes": ["a"]}, "anything"),
        ("OPTIMIZE", {"removes": ["a"], "data_change": False}, "nothing"),
    ],
)
def test_concurrent_appends_conflict_with_reads_of_the_whole_table(operation, what, rests_on):
    ours = CurrentTransaction.of(changes(operation, 1, **what), Facts(1))

    assert ours.reads_added == rests_on
