"""RESTORE in Python, SQL and the shell: rows, columns and the change feed match the restored version."""

import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import deltalake
import pyarrow as pa
import pytest
from tests.support.between import during_deletes
from tests.support.checked import assert_sound

import delvec
from delvec.cli import main
from delvec_service.commits.commit import Commits

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def people(lake, tmp_path):
    """Version 1 has ids 0 to 9, version 2 deletes three, version 3 adds a column and updates one row."""
    table = lake.create_table(tmp_path / "people", "id long, name string", name="people", properties=FEED)
    table.append([{"id": n, "name": f"n{n}"} for n in range(10)])
    table.delete("id < 3")
    with table.alter.together() as together:
        together.add_columns("age int")
    table.update({"name": "'Ada'", "age": "36"}, "id = 5")
    return table


def rows(table, version=None):
    return Counter(tuple(row.items()) for row in table.to_arrow(version=version).to_pylist())


def test_a_version(people):
    before = rows(people, 2)
    done = people.restore(2, user_metadata="a mistake")

    assert (done.version, done["numOfFilesAfterRestore"]) == (5, 1)
    assert rows(people) == before
    assert people.schema().names == ["id", "name"]
    newest = people.history(1)[0]
    assert (newest["operation"], newest["userMetadata"]) == ("RESTORE", "a mistake")
    assert people.restore(5).version is None
    people.restore(4)
    assert rows(people) == rows(people, 4)


@pytest.mark.parametrize("form", [str, lambda moment: moment, lambda moment: moment.replace(tzinfo=None)])
def test_a_time(people, form):
    stamp = next(entry["timestamp"] for entry in people.history() if entry["version"] == 2)

    done = people.restore(form(datetime.fromtimestamp(stamp / 1000, UTC)))

    assert done.version == 5
    assert rows(people) == rows(people, 2)


@pytest.mark.parametrize("target", [None, True, 1.5, -1, 99, "yesterday"])
def test_what_is_no_version(people, target):
    with pytest.raises((delvec.BadRequest, delvec.VersionNotFound)):
        people.restore(target)
    assert people.version() == 4


def test_a_version_in_quotes(people):
    with pytest.raises(delvec.BadRequest, match=r"a version is a number: restore\(2\)"):
        people.restore("2")


def test_a_dry_run(people):
    done = people.restore(1, dry_run=True)

    assert (done.version, done["numRestoredFiles"], people.version()) == (None, 1, 4)


def test_missing_files_are_listed(people, tmp_path):
    people.overwrite([{"id": 1, "name": "n"}])
    for vector in (tmp_path / "people").glob("deletion_vector_*.bin"):
        vector.unlink()

    with pytest.raises(delvec.MissingRestoreFiles, match="not be restored") as caught:
        people.restore(2)

    (missing,) = caught.value.details["missing"]
    assert missing["file"].endswith(".parquet")
    assert "deletion vector" in missing["problem"].lower()
    people.restore(1)
    assert people.count() == 10


def test_the_change_feed_has_the_rows_that_came_and_went(people):
    people.restore(1)

    feed = people.changes(5).to_pylist()
    kinds = Counter((row["_change_type"], row["id"]) for row in feed)
    assert kinds == Counter([("delete", 5), ("insert", 5), ("insert", 0), ("insert", 1), ("insert", 2)])


def test_deltalake_reads_what_is_restored(people, tmp_path):
    people.restore(2)

    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path / "people")))
    found = pa.table(builder.execute("select * from t").read_all())
    assert sorted(found["id"].to_pylist()) == list(range(3, 10))
    assert found.column_names == ["id", "name"]


