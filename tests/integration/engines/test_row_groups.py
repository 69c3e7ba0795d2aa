"""PURGE and OPTIMIZE of files in any row groups, with any rows deleted: the same rows, in the order of the files."""

import itertools

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.engines.conftest import DataFile

from delvec_engines.duckdb import DuckDBEngine

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
VECTOR = 2048
"""Rows that DuckDB processes at once."""

LAYOUTS = {
    "a few rows end an inner row group": ([2050, 3000], [7]),
    "each row group has one row too many": ([VECTOR + 1] * 3, [0]),
    "63 rows end an inner row group": ([VECTOR + 63, 10, VECTOR], [VECTOR + 70]),
    "few rows of a vector are live": ([5000], range(2000)),
    "few rows of each vector are live": ([3 * VECTOR, 100], [row for row in range(3 * VECTOR) if row % 64]),
    "no row of a row group is live": ([2050, 2050, 2050], range(2050, 4100)),
}


def write(path, row_groups, first=0):
    """Write a file with these numbers of rows in its row groups; ids count from ``first``."""
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for count in row_groups:
            ids = pa.array(range(first, first + count), pa.int64())
            texts = pc.binary_join_element_wise("text", ids.cast(pa.string()), " ")
            writer.write_table(pa.table([ids, texts], schema=SCHEMA), row_group_size=count)
            first += count


def stored(table, part):
    """Return the rows of a partition in the order in which its only live file stores them."""
    path = next(file.path for file in table.plan()[0] if file.partition_values["part"] == str(part))
    return pq.read_table(f"{table.location.removeprefix('file://')}/{path}", partitioning=None)


def live(row_groups, deleted):
    gone = set(deleted)
    return [row for row in range(sum(row_groups)) if row not in gone]


@pytest.fixture
def converted(lake, write_table):
    """Return a table with a file of each layout, in a partition of its own."""

    def converted(name, layouts, engine="duckdb"):
        files = []
        for number, (row_groups, deleted) in enumerate(layouts):
            path = f"part={number}/old.parquet"
            (write_table.folder / name / f"part={number}").mkdir(parents=True)
            write(write_table.folder / name / path, row_groups)
            stats = {"numRecords": sum(row_groups)}
            files.append(DataFile(None, {"part": str(number)}, list(deleted), path, stats))
        schema = pa.schema([*SCHEMA, ("part", pa.int32())])
        properties = {"delta.enableDeletionVectors": "true"}
        folder = write_table(name, schema, files, partition_by=["part"], properties=properties)
        return lake.table(str(folder), engine=engine)

    return converted


def check(table, layouts):
    assert table.plan()[0].files["deletion_vector"].null_count == len(layouts)
    for number, (row_groups, deleted) in enumerate(layouts):
        rows = stored(table, number)
        ids = live(row_groups, deleted)
        assert rows["id"].to_pylist() == ids
        assert rows["text"].to_pylist() == [f"text {row}" for row in ids]
    assert table.check()["num-errors"] == 0


def test_purge_keeps_the_rows_and_their_order(converted, engine):
    layouts = list(LAYOUTS.values())
    table = converted("t", layouts, engine)

    table.optimize.purge()

    check(table, layouts)


def test_rows_deleted_during_a_purge_are_deleted_in_the_new_files(lake, converted, engine, monkeypatch):
    layouts = list(LAYOUTS.values())
    table = converted("t", layouts, engine)
    other, compact = lake.table(table.location), table.engine.compact

    def compact_meanwhile(*arguments):
        done = compact(*arguments)
        other.delete("id % 5 = 2 OR id > 2045 AND id < 2052")
        return done

    monkeypatch.setattr(table.engine, "compact", compact_meanwhile, raising=False)
    done = table.optimize.purge()

    expected = [
        (number, row)
        for number, each in enumerate(layouts)
        for row in live(*each)
        if not (row % 5 == 2 or 2045 < row < 2052)
    ]
    found = table.to_arrow(columns=["part", "id"]).sort_by([("part", "ascending"), ("id", "ascending")])
    assert list(zip(found["part"].to_pylist(), found["id"].to_pylist(), strict=True)) == expected
    assert done.retries == 0


def test_small_files_of_a_partition_keep_their_order(lake, engine, tmp_path):
    """Without a vector, but the partition's value is not in the files."""
    folder = tmp_path / "t"
    (folder / "part=0").mkdir(parents=True)
    write(folder / "part=0" / "a.parquet", [2050, 3000])
    write(folder / "part=0" / "b.parquet", [2049, 10], first=5050)
    lake.convert(folder, partition_by="part int")
    table = lake.table(folder, engine=engine)

    table.optimize(rewrite="always")

    assert stored(table, 0)["id"].to_pylist() == list(range(7109))


@pytest.mark.parametrize("keeps_order", [True, False])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_connection_of_the_caller(converted, threads, keeps_order):
    """Rows are in another order if the connection promises none; no row is lost."""
    options = {"preserve_insertion_order": str(keeps_order), "threads": str(threads)}
    with duckdb.connect(":memory:", config=options) as connection:
        layouts = list(LAYOUTS.values())
        table = converted("t", layouts, DuckDBEngine(connection))

        table.optimize.purge()

    if keeps_order:
        check(table, layouts)
    for number, each in enumerate(layouts):
        assert sorted(stored(table, number)["id"].to_pylist()) == live(*each)


def spans(row_groups):
    """Return sets of rows of a file: some spans of rows."""
    total = sum(row_groups)
    span = st.tuples(st.integers(0, total - 1), st.integers(1, VECTOR))
    rows = st.lists(span, min_size=1, max_size=4).map(
        lambda found: sorted(
            {row for first, count in found for row in range(first, min(first + count, total))}
        )
    )
    return st.tuples(st.just(row_groups), rows)


near = st.sampled_from([1, 2, 63, 64, 65])
counts = st.one_of(
    near, near.map(lambda more: VECTOR + more), near.map(lambda less: VECTOR - less), st.just(VECTOR)
)
layouts = st.lists(counts, min_size=1, max_size=5).flatmap(spans)


@pytest.fixture
def names():
    """Names of tables, one per example."""
    return map(str, itertools.count())


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layout=layouts)
def test_any_layout(converted, names, layout):
    """Whatever the row groups and the deleted rows; another row keeps the file alive."""
    row_groups, deleted = layout
    chosen = [([*row_groups, 3], deleted)]
    table = converted(next(names), chosen)

    table.optimize.purge()

    check(table, chosen)
