"""Rows that a task buffers while they are few."""

import pyarrow as pa
import pytest

from delvec_engines.spark.task_rows import BufferedWriter, batches_in, sendable_bytes


class _Writer:
    """Records the rows written, and how the writer ended."""

    def __init__(self):
        self.rows, self.ended = [], None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.ended = kind

    def write(self, batch):
        self.rows += batch.column(0).to_pylist()

    def finish(self):
        return ["a file"]


def _batch(*values):
    return pa.RecordBatch.from_pydict({"x": pa.array(values, pa.int64())})


def test_few_rows_are_sent_and_no_file_is_opened():
    writer = _Writer()
    with BufferedWriter(100, lambda: writer) as few:
        few.write(_batch(1, 2))
        few.write(_batch(3))
        few.write(_batch(4).rename_columns(["y"]))
        files, sent = few.finish()

    assert files == []
    batches = [batch for rows in sent for batch in batches_in(rows)]
    assert [batch.to_pydict() for batch in batches] == [{"x": [1, 2]}, {"x": [3]}, {"y": [4]}]
    assert (writer.rows, writer.ended) == ([], None)


def test_no_rows_are_nothing_to_send():
    with BufferedWriter(100, _Writer) as few:
        assert few.finish() == ([], [])


def test_too_many_rows_go_to_a_file_in_their_order():
    writer = _Writer()
    with BufferedWriter(20, lambda: writer) as few:
        for value in range(5):
            few.write(_batch(value))
        assert few.finish() == (["a file"], [])

    assert writer.rows == [0, 1, 2, 3, 4]


def test_a_writer_that_was_opened_learns_of_an_error():
    writer = _Writer()

    def fail():
        with BufferedWriter(0, lambda: writer) as few:
            few.write(_batch(1))
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert writer.ended is ValueError


def test_what_a_thousand_tasks_may_send_fits_the_driver():
    assert sendable_bytes(0) == 8 << 20
    assert sum(map(sendable_bytes, range(1000))) < 200 << 20
