"""Ordinals as a stream, Puffin files and position delete files."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from delvec_errors import CorruptIcebergMetadata
from delvec_iceberg import puffin
from delvec_iceberg.position_deletes import (
    CoveredFile,
    ordinals,
    read_covered_files,
    read_position_deletes,
    write_position_deletes,
)
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, encode, frame


@pytest.mark.parametrize(
    "rows", [[], [0], [7, 2**20 - 1, 2**20, 2**32, 2**40 + 3], [*range(10), 2**33]], ids=len
)
def test_ordinals_list_all_rows_in_order(rows):
    found = [part.tolist() for part in ordinals(BitMap64(rows))]
    assert [one for part in found for one in part] == rows


def test_ordinals_are_never_all_in_memory():
    rows = BitMap64()
    rows.add_range(0, 50_000_000)
    sizes = [len(part) for part in ordinals(rows)]
    assert sum(sizes) == 50_000_000
    assert max(sizes) <= 1 << 20


def test_puffin_blobs_equal_delta_records_byte_for_byte():
    records = [frame(encode(BitMap64(rows))) for rows in ([1, 2], range(1000), [2**33])]
    file = io.BytesIO()
    writer = puffin.PuffinWriter(file)
    blobs = [writer.add(record, f"/data/{at}.parquet", at + 1) for at, record in enumerate(records)]
    size = writer.finish({})
    data = file.getvalue()
    assert len(data) == size
    assert [data[blob.offset : blob.offset + blob.length] for blob in blobs] == records
    footer = data[-puffin.footer_size(data[-12:], "x") :]
    assert puffin.read_footer(footer, "x") == blobs


def test_invalid_puffin_files_are_refused_by_name():
    with pytest.raises(CorruptIcebergMetadata, match=r"x\.puffin"):
        puffin.footer_size(b"\x01" * 12, "x.puffin")
    with pytest.raises(CorruptIcebergMetadata, match=r"x\.puffin"):
        puffin.read_footer(b"PFA1{}" + bytes(12), "x.puffin")


def test_position_deletes_are_sorted_and_have_the_field_ids():
    file = io.BytesIO()
    write_position_deletes(file, {"file:///a b.parquet": BitMap64([5, 1, 2**33])})
    found = pq.ParquetFile(io.BytesIO(file.getvalue()))
    table = found.read()
    assert table["pos"].to_pylist() == [1, 5, 2**33]
    assert np.unique(table["file_path"].to_pylist()).tolist() == ["file:///a b.parquet"]
    ids = [field.metadata[b"PARQUET:field_id"] for field in found.schema_arrow]
    assert ids == [b"2147483546", b"2147483545"]


def test_shared_position_deletes_are_sorted_and_list_their_data_files():
    rows = {
        "file:///ä": BitMap64([2**33, 0]),
        "file:///a": BitMap64(range(1_500_000)),
        "file:///b": BitMap64([7]),
    }
    covered = [
        CoveredFile(name, name[-1], Descriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, len(rows[name])))
        for name in rows
    ]
    file = io.BytesIO()
    write_position_deletes(file, rows, covered)
    found = pq.ParquetFile(io.BytesIO(file.getvalue()))
    groups = [found.metadata.row_group(at).num_rows for at in range(found.num_row_groups)]
    assert sum(groups) == 1_500_003
    assert max(groups) <= 1 << 20
    table = found.read()
    assert table.equals(table.sort_by([("file_path", "ascending"), ("pos", "ascending")]))
    source = pa.BufferReader(file.getvalue())
    assert read_covered_files(source, "deletes.parquet") == covered
    read = {name: BitMap64() for name in rows}
    for name, positions in read_position_deletes(source, "deletes.parquet"):
        read[name].update(positions)
    assert read == rows


@pytest.mark.parametrize(
    "text", [None, "{", "[[1, 2, 3]]", '[["a", "b"]]', '[["a", "b", {}]]', "[" * 100_000, "7"]
)
def test_a_malformed_list_of_data_files_is_refused(text):
    file = io.BytesIO()
    metadata = None if text is None else {"delvec.data-files": text}
    pq.write_table(pa.table({"pos": [1]}).replace_schema_metadata(metadata), file)
    with pytest.raises(ValueError, match="data files"):
        read_covered_files(pa.BufferReader(file.getvalue()), "deletes.parquet")
