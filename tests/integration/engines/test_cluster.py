"""Z-order and clustering: narrow ranges in several columns, the same rows, and no needless rewrites."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import delvec
from delvec_engines.duckdb import cluster as duckdb_cluster
from delvec_engines.duckdb import statement_runner

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

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


@pytest.mark.parametrize("batches", [0, 2])
def test_a_file_that_cannot_be_read_is_named_while_rows_are_sorted(lake, tmp_path, monkeypatch, batches):
    """DuckDB, which takes rows as they are read, would make a text of the error."""
    table = make(lake, "duckdb", tmp_path / "t")
    files, real, seen = set((tmp_path / "t").rglob("*.parquet")), duckdb_cluster.check_positions, []

    def check(*arguments):
        seen.append(1)
        if len(seen) > batches:
            raise delvec.CorruptTable("The data file 'x.parquet' cannot be read", file="x.parquet")
        return real(*arguments)

    monkeypatch.setattr(statement_runner, "_BATCH_ROWS", 2048)
    monkeypatch.setattr(duckdb_cluster, "check_positions", check)
    version = table.version()
    with pytest.raises(delvec.CorruptTable, match="cannot be read") as raised:
        table.optimize.z_order(["x"])
    assert raised.value.details["file"] == "x.parquet"
    assert len(seen) == batches + 1
    assert table.version() == version
    assert set((tmp_path / "t").rglob("*.parquet")) == files
    monkeypatch.undo()
    assert table.optimize.z_order(["x"])["numRemovedFiles"] == 4
    assert table.check()["num-errors"] == 0


def adds(table, version):
    log = Path(unquote(urlparse(table.location).path), "_delta_log", f"{version:020}.json")
    return [action["add"] for action in map(json.loads, log.read_text().splitlines()) if "add" in action]


def files_read(table, predicate):
    return len(table.plan(predicate=predicate)[0])


@pytest.mark.gate
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


def meanwhile(monkeypatch, owner, name, act):
    """Do something once, after a method has returned and before the commit."""
    method, once = getattr(owner, name), iter([act])

    def late(self, *arguments, **options):
        done = method(self, *arguments, **options)
        for each in once:
            each()
        return done

    monkeypatch.setattr(owner, name, late)


CHANGES = {
    "delete": lambda table: table.delete("id % 10 = 1", retries=0),
    "whole files": lambda table: table.delete("id < 3500", retries=0),
    "update": lambda table: table.update({"word": "'new'"}, "id % 10 = 1", retries=0),
    "merge": lambda table: (
        table.merge(pa.table({"id": pa.array(range(1, 9000, 10), pa.int64())}), "target.id = source.id")
        .when_matched_update({"word": "'new'"})
        .execute(retries=0)
    ),
}


def changed(name, before):
    if name == "whole files":
        return [row for row in before if row["id"] >= 3500]
    ours = {row["id"] for row in before if row["id"] % 10 == 1 and (name != "merge" or row["id"] < 9000)}
    if name == "delete":
        return [row for row in before if row["id"] not in ours]
    return [row | {"word": "new"} if row["id"] in ours else row for row in before]


@pytest.mark.parametrize("name", CHANGES)
def test_rows_that_are_changed_while_they_are_sorted_are_changed(lake, table, monkeypatch, name):
    """The engine maps where each row went, so sorting is not repeated."""
    other, before = lake.table(table.location, engine="duckdb"), rows(table)
    meanwhile(monkeypatch, type(table.engine), "cluster", lambda: CHANGES[name](other))
    done = table.optimize.z_order(["x"], retries=0)
    assert done["numAddedFiles"] > 1
    assert rows(table) == changed(name, before)
    assert table.check()["num-errors"] == 0


@pytest.mark.parametrize("name", CHANGES)
def test_rows_that_were_sorted_before_they_are_changed_are_found(lake, table, monkeypatch, name):
    other, before = lake.table(table.location, engine="duckdb"), rows(table)
    meanwhile(monkeypatch, type(table), "plan", lambda: other.optimize.z_order(["x", "y"], retries=0))
    CHANGES[name](table)
    assert [entry["operation"] for entry in table.history(2)][1] == "OPTIMIZE"
    assert rows(table) == changed(name, before)
    assert table.check()["num-errors"] == 0


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
    with pytest.raises(delvec.InvalidTableChange, match="is a partition column"):
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


def planned(lake, table, monkeypatch, between):
    """Delete rows of files being sorted, and then do something else, before the commit."""
    other = lake.table(table.location, engine="duckdb")

    def sort():
        other.optimize.z_order(["x"])
        between(*Path(unquote(urlparse(table.location).path), "_delvec", "row_maps").iterdir())

    meanwhile(monkeypatch, type(table), "plan", sort)
    return table.delete("id % 10 = 1", retries=0)


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def turned(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)


def rewritten(**columns):
    def write(path):
        found = pq.read_table(path)
        for name, values in columns.items():
            found = found.set_column(found.schema.names.index(name), name, values(found[name]))
        pq.write_table(found, path)

    return write


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        cut,
        turned,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("PAR1 and no more"),
        rewritten(row=lambda column: pc.add(column, 1 << 40)),
        rewritten(row=lambda column: pc.cast(column, pa.string())),
        rewritten(source=lambda column: pa.nulls(len(column), pa.string())),
    ],
    ids=["gone", "cut", "turned", "empty", "text", "rows", "types", "nulls"],
)
def test_without_a_map_that_can_be_read_it_is_a_conflict(lake, tmp_path, monkeypatch, damage):
    table = make(lake, "duckdb", tmp_path / "table")
    before = rows(table)
    with pytest.raises(delvec.ConcurrentDeleteDelete, match="without recording where each row is now"):
        planned(lake, table, monkeypatch, damage)
    assert rows(table) == before
    table.delete("id % 10 = 1")
    assert rows(table) == changed("delete", before)


def test_the_log_is_enough_to_find_rows(tmp_path, monkeypatch):
    """Another service, with another database, commits an earlier plan."""
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    services = [delvec.connect(database_url=url, roots=tmp_path) for url in urls]
    table = make(services[0], "duckdb", tmp_path / "table")
    before, other = rows(table), services[1].table(table.location)
    meanwhile(monkeypatch, type(table), "plan", lambda: other.optimize.z_order(["x"], retries=0))
    table.delete("id % 10 = 1", retries=0)
    assert rows(other) == changed("delete", before)
    for service in services:
        service.close()


def test_vacuum_deletes_maps_that_nobody_needs_any_more(lake, tmp_path):
    table = make(lake, "duckdb", tmp_path / "table")
    table.optimize.z_order(["x"])
    folder = tmp_path / "table" / "_delvec" / "row_maps"
    (found,) = folder.iterdir()
    assert table.vacuum(dry_run=True)["num-files"] == 0
    old = time.time() - 8 * 86_400
    os.utime(found, (old, old))
    (folder / "other").write_text("not a map")
    os.utime(folder / "other", (old, old))
    assert table.vacuum(dry_run=True)["files"] == [f"_delvec/row_maps/{found.name}"]
    table.vacuum()
    assert [path.name for path in folder.iterdir()] == ["other"]


@pytest.mark.long("hundreds of random races")
@pytest.mark.timeout(900)
def test_hundreds_of_races_of_sorting_and_row_changes(lake, tmp_path):
    """No conflict and no lost or restored row: DELETE, UPDATE and MERGE of two threads against Z-order, without retries."""
    table = make(lake, "duckdb", tmp_path / "table")
    expected = {row["id"]: row["word"] for row in rows(table)}
    with ThreadPoolExecutor(3) as pool:
        for turn in range(100):
            gone, new = range(turn * 20, turn * 20 + 5), range(6000 + turn * 20, 6005 + turn * 20)
            column, word = ("x", "y", "word")[turn % 3], f"turn {turn}"
            where = "id BETWEEN {0.start} AND {0.stop} - 1".format
            work = [
                pool.submit(table.optimize.z_order, [column], retries=0),
                pool.submit(table.delete, where(gone), retries=0),
                pool.submit(table.update, {"word": f"'{word}'"}, where(new), retries=0),
            ]
            for each in work:
                each.result()
            expected = {
                key: word if key in new else before for key, before in expected.items() if key not in gone
            }
            if turn % 10 == 9:
                assert {row["id"]: row["word"] for row in rows(table)} == expected
    assert len(rows(table)) == len(expected)
    assert table.check()["num-errors"] == 0