# --- SQL ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "RESTORE TABLE people TO VERSION AS OF 2",
        "restore people to version as of 2;",
        "RESTORE TABLE delta.`{path}` TO VERSION AS OF 2",
        "RESTORE '{path}' TO VERSION AS OF 2",
        "RESTORE people TO TIMESTAMP AS OF '{time}'",
    ],
)
def test_sql(lake, people, tmp_path, text):
    stamp = next(entry["timestamp"] for entry in people.history() if entry["version"] == 2)
    moment = datetime.fromtimestamp(stamp / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")

    done = lake.sql(text.format(path=tmp_path / "people", time=moment))

    assert done.version == 5
    assert rows(people) == rows(people, 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("RESTORE people", "TO is expected"),
        ("RESTORE people TO 2", "VERSION is expected"),
        ("RESTORE people TO VERSION AS OF x", "a version is expected"),
        ("RESTORE people TO VERSION AS OF 1.5", "whole number"),
        ("RESTORE people TO VERSION AS OF 2 NOW", "the end"),
        ("RESTORE people VERSION AS OF 1 TO VERSION AS OF 2", "newest version"),
    ],
)
def test_bad_sql(lake, people, text, reason):
    with pytest.raises(delvec.InvalidStatement, match=reason):
        lake.sql(text)
    assert people.version() == 4


# --- the shell ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys):
    def command(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return ended.value.code, *capsys.readouterr()

    return command


def test_the_command(people, run, tmp_path):
    where = tmp_path / "people"

    code, out, err = run("restore", where, "--version", "1", "--dry-run")
    assert (code, out) == (0, "")
    assert "dry run: 1 file restored, 2 removed" in err
    code, out, err = run("restore", where, "--version", "2")
    assert (code, out) == (0, "")
    assert "restored table" in err
    code, out, err = run("restore", where, "--version", "5")
    assert "nothing committed" in err
    code, out, err = run("restore", where, "--timestamp", "2999-01-01", "--json")
    assert (code, json.loads(err)["error"]["type"]) == (1, "VersionNotFound")
    code, out, err = run("restore", where, "--version", "1", "--json")
    assert (code, json.loads(out)["version"]) == (0, 6)
    assert json.loads(out)["metrics"]["numOfFilesAfterRestore"] == 1
    assert run("restore", where)[0] == 2
    assert run("restore", where, "--version", "1", "--timestamp", "2026-01-01")[0] == 2


# --- random sequences -----------------------------------------------------------------------------------------------


class Sequence:
    """Random DML and RESTOREs of a table, with the expected rows of each version."""

    def __init__(self, lake, folder, seed):
        self.random = random.Random(seed)
        properties = {**FEED, "delta.enableRowTracking": self.random.choice(["true", "false"])}
        properties["delta.enableDeletionVectors"] = self.random.choice(["true", "true", "false"])
        if self.random.random() < 0.3:
            properties["delta.columnMapping.mode"] = "name"
        self.table = lake.create_table(
            folder, "id long, part string, v long", partition_by=["part"], properties=properties
        )
        self.rows = Counter()
        self.versions = {0: self.rows}

    def step(self):
        kind = self.random.choice(
            ["append", "append", "delete", "update", "overwrite", "properties", "restore", "restore"]
        )
        getattr(self, f"_{kind}")()
        self.versions[self.table.version()] = self.rows

    def _new(self):
        count = self.random.randint(1, 40)
        return [
            {
                "id": self.random.randrange(30),
                "part": self.random.choice("abc"),
                "v": self.random.randrange(5),
            }
            for _ in range(count)
        ]

    def _append(self):
        new = self._new()
        self.table.append(new)
        self.rows = self.rows + Counter(tuple(row.values()) for row in new)

    def _overwrite(self):
        new = self._new()
        self.table.overwrite(new)
        self.rows = Counter(tuple(row.values()) for row in new)

    def _delete(self):
        limit = self.random.randrange(30)
        self.table.delete(f"id < {limit} AND v = 1")
        self.rows = Counter({row: n for row, n in self.rows.items() if not (row[0] < limit and row[2] == 1)})

    def _update(self):
        limit = self.random.randrange(30)
        self.table.update({"v": "v + 1"}, f"id >= {limit}")
        changed = Counter()
        for (key, part, value), count in self.rows.items():
            changed[(key, part, value + (key >= limit))] += count
        self.rows = changed

    def _properties(self):
        if self.random.random() < 0.5:
            self.table.alter.enable_deletion_vectors()
        else:
            self.table.alter.set_properties({"team": str(self.random.randrange(3))})

    def _restore(self):
        version = self.random.choice(list(self.versions))
        before, latest = self.rows, self.table.version()
        done = self.table.restore(version)
        self.rows = self.versions[version]
        if done.version is None:
            assert version == latest
            return
        feed = self.table.changes(done.version).to_pylist()
        moved = Counter()
        for row in feed:
            moved[(row["id"], row["part"], row["v"])] += {"insert": 1, "delete": -1}[row["_change_type"]]
        expected = Counter(self.rows)
        expected.subtract(before)
        assert {row: n for row, n in moved.items() if n} == {row: n for row, n in expected.items() if n}
        metrics = self.table.detail()
        assert (metrics["numFiles"], metrics["sizeInBytes"]) == (
            done["numOfFilesAfterRestore"],
            done["tableSizeAfterRestore"],
        )

    def check(self):
        for version in self.random.sample(list(self.versions), min(4, len(self.versions))):
            found = Counter(tuple(row.values()) for row in self.table.to_arrow(version=version).to_pylist())
            assert found == self.versions[version], version
        assert Counter(tuple(row.values()) for row in self.table.to_arrow().to_pylist()) == self.rows


@pytest.mark.parametrize("seed", range(5))
def test_random_sequences_of_dml_and_restores(lake, tmp_path, seed):
    sequence = Sequence(lake, tmp_path / "t", seed)
    for _ in range(14):
        sequence.step()
    sequence.check()
    assert_sound(tmp_path / "t")


@pytest.mark.full("threads race until they have met often enough; test_random_sequences is the gate's")
def test_dml_and_restores_at_once_lose_and_repeat_no_row(lake, tmp_path):
    """Each version is the one before it and its own change, or the version that it restored: nothing in between."""
    table = lake.create_table(tmp_path / "t", "id long", name="raced", properties=FEED)
    table.append([{"id": n} for n in range(100)])
    others = lake.table("raced")
    until = time.monotonic() + 4

    def change(worker):
        count = 0
        while time.monotonic() < until:
            count += 1
            if worker == 0:
                with suppress(delvec.ConcurrentAppend):  # others may be quicker each time
                    others.restore(1)
            elif worker == 1:
                others.delete(f"id = {count % 100}")
            else:
                others.append([{"id": 1000 + count}])

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(change, worker) for worker in range(3)]:
            done.result()

    expected, restores = Counter(range(100)), 0
    for entry in sorted(table.history(), key=lambda each: each["version"])[2:]:
        version = entry["version"]
        for row in table.changes(version, version).to_pylist():
            expected[row["id"]] += {"insert": 1, "delete": -1}[row["_change_type"]]
        expected = +expected
        if entry["operation"] == "RESTORE":
            restores += 1
            assert expected == Counter(range(100)), version
    assert expected == Counter(table.to_arrow()["id"].to_pylist())
    assert restores
    assert_sound(tmp_path / "t")


