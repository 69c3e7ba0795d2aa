"""``delvec database``: the SQL store without a service."""

import json

from delvec.cli import run
from delvec_service.store.models import REVISION


def test_migrate_makes_the_schema_and_says_its_revision(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DELVEC_DATABASE_URL", f"sqlite:///{tmp_path / 'store.db'}")

    assert run(["database", "migrate"]) == 0
    assert f"schema revision {REVISION}" in capsys.readouterr().err
    assert run(["--json", "database", "migrate"]) == 0
    assert json.loads(capsys.readouterr().out) == {"revision": REVISION}


def test_a_database_that_is_none_is_said_in_one_line(capsys):
    assert run(["database", "migrate", "--database-url", "mysql://somewhere"]) == 1
    assert "SQLite" in capsys.readouterr().err


def test_a_backup_is_private_whole_and_can_be_restored(tmp_path, capsys):
    source, target = (f"--database-url=sqlite:///{tmp_path / name}.db" for name in ("source", "target"))
    file = tmp_path / "backup.jsonl"
    assert run(["database", "migrate", source]) == 0

    assert run(["database", "backup", str(file), source]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert run(["database", "restore", str(file), target]) == 0
    assert run(["database", "backup", "-", target]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1]) == {"rows": 0}


def test_a_backup_of_no_database_leaves_no_file(tmp_path, capsys):
    assert (
        run(["database", "backup", str(tmp_path / "backup"), f"--database-url=sqlite:///{tmp_path / 'a.db'}"])
        == 1
    )
    assert "restart the service" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir() if "backup" in one.name] == []


def test_a_file_that_is_no_backup_is_refused(tmp_path, capsys):
    (tmp_path / "image").write_bytes(b"\xff\xfe\x00")
    assert (
        run(["database", "restore", str(tmp_path / "image"), f"--database-url=sqlite:///{tmp_path / 'a.db'}"])
        == 1
    )
    assert "backup" in capsys.readouterr().err


def test_waiting_ends_when_the_database_answers_or_the_time_is_over(tmp_path, capsys):
    assert run(["database", "wait", f"--database-url=sqlite:///{tmp_path / 'a.db'}"]) == 0
    away = f"--database-url=postgresql://delvec@/x?host={tmp_path}"
    assert run(["database", "wait", "--seconds", "0", away]) == 1
    assert "does not answer" in capsys.readouterr().err
