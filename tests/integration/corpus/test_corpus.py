"""Every corpus table gives the expected rows on each engine, or is refused for the expected reason."""

import hashlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support.foreign_catalog import TOKEN, ForeignTable, foreign_catalog

import delvec

ERRORS = {
    "missing_data_file": delvec.MissingDataFile,
    "missing_commit": delvec.MissingLogFile,
    "missing_dv_file": delvec.DeletionVectorNotFound,
    "missing_protocol": delvec.CorruptLog,
    "schema_absent": delvec.CorruptLog,
    "no_commits": delvec.DelvecError,
    "unsupported_feature": delvec.UnsupportedReaderFeature,
    "unsupported_protocol": delvec.UnsupportedReaderFeature,
}
MANY = 100_000
INTEGERS = {"byte", "short", "integer", "long"}


def digest(column, kind):
    """Return a column's digest as the manifest defines it (``fields.digest``)."""
    values = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    values = values.drop_null()
    found = {"type": kind, "non_null": len(values)}
    if kind in INTEGERS:
        found["sum"] = sum(values.to_pylist())
        return found
    text = pc.cast(values, pa.string()).to_pylist()
    found["sha256_sorted"] = hashlib.sha256("\n".join(sorted(text)).encode()).hexdigest()
    return found


def check_rows(rows, expected):
    assert rows.num_rows == expected["rows"]
    for name, wanted in expected.get("columns", {}).items():
        assert digest(rows[name], wanted["type"]) == wanted, name


def published_rows(corpus_table):
    """Return the rows that the publisher gives for the table, or None if there is no such file."""
    if "expected_files" not in corpus_table.entry:
        return None
    folder = corpus_table.path.parent / corpus_table.entry["expected_files"]
    content = folder / "latest" / "table_content"
    files = sorted((content if content.exists() else folder).rglob("*.parquet"))
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files], promote_options="permissive")


def in_any_order(table):
    return sorted(map(repr, table.to_pylist()))


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request):
    return request.getfixturevalue("spark") if request.param == "spark" else request.param


def test_corpus_table(lake, engine, corpus_table, location, record_property):
    expected = corpus_table.expected
    if expected["kind"] == "error":
        with pytest.raises(ERRORS[expected["error_kind"]]):
            lake.table(str(location), engine=engine).to_arrow()
        record_property("outcome", "refused as demanded")
        return
    try:
        table = lake.table(str(location), engine=engine)
        rows = table.to_arrow()
    except delvec.UnsupportedReaderFeature:
        # Only a catalog knows their newest versions; everything else is read.
        if "catalog-managed" not in corpus_table.entry["capabilities"]:
            raise
        record_property("outcome", "refused as allowed")
        return
    record_property("outcome", "read")
    check_rows(rows, expected)
    published = published_rows(corpus_table)
    if published is not None and published.num_rows < MANY:
        # Types differ if Parquet has no time zone or a narrower number; values do not.
        assert in_any_order(published.select(rows.column_names).cast(rows.schema)) == in_any_order(rows)
    for version, counts in corpus_table.entry.get("history", {}).items():
        if "error" in counts:
            with pytest.raises(delvec.DelvecError):
                table.to_arrow(version=int(version))
        else:
            assert table.to_arrow(version=int(version)).num_rows == counts["rows"], version


@pytest.mark.parametrize(
    ("name", "rows", "latest"),
    [
        ("kernel-bench__basic_catalog_managed", 5, 1),
        ("kernel-rs-uc__catalog_managed_0", 0, 0),
        ("kernel-rs-uc__catalog_managed_0", 100, 1),
        ("kernel-rs-uc__catalog_managed_0", 200, 2),
    ],
)
def test_a_table_of_a_catalog_is_read_through_it(copied, tmp_path, name, rows, latest):
    """Staged commits are versions if the catalog says so, and are not if it does not."""
    with foreign_catalog() as (server, url):
        theirs = server.tables["main.corpus.table"] = ForeignTable(copied(name), is_new=False)
        for path in sorted((theirs.log / "_staged_commits").iterdir()):
            if theirs.latest < int(path.name[:20]) <= latest:
                theirs.ratify_file(path)
        database = f"sqlite:///{tmp_path / 'store.db'}"
        with delvec.connect(
            catalog=url, token=TOKEN, roots=[theirs.folder.parent], database_url=database
        ) as lake:
            table = lake.table("main.corpus.table")
            assert table.version() == latest
            assert table.to_arrow().num_rows == rows
