"""Row groups copied into one file: every reader finds the same rows, and inconsistent sources leave no file."""

import random
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delvec_errors import CorruptTable, MissingDataFile
from delvec_parquet import row_group_copy
from delvec_parquet.footer import parse, why_not_together
from delvec_storage.row_groups import copy_row_groups, read_footers

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("number", pa.float64()),
        ("nested", pa.struct([("x", pa.int64()), ("list", pa.list_(pa.float64()))])),
    ]
)


def rows(first, count):
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [None if each % 5 == 0 else f"text {each % 7}" for each in ids],
            "number": [each / 3 for each in ids],
            "nested": [{"x": each, "list": [each / 2] * (each % 4)} for each in ids],
        },
        schema=SCHEMA,
    )


def sources_of(folder, names):
    return read_footers(folder.as_uri(), [(name, (folder / name).stat().st_size) for name in names])


def copied(folder, names):
    """Copy files into one; return its path."""
    sources = sources_of(folder, names)
    assert why_not_together([each.footer for each in sources]) is None
    size = copy_row_groups(folder.as_uri(), sources, "copy.parquet")
    assert size == (folder / "copy.parquet").stat().st_size
    return folder / "copy.parquet"


def check_readers(path, wanted):
    """Check that each reader finds all rows, and single ones by bounds, page indexes and Bloom filters."""
    ids = wanted["id"].to_pylist()
    with pq.ParquetFile(path) as opened:
        assert opened.read().equals(wanted)
        assert opened.metadata.num_rows == wanted.num_rows
    assert pl.read_parquet(path).equals(pl.from_arrow(wanted))
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT * FROM '{path}'").to_arrow_table()
        assert found.cast(wanted.schema).equals(wanted)
        for one in (*ids[:1], *ids[len(ids) // 2 :][:1], *ids[-1:], -1):
            expected = [one] if one in ids else []
            found = connection.execute(f"SELECT id FROM '{path}' WHERE id = {one}").fetchall()
            assert [row[0] for row in found] == expected
            assert pq.read_table(path, filters=[("id", "==", one)])["id"].to_pylist() == expected
            assert pl.scan_parquet(path).filter(pl.col("id") == one).collect()["id"].to_list() == expected


OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "use_dictionary": st.booleans(),
        "write_page_index": st.booleans(),
        "write_page_checksum": st.booleans(),
        "write_statistics": st.booleans(),
        "data_page_size": st.sampled_from([64, 1000, 1 << 20]),
        "row_group_size": st.integers(1, 200),
        "bloom_filter_options": st.sampled_from([None, {"id": {"ndv": 50}, "text": {"ndv": 10, "fpp": 0.1}}]),
    }
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, 300), min_size=1, max_size=4), st.lists(OPTIONS, min_size=4, max_size=4))
def test_every_reader_finds_the_rows_of_all_files(tmp_path_factory, counts, options):
    folder = tmp_path_factory.mktemp("files")
    names, parts, first = [], [], 0
    for number, (count, how) in enumerate(zip(counts, options, strict=False)):
        parts.append(rows(first, count))
        pq.write_table(parts[-1], folder / f"{number}.parquet", **how)
        names.append(f"{number}.parquet")
        first += count

    check_readers(copied(folder, names), pa.concat_tables(parts))


@pytest.mark.parametrize("block", [1, 7, 100])
def test_blocks_and_gaps_of_any_size(tmp_path, monkeypatch, block):
    monkeypatch.setattr(row_group_copy, "_BLOCK", block)
    monkeypatch.setattr(row_group_copy, "_GAP", block % 3)
    parts = [rows(0, 60), rows(60, 41)]
    for number, part in enumerate(parts):
        pq.write_table(
            part, tmp_path / f"{number}.parquet", row_group_size=25, write_page_index=True, data_page_size=100
        )

    check_readers(copied(tmp_path, ["0.parquet", "1.parquet"]), pa.concat_tables(parts))


def test_copies_of_copies(tmp_path):
    parts = [rows(0, 30), rows(30, 30), rows(60, 30)]
    for number, part in enumerate(parts):
        pq.write_table(part, tmp_path / f"{number}.parquet", write_page_index=True, row_group_size=11)
    copied(tmp_path, ["0.parquet", "1.parquet"]).rename(tmp_path / "first.parquet")

    check_readers(copied(tmp_path, ["first.parquet", "2.parquet"]), pa.concat_tables(parts))


