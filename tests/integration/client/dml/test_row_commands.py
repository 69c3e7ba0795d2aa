"""UPDATE, MERGE and DELETE through the client: rows, metrics and concurrency."""

import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delvec
from delvec_commands.dml import merge as merge_command
from delvec_commands.dml import row_command
from delvec_service.commits import fault_points

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "n": pa.int32()})


def rows(*numbers):
    return pa.Table.from_pylist([{"id": i, "name": f"t{i}", "n": i} for i in numbers], SCHEMA)


@pytest.fixture
def make(lake, tmp_path):
    def make(*parts, schema=SCHEMA, partition_by=None, **properties):
        given = {f"delta.{name}": value for name, value in properties.items()}
        table = lake.create_table(tmp_path / "table", schema, partition_by, given)
        for part in parts:
            table.append(part)
        return table

    return make


def content(table, *names):
    found = table.to_arrow(columns=list(names) or None)
    return sorted(zip(*(found[name].to_pylist() for name in found.column_names), strict=True), key=repr)


# --- MERGE that adds columns to a table with column mapping -----------------------------------------------------


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("feed", ["true", "false"])
def test_columns_that_a_merge_adds_to_a_mapped_table_hold_their_values(make, mode, vectors, feed):
    schema = pa.schema({"id": pa.int64(), "home": pa.struct({"city": pa.string()})})
    first = pa.Table.from_pylist([{"id": i, "home": {"city": "Oslo"}} for i in (1, 2, 3)], schema)
    table = make(
        first,
        schema=schema,
        **{"columnMapping.mode": mode, "enableDeletionVectors": vectors, "enableChangeDataFeed": feed},
    )
    homes = [{"city": "Rome", "zip": 1}, {"city": "Bari", "zip": 2}]
    changes = pa.table({"id": [2, 4], "home": homes, "extra": ["x", "y"]})

    merge = table.merge(changes, "target.id = source.id", merge_schema=True)
    metrics = merge.when_matched_update_all().when_not_matched_insert_all().execute()

    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (1, 1)
    assert content(table, "id", "home", "extra") == [
        (1, {"city": "Oslo", "zip": None}, None),
        (2, {"city": "Rome", "zip": 1}, "x"),
        (3, {"city": "Oslo", "zip": None}, None),
        (4, {"city": "Bari", "zip": 2}, "y"),
    ]
    # Predicates and statistics know the new columns by the names that files have for them.
    assert content(table, "id") == [(1,), (2,), (3,), (4,)]
    assert table.to_arrow(["id"], "extra = 'x'")["id"].to_pylist() == [2]
    assert table.to_arrow(["id"], "home.zip >= 2")["id"].to_pylist() == [4]
    assert sorted(table.to_arrow(["id"], "extra IS NULL")["id"].to_pylist()) == [1, 3]
    if feed == "true":
        told = table.changes(metrics.version).to_pylist()
        found = {(row["_change_type"], row["id"]): (row["extra"], row["home"]["zip"]) for row in told}
        assert found == {
            ("update_preimage", 2): (None, None),
            ("update_postimage", 2): ("x", 1),
            ("insert", 4): ("y", 2),
        }


def test_no_file_of_a_mapped_table_has_a_column_under_its_logical_name(make, tmp_path):
    table = make(rows(1), **{"columnMapping.mode": "name"})
    changes = pa.table({"id": [1, 2], "extra": ["x", "y"]})
    merge = table.merge(changes, "target.id = source.id", merge_schema=True)
    merge.when_matched_update({"extra": "source.extra"}).when_not_matched_insert(
        {"id": "source.id", "extra": "source.extra"}
    ).execute()

    schemas = [set(pq.read_schema(path).names) for path in (tmp_path / "table").rglob("*.parquet")]

    assert not any(names & {"id", "name", "n", "extra"} for names in schemas)
    assert content(table, "id", "extra") == [(1, "x"), (2, "y")]


