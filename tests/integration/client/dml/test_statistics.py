"""COMPUTE STATISTICS: results, concurrent writers, and unchanged facts."""

import json
import time

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support.log_by_hand import LogByHand, add

import delvec
from delvec_commands.dml import statistics as command


@pytest.fixture
def people(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "people",
        "id long, name string, height double",
        properties={"delta.enableRowTracking": "true"},
    )
    for first in (0, 100):
        ids = list(range(first, first + 100))
        table.append(
            pa.table({"id": ids, "name": [f"n{one:03}" for one in ids], "height": [one / 2 for one in ids]})
        )
    return table


def live_stats(table):
    scan, _ = table.plan(stats=True)
    return {
        path: json.loads(text)
        for path, text in zip(*(scan.files[name].to_pylist() for name in ("path", "stats")), strict=True)
    }


def last_actions(table, tmp_path):
    log = tmp_path / "people" / "_delta_log" / f"{table.version():020}.json"
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_bounds_are_tight_again_and_filters_skip_the_file(people, tmp_path):
    people.delete("id < 40 OR id = 95")
    assert len(people.plan(predicate="id = 10")[0]) == 1  # wide bounds
    version, rows = people.version(), people.to_arrow()
    before = {path: row for path, *row in _facts(people)}

    done = people.compute_statistics(user_metadata="tidy")

    assert (done["numUpdatedFiles"], done["numConsideredFiles"], done.version) == (1, 2, version + 1)
    assert len(people.plan(predicate="id = 10")[0]) == 0
    assert len(people.plan(predicate="id = 41")[0]) == 1
    (stats,) = (one for one in live_stats(people).values() if one["minValues"]["id"] < 100)
    assert stats == {
        "numRecords": 100,
        "minValues": {"id": 40, "name": "n040", "height": 20.0},
        "maxValues": {"id": 99, "name": "n099", "height": 49.5},
        "nullCount": {"id": 0, "name": 0, "height": 0},
        "tightBounds": True,
    }
    assert {path: row for path, *row in _facts(people)} == before  # vectors, row ids
    assert people.to_arrow().sort_by("id").equals(rows.sort_by("id"))
    info, *rest = last_actions(people, tmp_path)
    assert (info["commitInfo"]["operation"], info["commitInfo"]["userMetadata"]) == ("COMPUTE STATS", "tidy")
    assert [(list(action), action["add"]["dataChange"]) for action in rest] == [(["add"], False)]
    assert people.check()["num-errors"] == 0
    assert deltalake.DeltaTable(str(tmp_path / "people")).version() == version + 1
    assert people.compute_statistics().version is None


def _facts(table):
    scan, _ = table.plan(row_ids=True)
    names = ("path", "size", "num_records", "deletion_vector", "base_row_id", "default_row_commit_version")
    return zip(*(scan.files[name].to_pylist() for name in names), strict=True)


def test_a_delete_afterwards_counts_on_the_new_statistics(people):
    people.delete("id < 40")
    people.compute_statistics()
    people.delete("id = 99")
    assert people.count() == 159
    assert sorted(people.to_arrow()["id"].to_pylist()) == [*range(40, 99), *range(100, 200)]
    assert people.check()["num-errors"] == 0


@pytest.mark.parametrize("meanwhile", ["delete", "optimize", "overwrite"])
def test_who_writes_meanwhile_wins(people, monkeypatch, meanwhile):
    people.delete("id < 40")
    people.delete("id BETWEEN 150 AND 160")
    compute = command.live_statistics

    def late(scan):
        found = compute(scan)
        if meanwhile == "delete":
            people.delete("id = 95")
        elif meanwhile == "optimize":
            people.optimize()
        else:
            people.overwrite(pa.table({"id": [1], "name": ["a"], "height": [1.0]}))
        return found

    monkeypatch.setattr(command, "live_statistics", late)
    done = people.compute_statistics()

    monkeypatch.undo()
    updated, rows = {"delete": (1, 148), "optimize": (0, 149), "overwrite": (0, 1)}[meanwhile]
    assert (done["numUpdatedFiles"], people.count()) == (updated, rows)
    assert people.count("id = 95") == (1 if meanwhile == "optimize" else 0)
    assert people.check()["num-errors"] == 0


