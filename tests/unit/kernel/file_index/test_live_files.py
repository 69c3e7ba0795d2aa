"""Live files against a dictionary model, over random histories, and through a store with nothing in memory."""

import json
import threading
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.segments_in_memory import LOCATION, SegmentsInMemory, live_file, vector_of

from delvec_kernel.file_index import live_files, packed_files, segment
from delvec_kernel.file_index import packed_files as path_index
from delvec_kernel.file_index.column_bounds import known_columns, segment_bounds
from delvec_kernel.file_index.engine_port import SERIAL
from delvec_kernel.file_index.file_counts import FileCounts
from delvec_kernel.file_index.file_rows import (
    add_from_row,
    batch_from_adds,
    num_records_from_stats,
    records_in,
)
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.file_index.packed_files import FileChange
from delvec_kernel.file_index.segment import SEGMENT_ROWS, SegmentsLost, load_parts
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType

PATHS = [f"p={number % 3}/f%20{number}.parquet" for number in range(30)]
_numbers = st.none() | st.integers(0, 3)
_adds = st.builds(
    live_file,
    st.sampled_from(PATHS),
    _numbers,
    st.none() | st.integers(0, 9),
    tags=st.none() | st.dictionaries(st.sampled_from("kl"), st.none() | st.text(max_size=2), max_size=2),
    base_row_id=st.none() | st.integers(0, 9),
    default_row_commit_version=st.none() | st.integers(0, 9),
    clustering_provider=st.none() | st.just("c"),
)
_commits = st.lists(
    st.tuples(
        st.lists(_adds, max_size=12),
        st.dictionaries(st.sampled_from(PATHS), _numbers, max_size=12),
        st.booleans(),
    ),
    max_size=12,
)


def _read(live):
    rows = live.table.to_pylist()
    found = {row["path"]: add_from_row(row) for row in rows}
    assert len(found) == len(rows)
    return found


def _counts(model):
    vectors = [add.deletion_vector for add in model.values() if add.deletion_vector is not None]
    records = [int(add.stats[len('{"numRecords":') : -1]) for add in model.values() if add.stats is not None]
    return FileCounts(
        num_files=len(model),
        size_in_bytes=sum(add.size for add in model.values()),
        num_deletion_vectors=len(vectors),
        num_deleted_rows=sum(vector.cardinality for vector in vectors),
        num_known_records=sum(records),
        num_unknown=len(model) - len(records),
    )


HISTORIES = given(
    _commits,
    st.sampled_from([4, 8, SEGMENT_ROWS]),
    st.sampled_from([0, 3, 256]),
    st.sampled_from([(1, 0), (2, 2), (16, 256)]),
    st.booleans(),
)


@settings(max_examples=40, deadline=None)
@HISTORIES
def test_live_files_match_the_protocol_model(commits, rows, recent, search, looked_through):
    _replay(commits, rows, recent, search, looked_through)


@pytest.mark.long("thousands of random histories")
@pytest.mark.timeout(1800)
@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@HISTORIES
def test_live_files_match_the_protocol_model_many_times(commits, rows, recent, search, looked_through):
    _replay(commits, rows, recent, search, looked_through)


