"""What DuckDB sees of the footer of a file with variants, and footers that lie."""

import random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec.engines.duckdb.variant_footers import patched, variant_patches
from delvec_kernel.errors import CorruptTable, UnusableFile

VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


def patches_of(content):
    return variant_patches(lambda start, end: content[start:end], len(content), "part-0.parquet")


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    """A file that DuckDB wrote: one variant in one piece, and one that is shredded."""
    path = tmp_path_factory.mktemp("files") / "marked.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT id, {'a': id}::VARIANT AS v, 'metadata' AS name FROM range(3) AS t(id)) "
            f"TO '{path}' (FORMAT parquet)"
        )
    return path.read_bytes()


def test_marks_and_the_metadata_of_shredded_variants_are_hidden_in_place(marked, tmp_path):
    found = patched(marked, 0, patches_of(marked))
    assert len(found) == len(marked)
    path = tmp_path / "seen.parquet"
    path.write_bytes(found)
    with duckdb.connect() as connection:
        kinds = {row[0]: row[1] for row in connection.execute(f"DESCRIBE FROM '{path}'").fetchall()}
        assert kinds["v"].startswith('STRUCT("--------" BLOB, "value" BLOB, typed_value ')
        rows = connection.execute(f"SELECT id, name, v.typed_value.a.typed_value FROM '{path}'").fetchall()
    assert rows == [(0, "metadata", 0), (1, "metadata", 1), (2, "metadata", 2)]


def test_a_part_of_a_file_is_patched_where_it_overlaps(marked):
    whole = patched(marked, 0, patches_of(marked))
    for start in range(0, len(marked), 7):
        part = marked[start : start + 11]
        assert patched(part, start, patches_of(marked)) == whole[start : start + 11]


def test_files_without_variants_are_read_as_they_are(tmp_path):
    plain = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x00"}], VARIANT)
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"v": plain, "w": [[{"typed_value": 1}]]}), path)
    content = path.read_bytes()
    assert patches_of(content) == []
    assert patches_of(b"no Parquet file") == []
    assert patches_of(b"") == []


def test_footers_that_lie_are_refused(marked):
    length = int.from_bytes(marked[-8:-4], "little")
    footer = marked[-8 - length : -8]
    drawn = random.Random(1)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(footer)
        for _ in range(drawn.randint(1, 4)):
            damaged[drawn.randrange(200)] = drawn.choice([0, 1, 0x0C, 0x7F, 0x80, 0xF9, 0xFC, 0xFF])
        content = marked[: -8 - length] + bytes(damaged) + marked[-8:]
        try:
            assert len(patched(content, 0, patches_of(content))) == len(content)
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
        variant_patches(read, size, "part-0.parquet")