def test_row_changes_pass_statistics_that_came_first(people):
    people.delete("id < 40")
    with people.transaction("DELETE", predicate="id = 99") as change:
        (path,) = (path for path, one in live_stats(people).items() if one["minValues"]["id"] == 0)
        people.compute_statistics()
        change.delete_rows({path: [99]})
    assert change.result.result == "rebased"
    assert people.count() == 159
    assert people.count("id = 99") == 0
    stats = live_stats(people)[path]
    assert (stats["tightBounds"], stats["minValues"]["id"]) == (False, 40)


def test_the_change_feed_does_not_see_it(lake, tmp_path):
    feed = {"delta.enableChangeDataFeed": "true"}
    table = lake.create_table(tmp_path / "feed", "id long", properties=feed)
    table.append(pa.table({"id": list(range(100))}))
    table.delete("id < 5")
    done = table.compute_statistics()
    assert done["numUpdatedFiles"] == 1
    assert table.changes(done.version, done.version).num_rows == 0


def test_missing_statistics_are_filled_in(lake, tmp_path):
    none = {"delta.dataSkippingNumIndexedCols": "0", "delta.columnMapping.mode": "name"}
    table = lake.create_table(
        tmp_path / "bare",
        "p string, id long, s struct<t: timestamp_ntz>",
        partition_by=["p"],
        properties=none,
    )
    table.append(pa.table({"p": ["a", "a", "b"], "id": [3, None, 7], "s": [{"t": None}] * 3}))
    table.alter.rename_column("id", "number")
    assert table.compute_statistics().version is None
    table.alter.set_properties({"delta.dataSkippingNumIndexedCols": "32"})
    assert table.compute_statistics("p = 'a'", dry_run=True)["numUpdatedFiles"] == 1
    assert table.compute_statistics("p = 'a'")["numUpdatedFiles"] == 1
    assert table.compute_statistics()["numUpdatedFiles"] == 1
    assert table.compute_statistics().version is None
    assert len(table.plan(predicate="number = 5")[0]) == 0
    assert len(table.plan(predicate="number IS NULL")[0]) == 1
    assert table.count("number = 7") == 1
    with pytest.raises(
        delvec.InvalidPredicate, match="COMPUTE STATS takes a condition on partition columns only"
    ):
        table.compute_statistics("number = 1")


def test_statements_and_bad_requests(lake, people):
    people.delete("id < 40")
    name = f"delta.`{people.location.removeprefix('file://')}`"
    assert lake.sql(f"ANALYZE TABLE {name} COMPUTE DELTA STATISTICS")["numUpdatedFiles"] == 1
    path = next(iter(live_stats(people)))

    def commit(stats, **options):
        change = people.transaction("COMPUTE STATS", data_change=False, **options)
        change.set_statistics([(path, stats, None)])
        return change.commit()

    with pytest.raises(delvec.InvalidCommit, match="numRecords"):
        commit("{}")
    with pytest.raises(delvec.InvalidCommit, match="not JSON"):
        commit("{")
    with pytest.raises(delvec.InvalidCommit, match="has 100 rows according to the log"):
        commit('{"numRecords": 5}')
    change = people.transaction("COMPUTE STATS")
    change.set_statistics([(path, '{"numRecords": 100}', None)])
    with pytest.raises(delvec.InvalidCommit, match="data-change"):
        change.commit()


def test_a_file_that_is_gone_is_named(people, tmp_path):
    people.delete("id < 40")
    (path,) = (path for path, one in live_stats(people).items() if one["minValues"]["id"] == 0)
    (tmp_path / "people" / path).unlink()
    with pytest.raises(delvec.MissingDataFile, match=path[:20]):
        people.compute_statistics()


