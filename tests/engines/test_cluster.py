"""Z-order and clustering: files with narrow ranges in several columns, the same rows, and nothing written twice for nothing."""

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pytest

import delvec

SCHEMA = "id long, x int, y double, word string, s struct<d: date, l: array<int>>"


def some(first, count, seed=0):
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "x": pa.array(draw.integers(0, 1000, count), pa.int32(), mask=draw.random(count) < 0.05),
            "y": draw.normal(size=count),
            "word": [f"word {number:05d}" for number in draw.integers(0, 10_000, count)],
            "s": pa.array(
                [{"d": number, "l": [number, None]} for number in draw.integers(0, 10_000, count).tolist()],
                pa.struct([("d", pa.date32()), ("l", pa.list_(pa.int32()))]),
            ),
        }
    )


def make(lake, engine, path, **options):
    """Four files of 3,000 rows, some of which are deleted."""
    properties = {"delta.targetFileSize": "12000", "delta.enableDeletionVectors": "true"}
    table = lake.create_table(path, SCHEMA, properties=properties, engine="duckdb", **options)
    for number in range(4):
        table.append(some(number * 3000, 3000, number))
    table.delete("id % 7 = 0")
    return lake.table(table.location, engine=engine)


@pytest.fixture
def table(lake, engine, tmp_path):
    return make(lake, engine, tmp_path / "table")


@pytest.fixture
def clustered(lake, engine, tmp_path):
    return make(lake, engine, tmp_path / "clustered", cluster_by=["x", "s.d"])


def rows(table):
    return table.to_arrow().sort_by("id").to_pylist()


def adds(table, version):
    log = Path(unquote(urlparse(table.location).path), "_delta_log", f"{version:020}.json")
    return [action["add"] for action in map(json.loads, log.read_text().splitlines()) if "add" in action]


def files_read(table, predicate):
    return len(table.plan(predicate=predicate)[0])


def test_rows_stay_and_filters_by_each_column_skip_files(table):
    before, version = rows(table), table.version()
    assert files_read(table, "x = 500") == files_read(table, "y < -1.5") == 4

    done = table.optimize.z_order(["x", "y"])

    assert rows(table) == before
    assert done.version == version + 1
    total = done["numAddedFiles"]
    assert (done["numRemovedFiles"], done["numDeletionVectorsRemoved"]) == (4, 4)
    assert total >= 16
    assert files_read(table, "x = 500") <= 0.6 * total
    assert files_read(table, "y < -1.5") <= 0.6 * total
    assert table.check()["num-errors"] == 0
    assert table.history(1)[0]["operationParameters"]["zOrderBy"] == '["x", "y"]'
    written = adds(table, done.version)
    assert len({add["tags"]["ZCUBE_ID"] for add in written}) == 1
    assert {add["tags"]["ZCUBE_ZORDER_BY"] for add in written} == {'["x","y"]'}
    assert not any(add["dataChange"] or "clusteringProvider" in add for add in written)


def test_a_second_run_writes_nothing_and_new_rows_are_sorted_by_themselves(table):
    table.optimize.z_order(["word"])
    version, size = table.version(), sum(table.plan()[0].files["size"].to_pylist())
    assert table.optimize.z_order(["word"]).version is None
    assert table.version() == version

    for turn in range(2):
        table.append(some(20_000 + turn * 200, 200, turn))
        new = table.plan()[0].files.sort_by("modification_time")["size"][-1].as_py()
        done = table.optimize.z_order(["word"])
        assert done["numRemovedBytes"] <= 2.5 * new < size
    assert done["numRemovedFiles"] == 2  # the rows that came before, too: they are no more than these


def test_other_columns_sort_all_rows_again(table):
    table.optimize.z_order(["word"])
    before = len(table.plan()[0])
    assert table.optimize.z_order(["x"])["numRemovedFiles"] == before


def test_one_value_makes_as_many_files_as_many(table):
    size = sum(table.plan()[0].files["size"].to_pylist())
    table.update({"x": "1"})
    done = table.optimize.z_order(["x"])
    assert done["numAddedFiles"] >= size // 2 // 12_000


