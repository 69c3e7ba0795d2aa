"""Repair of each kind of damage in a real log; rows are compared with a model."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from pyroaring import BitMap64
from tests.support.checked import assert_sound
from tests.support.damaged_logs import (
    actions,
    adds,
    folder,
    foreign,
    marking,
    newest,
    only_add,
    removing,
    vector_file,
)

import delvec
from delvec.cli import main
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, inline
from delvec_service.alter_table import repair as repairing
from delvec_service.commits.commit import Commits
from delvec_storage.files import read_deletion_vectors

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {**VECTORS, "delta.enableChangeDataFeed": "true"}
TRACKED = {**VECTORS, "delta.enableRowTracking": "true"}


# --- what is right ------------------------------------------------------------------------------------------


@pytest.fixture
def lake():
    """With a database that outlives the connection."""
    with delvec.connect() as connection:
        yield connection


def ids(table, version=None):
    return Counter(table.to_arrow(version=version)["id"].to_pylist())


def by_deltalake(table):
    """Return the ids seen by a reader that distinguishes logical files by path and deletion vector."""
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(folder(table))))
    return Counter(pa.table(found.execute("SELECT id FROM t").read_all())["id"].to_pylist())


def assert_repaired(table, expected, *actions, num_versions=1):
    """Repair it: first a dry run, which changes nothing; then all readers see the expected rows, and no findings remain."""
    before = newest(table)
    planned = table.repair(dry_run=True)
    assert newest(table) == before
    assert planned["result"] == "dry-run"

    done = table.repair()

    assert done["result"] == "committed"
    assert done["versions"] == list(range(before + 1, before + 1 + num_versions))
    assert {each["action"] for each in done["repaired"]} == set(actions)
    assert [each["invariant"] for each in planned["repaired"]] == [
        each["invariant"] for each in done["repaired"]
    ][: len(planned["repaired"])]
    assert all(each["reason"].endswith(".") for each in done["repaired"])
    assert done["unrepaired"] == []
    assert_right(table, expected)
    assert table.history(1)[0]["operation"] == "FSCK REPAIR"
    again = table.repair()
    assert (again["result"], again["version"]) == ("nothing-to-do", None)
    return done


def assert_right(table, expected):
    assert ids(table) == Counter(expected)
    assert by_deltalake(table) == Counter(expected)
    with delvec.connect() as another:
        assert ids(another.table(str(folder(table)))) == Counter(expected)
    checked = table.check()
    assert checked["num-errors"] == 0
    assert [each for each in checked["findings"] if each["fixed-in"] is None] == []


@pytest.fixture
def make(lake, tmp_path):
    def made(properties=VECTORS, ids=range(10), **options):
        table = lake.create_table(
            tmp_path / "people", "id long, name string", name="people", properties=properties, **options
        )
        table.append([{"id": n, "name": f"n{n}"} for n in ids])
        return table

    return made


@pytest.fixture
def people(make):
    """Ids 3 to 9; the file has a deletion vector of three rows."""
    table = make()
    table.delete("id < 3")
    return table


# --- removes and adds ---------------------------------------------------------------------------------------


def test_a_remove_without_its_vector(people):
    foreign(people, "DELETE", removing(only_add(people)))
    people.append([{"id": 20, "name": "n20"}])
    assert ids(people) == Counter([*range(3, 10), 20])

    assert_repaired(people, [20], "remove-file")


def test_a_rewrite_that_forgot_the_vector_in_its_remove(people):
    """It says what it read; its new file has no row that was deleted then."""
    read = newest(people)
    old = only_add(people)
    people.append([{"id": n, "name": f"m{n}"} for n in range(3, 10)])
    (new,) = [add for path, add in adds(people).items() if path != old["path"]]
    copy = new | {"path": "copy.parquet"}
    shutil.copy(folder(people) / new["path"], folder(people) / "copy.parquet")
    foreign(people, "UPDATE", removing(new), removing(old), {"add": copy}, read_version=read)

    assert_repaired(people, range(3, 10), "remove-file")


def test_a_rewrite_that_may_have_copied_deleted_rows_is_left(people):
    old = only_add(people)
    shutil.copy(folder(people) / old["path"], folder(people) / "copy.parquet")
    copy = {name: value for name, value in old.items() if name not in ("deletionVector", "stats")}
    foreign(people, "OPTIMIZE", removing(old), {"add": copy | {"path": "copy.parquet"}})

    done = people.repair()

    assert (done["result"], done["num-repaired"]) == ("nothing-to-do", 0)
    (left,) = done["unrepaired"]
    assert left["invariant"] == "remove-with-its-vector"
    assert "it is unknown whether" in left["reason"]


def test_a_file_that_was_changed_after_its_remove_failed_is_left(people):
    foreign(people, "DELETE", removing(only_add(people)))
    people.delete("id = 5")

    (left,) = people.repair()["unrepaired"]

    assert "changed the file" in left["reason"]
    assert ids(people) == Counter([3, 4, 6, 7, 8, 9])


def test_a_delete_that_forgot_the_vector_in_its_remove(people):
    old = only_add(people)
    foreign(people, "DELETE", removing(old), marking(old, [0, 1, 2, 5]))
    assert by_deltalake(people).total() > ids(people).total() == 6

    assert_repaired(people, [3, 4, 6, 7, 8, 9], "remove-stale-file")
    assert [
        action["remove"]["dataChange"] for action in actions(people, newest(people)) if "remove" in action
    ] == [False]


def test_a_path_that_is_live_twice(people):
    foreign(people, "DELETE", marking(only_add(people), [0, 1, 2, 9]))

    assert_repaired(people, range(3, 9), "remove-stale-file")


def test_changes_after_the_damage_stay(people):
    foreign(people, "DELETE", marking(only_add(people), [0, 1, 2, 9]))
    people.delete("id = 4")
    people.update({"name": "'new'"}, "id = 5")

    assert_repaired(people, [3, 5, 6, 7, 8], "remove-stale-file")


def test_a_path_whose_newer_file_is_gone(people):
    foreign(people, "DELETE", marking(only_add(people), [0, 1, 2, 9]))
    people.delete("id > 0")
    assert by_deltalake(people) == Counter(range(3, 10))

    assert_repaired(people, [], "remove-stale-file")


def test_two_deletes_that_did_not_know_each_other(make):
    """Rows of both are deleted; the second logical file is removed in a later version."""
    table = make()
    whole = only_add(table)
    table.delete("id < 3")
    foreign(table, "DELETE", removing(whole), marking(whole, [2, 7, 8]), read_version=1)
    assert ids(table) == Counter([0, 1, 3, 4, 5, 6, 9])

    done = assert_repaired(table, [3, 4, 5, 6, 9], "merge-deletion-vectors", num_versions=2)
    assert done["operation-metrics"]["numDeletionVectorsAdded"] == 1


def test_a_crash_between_the_two_versions_loses_nothing(make, monkeypatch):
    table = make()
    whole = only_add(table)
    table.delete("id < 3")
    foreign(table, "DELETE", removing(whole), marking(whole, [7, 8]), read_version=1)
    with monkeypatch.context() as once:
        once.setattr(repairing, "_ATTEMPTS", 1)
        table.repair()
    assert ids(table) == Counter([3, 4, 5, 6, 9])

    assert_repaired(table, [3, 4, 5, 6, 9], "remove-stale-file")


def test_an_update_that_did_not_know_of_a_delete_is_left_where_both_touched_a_row(make):
    table = make()
    whole = only_add(table)
    table.delete("id < 3")
    foreign(table, "UPDATE", removing(whole), marking(whole, [2, 7]), read_version=1)

    (left,) = table.repair()["unrepaired"]

    assert "contains the other" in left["reason"]


def test_a_path_that_is_live_three_times_takes_two_versions(people):
    old = only_add(people)
    foreign(people, "DELETE", marking(old, [0, 1, 2, 9]))
    foreign(people, "DELETE", marking(old, [0, 1, 2, 8, 9]))

    assert_repaired(people, range(3, 8), "remove-stale-file", num_versions=2)


def test_a_restore_that_forgot_its_remove(make):
    table = make()
    table.delete("id < 3")
    before = only_add(table)
    table.delete("id < 5")
    foreign(table, "RESTORE", {"add": before})

    assert_repaired(table, range(3, 10), "remove-stale-file")


# --- deletion vectors ---------------------------------------------------------------------------------------


def test_a_lost_vector_that_was_written_again(make):
    table = make()
    table.delete("id < 3")
    old = only_add(table)
    again = inline(BitMap64([0, 1, 2])).to_json()
    lost = Descriptor.from_json(again)
    lost = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": lost.size_in_bytes,
        "cardinality": 3,
    }
    removed = removing(old, old["deletionVector"])
    removed["remove"]["dataChange"] = False
    foreign(table, "OPTIMIZE", removed, {"add": old | {"deletionVector": lost, "dataChange": False}})

    done = assert_repaired(table, range(3, 10), "rewrite-deletion-vector")
    assert "older vector" in done["repaired"][0]["reason"]


def test_a_lost_vector_that_the_change_feed_tells(make):
    table = make(FEED)
    table.delete("id < 2")
    table.update({"name": "'new'"}, "id >= 8")
    before = ids(table)
    (marked,) = [add for add in adds(table).values() if "deletionVector" in add]
    vector_file(table, marked).unlink()

    done = assert_repaired(table, before, "rewrite-deletion-vector")
    assert "change data feed" in done["repaired"][0]["reason"]
    assert {row["name"] for row in table.to_arrow().to_pylist() if row["id"] >= 8} == {"new"}


def test_a_lost_vector_is_left_where_more_rows_look_deleted_than_were(make):
    table = make(FEED, ids=[1, 2, 2, 3])
    old = only_add(table)
    (folder(table) / "_change_data").mkdir()
    name = "_change_data/cdc.parquet"
    changed = pa.table({"id": pa.array([2], pa.int64()), "name": ["n2"], "_change_type": ["delete"]})
    pq.write_table(changed, folder(table) / name)
    lost = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 40,
        "cardinality": 1,
    }
    file = {"path": name, "partitionValues": {}, "size": 1000, "dataChange": False}
    stats = json.dumps(json.loads(old["stats"]) | {"tightBounds": False})
    foreign(
        table, "DELETE", removing(old), {"add": old | {"deletionVector": lost, "stats": stats}}, {"cdc": file}
    )

    (left,) = table.repair()["unrepaired"]

    assert left["invariant"] == "readable-vector"
    assert "2 rows of the file match those" in left["reason"]


def test_a_lost_vector_is_left_where_the_feed_has_no_files(make):
    table = make(FEED)
    table.update({"name": "'new'"}, "id = 3")
    table.delete("id = 1")  # by deletion vector
    (marked,) = [add for add in adds(table).values() if "deletionVector" in add]
    vector_file(table, marked).unlink()

    (left,) = table.repair()["unrepaired"]

    assert left["invariant"] == "readable-vector"
    assert "change data feed has no files" in left["reason"]


def test_a_lost_vector_is_left_where_nothing_tells_its_rows(people):
    vector_file(people, only_add(people)).unlink()

    done = people.repair()

    assert done["result"] == "nothing-to-do"
    assert [each["invariant"] for each in done["unrepaired"]] == ["readable-vector"]


# --- data files ---------------------------------------------------------------------------------------------


def test_missing_data_files_go_only_where_that_is_asked_for(people):
    people.append([{"id": 20, "name": "n20"}])
    (lost,) = [add for add in adds(people).values() if "deletionVector" in add]
    (folder(people) / lost["path"]).unlink()

    kept = people.repair()
    assert kept["result"] == "nothing-to-do"
    assert "7 rows" in kept["unrepaired"][0]["reason"]

    planned = people.repair(dry_run=True, drop_missing_files=True)
    assert (planned["result"], planned["num-lost-rows"]) == ("dry-run", 7)
    done = people.repair(drop_missing_files=True)
    assert (done["num-lost-rows"], done["operation-metrics"]["numRemovedFiles"]) == (7, 1)
    assert "7 rows" in done["repaired"][0]["repair"]
    assert_right(people, [20])
    assert people.repair(drop_missing_files=True)["result"] == "nothing-to-do"


def test_a_table_that_only_grows_lets_no_file_go(make):
    table = make({**VECTORS, "delta.appendOnly": "true"})
    (folder(table) / only_add(table)["path"]).unlink()

    with pytest.raises(delvec.AppendOnlyTable):
        table.repair(drop_missing_files=True)


# --- statistics, features, row ids --------------------------------------------------------------------------


def test_a_count_of_the_rows_that_are_left(people):
    old = only_add(people)
    foreign(people, "COMPUTE STATS", marking(old, [0, 1, 2], numRecords=7) | {})
    add = only_add(people)
    foreign(people, "FIX", removing(old, old["deletionVector"]), {"add": add})

    done = people.repair()

    assert {each["action"] for each in done["repaired"]} >= {"correct-statistics"}
    assert json.loads(only_add(people)["stats"])["numRecords"] == 10
    assert_right(people, range(3, 10))
    people.delete("id = 9")
    assert ids(people) == Counter(range(3, 9))


@pytest.mark.parametrize("stats", [None, "{}", "nonsense"])
def test_a_count_that_is_not_there(people, stats):
    old = only_add(people)
    foreign(people, "STATS", {"add": old | {"stats": stats}})

    assert_repaired(people, range(3, 10), "correct-statistics")
    found = json.loads(only_add(people)["stats"])
    assert (found["numRecords"], found["tightBounds"]) == (10, False)


def test_bounds_that_claim_to_be_reached(people):
    old = only_add(people)
    foreign(
        people,
        "STATS",
        {"add": old | {"stats": json.dumps(json.loads(old["stats"]) | {"tightBounds": True})}},
    )

    assert_repaired(people, range(3, 10), "correct-statistics")


def test_vectors_without_their_table_feature(make):
    table = make({"delta.enableDeletionVectors": "false"})
    old = only_add(table)
    foreign(table, "DELETE", removing(old), marking(old, [0]))

    assert_repaired(table, range(1, 10), "add-table-feature")
    assert "deletionVectors" in table.snapshot().protocol["readerFeatures"]


def test_a_file_without_row_ids(make):
    table = make(TRACKED)
    old = only_add(table)
    shutil.copy(folder(table) / old["path"], folder(table) / "other.parquet")
    names = ("baseRowId", "defaultRowCommitVersion")
    bare = {name: value for name, value in old.items() if name not in names} | {"path": "other.parquet"}
    foreign(table, "WRITE", {"add": bare})

    assert_repaired(table, [*range(10), *range(10)], "assign-row-ids")
    assert sorted(add["baseRowId"] for add in adds(table).values()) == [0, 10]


# --- as a whole ---------------------------------------------------------------------------------------------


def test_several_findings_are_repaired_in_one_commit(make):
    table = make(FEED, partition_by=["name"])
    first, second, third, *_ = sorted(adds(table).values(), key=lambda add: add["partitionValues"]["name"])
    foreign(table, "DELETE", marking(first, [0]))
    foreign(table, "STATS", removing(second), marking(second, [], numRecords=5))
    (folder(table) / third["path"]).unlink()

    done = table.repair(drop_missing_files=True)

    assert len(done["versions"]) == 1
    assert {each["action"] for each in done["repaired"]} == {
        "remove-stale-file",
        "drop-missing-file",
        "correct-statistics",
    }
    assert_right(table, [1, 3, 4, 5, 6, 7, 8, 9])


def test_a_repair_can_be_undone(people):
    foreign(people, "DELETE", removing(only_add(people)))
    before = newest(people)
    people.repair()
    assert ids(people) == Counter()

    people.restore(before)

    assert ids(people) == by_deltalake(people) == Counter(range(3, 10))


def test_a_file_that_is_changed_meanwhile_is_planned_again(people, monkeypatch):
    foreign(people, "DELETE", marking(only_add(people), [0, 1, 2, 9]))
    planned, plan = [], repairing.plan_repair

    def interrupted(*args, **options):
        found = plan(*args, **options)
        planned.append(found.version)
        if len(planned) == 1:
            people.delete("id = 4")
        return found

    monkeypatch.setattr(repairing, "plan_repair", interrupted)

    done = people.repair()

    assert planned == [3, 4]
    assert done["version"] == 5
    monkeypatch.undo()
    assert_right(people, [3, 5, 6, 7, 8])


@pytest.mark.parametrize(("predicate", "left"), [("id = 4", [3, 5, 6, 7, 8]), ("true", []), ("id >= 0", [])])
def test_deletes_that_lose_a_race_against_a_repair_take_their_rows(people, monkeypatch, predicate, left):
    """Concurrent removes of the path refer to another logical file than the one that the repair removes."""
    foreign(people, "DELETE", marking(only_add(people), [0, 1, 2, 9]))
    commit, started = Commits.commit, []

    def late(self, table, changes):
        if changes.operation == "DELETE" and not started:
            started.append(changes)
            people.repair()
        return commit(self, table, changes)

    monkeypatch.setattr(Commits, "commit", late)

    people.delete(predicate)

    assert started
    assert_right(people, left)


def test_a_repair_that_another_repair_overtakes_finds_nothing(people, monkeypatch):
    foreign(people, "DELETE", marking(only_add(people), [0, 1, 2, 9]))
    commit, started = Commits.commit, []

    def late(self, table, changes):
        if not started:
            started.append(changes)
            people.repair()
        return commit(self, table, changes)

    monkeypatch.setattr(Commits, "commit", late)

    assert people.repair()["result"] == "nothing-to-do"
    assert newest(people) == 4
    assert_right(people, range(3, 9))


def test_checkpoints_and_vacuum_after_a_repair_keep_what_is_live(people):
    foreign(people, "DELETE", marking(only_add(people), [0, 1, 2, 9]))
    people.repair()
    people.checkpoint()
    for version in range(newest(people)):
        (folder(people) / "_delta_log" / f"{version:020d}.json").unlink()

    people.vacuum(0, enforce_retention_duration=False)

    assert_right(people, range(3, 9))


def test_what_others_do_to_other_files_is_no_conflict(people, monkeypatch):
    foreign(people, "DELETE", removing(only_add(people)))
    planned, plan = [], repairing.plan_repair

    def interrupted(*args, **options):
        found = plan(*args, **options)
        planned.append(found.version)
        people.append([{"id": 30, "name": "n30"}])
        return found

    monkeypatch.setattr(repairing, "plan_repair", interrupted)

    done = people.repair()

    assert (len(planned), done["version"]) == (1, 5)
    monkeypatch.undo()
    assert_right(people, [30])


def test_a_table_that_is_changed_all_the_time_is_a_conflict(people, monkeypatch):
    foreign(people, "DELETE", marking(only_add(people), [0, 1, 2, 9]))
    plan = repairing.plan_repair

    def interrupted(*args, **options):
        found = plan(*args, **options)
        people.alter.set_properties({"a": str(found.version)})
        return found

    monkeypatch.setattr(repairing, "plan_repair", interrupted)
    monkeypatch.setattr(repairing, "_ATTEMPTS", 3)

    with pytest.raises(delvec.ConcurrentModification):
        people.repair()


def test_a_sound_table_has_nothing_to_repair(people):
    for options in ({}, {"dry_run": True}, {"drop_missing_files": True}):
        done = people.repair(**options)
        assert (done["result"], done["num-repaired"], done["unrepaired"]) == ("nothing-to-do", 0, [])
    assert_sound(folder(people))


def test_a_log_that_cannot_be_read_is_told_and_left(people):
    add = only_add(people)
    foreign(people, "TWICE", {"add": add | {"path": "a"}}, {"add": add | {"path": "a"}})

    with delvec.connect() as another:
        done = another.table(str(folder(people))).repair()

    assert done["result"] == "nothing-to-do"
    assert {each["invariant"] for each in done["unrepaired"]} == {"one-action-per-file", "readable-table"}


@pytest.mark.parametrize(
    ("feature", "lists", "error"),
    [
        ("someDay", ["writerFeatures"], "UnsupportedWriterFeature"),
        ("catalogManaged", ["readerFeatures", "writerFeatures"], "UnsupportedTable"),
    ],
)
def test_a_table_that_must_not_be_written_is_left(people, feature, lists, error):
    protocol = next(action for action in actions(people, 0) if "protocol" in action)
    for name in lists:
        protocol["protocol"][name].append(feature)
    before = foreign(people, "DELETE", marking(only_add(people), [0, 1, 2, 9]), protocol)

    for options in ({}, {"dry_run": True}):
        with pytest.raises(getattr(delvec, error)):
            people.repair(**options)
    assert newest(people) == before


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"x" * 100 + b"\x10\0\0\0PAR1"])
def test_files_that_are_no_parquet_are_told_and_left(people, content):
    add = only_add(people)
    foreign(people, "WRITE", {"add": add | {"size": len(content)}})
    (folder(people) / add["path"]).write_bytes(content)

    done = people.repair(drop_missing_files=True)

    assert done["result"] == "nothing-to-do"
    assert [each["invariant"] for each in done["unrepaired"]] == ["data-file"]


@pytest.mark.parametrize("damaged", ["data", "change"])
def test_a_lost_vector_is_left_where_what_would_tell_its_rows_is_damaged(make, damaged):
    table = make(FEED)
    table.update({"name": "'new'"}, "id >= 8")
    (marked,) = [add for add in adds(table).values() if "deletionVector" in add]
    (change,) = [action["cdc"] for action in actions(table, newest(table)) if "cdc" in action]
    vector_file(table, marked).unlink()
    path = folder(table) / (marked if damaged == "data" else change)["path"]
    path.write_bytes(b"x" * path.stat().st_size)

    left = {each["invariant"]: each["reason"] for each in table.repair()["unrepaired"]}

    assert "cannot be read" in left["readable-vector"]


def test_iceberg_readers_see_a_repaired_table(people):
    """One logical file goes and another comes back with other statistics: the numbers of files agree by accident."""
    people.append([{"id": n, "name": f"n{n}"} for n in range(21, 27)])
    people.delete("id in (21, 22, 23, 24)")
    first, second = [add for add in adds(people).values() if "deletionVector" in add]
    foreign(people, "DELETE", marking(first, [*range(4)]))
    stats = json.dumps(json.loads(second["stats"]) | {"tightBounds": True})
    foreign(people, "STATS", {"add": second | {"stats": stats}})
    people.to_iceberg()
    assert people.repair()["num-repaired"] == 2

    shown = people.to_iceberg()

    summary = json.loads(Path(unquote(urlsplit(shown["metadata-location"]).path)).read_text())
    (current,) = [one for one in summary["snapshots"] if one["snapshot-id"] == summary["current-snapshot-id"]]
    assert int(current["summary"]["total-data-files"]) == people.snapshot().num_files
    rows = StaticTable.from_metadata(shown["metadata-location"]).scan().to_arrow()
    assert Counter(rows["id"].to_pylist()) == ids(people)


# --- doors --------------------------------------------------------------------------------------------------


def test_by_sql(lake, people):
    foreign(people, "DELETE", marking(only_add(people), [0, 1, 2, 9]))
    statement = "FSCK REPAIR TABLE people METADATA ONLY"

    (planned,) = lake.sql(f"{statement} DRY RUN").to_pylist()
    assert (planned["action"], planned["repaired"]) == ("remove-stale-file", False)
    (done,) = lake.sql(statement).to_pylist()
    assert (done["action"], done["repaired"]) == ("remove-stale-file", True)
    assert lake.sql(statement).num_rows == 0
    (folder(people) / only_add(people)["path"]).unlink()
    assert [row["repaired"] for row in lake.sql(statement).to_pylist()] == [False]
    lake.sql("fsck repair table people")
    assert_right(people, [])
    with pytest.raises(delvec.BadRequest):
        lake.sql("FSCK REPAIR people")


def test_by_the_shell(people, capsys):
    add = only_add(people)
    foreign(people, "DELETE", marking(add, [0, 1, 2, 9]))
    where = str(folder(people))

    assert shell("repair", where, "--dry-run") == 0
    assert "remove" in capsys.readouterr().out.lower()
    assert shell("--json", "repair", where) == 0
    assert json.loads(capsys.readouterr().out)["num-repaired"] == 1
    (folder(people) / add["path"]).unlink()
    assert shell("repair", where) == 1
    assert "data-file" in capsys.readouterr().out
    assert shell("repair", where, "--drop-missing-files") == 0
    assert shell("check", where) == 0


def shell(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


# --- random damage ------------------------------------------------------------------------------------------


class Damage:
    """Damages a table as buggy writers would, and records the correct rows."""

    def __init__(self, table, seed):
        self.table = table
        self.random = random.Random(seed)
        self.ids = set(range(40))
        self.hurt = set()

    def rows_of(self, add):
        gone = set()
        if "deletionVector" in add:
            gone = set(BitMap64(self._vector(add)))
        first = int(add["partitionValues"]["name"])
        return {first * 10 + row for row in range(10) if row not in gone}, gone

    def _vector(self, add):
        found = Descriptor.from_json(add["deletionVector"])
        return read_deletion_vectors(self.table.location, [(add["path"], found)], table="t", version=None)[
            add["path"]
        ]

    def step(self):
        whole = [add for path, add in adds(self.table).items() if path not in self.hurt]
        if not whole:
            return
        add = self.random.choice(whole)
        live, gone = self.rows_of(add)
        kinds = ["delete", "twice", "forgot", "missed", "count", "bounds", "lost", "unknown"]
        kind = self.random.choice(kinds)
        some = set(self.random.sample(sorted(live), min(2, len(live))))
        marked = gone | {each % 10 for each in some}
        if kind == "delete" or len(marked) == 10:
            if some:
                self.table.delete(f"id in ({', '.join(map(str, some))})")
                self.ids -= some
            return
        self.hurt.add(add["path"])
        if kind == "twice":
            foreign(self.table, "DELETE", marking(add, marked))
            self.ids -= some
        elif kind == "forgot":
            foreign(self.table, "DELETE", removing(add), marking(add, marked))
            self.ids -= some
        elif kind == "lost" and gone:
            removed = removing(add, add["deletionVector"])
            removed["remove"]["dataChange"] = False
            again = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": len(self.hurt)}
            vector = again | {"sizeInBytes": 40, "cardinality": len(gone)}
            foreign(
                self.table,
                "OPTIMIZE",
                removed,
                {"add": add | {"deletionVector": vector, "dataChange": False}},
            )
        elif kind in ("lost", "unknown"):
            # Two concurrent deletes that do not know of each other.
            other = set(self.random.sample(sorted(live), min(3, len(live))))
            self.table.delete(f"id in ({', '.join(map(str, other))})")
            foreign(self.table, "DELETE", removing(add, add.get("deletionVector")), marking(add, marked))
            self.ids -= some | other
        elif kind == "missed":
            foreign(self.table, "DELETE", removing(add))
            self.ids -= live
        elif kind == "count":
            foreign(
                self.table,
                "DELETE",
                removing(add, add.get("deletionVector")),
                marking(add, marked, numRecords=10 - len(marked)),
            )
            self.ids -= some
        else:
            foreign(
                self.table,
                "DELETE",
                removing(add, add.get("deletionVector")),
                marking(add, marked, tightBounds=True),
            )
            self.ids -= some


@pytest.mark.parametrize("seed", range(12))
def test_random_damage(lake, tmp_path, seed):
    table = lake.create_table(
        tmp_path / "t", "id long, name string", partition_by=["name"], properties=VECTORS
    )
    for part in range(4):
        table.append([{"id": part * 10 + n, "name": str(part)} for n in range(10)])
    damage = Damage(table, seed)
    for _ in range(8):
        damage.step()

    done = table.repair()

    assert done["unrepaired"] == []
    assert_right(table, damage.ids)
    assert table.repair()["result"] == "nothing-to-do"
