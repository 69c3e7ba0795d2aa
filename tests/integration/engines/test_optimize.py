"""OPTIMIZE and PURGE on each engine: fewer files, the same rows, and no conflicts with concurrent row changes."""

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.integration.engines.optimized_tables import filled, rows, some

import delvec
from delvec_commands.transaction import Transaction

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate; there on Spark are the main cases")


@pytest.fixture
def table(lake, engine, tmp_path):
    """Six files of ten rows in partition a, two in b; every third row is deleted by deletion vector."""
    table = filled(lake, tmp_path / "table", files=6, rows_in_file=10, others_from=100, deleted="id % 3 = 0")
    return lake.table(table.location, engine=engine)


def live_files(table):
    return table.plan()[0].files


@pytest.mark.gate
def test_small_files_become_one_per_partition_and_rows_stay(table):
    before, version = rows(table), table.version()

    done = table.optimize()

    assert rows(table) == before
    assert (done["numRemovedFiles"], done["numAddedFiles"], done["partitionsOptimized"]) == (8, 2, 2)
    assert (done["numDeletionVectorsRemoved"], done.version) == (8, version + 1)
    assert live_files(table)["deletion_vector"].null_count == 2
    assert rows(table, version=version) == before
    assert table.check()["num-errors"] == 0
    # No row changed.
    assert table.changes(version + 1).num_rows == 0
    entry = table.history(1)[0]
    assert (entry["operation"], entry["operationParameters"]["predicate"]) == ("OPTIMIZE", "[]")
    assert int(entry["operationMetrics"]["numRemovedFiles"]) == 8
    # Statistics are of the new files: a filter skips one of the two.
    assert len(table.plan(predicate="id > 90")[0]) == 1


def test_a_second_run_writes_nothing(table):
    table.optimize()
    version = table.version()

    done = table.optimize()

    assert (done.version, done["numAddedBytes"], table.version()) == (None, 0, version)


def test_a_dry_run_says_which_files_go_together(table):
    version = table.version()
    planned = table.optimize(dry_run=True)

    assert sorted(map(len, planned.bins)) == [2, 6]
    assert planned["numRemovedFiles"] == 8
    assert "nothing committed" in str(planned)
    assert table.version() == version


def test_only_the_partitions_of_a_condition(table):
    done = table.optimize("part = 'b'")
    assert (done["numRemovedFiles"], done["totalConsideredFiles"]) == (2, 2)
    assert len(live_files(table)) == 7
    with pytest.raises(delvec.InvalidPredicate, match="reads id"):
        table.optimize("part = 'b' and id > 3")


def test_a_lone_file_of_which_much_is_deleted_is_written_again(lake, engine, tmp_path):
    table = lake.create_table(tmp_path / "t", "id long", engine=engine)
    table.append(pa.table({"id": range(100)}))
    table.delete("id < 5")
    assert table.optimize().version is None
    assert table.optimize(max_deleted_ratio=0.01)["numAddedFiles"] == 1
    assert live_files(table)["num_records"].to_pylist() == [95]


@pytest.mark.gate
def test_purge_writes_files_with_vectors_and_no_others(table):
    table.append(some(200, 10))
    paths = live_files(table)["path"].to_pylist()
    before = rows(table)

    done = table.optimize.purge()

    assert done["numRemovedFiles"] == 8
    assert rows(table) == before
    scan = live_files(table)
    assert scan["deletion_vector"].null_count == len(scan)
    assert len(set(scan["path"].to_pylist()) & set(paths)) == 1
    assert table.history(1)[0]["operation"] == "REORG"
    assert table.optimize.purge().version is None


def test_a_file_without_live_rows_leaves_no_file(lake, engine, tmp_path):
    """All rows deleted one by one, as another writer may do."""
    table = lake.create_table(tmp_path / "t", "id long", engine="duckdb")
    table.append(pa.table({"id": range(10)}))
    path = live_files(table)["path"][0].as_py()
    with table.transaction("DELETE") as transaction:
        transaction.delete_rows({path: range(10)})
    table.append(pa.table({"id": range(10, 13)}))

    done = lake.table(table.location, engine=engine).optimize.purge()

    assert sorted(table.to_arrow()["id"].to_pylist()) == [10, 11, 12]
    assert done["numAddedFiles"] == 0


