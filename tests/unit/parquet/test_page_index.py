"""Page indexes and columns of files by pyarrow, and indexes that contradict themselves."""

import datetime as dt
import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_parquet.footer import ColumnChunk, parse
from delvec_parquet.page_index import page_bounds, page_starts
from delvec_parquet.primitive_columns import ColumnKind, flat_columns
from delvec_parquet.thrift import BINARY, STRUCT, list_header, varint, zigzag


def written(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_index=True, **options)
    data = sink.getvalue()
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data, parse(data[end:-8], end)


def test_pages_of_a_column():
    table = pa.table({"n": [7, None, 2, 3, -5, None], "s": ["b", "", "é", "a", None, "c"]})
    data, footer = written(table, data_page_size=1, write_batch_size=2, use_dictionary=False)
    numbers, texts = footer.row_groups[0].chunks
    found = page_bounds(data[slice(*numbers.column_index)])
    assert found.only_null.tolist() == [False, False, False]
    assert [int.from_bytes(each, "little", signed=True) for each in found.minimums] == [7, 2, -5]
    assert [int.from_bytes(each, "little", signed=True) for each in found.maximums] == [7, 3, -5]
    assert found.null_counts.tolist() == [1, 0, 1]
    found = page_bounds(data[slice(*texts.column_index)])
    assert [each.decode() for each in found.minimums] == ["", "a", "c"]
    for chunk in (numbers, texts):
        assert page_starts(data[slice(*chunk.offset_index)], chunk, 6).tolist() == [0, 2, 4]


def test_columns_and_their_kinds():
    table = pa.table(
        {
            "b": pa.array([1], pa.int8()),
            "nested": pa.array([{"x": 1, "y": [{"z": 2}]}]),
            "u": pa.array([1], pa.uint32()),
            "s": ["a"],
            "raw": [b"a"],
            "d": [dt.date(2024, 1, 1)],
            "p": pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
            "list": [[1]],
            "t": pa.array([0], pa.timestamp("us", "UTC")),
            "n": pa.array([0], pa.timestamp("ms")),
            "x": [1.5],
            "l": pa.array([1], pa.int64()),
        }
    )
    _, footer = written(table)
    columns, names = flat_columns(footer)
    assert names == table.column_names
    found = {each.name: (each.number, each.physical, each.kind) for each in columns}
    assert found == {
        "b": (0, "int32", ColumnKind("integer", bits=8)),
        "u": (3, "int32", ColumnKind("unsigned", bits=32)),
        "s": (4, "binary", ColumnKind("string")),
        "raw": (5, "binary", ColumnKind("none")),
        "d": (6, "int32", ColumnKind("date")),
        "p": (7, "fixed", ColumnKind("decimal", precision=9, scale=2)),
        "t": (9, "int64", ColumnKind("timestamp", unit="us", is_utc=True)),
        "n": (10, "int64", ColumnKind("timestamp", unit="ms")),
        "x": (11, "double", ColumnKind("none")),
        "l": (12, "int64", ColumnKind("integer")),
    }
    assert all(each.is_ordered for each in columns)


def binaries(*values):
    return list_header(len(values), BINARY) + b"".join(varint(len(each)) + each for each in values)


def column_index(null_pages=b"\x02\x02", low=(b"a", b"c"), high=(b"b", b"d"), counts=(0, 1)):
    return b"".join(
        [
            b"\x19" + list_header(len(null_pages), 1) + null_pages,
            b"\x19" + binaries(*low),
            b"\x19" + binaries(*high),
            b"\x15\x02",
            b"\x19" + list_header(len(counts), 6) + b"".join(map(zigzag, counts)),
            b"\x00",
        ]
    )


def offset_index(*pages):
    located = (b"\x16" + zigzag(a) + b"\x15" + zigzag(b) + b"\x16" + zigzag(c) + b"\x00" for a, b, c in pages)
    return b"\x19" + list_header(len(pages), STRUCT) + b"".join(located) + b"\x00"


def test_a_column_index_by_hand():
    found = page_bounds(column_index())
    assert found.minimums == [b"a", b"c"]
    assert found.maximums == [b"b", b"d"]
    assert found.only_null.tolist() == [False, False]
    assert found.null_counts.tolist() == [0, 1]
    found = page_bounds(column_index(null_pages=b"\x02\x01", low=(b"a", b""), high=(b"b", b"")))
    assert found.only_null.tolist() == [False, True]


@pytest.mark.parametrize(
    "data",
    [
        column_index(low=(b"a",)),
        column_index(high=(b"b", b"d", b"e")),
        column_index(counts=(0,)),
        column_index(counts=(0, -1)),
        column_index(null_pages=b"\x02"),
        column_index(null_pages=b"", low=(), high=(), counts=()),
        column_index() + b"\x00",
        column_index()[:-1],
        column_index().replace(b"\x19\x21", b"\x19\x25"),
        b"\x00",
        b"",
        b"\x19" + b"\xf1\xff\xff\xff\xff\x7f",
    ],
)
def test_a_column_index_that_contradicts_itself(data):
    with pytest.raises((ValueError, IndexError)):
        page_bounds(data)


CHUNK = ColumnChunk(start=4, end=100, data_start=10, num_values=50)


def test_an_offset_index_by_hand():
    pages = offset_index((10, 20, 0), (30, 30, 7), (70, 30, 20))
    assert page_starts(pages, CHUNK, 50).tolist() == [0, 7, 20]


@pytest.mark.parametrize(
    "pages",
    [
        [],
        [(10, 20, 1)],
        [(10, 20, 0), (30, 30, 0)],
        [(10, 20, 0), (30, 30, 7), (60, 10, 6)],
        [(10, 20, 0), (30, 30, 50)],
        [(10, 20, 0), (29, 30, 7)],
        [(10, 20, 0), (30, 71, 7)],
        [(10, 20, 0), (100, 1, 7)],
        [(9, 20, 0)],
        [(10, 0, 0)],
        [(10, -5, 0)],
        [(10, 20, 0), (30, 2**61, 7)],
        [(-(2**61), 20, 0), (30, 10, 7)],
        [(10, 20, 0), (30, 10, -(2**61))],
        [(10, 2**63 - 1, 0)],
    ],
)
def test_an_offset_index_that_contradicts_the_chunk(pages):
    with pytest.raises((ValueError, IndexError)):
        page_starts(offset_index(*pages), CHUNK, 50)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_an_index_or_an_error(data, listed):
    data = b"\x19" + data if listed else data
    for read in (page_bounds, lambda each: page_starts(each, CHUNK, 50)):
        try:
            found = read(data)
        except (ValueError, IndexError):
            continue
        assert len(found)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40))
def test_starts_of_any_pages(counts):
    starts = np.concatenate(([0], np.cumsum(counts)[:-1])).tolist()
    pages = [(10 + place, 1, row) for place, row in enumerate(starts)]
    assert page_starts(offset_index(*pages), CHUNK, sum(counts)).tolist() == starts
