"""Lookup of deletion vector rows in tasks, including hostile bitmaps that would exceed memory."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from delvec_engines.marked_rows import MarkedRows
from delvec_engines.spark.file_slices import FileSlice, TableRead, read_slices
from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap
from delvec_kernel.schema.types import StructType
from delvec_storage.roots import Roots

BOMB = BitMap64(range(1, 2**32))


def test_a_small_vector_that_means_more_rows_than_memory_holds(tmp_path):
    """Less than a megabyte with four billion rows."""
    path = tmp_path / "part-0.parquet"
    pq.write_table(pa.table({"id": range(200_000)}), path, row_group_size=70_000)
    schema = StructType.from_arrow(pa.schema([("id", pa.int64())]))
    sent = serialize_bitmap(BOMB)
    assert len(sent) < 1 << 20
    part = FileSlice("part-0.parquet", 0, None, {}, None, sent)
    for marked_only, expected in ((False, [0]), (True, list(range(1, 200_000)))):
        read = TableRead(tmp_path.as_uri(), "people", 1, schema, frozenset(), "none", marked_only, Roots())
        assert [each for batch in read_slices(read, [part]) for each in batch["id"].to_pylist()] == expected
    assert MarkedRows(BOMB).among(np.array([0, 5, 2**33], np.uint64)).tolist() == [False, True, False]