def test_new_files_have_the_size_that_is_asked_for(lake, engine, tmp_path):
    table = lake.create_table(tmp_path / "t", "id long, text string", engine=engine)
    for number in range(8):
        texts = [f"{number * 7919 * row:x}" for row in range(3000)]
        table.append(pa.table({"id": range(number * 3000, number * 3000 + 3000), "text": texts}))
    size = sum(live_files(table)["size"].to_pylist())

    done = table.optimize(target_size=size // 3)

    assert 3 <= done["numAddedFiles"] <= 4
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(24000))
    done = table.optimize(target_size=size * 2, commit_bytes=1)
    assert (done["numAddedFiles"], done["numBatches"]) == (1, 1)


def test_commits_stand_for_themselves(table):
    seen = []
    version = table.version()
    done = table.optimize(commit_bytes=1, progress=lambda ready, total: seen.append((ready, total)))
    assert (done["numBatches"], done.version) == (2, version + 2)
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def test_what_fails_leaves_the_commits_before_it_and_can_go_on(table):
    before, real = rows(table), table.engine.compact
    calls = []

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise delvec.StorageError("the disk is on fire")
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table.engine, "compact", failing, raising=False)
        with pytest.raises(delvec.StorageError, match="on fire"):
            table.optimize(commit_bytes=1)
    assert rows(table) == before
    assert table.optimize()["numBatches"] == 1
    assert rows(table) == before


@pytest.mark.parametrize("command", ["optimize", "purge", "z_order"])
def test_with_little_memory_rows_are_spilled_and_stay(lake, engine, tmp_path, command):
    table = lake.create_table(tmp_path / "large", "id long, text string", engine="duckdb")
    for number in range(2):
        ids = range(number * 300_000, (number + 1) * 300_000)
        table.append(pa.table({"id": ids, "text": [f"{each * 2654435761 % 2**32:0200}" for each in ids]}))
    table.delete("id % 100 = 0")
    before = table.count(), table.to_arrow(columns=["id"])["id"].to_numpy().sum()
    table = lake.table(table.location, engine=engine)
    run = table.optimize if command == "optimize" else getattr(table.optimize, command)
    options = {"columns": ["text"]} if command == "z_order" else {}
    if engine != "duckdb":
        with pytest.raises(delvec.BadRequest, match=r"spark\.executor\.memory"):
            run(max_memory=128 << 20, **options)
        return
    done = run(max_memory=128 << 20, **options)
    assert done["numRemovedFiles"] == 2
    assert (table.count(), table.to_arrow(columns=["id"])["id"].to_numpy().sum()) == before
    assert table.check()["num-errors"] == 0


@pytest.mark.parametrize("command", ["optimize", "purge", "z_order"])
@pytest.mark.parametrize("stopped_in", ["compact", "commit"])
def test_a_run_that_is_stopped_is_gone_on_with(lake, table, monkeypatch, command, stopped_in):
    before = rows(table)
    run = table.optimize if command == "optimize" else getattr(table.optimize, command)
    options = {"columns": ["id"]} if command == "z_order" else {}
    calls = []

    def stop_the_second(real):
        def stopping(*arguments, **named):
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(*arguments, **named)

        return stopping

    with monkeypatch.context() as patch:
        if stopped_in == "compact":
            name = "cluster" if command == "z_order" else "compact"
            patch.setattr(table.engine, name, stop_the_second(getattr(table.engine, name)), raising=False)
        else:
            patch.setattr(Transaction, "commit", stop_the_second(Transaction.commit))
        with pytest.raises(KeyboardInterrupt):
            run(commit_bytes=1, **options)
    assert rows(table) == before
    seen = []
    done = run(commit_bytes=1, progress=lambda ready, total: seen.append(ready / total), **options)
    assert (done["numBatches"], seen[-1]) == (1, 1.0)
    assert rows(table) == before
    assert run(dry_run=True, **options)["numRemovedFiles"] == 0
    assert table.check()["num-errors"] == 0


def during(table, change):
    """Change the table between scan and commit of an OPTIMIZE."""
    real, calls = table.engine.compact, []

    def compact(*arguments):
        written = real(*arguments)
        if not calls:
            calls.append(1)
            change()
        return written

    patch = pytest.MonkeyPatch()
    patch.setattr(table.engine, "compact", compact, raising=False)
    return patch


def everything(other):
    other.delete("id in (2, 32, 101)")
    other.delete("id = 4")
    other.update({"text": "'new'"}, "id in (5, 55)")
    merge = other.merge(some(50, 30), "target.id = source.id").when_matched_update({"text": "'m'"})
    merge.when_not_matched_insert_all().execute()
    other.append(some(300, 3))
    other.delete("part = 'b'")


