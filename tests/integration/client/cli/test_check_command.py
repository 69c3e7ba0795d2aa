"""``delvec check`` and ``DeltaTable.check()``: findings, output and exit codes."""

import json

import pyarrow as pa
import pytest

import delvec
from delvec.cli import main


@pytest.fixture
def people(tmp_path):
    with delvec.connect() as lake:
        table = lake.create_table(str(tmp_path / "people"), pa.schema([("id", pa.int64())]))
        table.append(pa.table({"id": [1, 2, 3]}))
        table.delete("id = 2")
    return tmp_path / "people"


@pytest.fixture
def run(capsys):
    """Return the exit code, standard output and standard error of a command."""

    def command(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return ended.value.code, *capsys.readouterr()

    return command


def lose_the_data(people):
    (lost,) = people.glob("*.parquet")
    lost.unlink()
    return lost.name


def test_a_sound_table_is_called_sound(people, run):
    with delvec.connect() as lake:
        found = lake.table(str(people)).check()
    assert (found["num-errors"], found["num-data-files"], found["num-deletion-vectors"]) == (0, 1, 1)
    code, out, err = run("check", people)
    assert (code, out) == (0, "")
    assert "checked 3 commits, 1 data file, 1 deletion vector" in err
    assert "0 errors, 0 warnings, 0 orphans" in err


def test_damage_is_shown_and_is_exit_code_1(people, run):
    lost = lose_the_data(people)

    code, out, err = run("check", people)

    assert code == 1
    assert out.split()[:5] == ["severity", "invariant", "version", "file", "message"]
    assert "data-file  " in out
    assert f"File '{lost}' of version 2 does not exist in storage" in out
    assert "1 errors" in err
    assert run("check", people, "--no-data-files")[0] == 0


def test_programs_get_json_and_the_same_exit_code(people, run):
    lost = lose_the_data(people)

    code, out, _ = run("check", people, "--json")

    assert code == 1
    assert [entry["file"] for entry in json.loads(out)["findings"]] == [lost]


def test_published_iceberg_metadata_is_checked_where_asked(people, run):
    assert "no Iceberg metadata is published" in run("check", people, "--iceberg")[2]
    assert run("iceberg", "convert", people, "--format-version", "3")[0] == 0
    code, out, err = run("check", people, "--iceberg")
    assert (code, out) == (0, "")
    assert "checked Iceberg format version 3 of Delta version 2: 1 data file, 1 with deletes" in err

    [lost] = (people / "_iceberg" / "v3" / "deletes").iterdir()
    lost.unlink()

    assert run("check", people)[0] == 0
    code, out, err = run("check", people, "--iceberg")
    assert code == 1
    assert "iceberg-delete-file" in out
    assert lost.name in out
    assert "1 errors" in err
    code, out, _ = run("check", people, "--iceberg", "--json")
    assert code == 1
    assert [one["format-version"] for one in json.loads(out)["iceberg"]] == [3]
