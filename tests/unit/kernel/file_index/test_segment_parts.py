"""The parts of a segment: a few rows of a part are those that the whole part has."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_kernel.file_index import segment_parts
from delvec_kernel.file_index.file_rows import TEXT_MAP
from delvec_kernel.file_index.segment import SEGMENT_ROWS
from delvec_kernel.file_index.segment_parts import (
    BLOCK_ROWS,
    FILES,
    are_few_blocks,
    decoded,
    decoded_rows,
    encoded_batch,
)

KINDS = {
    "long": lambda rows: pa.array(np.arange(rows)),
    "text": lambda rows: pa.array([None if row % 7 == 0 else f"part-{row:05d}" for row in range(rows)]),
    "struct": lambda rows: pa.StructArray.from_arrays([pa.array(np.arange(rows) * 2)], ["a"]),
    "map": lambda rows: pa.array([[("k", str(row))] for row in range(rows)], TEXT_MAP),
}


def _batch(rows, kind="text"):
    numbers = np.arange(rows)
    return pa.RecordBatch.from_pydict({"first": pa.array(numbers % 3), "second": KINDS[kind](rows)})


@pytest.mark.parametrize("rows", [0, 1, 63, 64, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, SEGMENT_ROWS])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block_rows", [None, BLOCK_ROWS])
def test_a_batch_survives_whatever_its_blocks(monkeypatch, rows, kind, block_rows):
    monkeypatch.setattr(segment_parts, "_ONE_BLOCK", 0)
    batch = _batch(rows, kind)
    found, nbytes = decoded(FILES, encoded_batch(batch, block_rows))
    found.validate(full=True)
    assert found.equals(batch)
    assert nbytes >= rows * 8


@given(
    rows=st.integers(1, 4 * BLOCK_ROWS),
    block_rows=st.sampled_from([1, 7, 100, BLOCK_ROWS, None]),
    data=st.data(),
)
def test_some_rows_are_those_of_the_whole_part(rows, block_rows, data):
    chosen = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=20, unique=True).map(sorted))
    batch = _batch(rows)
    if block_rows is not None and rows // block_rows > 500:
        block_rows = 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_parts, "_ONE_BLOCK", 0)
        blob = encoded_batch(batch, block_rows)
    some = decoded_rows(blob, np.array(chosen, np.uint16))
    assert some.equals(batch.take(pa.array(chosen)))


def test_few_bytes_are_one_block():
    numbers = np.arange(SEGMENT_ROWS)
    small = pa.RecordBatch.from_pydict({"a": numbers.astype(np.int8)})
    large = pa.RecordBatch.from_pydict({"a": numbers, "b": numbers})
    blocks = [len(segment_parts._Blocks(encoded_batch(each, BLOCK_ROWS))) for each in (small, large)]
    assert blocks == [1, SEGMENT_ROWS // BLOCK_ROWS]


def test_some_rows_decode_only_their_blocks(monkeypatch):
    blob = encoded_batch(_batch(SEGMENT_ROWS), BLOCK_ROWS)
    read = []
    original = segment_parts._decoded_block
    monkeypatch.setattr(segment_parts, "_decoded_block", lambda block: read.append(block) or original(block))
    decoded_rows(blob, np.array([5, 6, 3 * BLOCK_ROWS], np.uint16))
    assert len(read) == 2


@pytest.mark.parametrize(
    ("rows", "are_few"),
    [
        ([], False),
        ([0], True),
        ([0, 1, BLOCK_ROWS - 1], True),
        (range(0, 4 * BLOCK_ROWS, BLOCK_ROWS), True),
        (range(0, 5 * BLOCK_ROWS, BLOCK_ROWS), False),
        (range(SEGMENT_ROWS), False),
    ],
)
def test_few_blocks_are_at_most_half_of_a_segment(rows, are_few):
    assert are_few_blocks(np.array(rows, np.uint16), SEGMENT_ROWS) == are_few


def test_a_segment_of_one_block_is_read_whole():
    assert not are_few_blocks(np.array([0], np.uint16), BLOCK_ROWS)