def test_a_column_that_another_writer_adds_meanwhile_is_used(make, lake, monkeypatch):
    table = make(rows(1, 2))
    begin, others = merge_command.begin, ["extra"]

    def begun(*arguments):
        found = begin(*arguments)
        for name in others:
            others.clear()
            lake.table(table.location).alter.add_columns(f"{name} string")
        return found

    monkeypatch.setattr(merge_command, "begin", begun)
    changes = pa.table({"id": [2], "extra": ["x"]})
    merge = table.merge(changes, "target.id = source.id", merge_schema=True)

    merge.when_matched_update({"extra": "source.extra"}).execute()

    assert content(table, "id", "extra") == [(1, None), (2, "x")]
    assert table.schema().names == ["id", "name", "n", "extra"]


def test_a_column_that_cannot_be_added_is_refused(make):
    table = make(rows(1), schema=SCHEMA)
    changes = pa.table({"id": [1], "a b": [1]})  # a name that files without column mapping cannot have
    merge = table.merge(changes, "target.id = source.id", merge_schema=True).when_matched_update_all()
    version = table.version()

    with pytest.raises(delvec.DelvecError, match="a b"):
        merge.execute()

    assert table.version() == version


# --- what is counted --------------------------------------------------------------------------------------------

UPDATED, DELETED = "numTargetRows{}Updated", "numTargetRows{}Deleted"
MATCHED, BY_SOURCE = "Matched", "NotMatchedBySource"


def clauses(merge, *kinds):
    for kind in kinds:
        merge = {
            "update": lambda each: each.when_matched_update({"n": "source.n"}, "target.id = 1"),
            "delete": lambda each: each.when_matched_delete("target.id = 2"),
            "update by source": lambda each: each.when_not_matched_by_source_update({"n": "0"}, "id = 3"),
            "delete by source": lambda each: each.when_not_matched_by_source_delete("id IN (4, 5)"),
            "insert": lambda each: each.when_not_matched_insert_all(),
        }[kind](merge)
    return merge


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (["update"], {UPDATED: (1, 0), DELETED: (0, 0)}),
        (["delete"], {UPDATED: (0, 0), DELETED: (1, 0)}),
        (["update by source"], {UPDATED: (0, 1), DELETED: (0, 0)}),
        (["delete by source"], {UPDATED: (0, 0), DELETED: (0, 2)}),
        (["update", "delete by source", "insert"], {UPDATED: (1, 0), DELETED: (0, 2)}),
        (["delete", "update by source"], {UPDATED: (0, 1), DELETED: (1, 0)}),
        (["update", "update by source"], {UPDATED: None, DELETED: (0, 0)}),
        (["delete", "delete by source"], {UPDATED: (0, 0), DELETED: None}),
        (["update", "delete", "update by source", "delete by source"], {UPDATED: None, DELETED: None}),
    ],
)
def test_a_merge_says_of_which_kind_rows_were_where_that_is_known(make, kinds, told):
    table = make(rows(1, 2, 3), rows(4, 5, 6))
    source = pa.table({"id": [1, 2, 7], "name": ["a", "b", "c"], "n": pa.array([10, 20, 70], pa.int32())})

    foreseen = clauses(table.merge(source, "target.id = source.id"), *kinds).execute(dry_run=True)
    metrics = clauses(table.merge(source, "target.id = source.id"), *kinds).execute()

    recorded = table.history(1)[0]["operationMetrics"]
    updated = sum(kind.startswith("update") for kind in kinds)
    deleted = ("delete" in kinds) + 2 * ("delete by source" in kinds)
    totals = {
        "numSourceRows": 3,
        "numTargetRowsUpdated": updated,
        "numTargetRowsDeleted": deleted,
        "numTargetRowsInserted": int("insert" in kinds),
        "numTargetRowsCopied": 0,
        "numOutputRows": updated + ("insert" in kinds),
    }
    assert {name: metrics[name] for name in totals} == totals
    assert {name: foreseen[name] for name in totals} == totals
    assert {name: int(recorded[name]) for name in totals} == totals
    for name, counts in told.items():
        names = name.format(MATCHED), name.format(BY_SOURCE)
        if counts is None:  # both kinds: the engine does not count them separately, so there is no metric
            assert not recorded.keys() & set(names)
        else:
            assert tuple(int(recorded[each]) for each in names) == counts


