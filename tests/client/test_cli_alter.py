"""``delvec alter``: a table changed from the shell."""

import json

import pytest

from delvec.cli import main


@pytest.fixture
def alter(capsys, tmp_path):
    """Runs ``delvec alter CHANGE people …``; returns code, output and errors."""

    def run(command, *arguments, first="alter"):
        words = [first, command, tmp_path / "people", *arguments] if first else [command, *arguments]
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    assert run("create", tmp_path / "people", "--schema", "id long, name string", first=None)[0] == 0
    return run


def test_each_change_is_a_command_and_a_version(alter):
    commands = [
        ("set", "delta.columnMapping.mode=name", "delta.enableTypeWidening=true", "team=red"),
        ("add-columns", "age int, home struct<city: string>", "--after", "id"),
        ("add-columns", "zip int", "--into", "home"),
        ("change-type", "age", "bigint"),
        ("rename-column", "name", "full name"),
        ("drop-columns", "home.city"),
        ("move-column", "home", "--first"),
        ("comment", "the key", "--column", "id"),
        ("comment", "people"),
        ("not-null", "id"),
        ("not-null", "id", "--drop"),
        ("add-constraint", "grown", "age >= 18"),
        ("drop-constraint", "grown"),
        ("unset", "team"),
        ("default", "`full name`", "'nobody'"),
        ("default", "`full name`"),
        ("add-feature", "v2Checkpoint"),
        ("drop-feature", "appendOnly"),
        ("upgrade-protocol", "1", "4"),
        ("cluster-by", "id", "age"),
        ("cluster-by",),
    ]
    for version, command in enumerate(commands, start=1):
        code, _, err = alter(*command)
        assert code == 0, (command, err)
        assert f"in version {version} of table 'people'" in err


def test_a_program_reads_what_was_done(alter):
    code, out, _ = alter("add-columns", "age int", "--json")

    assert code == 0
    assert json.loads(out) == {"version": 1, "operation": "ADD COLUMNS"}


def test_nothing_to_do_is_said(alter):
    code, _, err = alter("set", "delta.enableDeletionVectors=true")

    assert code == 0
    assert "like that already" in err


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (("set", "delta.apendOnly=true"), 1, "did you mean delta.appendOnly"),
        (("set", "team"), 2, "KEY=VALUE"),
        (("rename-column", "name", "n"), 1, "delta.columnMapping.mode=name"),
        (("move-column", "name"), 2, "--first"),
        (("add-constraint", "c", "id"), 1, "id"),
        (("drop-constraint", "c"), 1, "no constraint 'c'"),
    ],
)
def test_what_cannot_be_done_is_one_line(alter, command, code, message):
    found, out, err = alter(*command)

    assert found == code
    assert message in err
    assert out == ""