def test_files_of_duckdb(tmp_path):
    """DuckDB's Bloom filters are not near the footer, and it writes no page index."""
    with duckdb.connect() as connection:
        for number in range(2):
            connection.register("wanted", rows(number * 500, 500))
            connection.execute(
                f"COPY (FROM wanted) TO '{tmp_path}/{number}.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)"
            )
    names = ["0.parquet", "1.parquet"]
    parts = [pq.read_table(tmp_path / name) for name in names]

    check_readers(copied(tmp_path, names), pa.concat_tables(parts))


def test_missing_and_non_parquet_files(tmp_path):
    with pytest.raises(MissingDataFile, match=r"gone\.parquet"):
        read_footers(tmp_path.as_uri(), [("gone.parquet", 100)])
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    with pytest.raises(CorruptTable, match=r"text\.parquet.*does not end"):
        sources_of(tmp_path, ["text.parquet"])
    pq.write_table(rows(0, 5), tmp_path / "cut.parquet")
    whole = (tmp_path / "cut.parquet").read_bytes()
    with pytest.raises(CorruptTable):
        read_footers(tmp_path.as_uri(), [("cut.parquet", len(whole) + 3)])


@pytest.mark.parametrize("what", ["shorter", "gone", "damaged"])
def test_a_changed_source_leaves_no_file(tmp_path, what):
    pq.write_table(rows(0, 50), tmp_path / "a.parquet")
    sources = sources_of(tmp_path, ["a.parquet"])
    content = (tmp_path / "a.parquet").read_bytes()
    if what == "gone":
        (tmp_path / "a.parquet").unlink()
    else:
        (tmp_path / "a.parquet").write_bytes(content[:-20] if what == "shorter" else bytes(len(content)))

    with pytest.raises(MissingDataFile if what == "gone" else CorruptTable, match=r"a\.parquet"):
        copy_row_groups(tmp_path.as_uri(), sources, "copy.parquet")
    assert not (tmp_path / "copy.parquet").exists()


def test_a_footer_that_splits_a_page_leaves_no_file(tmp_path):
    """Readers that follow the pages could read such a column in place, but not from a copy."""
    pq.write_table(rows(0, 50), tmp_path / "a.parquet")
    (source,) = sources_of(tmp_path, ["a.parquet"])
    for change in ({"end": -1}, {"num_values": 1}, {"num_values": -1}, {"data_start": -1}):
        (again,) = sources_of(tmp_path, ["a.parquet"])
        chunk = again.footer.row_groups[0].chunks[1]
        for name, by in change.items():
            setattr(chunk, name, getattr(chunk, name) + by)
        with pytest.raises(CorruptTable, match=r"a\.parquet"):
            copy_row_groups(tmp_path.as_uri(), [again], "copy.parquet")
        assert not (tmp_path / "copy.parquet").exists()
    copy_row_groups(tmp_path.as_uri(), [source], "copy.parquet")


def test_corruption_fails_or_is_copied_unchanged(tmp_path):
    """Page contents are copied without a check; everything that locates pages is checked."""
    pq.write_table(
        rows(0, 80), tmp_path / "a.parquet", row_group_size=30, write_page_index=True, data_page_size=200
    )
    content = (tmp_path / "a.parquet").read_bytes()
    dice = random.Random(11)
    made = 0
    for _ in range(300):
        damaged = bytearray(content)
        place = dice.randrange(len(damaged) - 4)
        damaged[place] ^= 1 << dice.randrange(8)
        (tmp_path / "b.parquet").write_bytes(damaged)
        Path(tmp_path / "copy.parquet").unlink(missing_ok=True)
        try:
            sources = sources_of(tmp_path, ["b.parquet"])
            copy_row_groups(tmp_path.as_uri(), sources, "copy.parquet")
        except CorruptTable:
            assert not (tmp_path / "copy.parquet").exists()
            continue
        made += 1
        new = (tmp_path / "copy.parquet").read_bytes()
        length = int.from_bytes(new[-8:-4], "little")
        footer = parse(new[-8 - length : -8], len(new) - 8 - length)
        before, after = (
            [bytes(data[chunk.start : chunk.end]) for group in found.row_groups for chunk in group.chunks]
            for data, found in ((damaged, sources[0].footer), (new, footer))
        )
        assert before == after
    assert made