def test_nan_leaves_a_column_without_bounds_and_nulls_are_counted_among_live_rows(lake, tmp_path):
    table = lake.create_table(tmp_path / "numbers", "id long, x double")
    table.append(pa.table({"id": [1, 2, 3, 4], "x": [float("nan"), None, None, 2.0]}))
    table.delete("id = 2")
    table.compute_statistics()
    (stats,) = live_stats(table).values()
    assert stats["nullCount"] == {"id": 0, "x": 1}
    assert stats["minValues"] == {"id": 1}
    table.delete("id = 1")
    table.compute_statistics()
    (stats,) = live_stats(table).values()
    assert (stats["minValues"]["x"], stats["maxValues"]["x"]) == (2.0, 2.0)
    assert pc.sum(table.to_arrow()["x"]).as_py() == 2.0


def test_statistics_of_another_shape_are_none(people, tmp_path):
    """ClickHouse 26.9 wraps statistics in a field that no reader asks for, and gives times in seconds."""
    pq.write_table(people.to_arrow().slice(0, 20), tmp_path / "people" / "clickhouse.parquet")
    add = {
        "path": "clickhouse.parquet",
        "partitionValues": {},
        "size": (tmp_path / "people" / "clickhouse.parquet").stat().st_size,
        "modificationTime": int(time.time()),
        "dataChange": True,
        "stats": json.dumps({"stats_json": json.dumps({"numRecords": 20})}),
        "baseRowId": 200,
        "defaultRowCommitVersion": 3,
    }
    high_water = {
        "domain": "delta.rowTracking",
        "configuration": '{"rowIdHighWaterMark":219}',
        "removed": False,
    }
    log = tmp_path / "people" / "_delta_log" / f"{people.version() + 1:020}.json"
    info = {"commitInfo": {"operation": "UNKNOWN", "engineInfo": "ClickHouse"}}
    log.write_text("\n".join(map(json.dumps, (info, {"add": add}, {"domainMetadata": high_water}))))

    assert people.count() == people.to_arrow().num_rows == 220
    assert people.delete("id = 3")["numDeletedRows"] == 2
    assert people.count("id < 10") == 18
    assert live_stats(people)["clickhouse.parquet"]["numRecords"] == 20
    assert people.check()["num-errors"] == 0
    assert people.optimize(rewrite="always")["numRemovedFiles"] == 3
    assert people.count() == people.to_arrow().num_rows == 218


def test_variants_are_left_out_and_other_columns_counted(lake, tmp_path):
    def column(name, kind):
        return {"name": name, "type": kind, "nullable": True, "metadata": {}}

    inner = {"type": "struct", "fields": [column("v", "variant"), column("n", "long")]}
    log = LogByHand(
        tmp_path / "t",
        protocol={
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["variantType"],
            "writerFeatures": ["variantType"],
        },
    )
    fields = [column("id", "long"), column("v", "variant"), column("s", inner)]
    log.metadata["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    log.commit(1, log.metadata)
    kinds = [pa.struct([("value", pa.binary()), ("metadata", pa.binary())])]
    kinds.append(pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())]))
    for version, kind in enumerate(kinds, start=2):
        variants = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x0c\x01"}, None], kind)
        structs = pa.StructArray.from_arrays([variants, pa.array([7, None])], ["v", "n"])
        path = tmp_path / "t" / f"{version}.parquet"
        pq.write_table(pa.table({"id": [1, 2], "v": variants, "s": structs}), path)
        log.commit(version, add(path.name, size=path.stat().st_size))
    table = lake.table(tmp_path / "t")

    assert table.compute_statistics()["numUpdatedFiles"] == 2

    for stats in live_stats(table).values():
        assert stats["nullCount"] == {"id": 0, "s": {"n": 1}}
        assert (stats["numRecords"], stats["minValues"]) == (2, {"id": 1, "s": {"n": 7}})
