"""The record of a compaction's rows: a row map that is right in whatever order the rows were read, or a refusal."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from delvec_engines.compacted_files import ReadOrder, ReadRows, row_runs
from delvec_engines.scan import Scan
from delvec_errors import CorruptTable
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap
from delvec_kernel.schema.types import StructType

COUNTS = [12, 7]
"""Rows of the files a and b."""


def scan_of(deleted, counts=COUNTS):
    vectors = [
        {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 40, "cardinality": len(rows)}
        if rows
        else None
        for rows in deleted
    ]
    sent = [serialize_bitmap(BitMap64(rows)) if rows else None for rows in deleted]
    columns = {"path": ["a", "b"], "num_records": pa.array(counts, pa.int64()), "deletion_vector": vectors}
    files = pa.table(columns | {"deleted_rows": pa.array(sent, pa.binary())})
    return Scan("id", "t", "file:///t", 1, StructType(()), (), {}, files, 2)


def mapped(deleted, batches, outputs, counts=COUNTS):
    """Return the source of each output row, as the row map tells: (path, live rank)."""
    order = ReadOrder(lambda place: BitMap64(deleted[place]))
    for batch in batches:
        files, rows = (np.array(column, np.int64) for column in zip(*batch, strict=True))
        order.add(files, rows)
    adds = [
        AddFile(
            path=f"new{number}",
            partition_values={},
            size=1,
            modification_time=1,
            data_change=False,
            stats=json.dumps({"numRecords": count}),
        )
        for number, count in enumerate(outputs)
    ]
    found = {}
    for path, runs in row_runs(scan_of(deleted, counts), order.row_ranges, adds).items():
        for run in runs:
            for place in range(run.count):
                found[path, run.first_output_row + place] = run.source, run.first_rank + place
    return found


def ranks(deleted):
    """Return (path, live rank) by file and row."""
    return {
        (file, row): ("ab"[file], rank)
        for file, count in enumerate(COUNTS)
        for rank, row in enumerate(row for row in range(count) if row not in deleted[file])
    }


deletes = st.tuples(*(st.sets(st.integers(0, count - 1)) for count in COUNTS))


@given(deleted=deletes, data=st.data())
def test_any_order_of_reading_maps_every_row(deleted, data):
    live = ranks(deleted)
    read = data.draw(st.permutations(list(live))) if data.draw(st.booleans()) else list(live)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(read)), max_size=3)))
    batches = [read[start:end] for start, end in zip([0, *cuts], [*cuts, len(read)], strict=True)]
    split = data.draw(st.integers(0, len(read)))
    outputs = [count for count in (split, len(read) - split) if count]

    found = mapped(deleted, [batch for batch in batches if batch], outputs)

    written = [(f"new{number}", row) for number, count in enumerate(outputs) for row in range(count)]
    assert found == dict(zip(written, (live[row] for row in read), strict=True))


def test_a_small_vector_of_rows_that_comes_late():
    """The row range before it does not claim its rows."""
    read = [(0, row) for row in (0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 3, 4)] + [(1, row) for row in range(7)]
    found = mapped([{4}, set()], [[each for each in read if each != (0, 4)]], [18])
    assert [found["new0", row] for row in range(12)] == [
        *[("a", rank) for rank in (0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 3)],
        ("b", 0),
    ]


@given(deleted=deletes, data=st.data())
def test_rows_that_are_lost_deleted_or_read_twice_are_refused(deleted, data):
    live = list(ranks(deleted))
    gone = [(file, row) for file, rows in enumerate(deleted) for row in rows]
    beyond = [(file, count) for file, count in enumerate(COUNTS)]
    kinds = [st.just(("add", row)) for row in gone + beyond + live] + [st.just(("lose", row)) for row in live]
    changes = data.draw(st.lists(st.one_of(kinds), min_size=1, max_size=2, unique_by=lambda each: each[1]))
    read = [row for row in live if ("lose", row) not in changes]
    for kind, row in changes:
        if kind == "add":
            read.insert(data.draw(st.integers(0, len(read))), row)
    with pytest.raises(CorruptTable):
        mapped(deleted, [read] if read else [], [len(read)] if read else [])
    with pytest.raises(CorruptTable):
        mapped(deleted, [sorted(read)] if read else [], [len(read)] if read else [])


class CountedArray(np.ndarray):
    """An array that counts how often its length is asked for."""

    asked = 0

    def __len__(self):
        CountedArray.asked += 1
        return super().__len__()


def test_a_batch_for_each_row_costs_no_look_at_all_earlier_ones():
    """A file may have a row group for each row, and DuckDB then returns a batch for each."""
    rows_read, batches = ReadRows(), 2000
    for row in range(batches):
        rows_read.add(np.zeros(1, np.int64).view(CountedArray), np.array([row], np.int64).view(CountedArray))
    assert rows_read.finish() == (batches, {0: BitMap64(range(batches))})
    assert CountedArray.asked < 10 * batches