# --- exactly one row --------------------------------------------------------------------------------------------

ONE_STAYS = {
    "delete": lambda table: table.delete("id = 1"),
    "delete by keys": lambda table: table.delete(keys=pa.table({"id": [1]})),
    "update": lambda table: table.update({"n": "100"}, "id = 1"),
    "merge": lambda table: (
        table.merge(pa.table({"id": [1]}), "target.id = source.id")
        .when_matched_update({"n": "100"})
        .execute()
    ),
    "overwrite": lambda table: table.overwrite(rows(9), "id = 1"),
}


@pytest.mark.parametrize("feed", ["true", "false"])
@pytest.mark.parametrize("command", ["delete", "delete by keys", "update", "merge"])
@pytest.mark.parametrize("stay", [0, 1, 2])
def test_rows_that_are_copied_are_there_and_counted_be_it_one(make, command, feed, stay):
    stays = [2, 3][:stay]
    table = make(rows(1, *stays), rows(7), enableDeletionVectors="false", enableChangeDataFeed=feed)

    metrics = ONE_STAYS[command](table)

    changed = [] if command.startswith("delete") else [(1, 100)]
    assert content(table, "id", "n") == sorted(
        [*changed, (7, 7), *((each, each) for each in stays)], key=repr
    )
    copied = "numTargetRowsCopied" if command == "merge" else "numCopiedRows"
    assert metrics[copied] == stay
    assert int(table.history(1)[0]["operationMetrics"].get(copied, 0)) == stay
    if feed == "true":
        kinds = sorted(row["_change_type"] for row in table.changes(metrics.version).to_pylist())
        assert kinds == (["delete"] if not changed else ["update_postimage", "update_preimage"])


# --- which files a MERGE reads ------------------------------------------------------------------------------------


def test_every_clause_finds_its_rows_in_whatever_file(make):
    table = make(rows(1, 2), rows(11, 12), rows(21, 22), rows(31, 32))
    source = pa.table({"id": [1, 12, 21, 32], "n": pa.array([100, 200, 300, 400], pa.int32())})

    metrics = (
        table.merge(source, "target.id = source.id")
        .when_matched_update({"n": "source.n"}, "target.n < 5")
        .when_matched_delete("target.n > 30")
        .execute()
    )

    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsDeleted"]) == (1, 1)
    assert content(table, "id", "n") == [(1, 100), (11, 11), (12, 12), (2, 2), (21, 21), (22, 22), (31, 31)]


def test_a_clause_without_a_condition_finds_rows_that_another_is_not_about(make):
    table = make(rows(1, 2), rows(11, 12))
    source = pa.table({"id": [1, 12], "n": pa.array([100, 200], pa.int32())})

    merge = table.merge(source, "target.id = source.id").when_matched_delete("target.n < 5")
    merge.when_matched_update({"n": "source.n"}).execute()

    assert content(table, "id", "n") == [(11, 11), (12, 200), (2, 2)]


def test_rows_that_match_are_not_inserted_again_whatever_the_other_clauses_are_about(make):
    table = make(rows(1, 2), rows(11, 12))
    source = pa.table(
        {"id": [1, 12, 13], "name": ["a", "b", "c"], "n": pa.array([100, 200, 300], pa.int32())}
    )

    merge = table.merge(source, "target.id = source.id").when_matched_update_all("target.n < 5")
    metrics = merge.when_not_matched_insert_all().execute()

    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (1, 1)
    assert content(table, "id", "n") == [(1, 100), (11, 11), (12, 12), (13, 300), (2, 2)]


