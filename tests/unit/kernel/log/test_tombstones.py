"""Tombstones in checkpoints, and deletion vector files without a tombstone that clients without the feature can see."""

import io
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec_errors import CorruptLog
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import AddFile, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, encode_uuid, file_name
from delvec_kernel.log.tombstones import (
    TOMBSTONES,
    Changes,
    tombstones_in_parquet,
    vector_files_without_tombstone,
)
from delvec_kernel.snapshot.replay import Commit

LOCATION = "file:///data/people"
ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def vector(identifier, *, prefix="", offset=1):
    return Descriptor("u", encode_uuid(prefix, identifier), offset, 40, 1)


def at(url):
    return Descriptor("p", url, 1, 40, 1)


def lacking(*removed):
    removes = [RemoveFile(f"{number}.parquet", 1, deletion_vector=one) for number, one in enumerate(removed)]
    return lacking_after(removes)


def lacking_after(removes):
    commit = Commit(LogFile("people", 0, "0.json"), removes)
    return vector_files_without_tombstone([Changes.of([commit], LOCATION).tombstones(0)], LOCATION)


def test_a_shared_deletion_vector_file_is_listed_once():
    assert lacking(vector(ONE), vector(ONE, offset=60), None) == [file_name(ONE)]


def test_prefixes_are_directories():
    assert lacking(vector(ONE, prefix="a%b")) == [f"a%25b/{file_name(ONE)}"]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (f"{LOCATION}/deep/x.bin", "deep/x.bin"),
        ("file:/data/people/y.bin", "y.bin"),
        ("file:///data/others/x.bin", None),
        ("unknown://host/x.bin", None),
    ],
)
def test_absolute_paths_count_if_inside_the_table(url, path):
    assert lacking(at(url)) == ([] if path is None else [path])


def test_inline_deletion_vectors_have_no_file():
    assert lacking(Descriptor("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6)) == []


def test_files_with_a_tombstone_are_left_out():
    removes = [
        RemoveFile("a.parquet", 1, deletion_vector=vector(ONE)),
        RemoveFile("b.parquet", 1, deletion_vector=vector(TWO)),
        RemoveFile(file_name(TWO), 1, data_change=False),
    ]
    assert lacking_after(removes) == [file_name(ONE)]


# --- what later commits leave of them --------------------------------------------------------------------------

INLINE = Descriptor("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6)


def changes(*actions):
    return Changes.of([Commit(LogFile("people", 0, "0.json"), actions)], LOCATION)


def add(path, vector=None):
    return AddFile(path, {}, 10, 20, deletion_vector=vector)


def left(older, *newer, since=0):
    """Return path, and offset of the vector if any, of the tombstones that are left."""
    found = changes(*newer).remaining(changes(*older).tombstones(0), since).to_pylist()
    return [(row["path"], (row["deletionVector"] or {}).get("offset")) for row in found]


def test_a_restored_file_keeps_tombstones_of_other_deletion_vectors():
    removed = [None, vector(ONE), vector(ONE, offset=60), vector(TWO)]
    older = [RemoveFile("a.parquet", 5, deletion_vector=each) for each in removed]

    assert left(older, add("a.parquet", vector(ONE))) == [
        ("a.parquet", None),
        ("a.parquet", 60),
        ("a.parquet", 1),
    ]
    assert left(older, add("a.parquet")) == [("a.parquet", 1), ("a.parquet", 60), ("a.parquet", 1)]
    assert len(left(older, add("b.parquet"))) == len(older)


def test_restored_files_match_in_any_spelling_and_with_inline_deletion_vectors():
    older = [RemoveFile("p=1/a%20b.parquet", 5), RemoveFile("c.parquet", 5, deletion_vector=INLINE)]

    assert left(older, add(f"{LOCATION}/p=1/a%20b.parquet")) == [("c.parquet", None)]
    assert left(older, add("./c.parquet", INLINE)) == [("p=1/a%20b.parquet", None)]


def test_a_file_that_is_removed_again_has_one_tombstone_of_its_last_removal():
    older, newer = RemoveFile("a.parquet", 5, deletion_vector=vector(ONE)), RemoveFile("a.parquet", 9)
    again = RemoveFile("a.parquet", 8, deletion_vector=vector(ONE))

    assert left([older], newer) == [("a.parquet", 1)]
    assert left([older], newer, again) == []
    assert changes(newer, again).tombstones(0).column("deletionTimestamp").to_pylist() == [9, 8]


def test_tombstones_expire():
    older = [RemoveFile("a.parquet", 5), RemoveFile("b.parquet", 6)]

    assert left(older, since=4) == [("a.parquet", None), ("b.parquet", None)]
    assert left(older, since=5) == [("b.parquet", None)]
    assert changes(*older, RemoveFile("c.parquet")).tombstones(5).column("path").to_pylist() == ["b.parquet"]


# --- in Parquet ---------------------------------------------------------------------------------------------

CHECKPOINT = LogFile("people", 7, "00000000000000000007.checkpoint.parquet")
VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 40, "cardinality": 2}


def in_parquet(removes, kind=None):
    """Return the tombstones that a checkpoint with these removes says, and some adds."""
    removes = pa.array([*removes, None], kind) if kind else pa.array([*removes, None])
    target = io.BytesIO()
    pq.write_table(pa.table({"add": [{"path": "live"}] * len(removes), "remove": removes}), target)
    batches = list(tombstones_in_parquet(pa.BufferReader(target.getvalue()), CHECKPOINT))
    assert all(batch.schema == TOMBSTONES for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def test_checkpoints_keep_tombstones_with_deletion_vectors():
    one = {"path": "a.parquet", "deletionTimestamp": 7, "deletionVector": VECTOR}
    # Delta's writers leave a struct of empty text where there is none.
    none = {"storageType": "", "pathOrInlineDv": "", "offset": None, "sizeInBytes": 0, "cardinality": 0}
    two = {"path": "b.parquet", "deletionTimestamp": 8, "deletionVector": none}

    found = in_parquet([one, two])

    assert [row["path"] for row in found] == ["a.parquet", "b.parquet"]
    assert [row["deletionTimestamp"] for row in found] == [7, 8]
    assert {name: found[0]["deletionVector"][name] for name in VECTOR} == VECTOR
    assert found[1]["deletionVector"] is None
    assert found[0]["size"] is None


def test_tombstones_are_read_however_their_writer_had_them_in_memory():
    kind = pa.struct([("path", pa.string_view()), ("deletionTimestamp", pa.int64())])
    found = in_parquet([{"path": "a", "deletionTimestamp": 5}, None], kind)
    assert [row["path"] for row in found] == ["a"]


def test_a_checkpoint_without_tombstones_has_none():
    assert in_parquet([], pa.struct([("path", pa.string())])) == []


def test_a_tombstone_with_invalid_utf8_is_corrupt():
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff.parquet"]).buffers())
    target = io.BytesIO()
    pq.write_table(pa.table({"remove": pa.StructArray.from_arrays([text], ["path"])}), target)

    with pytest.raises(CorruptLog, match="not a readable Parquet checkpoint"):
        list(tombstones_in_parquet(pa.BufferReader(target.getvalue()), CHECKPOINT))
