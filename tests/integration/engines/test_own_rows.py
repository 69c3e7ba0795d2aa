"""Overwrites with rows read from the same table: concurrent commits are neither lost nor undone."""

import pytest
from tests.support.tables import ids

from delvec_errors import ConcurrentModification, ConcurrentWrite, UnsupportedOperation

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")


@pytest.fixture
def table(lake, engine, tmp_path):
    table = lake.create_table(tmp_path / "t", "id long, v long", engine=engine, name=f"t_{tmp_path.name}")
    table.append([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    table.append([{"id": 3, "v": 3}])
    table.delete("id = 2")
    return table


def _scanned(table):
    return table.scan(predicate="id < 3")


def _relation(table):
    return table.to_duckdb().filter("id < 3").order("id")


def _frame(table):
    return table.to_df().where("id < 3").selectExpr("id", "v * 1 AS v")


def _joined(table):
    table.to_df().createOrReplaceTempView("own_rows_of_t")
    spark = table.engine.spark
    return spark.sql(
        "SELECT 1L AS id, count(*) AS v FROM range(9) WHERE id IN (SELECT id FROM own_rows_of_t WHERE id = 1)"
    )


@pytest.fixture(params=[_scanned, _relation, _frame, _joined], ids=lambda each: each.__name__)
def lazily(request, engine):
    if request.param in (_frame, _joined) and engine == "duckdb":
        pytest.skip("DuckDB has no DataFrames")
    return request.param


def test_rows_of_the_newest_version_replace_it(table, lazily):
    done = table.overwrite(lazily(table))
    assert (ids(table), done.version) == ([1], 4)
    assert done["numRemovedFiles"] == 2


def test_rows_of_an_older_version_do_not_undo_what_came_after(table, lazily):
    rows = lazily(table)
    table.append([{"id": 9, "v": 9}])
    for options in ({}, {"replace_where": "id < 5"}, {"retries": 3}):
        with pytest.raises(ConcurrentWrite, match="version 3"):
            table.overwrite(rows, **options)
    assert (ids(table), table.version()) == ([1, 3, 9], 4)


def test_no_rows_are_of_a_version_too(lake, engine, tmp_path):
    empty = lake.create_table(tmp_path / "t", "id long", engine=engine, name=f"empty_{tmp_path.name}")
    rows = [empty.to_duckdb().filter("id > 0")]
    if engine != "duckdb":
        rows.append(empty.to_df().where("id > 0").union(empty.to_df()))
    empty.append([{"id": 9}])
    for each in rows:
        with pytest.raises(ConcurrentWrite):
            empty.overwrite(each)
    assert ids(empty) == [9]


@pytest.mark.parametrize("change", ["append", "delete"])
def test_what_others_commit_meanwhile_is_not_lost(table, lazily, monkeypatch, change):
    rows = lazily(table)
    engine = type(table.engine)
    real = engine.write

    def write(self, data, target):
        files = real(self, data, target)
        monkeypatch.setattr(engine, "write", real)
        table.append([{"id": 9, "v": 9}]) if change == "append" else table.delete("id = 3")
        return files

    monkeypatch.setattr(engine, "write", write)
    with pytest.raises(ConcurrentModification):
        table.overwrite(rows)
    assert ids(table) == ([1, 3, 9] if change == "append" else [1])
    assert table.version() == 4


@pytest.mark.gate
def test_rows_of_a_version_that_was_asked_for_are_put_back(table):
    table.append([{"id": 9, "v": 9}])
    table.overwrite(table.scan(version=2))
    assert ids(table) == [1, 2, 3]
    if hasattr(table.engine, "spark"):
        table.overwrite(table.to_df(version=4))
        assert ids(table) == [1, 3, 9]
    table.overwrite(table.to_duckdb(version=2))
    assert ids(table) == [1, 2, 3]


def test_rows_of_other_tables_may_be_written_again(table, lake, engine, tmp_path, lazily, monkeypatch):
    other = lake.create_table(tmp_path / "other", "id long, v long", engine=engine)
    other.append([{"id": 7, "v": 7}])
    rows = lazily(table)
    writer = type(other.engine)
    real = writer.write

    def write(self, data, target):
        monkeypatch.setattr(writer, "write", real)
        files = real(self, data, target)
        other.append([{"id": 8, "v": 8}])
        return files

    monkeypatch.setattr(writer, "write", write)
    assert other.overwrite(rows).retries == 1
    assert ids(other) == [1]


def test_a_statement_of_sql_reads_anew(table, lake, engine, monkeypatch):
    writer = type(table.engine)
    real = writer.write

    def write(self, data, target):
        monkeypatch.setattr(writer, "write", real)
        files = real(self, data, target)
        table.append([{"id": 9, "v": 9}])
        return files

    monkeypatch.setattr(writer, "write", write)
    place = table.location.removeprefix("file://")
    done = lake.sql(
        f"INSERT OVERWRITE delta.`{place}` SELECT id, v * 10 FROM {table.name} AS s", engine=engine
    )
    assert done.retries == 1
    assert sorted(table.to_arrow()["v"].to_pylist()) == [10, 30, 90]


def test_rows_that_do_not_tell_their_version_are_refused(table, engine):
    if engine == "duckdb":
        pytest.skip("DuckDB has no formats")
    place = table.location.removeprefix("file://")
    frame = engine.read.format("delvec").load(place)
    with pytest.raises(UnsupportedOperation, match="to_df"):
        table.overwrite(frame.where("id = 1"))
    chosen = engine.read.format("delvec").option("versionAsOf", "1").load(place)
    table.overwrite(chosen)
    assert ids(table) == [1, 2]