def test_terms_of_the_condition_about_the_target_alone_limit_what_is_read_and_nothing_else(make):
    table = make(rows(1, 2), rows(11, 12), rows(21, 22))
    source = pa.table({"id": [1, 11, 21], "n": pa.array([100, 200, 300], pa.int32())})

    merge = table.merge(source, "target.id = source.id AND target.n > 5 AND target.n < 20")
    metrics = merge.when_matched_update({"n": "source.n"}).execute()

    assert metrics["numTargetRowsUpdated"] == 1
    assert content(table, "id", "n") == [(1, 1), (11, 200), (12, 12), (2, 2), (21, 21), (22, 22)]


def test_rows_without_a_source_are_found_in_files_that_no_key_reaches(make):
    table = make(rows(1, 2), rows(900, 901))

    merge = table.merge(pa.table({"id": [1]}), "target.id = source.id")
    metrics = merge.when_matched_update({"n": "-1"}).when_not_matched_by_source_delete().execute()

    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsDeleted"]) == (1, 3)
    assert content(table, "id", "n") == [(1, -1)]


def test_another_table_is_read_as_it_is_now_whatever_versions_it_has(make, lake, tmp_path):
    table = make(rows(1, 2))
    other = lake.create_table(tmp_path / "source", SCHEMA)
    for number in (1, 2, 3):
        other.append(rows(number))
    merge = table.merge(other, "target.id = source.id").when_matched_update({"n": "source.n + 10"})

    metrics = merge.when_not_matched_insert_all().execute()

    assert metrics["numSourceRows"] == 3
    assert content(table, "id", "n") == [(1, 11), (2, 12), (3, 3)]


def test_a_table_is_merged_into_itself_by_one_version_of_it(make):
    table = make(rows(1), rows(2))

    merge = table.merge(table, "target.id = source.id + 1").when_matched_update({"n": "source.n + 100"})
    metrics = merge.execute()

    assert (metrics["numSourceRows"], metrics["numTargetRowsUpdated"]) == (2, 1)
    assert content(table, "id", "n") == [(1, 1), (2, 101)]


# --- history ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize(
    "command",
    [
        lambda table, **how: table.delete("id IN (1, 2, 11)", **how),
        lambda table, **how: table.update({"n": "0"}, "id IN (1, 2, 11)", **how),
        lambda table, **how: table.delete(keys=pa.table({"id": [1, 2, 11]}), **how),
        lambda table, **how: (
            table.merge(pa.table({"id": [1, 2, 11]}), "target.id = source.id")
            .when_matched_delete()
            .execute(**how)
        ),
    ],
    ids=["delete", "update", "delete by keys", "merge"],
)
def test_a_dry_run_foresees_what_is_done(make, command, vectors):
    table = make(rows(1, 2), rows(*range(11, 21)), enableDeletionVectors=vectors)
    before = table.version(), table.files()

    foreseen = command(table, dry_run=True)

    assert (table.version(), table.files()) == before
    partly = "vector" if vectors == "true" else "rewrite"
    assert sorted((file.rows, file.live_rows, file.means) for file in foreseen.files) == [
        (1, 10, partly),
        (2, 2, "removal"),
    ]
    done = command(table)
    names = [name for name in foreseen if any(part in name for part in ("Updated", "Deleted", "Removed"))]
    names = [
        name
        for name in names
        if not name.endswith(("VectorsRemoved", "VectorsUpdated", "BytesRemoved", "RemovedBytes"))
    ]
    assert len(names) >= 2
    assert {name: foreseen[name] for name in names} == {name: done[name] for name in names}