def test_a_row_that_is_deleted_meanwhile_stays_deleted(lake, table, monkeypatch):
    """Sorting does not say where each row went: it begins again."""
    other = lake.table(table.location, engine="duckdb")
    cluster = type(table.engine).cluster
    once = iter([lambda: other.delete("id = 1")])

    def late(self, *arguments):
        written = cluster(self, *arguments)
        for delete in once:
            delete()
        return written

    monkeypatch.setattr(type(table.engine), "cluster", late)
    before = rows(table)
    assert table.optimize.z_order(["x"])["numAddedFiles"] > 1
    assert rows(table) == [row for row in before if row["id"] != 1]


def test_a_clustered_table_is_sorted_by_its_columns(clustered):
    before = rows(clustered)

    done = clustered.optimize()

    assert rows(clustered) == before
    assert files_read(clustered, "x = 500") < done["numAddedFiles"]
    assert files_read(clustered, "s.d < '1975-01-01'") < done["numAddedFiles"]
    written = adds(clustered, done.version)
    assert {add["clusteringProvider"] for add in written} == {"liquid"}
    assert {add["tags"]["ZCUBE_ZORDER_BY"] for add in written} == {'["x","s.d"]'}
    assert clustered.history(1)[0]["operationParameters"]["clusterBy"] == '["x", "s.d"]'
    assert clustered.optimize().version is None
    with pytest.raises(delvec.InvalidTableChange, match=r"is clustered by x, s\.d"):
        clustered.optimize.z_order(["y"])


def test_purged_files_stay_sorted(clustered):
    clustered.optimize()
    clustered.delete("id % 1000 = 1")

    done = clustered.optimize.purge()

    assert done["numRemovedFiles"] > 1
    written = adds(clustered, done.version)
    assert all(add["clusteringProvider"] == "liquid" and add["tags"]["ZCUBE_ID"] for add in written)
    assert clustered.optimize().version is None


def test_files_clustered_by_other_columns_stay_until_a_full_run(clustered):
    clustered.optimize()
    clustered.alter.cluster_by(["y"])
    clustered.append(some(30_000, 100))
    before = rows(clustered)

    assert clustered.optimize()["numRemovedFiles"] == 1
    done = clustered.optimize(full=True)
    assert done["numRemovedFiles"] == done["totalConsideredFiles"]
    assert rows(clustered) == before
    assert clustered.history(1)[0]["operationParameters"]["isFull"] == "true"
    assert clustered.optimize(full=True).version is None


def test_partitions_and_row_ids_are_kept(lake, engine, tmp_path):
    table = lake.create_table(
        tmp_path / "t",
        "id long, part string",
        partition_by=["part"],
        properties={"delta.enableRowTracking": "true", "delta.columnMapping.mode": "name"},
        engine="duckdb",
    )
    for turn in range(2):
        ids = list(range(turn * 10, turn * 10 + 10))
        table.append(pa.table({"id": ids, "part": ["a", "b"] * 5}))
    table.delete("id in (3, 12)")
    before = rows(table)
    table = lake.table(table.location, engine=engine)
    done = table.optimize.z_order(["id"], "part = 'a'")
    assert (done["numRemovedFiles"], done["partitionsOptimized"]) == (2, 1)
    assert rows(table) == before
    assert table.check()["num-errors"] == 0
    with pytest.raises(delvec.InvalidTableChange, match="partitions the table"):
        table.optimize.z_order(["part"])
    with pytest.raises(delvec.UnknownColumn):
        table.optimize.z_order(["nope"])


def test_without_rows_nothing_is_written(lake, engine, tmp_path):
    table = lake.create_table(
        tmp_path / "t", "id long, t timestamp, n decimal(5, 2), b binary", engine=engine
    )
    assert table.optimize.z_order(["id"]).version is None
    table.append(pa.table({"id": pa.array([1, None], pa.int64())}))
    assert table.optimize.z_order(["t", "n", "b", "id"])["numAddedFiles"] == 1
    assert table.count() == 2


def test_sql(lake, table):
    lake.sql(f"OPTIMIZE '{table.location}' ZORDER BY (x, `s`.d)")
    assert table.history(1)[0]["operationParameters"]["zOrderBy"] == '["x", "s.d"]'
    with pytest.raises(delvec.InvalidTableChange, match="no clustering columns"):
        lake.sql(f"OPTIMIZE '{table.location}' FULL")
