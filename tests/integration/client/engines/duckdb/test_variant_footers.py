"""Changed footers of files with variants, and hostile footers."""

import random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec_engines.duckdb.variants import copy_name
from delvec_errors import CorruptTable, UnusableFile
from delvec_parquet.variant_footer import SLACK, copy_id, seen_end

VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


def seen(content):
    """Return a file as DuckDB sees it, without the padding before its footer."""
    end = seen_end(lambda start, end: content[start:end], len(content), "part-0.parquet", copy_name)
    return content[: end.start] + end.data


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    """A file written by DuckDB with an unshredded and a shredded variant."""
    path = tmp_path_factory.mktemp("files") / "marked.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT id, {'a': id}::VARIANT AS v, 'metadata' AS name FROM range(3) AS t(id)) "
            f"TO '{path}' (FORMAT parquet)"
        )
    return path.read_bytes()


def test_a_shredded_variant_is_read_as_it_lies_and_put_together_in_a_copy(marked, tmp_path):
    path = tmp_path / "seen.parquet"
    path.write_bytes(seen(marked))
    copy = copy_name("v")
    with duckdb.connect() as connection:
        kinds = {row[0]: row[1] for row in connection.execute(f"DESCRIBE FROM '{path}'").fetchall()}
        assert kinds["v"].startswith('STRUCT(shredded BLOB, "value" BLOB, typed_value ')
        assert kinds[copy] == "VARIANT"
        assert list(kinds) == ["id", "v", "name", copy]
        rows = connection.execute(
            f"SELECT id, name, v.typed_value.a.typed_value, {copy} FROM '{path}'"
        ).fetchall()
    assert rows == [(number, "metadata", number, {"a": number}) for number in range(3)]


def test_files_of_many_row_groups_and_columns_are_read(tmp_path):
    path = tmp_path / "large.parquet"
    numbers = "".join(f", id + {number} AS c{number}" for number in range(30))
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT id, {{'a': id}}::VARIANT AS v{numbers}, (2 * id)::VARIANT AS w FROM range(20000) AS t(id)) "
            f"TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)"
        )
        path.write_bytes(seen(path.read_bytes()))
        found = connection.execute(
            f"SELECT sum(id), sum(c29 - id), sum({copy_name('v')}.a::BIGINT), sum({copy_name('w')}::BIGINT) FROM '{path}'"
        ).fetchone()
    assert found == (199990000, 29 * 20000, 199990000, 2 * 199990000)


def test_the_copy_of_a_column_has_a_field_id_of_its_own(tmp_path):
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    rows = pa.array([{"metadata": b"\x01\x00\x00", "value": None, "typed_value": 7}], kind)
    path = tmp_path / "ids.parquet"
    pq.write_table(
        pa.table([rows], pa.schema([pa.field("v", kind, metadata={"PARQUET:field_id": "5"})])), path
    )
    path.write_bytes(seen(path.read_bytes()))
    schema = f"MAP {{{copy_id(5)}: {{name: 'c', type: 'VARIANT', default_value: NULL}}}}"
    with duckdb.connect() as connection:
        assert connection.execute(f"FROM read_parquet('{path}', schema={schema})").fetchall() == [(7,)]


def test_a_part_of_a_file_is_read_where_it_is(marked):
    end = seen_end(lambda start, end: marked[start:end], len(marked), "part-0.parquet", copy_name)
    size = len(marked) + SLACK
    whole = marked[: end.start] + bytes(size - end.start - len(end.data)) + end.data

    def read(start, stop):
        assert stop <= end.start
        return marked[start:stop]

    for start in [*range(0, len(marked) + 40, 7), *range(size - len(end.data) - 40, size, 7)]:
        for length in (1, 11, 4000):
            stop = min(size, start + length)
            assert end.read(read, start, stop, size) == whole[start:stop]


def test_files_without_variants_are_read_as_they_are(tmp_path):
    plain = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x00"}], VARIANT)
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"v": plain, "w": [[{"typed_value": 1}]]}), path)
    for content in (path.read_bytes(), b"no Parquet file", b""):
        assert seen(content) == content


def test_footers_that_lie_are_refused(marked):
    length = int.from_bytes(marked[-8:-4], "little")
    footer = marked[-8 - length : -8]
    drawn = random.Random(1)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(footer)
        for _ in range(drawn.randint(1, 4)):
            damaged[drawn.randrange(len(damaged))] = drawn.choice([0, 1, 0x0C, 0x7F, 0x80, 0xF9, 0xFC, 0xFF])
        content = marked[: -8 - length] + bytes(damaged) + marked[-8:]
        try:
            assert len(seen(content)) < len(content) + SLACK
        except CorruptTable:
            refused += 1
    assert refused > 100


def test_a_footer_that_is_too_large_is_not_read():
    size = 1 << 40
    trailer = (1 << 29).to_bytes(4, "little") + b"PAR1"

    def read(start, end):
        assert end - start <= 8
        return trailer

    with pytest.raises(UnusableFile, match="footer of 536,870,912 bytes"):
        seen_end(read, size, "part-0.parquet", copy_name)
