"""Footers over which pyarrow aborts the process are refused before it sees them; sound ones pass unchanged."""

import io
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fuzz.footer_mutations import joined, split
from tests.fuzz.thrift_tree import Field, decode, encode

from delvec_parquet.footer_check import check_footer
from delvec_parquet.parquet_file import open_parquet

I16, I32, I64, BINARY, LIST, STRUCT = 4, 5, 6, 8, 9, 12
SCHEMA, ROW_GROUPS = 2, 4
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", None, "b"], "items": [[1], [], None]})


def written(rows=ROWS, **options):
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=2, **options)
    return sink.getvalue()


def the(fields, number):
    """Return the field with this number."""
    return next(field for field in fields if field.number == number)


def metadata_of(tree, column=0):
    """Return the metadata of a column chunk in the first row group."""
    return the(the(the(tree, ROW_GROUPS).value[1][0], 1).value[1][column], 3).value


def changed(change, content=None):
    """Return a file whose footer's tree went through ``change``."""
    before, footer = split(content or written())
    tree = decode(footer)
    change(tree)
    return joined(before, encode(tree))


def set_type(tree):
    the(metadata_of(tree), 1).value = 1


def set_type_behind_another_number(tree):
    """Thrift keeps the lower 16 bits of a field's number."""
    metadata_of(tree).append(Field(65_537, I32, 1))


def set_type_twice(tree):
    metadata_of(tree).insert(1, Field(1, I32, 1))


def set_type_as_a_long(tree):
    """Thrift would skip the field, and take its default."""
    the(metadata_of(tree), 1).kind = I64


def lie_about_a_lists_items(tree):
    """Thrift reads the expected items whatever the list says."""
    the(metadata_of(tree), 2).value[0] = BINARY


def add_a_level(tree):
    metadata_of(tree)[:] = [field for field in metadata_of(tree) if field.number != 16]
    metadata_of(tree).append(Field(16, STRUCT, [Field(3, LIST, [I64, [1, 1, 1, 1]])]))


def add_a_size_of_byte_arrays(tree):
    metadata_of(tree)[:] = [field for field in metadata_of(tree) if field.number != 16]
    metadata_of(tree).append(Field(16, STRUCT, [Field(1, I64, 5)]))


def shorten_a_bound(tree):
    the(the(metadata_of(tree), 12).value, 5).value = b"\0"


def empty_a_bound(tree):
    the(the(metadata_of(tree), 12).value, 5).value = b""


def set_codec(tree):
    the(metadata_of(tree), 4).value = 127


def encrypt(tree):
    the(the(tree, ROW_GROUPS).value[1][0], 1).value[1][0].append(Field(8, STRUCT, [Field(1, STRUCT, [])]))


def drop_the_metadata(tree):
    chunk = the(the(tree, ROW_GROUPS).value[1][0], 1).value[1][0]
    chunk.remove(the(chunk, 3))


def drop_a_column(tree):
    the(the(tree, ROW_GROUPS).value[1][0], 1).value[1].pop()


def repeat_a_column(tree):
    chunks = the(the(tree, ROW_GROUPS).value[1][0], 1).value[1]
    chunks.append(chunks[0])


def nest_deeply(tree):
    elements = the(tree, SCHEMA).value[1]
    group = [Field(3, I32, 0), Field(4, BINARY, b"g"), Field(5, I32, 1)]
    elements[1:1] = [group] * 100_000


def claim_more_fields(tree):
    the(the(tree, SCHEMA).value[1][0], 5).value = 4


def claim_fewer_fields(tree):
    the(the(tree, SCHEMA).value[1][0], 5).value = 2


CHANGES = [
    set_type,
    set_type_behind_another_number,
    set_type_twice,
    set_type_as_a_long,
    lie_about_a_lists_items,
    add_a_level,
    add_a_size_of_byte_arrays,
    shorten_a_bound,
    empty_a_bound,
    set_codec,
    encrypt,
    drop_the_metadata,
    drop_a_column,
    repeat_a_column,
    nest_deeply,
    claim_more_fields,
    claim_fewer_fields,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_footer_that_contradicts_itself_is_refused(change):
    with pytest.raises(pa.ArrowInvalid, match="footer is damaged"):
        open_parquet(changed(change), "part-0.parquet")


WITHOUT_THE_CHECK = """
import sys
import pyarrow.parquet as pq
footer = pq.read_metadata(sys.argv[1])
for group in range(footer.num_row_groups):
    for column in range(footer.num_columns):
        footer.row_group(group).column(column).statistics
"""


def test_pyarrow_alone_still_aborts(tmp_path):
    """If it no longer does, the check can go."""
    (tmp_path / "part-0.parquet").write_bytes(changed(set_type))
    done = subprocess.run(  # noqa: PLW1510 - a failure is expected
        [sys.executable, "-c", WITHOUT_THE_CHECK, str(tmp_path / "part-0.parquet")],
        capture_output=True,
        text=True,
    )

    assert done.returncode < 0
    assert "does not match" in done.stderr


@pytest.mark.parametrize("length", range(0, 1000, 37))
def test_a_truncated_footer_is_refused(length):
    before, footer = split(written())
    with pytest.raises((ValueError, IndexError)):
        check_footer(footer[:length])
    with pytest.raises(pa.ArrowInvalid):
        open_parquet(joined(before, footer[:length]), "part-0.parquet")


def test_fields_of_a_newer_format_are_skipped():
    def add(tree):
        for fields in (tree, the(tree, ROW_GROUPS).value[1][0], metadata_of(tree)):
            fields.append(Field(999, LIST, [STRUCT, [[Field(1, BINARY, b"x")]]]))

    assert open_parquet(changed(add), "part-0.parquet").read() == ROWS


KINDS = {
    "nested": pa.table(
        {
            "m": pa.array(
                [[("k", [{"x": 1}])], None], pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.int8())])))
            ),
            "s": [{"a": {"b": [[1]]}}, None],
        }
    ),
    "fixed": pa.table(
        {
            "d": pa.array([1, 2], pa.int32()).cast(pa.decimal128(30, 2)),
            "f": pa.array([b"ab", b"cd"], pa.binary(2)),
        }
    ),
    "times": pa.table(
        {"t": pa.array([1, 2], pa.timestamp("us", "UTC")), "d": pa.array([1, None], pa.date32())}
    ),
    "no rows": ROWS.slice(0, 0),
    "no columns": pa.table({}),
    "long names": pa.table({"x" * 5000: [1.5, float("nan")]}),
    "empty text": pa.table({"t": ["", ""], "b": pa.array([True, None])}),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"write_page_index": True, "data_page_version": "2.0", "write_page_checksum": True},
        {"use_dictionary": False, "store_decimal_as_integer": True, "version": "1.0"},
        {"write_statistics": False, "use_deprecated_int96_timestamps": True, "store_schema": False},
    ],
)
def test_sound_files_are_read(name, options):
    content = written(KINDS[name], **options)

    assert open_parquet(content, "part-0.parquet").read().num_rows == len(KINDS[name])
    assert open_parquet(content, "part-0.parquet").metadata.equals(pq.read_metadata(io.BytesIO(content)))