@pytest.mark.parametrize("change", [lambda other: other.delete("id in (1, 32, 101)"), everything])
def test_neither_side_of_a_race_fails(table, lake, change):
    """Rows deleted concurrently in the old files are deleted in the new ones, without a retry."""
    other = lake.table(table.location, engine="duckdb")
    found = {}

    def act():
        change(other)
        found["rows"] = rows(other)

    patch = during(table, act)
    try:
        done = table.optimize()
    finally:
        patch.undo()

    assert rows(table) == found["rows"]
    assert done.retries == 0
    assert table.check()["num-errors"] == 0


def test_an_optimize_that_wins_lets_a_delete_pass(table, lake):
    """The rows were found in files that were removed before the DELETE commits."""
    other = lake.table(table.location, engine="duckdb")
    real, calls = other.engine.find_rows, []

    def find_rows(*arguments):
        found = real(*arguments)
        if not calls:
            calls.append(1)
            table.optimize()
        return found

    expected = [row for row in rows(table) if row["id"] not in (1, 2, 101)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other.engine, "find_rows", find_rows, raising=False)
        done = other.delete("id in (1, 2, 101)")
    assert rows(table) == expected
    assert (done["numDeletedRows"], done.retries) == (3, 0)


def test_files_that_somebody_replaced_are_planned_again(table, lake):
    other = lake.table(table.location, engine="duckdb")
    patch = during(table, lambda: other.overwrite(some(500, 10), replace_where="part = 'a'"))
    try:
        table.optimize()
    finally:
        patch.undo()
    assert sorted(row["id"] for row in rows(table)) == [
        100,
        101,
        103,
        104,
        106,
        107,
        109,
        110,
        112,
        113,
        115,
        116,
        118,
        119,
        *range(500, 510),
    ]


def test_ids_of_rows_are_kept(lake, engine, tmp_path):
    table = lake.create_table(
        tmp_path / "t", "id long", properties={"delta.enableRowTracking": "true"}, engine="duckdb"
    )
    for number in range(3):
        table.append(pa.table({"id": range(number * 4, number * 4 + 4)}))
    table.delete("id in (1, 6)")
    column = table.snapshot().configuration["delta.rowTracking.materializedRowIdColumnName"]

    lake.table(table.location, engine=engine).optimize()

    path = Path(unquote(urlparse(table.location).path)) / unquote(live_files(table)["path"][0].as_py())
    stored = pq.ParquetFile(path).read().to_pylist()
    assert {row["id"]: row[column] for row in stored} == {n: n for n in range(12) if n not in (1, 6)}


def test_where_each_row_went_is_in_the_log(table):
    """For those whose rows were in the old files; a reader of the log may follow them."""
    done = table.optimize("part = 'b'")
    folder = Path(unquote(urlparse(table.location).path)) / "_delta_log"
    actions = [json.loads(line) for line in (folder / f"{done.version:020}.json").read_text().splitlines()]
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    assert [action["dataChange"] for action in (*adds, *removes)] == [False] * 3
    assert all("deletionVector" in action for action in removes)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target_size": 0}, "target_size"),
        ({"target_size": "128mb"}, "target_size"),
        ({"max_deleted_ratio": 2}, "max_deleted_ratio"),
        ({"commit_bytes": -1}, "commit_bytes"),
        ({"retries": -1}, "retries"),
        ({"max_memory": 0}, "max_memory"),
        ({"max_memory": 1}, "max_memory"),
    ],
)
def test_arguments_that_make_no_sense(table, options, says):
    with pytest.raises(delvec.BadRequest, match=says):
        table.optimize(**options)


def test_statements(table, lake, engine):
    name = f"delta.`{table.location}`"
    assert lake.sql(f"OPTIMIZE {name} WHERE part = 'b'", engine=engine)["numRemovedFiles"] == 2
    version = table.version()
    assert lake.sql(f"OPTIMIZE {name} WHERE part = 'a' DRY RUN", engine=engine)["numRemovedFiles"] == 6
    assert lake.sql(f"OPTIMIZE {name} ZORDER BY (id) DRY RUN", engine=engine).reasons
    assert lake.sql(f"REORG TABLE {name} APPLY (PURGE) DRY RUN", engine=engine)["numRemovedFiles"] == 6
    assert table.version() == version
    table.delete("id = 1")
    assert lake.sql(f"REORG TABLE {name} APPLY (PURGE)", engine=engine)["numRemovedFiles"] == 6
    for statement in (f"OPTIMIZE {name} VERSION AS OF 1", f"REORG TABLE {name}", f"OPTIMIZE {name} WHERE"):
        with pytest.raises(delvec.InvalidStatement):
            lake.sql(statement, engine=engine)
