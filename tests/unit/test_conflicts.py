import pytest

from delvec.protocol.deletion_vector import Descriptor
from delvec.protocol.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentWrite,
    MetadataChanged,
    ProtocolChanged,
)
from delvec_service.delta.actions import (
    AddFile,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from delvec_service.delta.conflicts import Conflict, Ours, Passed, Winner, check

LOCATION = "file:///data/people"
DV = Descriptor("u", "vBn[lx{q8@P<9BNH/isA", 1, 36, 2)


def info(operation="WRITE", *, blind=True, txn_id="theirs"):
    return CommitInfo(operation=operation, is_blind_append=blind, txn_id=txn_id)


def add(path, deletion_vector=None):
    return AddFile(path, {}, 10, 0, deletion_vector=deletion_vector)


def winner(*actions, version=5):
    return Winner.of(version, actions, LOCATION)


APPEND = (info(), add("new.parquet"))
DELETE_IN_A = (info("DELETE", blind=False), RemoveFile("a.parquet"), add("a.parquet", DV))
REMOVE_A = (info("DELETE", blind=False), RemoveFile("a.parquet"))
METADATA = (info("SET TBLPROPERTIES", blind=True), Metadata("id", "{}"))
PROTOCOL = (info("UPGRADE PROTOCOL", blind=True), Protocol(3, 7, (), ()), Metadata("id", "{}"))

OURS = {
    "append": Ours("WRITE", 4, reads=False, removes=frozenset()),
    "delete in a": Ours("DELETE", 4, reads=True, removes=frozenset({"a.parquet"})),
    "delete in b": Ours("DELETE", 4, reads=True, removes=frozenset({"b.parquet"})),
}


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("append", APPEND, None),
        ("append", (*APPEND, Txn("stream", 3)), None),
        ("append", APPEND[1:], None),  # a writer that leaves commitInfo out
        ("append", (info("MERGE", blind=False), add("new.parquet")), ConcurrentWrite),
        ("append", DELETE_IN_A, ConcurrentWrite),
        ("append", REMOVE_A, ConcurrentWrite),
        ("append", METADATA, MetadataChanged),
        ("append", PROTOCOL, ProtocolChanged),
        ("append", (*APPEND, DomainMetadata("delta.clustering", "{}")), ConcurrentWrite),
        ("append", (*APPEND, Cdc("_change_data/x", {}, 1)), ConcurrentWrite),
        ("delete in a", APPEND, ConcurrentAppend),
        ("delete in a", DELETE_IN_A, ConcurrentDeleteDelete),
        ("delete in a", REMOVE_A, ConcurrentDeleteDelete),
        ("delete in b", DELETE_IN_A, ConcurrentDeleteRead),
        ("delete in b", REMOVE_A, ConcurrentDeleteRead),
        ("delete in b", METADATA, MetadataChanged),
        ("delete in b", PROTOCOL, ProtocolChanged),
        ("delete in b", (info("OTHER"), Txn("stream", 3)), ConcurrentWrite),
    ],
)
def test_only_blind_appends_pass_each_other(ours, theirs, expected):
    verdict = check(OURS[ours], [winner(*theirs)])

    if expected is None:
        assert verdict == Passed((5,))
    else:
        assert isinstance(verdict, Conflict)
        assert verdict.kind is expected


def test_nobody_in_between_is_no_conflict():
    assert check(OURS["delete in a"], []) == Passed(())


def test_every_winner_has_to_be_passed():
    winners = [winner(*APPEND, version=5), winner(*APPEND, version=6), winner(*REMOVE_A, version=7)]

    assert check(OURS["append"], winners[:2]) == Passed((5, 6))
    verdict = check(OURS["append"], winners)
    assert isinstance(verdict, Conflict)
    assert verdict.winner.version == 7


@pytest.mark.parametrize("spelling", ["a.parquet", "file:/data/people/a.parquet", "/data/people/a.parquet"])
def test_one_file_may_be_spelled_in_many_ways(spelling):
    verdict = check(OURS["delete in a"], [winner(info("DELETE", blind=False), RemoveFile(spelling))])

    assert isinstance(verdict, Conflict)
    assert verdict.kind is ConcurrentDeleteDelete


def test_the_error_names_the_winner_its_operation_and_the_files():
    verdict = check(OURS["delete in a"], [winner(*DELETE_IN_A)])
    assert isinstance(verdict, Conflict)

    error = verdict.error("people")

    assert isinstance(error, ConcurrentDeleteDelete)
    assert error.message == (
        "Version 5 of table 'people' (DELETE) removed a file, or rows of it, that this commit removes from too, "
        "after this DELETE had read version 4; run the DELETE again: it will read the new version."
    )
    assert error.details == {
        "table": "people",
        "version": 4,
        "conflict": {
            "winning-version": 5,
            "winning-operation": "DELETE",
            "read-version": 4,
            "advice": "run the DELETE again: it will read the new version.",
            "files": ["a.parquet"],
        },
    }


def test_the_error_of_a_large_winner_stays_small():
    verdict = check(OURS["delete in b"], [winner(info(), *(add(f"{number:04}") for number in range(500)))])
    assert isinstance(verdict, Conflict)

    error = verdict.error("people")

    assert "added 500 files" in error.message
    assert error.conflict["files"] == [f"{number:04}" for number in range(20)]


def test_a_winner_without_commit_info_has_no_operation():
    assert winner(add("x")).operation == "unknown operation"
    assert winner(add("x")).txn_id is None
