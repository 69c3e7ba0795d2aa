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
