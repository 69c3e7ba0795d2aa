"""Auto compaction after commits: run by the client, and its failure never fails the command."""

import pyarrow as pa
import pytest

import delvec
from delvec_commands.dml import optimize

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")

ASKS = {"delta.autoOptimize.autoCompact": "true", "delvec.autoCompact.minNumFiles": "4"}


def make(lake, engine, path, **properties):
    return lake.create_table(
        path, "id long, p string", partition_by=["p"], properties=ASKS | properties, engine=engine
    )


def some(first, *partitions):
    return pa.table({"id": pa.array([first] * len(partitions), pa.int64()), "p": list(partitions)})


def files(table):
    return len(table.plan()[0])


def operations(table):
    return [entry["operation"] for entry in table.history()]


@pytest.mark.gate
def test_the_commit_that_makes_small_files_many_is_followed_by_their_compaction(lake, engine, tmp_path):
    table = make(lake, engine, tmp_path / "table")
    for number in range(3):
        table.append(some(number, "a", "b") if number < 2 else some(number, "a"))
    assert files(table) == 5

    done = table.append(some(3, "a"))

    assert files(table) == 3
    assert (done.version, table.version()) == (4, 5)
    entry = table.history(1)[0]
    assert entry["operation"] == "OPTIMIZE"
    assert entry["operationParameters"] == {
        "predicate": "[]",
        "zOrderBy": "[]",
        "clusterBy": "[]",
        "auto": "true",
    }
    assert sorted(row["id"] for row in table.to_arrow().to_pylist()) == [0, 0, 1, 1, 2, 3]
    assert table.check()["num-errors"] == 0


@pytest.mark.parametrize("command", ["update", "merge", "overwrite"])
def test_other_commands_that_write_files_are_followed_by_it_too(lake, tmp_path, command):
    table = make(lake, "duckdb", tmp_path / "table", **{"delvec.autoCompact.minNumFiles": "3"})
    table.append(some(0, "a"))
    table.append(pa.table({"id": [1, 2], "p": ["a", "a"]}))
    if command == "update":
        table.update({"id": "id + 10"}, "id = 1")
    elif command == "merge":
        table.merge(some(7, "a"), "target.id = source.id").when_not_matched_insert_all().execute()
    else:
        table.overwrite(some(7, "a"), replace_where="id = 7")
    assert operations(table)[0] == "OPTIMIZE"
    assert files(table) == 1


def test_tables_that_do_not_ask_and_clustered_ones_are_left(lake, tmp_path):
    plain = lake.create_table(tmp_path / "plain", "id long, p string")
    clustered = lake.create_table(
        tmp_path / "clustered", "id long, p string", cluster_by=["id"], properties=ASKS
    )
    for table in (plain, clustered):
        for number in range(5):
            assert table.append(some(number, "a")).auto_compact == ([{}] if table is clustered else None)
        assert files(table) == 5


def test_a_compaction_that_fails_is_not_the_commands_failure(lake, tmp_path, monkeypatch, caplog):
    table = make(lake, "duckdb", tmp_path / "table")

    def failing(*_arguments):
        raise delvec.StorageError("no room")

    monkeypatch.setattr(type(table.engine), "compact", failing)
    for number in range(5):
        assert table.append(some(number, "a")).version == number + 1
    assert files(table) == 5
    assert "was not compacted after a commit: no room" in caplog.text


def test_a_compaction_is_bounded(lake, tmp_path, monkeypatch):
    table = make(lake, "duckdb", tmp_path / "table")
    monkeypatch.setattr(optimize, "_AUTO_BYTES", 1)
    for number in range(5):
        table.append(some(number, "a"))
    assert files(table) == 5


def test_it_can_be_left_to_others(lake, tmp_path):
    table = make(lake, "duckdb", tmp_path / "table")
    table.compacts_after_commits = False
    for number in range(5):
        assert table.append(some(number, "a")).auto_compact == [{"p": "a"}]
    assert files(table) == 5


@pytest.mark.parametrize("value", ["true", "auto", "legacy", "false"])
def test_the_property_has_delta_sparks_values(lake, tmp_path, value):
    table = lake.create_table(tmp_path / "table", "id long")
    table.alter.set_properties({"delta.autoOptimize.autoCompact": value})
    with pytest.raises(delvec.BadRequest, match="true, auto, legacy or false"):
        table.alter.set_properties({"delta.autoOptimize.autoCompact": "sometimes"})