@pytest.fixture
def replaced(lake, tmp_path):
    """No newer version needs the file of version 1."""
    table = lake.create_table(tmp_path / "replaced", "id long")
    table.append([{"id": n} for n in range(10)])
    table.overwrite([{"id": n} for n in range(20, 30)])
    return table


def test_a_vacuum_that_others_run_meanwhile_is_noticed(replaced, tmp_path, monkeypatch):
    """Between the check of the files and the commit."""
    commit, calls = Commits.commit, []

    def late(self, table, changes):
        if not calls:
            calls.append(changes.operation)
            other = deltalake.DeltaTable(str(tmp_path / "replaced"))
            assert other.vacuum(0, dry_run=False, enforce_retention_duration=False)
        return commit(self, table, changes)

    monkeypatch.setattr(Commits, "commit", late)
    with pytest.raises(delvec.MissingRestoreFiles):
        replaced.restore(1)
    assert calls == ["RESTORE"]
    assert rows(replaced) == rows(replaced, 2)
    assert replaced.check()["num-errors"] == 0


def test_a_vacuum_that_deletes_by_now_is_waited_for(replaced, monkeypatch):
    """Between VACUUM's read of the log and its deletes."""
    with during_deletes(monkeypatch, partial(replaced.restore, 1), seconds=0.5) as restores:
        assert replaced.vacuum(0, enforce_retention_duration=False)["num-files"] == 1
        with pytest.raises(delvec.MissingRestoreFiles):
            restores[0].result(60)
    assert rows(replaced) == rows(replaced, 2)
    assert replaced.check()["num-errors"] == 0
