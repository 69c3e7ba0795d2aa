"""Footers of files whose row groups are copied: what is preserved, and what is not trusted."""

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec_parquet.footer import Place, column_names, joined, parse, why_not_together
from delvec_parquet.thrift import CompactReader, list_header, zigzag

ROWS = pa.table(
    {
        "a": pa.array(range(10), pa.int64()),
        "s": pa.array([{"x": each, "y": [str(each)]} for each in range(10)]),
        "m": pa.array([[("k", each)] for each in range(10)], pa.map_(pa.string(), pa.int64())),
    }
)


def written(rows=ROWS, **options):
    """Return a file, its footer's bytes, and their offset."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=4, **options)
    content = sink.getvalue()
    length = int.from_bytes(content[-8:-4], "little")
    return content, content[-8 - length : -8], len(content) - 8 - length


def same_places(footer):
    """Return the current places of column chunks."""
    return [
        [
            Place(each.start, *starts(each), each.bloom_filter[0] if each.bloom_filter else 0)
            for each in group.chunks
        ]
        for group in footer.row_groups
    ]


def starts(chunk):
    column = chunk.column_index[0] if chunk.column_index else 0
    offsets = (
        (chunk.offset_index[0], chunk.offset_index[1] - chunk.offset_index[0])
        if chunk.offset_index
        else (0, 0)
    )
    return column, offsets


@pytest.mark.parametrize("options", [{}, {"write_page_index": True, "data_page_version": "2.0"}])
def test_a_footer_with_unchanged_offsets_is_unchanged(options):
    _, data, end = written(**options)
    footer = parse(data, end)

    assert footer.num_rows == 10
    assert [group.num_rows for group in footer.row_groups] == [4, 4, 2]
    assert column_names(footer) == ["a", "s", "m"]
    # Arrow writes 0 for each column chunk's deprecated file_offset.
    assert joined([footer], [same_places(footer)]) == data


def test_unknown_fields_are_preserved():
    """In the footer, in a row group, and in the metadata of a column."""
    _, data, end = written()
    new = bytes([0x08]) + zigzag(999) + bytes([5]) + b"hello"  # field 999, a binary of 5 bytes
    whole = data[:-1] + new + b"\0"
    footer = parse(whole, end)
    assert joined([footer], [same_places(footer)]) == whole
    group = footer.row_groups[0]
    inside = whole[: group.end - 1] + new + b"\0" + whole[group.end :]
    footer = parse(inside, end)
    assert joined([footer], [same_places(footer)]) == inside
    assert why_not_together([footer, parse(data, end)]) == "their footers differ"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"rows": ROWS.rename_columns(["A", "s", "m"])}, "schemas differ"),
        ({"rows": ROWS.set_column(0, "a", ROWS["a"].cast(pa.int32()))}, "schemas differ"),
        ({"store_schema": True}, "key-value metadata"),
    ],
)
def test_files_with_different_metadata_are_not_combined(other, why):
    footers = [parse(*written(**{"store_schema": False} | each)[1:]) for each in ({}, other)]

    assert why in why_not_together(footers)
    assert why_not_together(footers[:1]) is None


def test_files_of_unreliable_writers_are_not_combined():
    _, data, end = written()
    old = data.replace(b"parquet-cpp-arrow version", b"parquet-cpp version 1.2.3")

    assert "old Parquet writer" in why_not_together([parse(old, end)])


def test_out_of_range_and_overlapping_data_is_refused():
    _, data, end = written()
    first = parse(data, end).row_groups[0].chunks[0]
    last = parse(data, end).row_groups[-1].chunks[-1]

    with pytest.raises(ValueError, match="outside"):
        parse(data, last.end - 1)
    footer = parse(data, end)
    places = same_places(footer)
    places[1][0] = places[1][0]._replace(start=first.start)
    with pytest.raises(ValueError, match="overlap"):
        parse(joined([footer], [places]), end)
    places[1][0] = places[1][0]._replace(start=-5)
    with pytest.raises(ValueError, match=r"outside|after|before"):
        parse(joined([footer], [places]), end)


def test_wrong_row_counts_are_refused():
    _, data, end = written()
    start, stop = parse(data, end)._rows_at

    with pytest.raises(ValueError, match="do not add up"):
        parse(data[:start] + zigzag(11) + data[stop:], end)


def test_corruption_raises_value_or_index_errors():
    _, data, end = written(write_page_index=True)
    dice = random.Random(4)
    for _ in range(1500):
        damaged = bytearray(data[: dice.randrange(len(data))] if dice.random() < 0.2 else data)
        for _ in range(dice.randint(1, 4)):
            if damaged:
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            footer = parse(bytes(damaged), end)
            column_names(footer)
        except (ValueError, IndexError):
            continue
        for group in footer.row_groups:
            assert all(4 <= chunk.start <= chunk.end <= end for chunk in group.chunks)


@pytest.mark.parametrize("value", [0, 1, -1, 63, -64, 64, 2**31, 2**62, -(2**63), 2**63 - 1])
def test_numbers_are_read_as_they_are_written(value):
    assert CompactReader(zigzag(value)).integer() == value


@pytest.mark.parametrize("count", [0, 14, 15, 127, 128, 70_000])
def test_list_lengths(count):
    assert CompactReader(list_header(count, 12)).list_header() == (count, 12)


def test_deep_nesting_is_refused():
    with pytest.raises(ValueError, match="too deeply"):
        CompactReader(b"\x1c" * 200).skip(12)
