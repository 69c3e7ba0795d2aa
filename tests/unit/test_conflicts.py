from dataclasses import dataclass, field

import pytest
from pyroaring import BitMap64

from delvec.protocol.deletion_vector import Descriptor
from delvec.protocol.errors import (
    ConcurrentAppend,
    MetadataChanged,
    ProtocolChanged,
)
from delvec.protocol.types import PrimitiveType, StructField, StructType
from delvec_service.delta.actions import (
    AddFile,
    Cdc,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from delvec_service.delta.changes import Changes
from delvec_service.delta.conflicts import Conflict, Ours, Passed, Winner, check

SCHEMA = StructType((StructField("id", PrimitiveType("long")),))
LOCATION = "file:///data/people"
DV = Descriptor("u", "vBn[lx{q8@P<9BNH/isA", 1, 36, 2)


@dataclass
class Table:
    version: int = 4
    location: str = LOCATION
    schema: StructType = field(default_factory=lambda: SCHEMA)
    metadata: Metadata = field(default_factory=lambda: Metadata("id", "{}"))
    protocol: Protocol = field(
        default_factory=lambda: Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))
    )


def ours(operation, **what):
    return Ours.of(Changes(operation, 4, "ours", "test", **what), Table())


def info(operation="WRITE", *, blind=True, txn_id="theirs"):
    return CommitInfo(operation=operation, is_blind_append=blind, txn_id=txn_id)


def add(path, deletion_vector=None):
    return AddFile(path, {}, 10, 0, deletion_vector=deletion_vector)


def winner(*actions, version=5):
    return Winner.of(version, actions, LOCATION)


def no_vectors(_):
    return BitMap64()


APPEND = (info(), add("new.parquet"))
DELETE_IN_A = (info("DELETE", blind=False), RemoveFile("a.parquet"), add("a.parquet", DV))
REMOVE_A = (info("DELETE", blind=False), RemoveFile("a.parquet"))
METADATA = (
    info("SET TBLPROPERTIES", blind=True),
    Metadata("id", "{}", configuration={"delta.appendOnly": "true"}),
)
PROTOCOL = (info("DROP FEATURE", blind=True), Protocol(3, 7, (), ()))

OURS = {
    "append": ours("WRITE"),
    "delete in a": ours("DELETE", row_deletes={"a.parquet": BitMap64([1])}, predicate="id = 1"),
    "delete in b": ours("DELETE", row_deletes={"b.parquet": BitMap64([1])}, predicate="id = 1"),
}


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("append", APPEND, None),
        ("append", (*APPEND, Txn("stream", 3)), None),
        ("append", APPEND[1:], None),  # a writer that leaves commitInfo out
        ("append", (*APPEND, Cdc("_change_data/x", {}, 1)), None),
        ("append", METADATA, MetadataChanged),
        ("append", PROTOCOL, ProtocolChanged),
        ("delete in a", APPEND, ConcurrentAppend),
        ("delete in b", METADATA, MetadataChanged),
        ("delete in b", PROTOCOL, ProtocolChanged),
    ],
)
def test_one_winner(ours, theirs, expected):
    verdict = check(OURS[ours], [winner(*theirs)], no_vectors)

    if expected is None:
        assert verdict == Passed((5,), OURS[ours].changes)
    else:
        assert isinstance(verdict, Conflict)
        assert verdict.kind is expected