def _replay(commits, rows, recent, search, looked_through):
    """Whatever the limits of caches, and whether or not all files are read in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_files, "SEGMENT_ROWS", rows)
        patch.setattr(live_files, "_MAX_RECENT", recent)
        patch.setattr(path_index, "_FEW_SEGMENTS", search[0])
        patch.setattr(packed_files, "_MAX_LOOKUPS", search[1])
        live, model, store = LiveFiles(LOCATION), {}, SegmentsInMemory()
        for adds, removes, stored in commits:
            changes = {}
            for path, number in removes.items():
                vector = vector_of(number)
                changes.setdefault(path, FileChange()).follow(None, vector, is_removed=True)
                if path in model and model[path].deletion_vector == vector:
                    del model[path]
            for add in adds:
                changes.setdefault(add.path, FileChange()).follow(add, None, is_removed=False)
                model[add.path] = add
            before, was = live, _read(live) if looked_through else live.find_all(PATHS)
            live = live.apply(changes)
            assert live.counts == _counts(model)
            assert live.find_all(PATHS) == model
            assert before.find_all(PATHS) == was
            if not looked_through:
                continue
            assert _read(live) == model
            assert _read(before) == was
            assert live.find_all(PATHS) == model
            assert live.find(f"file:///data/t/{PATHS[1]}") == model.get(PATHS[1])
            assert live.duplicate() is None
            assert sum(member.num_rows for member in live.members) == len(model)
            assert all(0 < member.num_rows <= member.segment.num_rows <= rows for member in live.members)
            if stored:
                live = store.restore(store.save(live), live.counts)
                assert _read(live) == model
        assert _read(live) == model
        assert live.find_all(PATHS) == model


def test_recently_changed_files_are_found_without_segments(monkeypatch):
    live = LiveFiles.from_batches(iter([batch_from_adds([live_file(path) for path in PATHS])]), LOCATION)
    changed = replace(live_file(PATHS[0]), size=77)
    # Segments do not store dataChange.
    came = replace(changed, data_change=False)
    live = live.apply({PATHS[0]: FileChange.to(came), PATHS[1]: FileChange.to(None)})

    def none(*_arguments):
        raise AssertionError("segments are looked through")

    monkeypatch.setattr(packed_files.PackedFiles, "find", none)
    monkeypatch.setattr(packed_files.PackedFiles, "apply", none)
    assert live.find(PATHS[0]) == changed
    assert live.find(PATHS[1]) is None
    again = live.apply({PATHS[0]: FileChange.to(None)})
    assert again.find(PATHS[0]) is None
    assert again.counts.num_files == len(PATHS) - 2
    monkeypatch.undo()
    assert sorted(again.table["path"].to_pylist()) == sorted(PATHS[2:])


def test_only_requested_parts_are_read_from_the_store():
    adds = [live_file(f"p=0/{n}") for n in range(100)]
    live = LiveFiles.from_batches([batch_from_adds(adds)], LOCATION)
    store = SegmentsInMemory()
    restored = store.restore(store.save(live), live.counts)
    store.calls.clear()
    assert (restored.counts, store.calls) == (live.counts, [])
    assert restored.columns(["partition_values"]).num_rows == 100
    assert store.calls == ["partitions"]
    assert restored.find("p=0/7") == adds[7]
    assert set(store.calls) == {"partitions", "keys", "files", "stats", "rest"}


def test_lookups_are_cached(monkeypatch):
    live = LiveFiles.from_batches([batch_from_adds([live_file(path) for path in PATHS])], LOCATION)
    found = live.find_all([*PATHS, "p=0/none"])

    def none(*_arguments):
        raise AssertionError("segments are looked through again")

    monkeypatch.setattr(packed_files.PackedFiles, "_look_up", none)
    assert live.find_all([*PATHS, "p=0/none"]) == found
    changed = replace(live_file(PATHS[0]), size=77)
    after = live.apply({PATHS[0]: FileChange.to(changed), PATHS[1]: FileChange.to(None)})
    assert len(after.table) == len(PATHS) - 1  # folds everything into segments
    assert after.find_all(PATHS) == {**{path: found[path] for path in PATHS[2:]}, PATHS[0]: changed}
    assert live.find_all(PATHS) == {path: found[path] for path in PATHS}


def test_a_saved_segment_evicts_stored_parts_and_saves_only_new_ones():
    live = LiveFiles.from_batches([batch_from_adds([live_file(f"p=0/{n}") for n in range(100)])], LOCATION)
    (member,) = live.members
    before = member.segment.nbytes
    store = SegmentsInMemory()
    store.save(live)
    assert member.segment.nbytes < before
    assert member.segment.unsaved() is None
    member.segment.keep_blob("bounds/x", b"1", new=True)
    assert member.segment.unsaved().blobs == {"bounds/x": b"1"}
    store.save(live)
    assert member.segment.unsaved() is None
    assert member.segment.blob("bounds/x") is None


def test_a_small_new_segment_is_encoded_once_it_is_saved(monkeypatch):
    encoded = []
    original = segment.encoded_parts
    monkeypatch.setattr(segment, "encoded_parts", lambda *args: encoded.append(1) or original(*args))
    live = LiveFiles.from_batches([batch_from_adds([live_file(f"p=0/{n}") for n in range(100)])], LOCATION)
    files = live.table.sort_by("path")
    assert live.find("p=0/7") is not None
    assert not encoded
    store = SegmentsInMemory()
    saved = store.save(live)
    assert len(encoded) == 1
    assert live.table.sort_by("path").equals(files)
    assert store.restore(saved, live.counts).table.sort_by("path").equals(files)


def test_threads_that_encode_a_segment_while_it_is_saved_leave_nothing_unsaved(monkeypatch):
    engine = replace(SERIAL, encoding=threading.Lock())
    (member,) = LiveFiles.from_batches([batch_from_adds([live_file("p=0/a")])], LOCATION, engine).members
    original = segment.encoded_parts
    both = threading.Barrier(2)

    def slow(rows):
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # for another thread that encodes the same rows
        return original(rows)

    monkeypatch.setattr(segment, "encoded_parts", slow)
    other = threading.Thread(target=member.segment.encode)
    other.start()
    member.segment.saved(member.segment.record(), SegmentsInMemory())
    other.join()
    assert member.segment.unsaved() is None


def test_lost_parts_raise():
    live = LiveFiles.from_batches([batch_from_adds([live_file("p=0/a")])], LOCATION)
    store = SegmentsInMemory()
    restored = store.restore(store.save(live), live.counts)
    store.records.clear()
    with pytest.raises(SegmentsLost):
        restored.find("p=0/a")
    with pytest.raises(SegmentsLost):
        _ = restored.table


def test_partition_values_round_trip():
    values = [
        {},
        {"a": None},
        {"a": "1", "b": "2"},
        {"b": "2", "a": "1"},
        {"a": "1"},
        {"a": ""},
        {"a": "1", "b": "2"},
    ]
    adds = [replace(live_file(f"p=0/{n}"), partition_values=value) for n, value in enumerate(values)]
    live = LiveFiles.from_batches([batch_from_adds(adds)], LOCATION)
    assert [dict(row) for row in live.table["partition_values"].to_pylist()] == values
    (parts,) = load_parts([live.members[0].segment], "partitions")
    assert len(parts.distinct) == 6


@pytest.mark.parametrize(
    ("counts", "rows"),
    [
        (FileCounts(), 0),
        (FileCounts(2, 10, 1, 3, 50, 0), 47),
        (FileCounts(2, 10, 1, 3, 50, 1), None),
        (FileCounts(1, 10, 1, 51, 50, 0), None),  # more deleted rows than rows
    ],
)
def test_live_row_counts(counts, rows):
    assert counts.num_rows == rows


def test_bounds_of_segments_are_looked_up_once_per_version():
    stats = json.dumps(
        {"numRecords": 1, "minValues": {"id": 3}, "maxValues": {"id": 9}, "nullCount": {"id": 0}}
    )
    adds = [replace(live_file(f"p=0/{number}"), stats=stats) for number in range(20)]
    live = LiveFiles.from_batches([batch_from_adds(adds)], LOCATION)
    store = SegmentsInMemory()
    (column,) = known_columns([("id",)], StructType((StructField("id", PrimitiveType("long")),)), ())
    assert not live.summary_bounds([column])[("id",)].low.is_valid().to_pylist()[0]
    segment_bounds([member.segment for member in live.members], [column])
    restored = store.restore(store.save(live), live.counts)
    for _ in range(3):
        bounds = restored.summary_bounds([column])[("id",)]
        assert (bounds.low.to_pylist(), bounds.high.to_pylist()) == ([3], [9])
    assert store.calls == [column.key]


@pytest.mark.parametrize("shape", ['{{"numRecords":{}}}', '{{"tightBounds":true,"numRecords":{}}}'])
@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("0", 0),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), None),
        ("-1", None),
        ("1.5", None),
        ("true", None),
        ('"7"', None),
        ("null", None),
    ],
)
def test_the_number_of_records_is_a_long_or_unknown(shape, written, number):
    stats = shape.format(written)
    assert num_records_from_stats(pa.array([stats])).to_pylist() == [number]
    assert records_in(stats) == number
