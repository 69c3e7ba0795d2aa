"""Row groups of live files are neither small nor too large for Arrow."""

import pyarrow as pa

from delvec_kernel.log import checkpoint_writer
from delvec_kernel.log.checkpoint_writer import ROW_GROUP, row_groups


def numbered(start, count):
    return pa.record_batch({"path": [f"{number:08}" for number in range(start, start + count)]})


def test_small_batches_are_merged_and_large_ones_split():
    given = [numbered(0, ROW_GROUP + 10), *(numbered(ROW_GROUP + 10 + i, 1) for i in range(100))]
    found = list(row_groups(iter(given)))
    assert [batch.num_rows for batch in found] == [ROW_GROUP, 110]
    assert pa.Table.from_batches(found) == pa.Table.from_batches(given).combine_chunks()


def test_large_strings_end_a_row_group_before_a_column_overflows(monkeypatch):
    given = [numbered(i * 100, 100) for i in range(10)]
    monkeypatch.setattr(checkpoint_writer, "_ROW_GROUP_BYTES", 3 * given[0].nbytes)
    found = list(row_groups(iter(given)))
    assert [batch.num_rows for batch in found] == [300, 300, 300, 100]
    assert pa.Table.from_batches(found) == pa.Table.from_batches(given)


def test_no_rows_give_no_row_group():
    assert list(row_groups(iter([]))) == []
