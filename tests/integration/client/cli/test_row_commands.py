"""`delvec update` and `delvec merge`, the groups of `--help`, and what `serve` refuses."""

import csv
import json

import pytest

import delvec
from delvec.cli import main


@pytest.fixture
def misused(capsys):
    def command(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert ended.value.code == 2
        return capsys.readouterr().err

    return command


@pytest.fixture
def people(tmp_path):
    with delvec.connect(tmp_path, database_url="sqlite://") as lake:
        table = lake.create_table("people", "id long, name string, age int")
        table.append([{"id": 1, "name": "Ada", "age": 36}, {"id": 2, "name": "Bob", "age": 17}])
    return str(tmp_path / "people")


def read(run, table):
    done = run("read", table, "--output", "-", "--format", "json")
    return sorted(tuple(row.values()) for row in json.loads(done.out))


def test_update(run, misused, people):
    done = run("update", people, "--set", "age = age + 1", "--set", "name='=x'", "--where", "id = 2")
    assert "updated 1 row in version 2" in done.err
    assert read(run, people) == [(1, "Ada", 36), (2, "=x", 18)]
    run("update", people, "--set", "age=0", "--all", "--dry-run")
    assert read(run, people)[1][2] == 18
    assert "COLUMN=VALUE" in misused("update", people, "--set", "age", "--all")
    assert "--where" in misused("update", people, "--set", "age=1")


def test_text_for_the_history(run, people, tmp_path):
    (tmp_path / "new.json").write_text('[{"id": 1, "name": "A", "age": 1}]')
    run("update", people, "--set", "age = 1", "--where", "id = 2", "--user-metadata", "corrected")
    run("delete", people, "--where", "id = 2", "--user-metadata", "left")
    run("merge", people, tmp_path / "new.json", "--on", "id", "--user-metadata", "nightly")
    entries = json.loads(run("history", people, "--limit", "3", "--json").out)
    assert [entry["userMetadata"] for entry in entries] == ["nightly", "left", "corrected"]


def test_merge(run, people, tmp_path):
    file = tmp_path / "changes.csv"
    with file.open("w") as text:
        csv.writer(text).writerows([("id", "name", "age"), (2, "Bo", 18), (3, "Cy", 70)])
    run("merge", people, str(file), "--on", "id", "--no-insert", "--dry-run")
    done = run("merge", people, str(file), "--on", "id")
    assert "updated 1 row, inserted 1 row, deleted 0 rows in version 2" in done.err
    assert read(run, people) == [(1, "Ada", 36), (2, "Bo", 18), (3, "Cy", 70)]
    condition = "target.id = source.id AND source.id > 2"
    run("merge", people, str(file), "--on", condition, "--no-insert", "--delete-missing")
    assert read(run, people) == [(3, "Cy", 70)]


def test_help_has_groups(run):
    shown = run("--help").out
    assert [name in shown for name in ("Rows", "Looking after tables", "The service")] == [True] * 3


def test_serve_refuses_a_root_that_does_not_exist(misused, tmp_path):
    assert "nowhere is not a directory" in " ".join(misused("serve", "--roots", tmp_path / "nowhere").split())