def test_the_history_of_a_merge_has_its_condition_and_its_clauses_in_order(make):
    table = make(rows(1, 2))
    merge = table.merge(pa.table({"id": [1, 5]}), "target.id = source.id")
    merge.when_matched_delete("source.id > 3").when_matched_update({"n": "5"}).when_not_matched_insert(
        {"id": "source.id"}
    ).execute(user_metadata="a note")

    (entry,) = table.history(1)

    assert entry["userMetadata"] == "a note"
    assert {name: json.loads(text) for name, text in entry["operationParameters"].items()} == {
        "predicate": ["(target.id = source.id)"],
        "matchedPredicates": [
            {"predicate": "source.id > 3", "actionType": "delete"},
            {"actionType": "update"},
        ],
        "notMatchedPredicates": [{"actionType": "insert"}],
        "notMatchedBySourcePredicates": [],
    }


def test_the_times_are_those_of_the_search_and_of_what_follows(monkeypatch):
    now = iter([100.0, 100.5, 103.0, 104.0, 104.0])
    monkeypatch.setattr(row_command.time, "perf_counter", lambda: next(now))
    clock = row_command.Clock()

    clock.scanned()
    clock.scanned()  # and not another time
    clock.rewritten()

    assert clock.metrics() == {"executionTimeMs": 4000, "scanTimeMs": 500, "rewriteTimeMs": 2500}


def test_a_command_that_finds_nothing_has_searched_all_its_time(monkeypatch):
    now = iter([100.0, 104.0])
    monkeypatch.setattr(row_command.time, "perf_counter", lambda: next(now))

    assert row_command.Clock().metrics() == {
        "executionTimeMs": 4000,
        "scanTimeMs": 4000,
        "rewriteTimeMs": 0,
    }


@pytest.mark.parametrize("feed", ["true", "false"])
@pytest.mark.parametrize("command", ["delete", "delete by keys", "update", "merge"])
def test_what_is_written_after_the_search_has_a_time_of_its_own(make, monkeypatch, command, feed):
    table = make(rows(1, 2), enableDeletionVectors="false", enableChangeDataFeed=feed)
    seconds = itertools.count()
    monkeypatch.setattr(row_command, "time", SimpleNamespace(perf_counter=lambda: float(next(seconds))))

    metrics = ONE_STAYS[command](table)

    times = [metrics[name] for name in ("executionTimeMs", "scanTimeMs", "rewriteTimeMs")]
    assert times == [3000, 1000, 1000]


def test_the_history_of_an_update_has_its_condition_as_it_was_written(make):
    table = make(rows(1, 2))
    table.update({"n": "5"}, "name <> 'Zoë'")
    table.update({"n": "6"})

    without, with_condition = (entry["operationParameters"] for entry in table.history(2))

    assert with_condition == {"predicate": """["(name <> 'Zoë')"]"""}
    assert without == {"predicate": "[]"}


# --- rows that others change meanwhile --------------------------------------------------------------------------


def test_deletes_of_many_threads_share_versions(make):
    table = make(rows(*range(96)), enableDeletionVectors="true")

    def slowly():
        time.sleep(0.1)

    with fault_points.armed(before_put=slowly), ThreadPoolExecutor(16) as pool:
        deleted = list(pool.map(lambda number: table.delete(f"id = {number}"), range(64)))
    assert [metrics["numDeletedRows"] for metrics in deleted] == [1] * 64
    assert table.count() == 32
    assert len({metrics.version for metrics in deleted}) < 40
    assert sum(len(entry.get("members") or ()) for entry in table.history()) > 32


def test_an_update_of_all_rows_sees_rows_that_are_appended_meanwhile(make, lake, monkeypatch):
    table = make(rows(1, 2), enableDeletionVectors="true")
    other, change_rows = lake.table(table.location), table.engine.change_rows

    def overtaken(scan, change, target):
        monkeypatch.setattr(table.engine, "change_rows", change_rows)
        other.append(rows(3))
        return change_rows(scan, change, target)

    monkeypatch.setattr(table.engine, "change_rows", overtaken)
    assert table.update({"n": "0"}).retries == 1
    assert content(table, "id", "n") == [(1, 0), (2, 0), (3, 0)]
