"""Row groups are copied into one file on every kind of storage."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec_errors import CorruptTable, MissingDataFile
from delvec_parquet import row_group_copy
from delvec_storage import files as storage
from delvec_storage.row_groups import copy_row_groups, read_footers


def put(location, path, first, **options):
    """Write a file of 100 rows; return its path and size."""
    sink = io.BytesIO()
    rows = pa.table({"id": range(first, first + 100), "text": [str(each % 9) for each in range(100)]})
    pq.write_table(rows, sink, row_group_size=30, write_page_index=True, **options)
    storage.write_file(location, path, sink.getvalue())
    return path, len(sink.getvalue())


def test_files_become_one(location, monkeypatch):
    monkeypatch.setattr(row_group_copy, "_BLOCK", 500)
    files = [put(location, "a b.parquet", 0), put(location, "c=%20/d.parquet", 100)]

    size = copy_row_groups(location, read_footers(location, files), "new/copy.parquet")

    assert storage.stat(location, "new/copy.parquet").size == size
    with storage.open_input(location, "new/copy.parquet") as opened:
        assert pq.read_table(opened)["id"].to_pylist() == list(range(200))
    with storage.open_input(location, "new/copy.parquet") as opened:
        assert pq.read_metadata(opened).num_row_groups == 8


def test_a_failed_copy_leaves_no_file(location):
    files = [put(location, "a.parquet", 0), put(location, "b.parquet", 100)]
    sources = read_footers(location, files)
    storage.write_file(location, "b.parquet", b"x" * files[1][1])

    with pytest.raises(CorruptTable, match=r"b\.parquet"):
        copy_row_groups(location, sources, "copy.parquet")
    storage.delete_file(location, "b.parquet")
    with pytest.raises(MissingDataFile, match=r"b\.parquet"):
        copy_row_groups(location, sources, "copy.parquet")
    with pytest.raises(MissingDataFile, match=r"b\.parquet"):
        read_footers(location, files)
    assert storage.stat(location, "copy.parquet") is None
