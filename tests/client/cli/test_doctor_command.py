"""``delvec doctor``: its findings and its advice."""

import json

import pytest

from delvec.cli import run
from delvec_kernel.storage import files


@pytest.fixture
def doctor(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DELVEC_ROOTS", str(tmp_path / "lake"))
    monkeypatch.setenv("DELVEC_DATABASE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    (tmp_path / "lake").mkdir()

    def examine(**settings):
        for name, value in settings.items():
            monkeypatch.setenv(f"DELVEC_{name.upper()}", value)
        code = run(["--json", "doctor"])
        said = json.loads(capsys.readouterr().out)
        assert said["ok"] is (code == 0)
        return code, {one["check"]: one for one in said["findings"]}

    return examine


def test_a_machine_that_can_serve_is_told_so_and_keeps_nothing_of_it(doctor, tmp_path, capsys):
    code, found = doctor()

    assert code == 0
    assert {
        one: found[one]["state"] for one in ("configuration", "database", "storage", "clock", "put-if-absent")
    } == (dict.fromkeys(("configuration", "database", "storage", "clock", "put-if-absent"), "ok"))
    assert {"java", "pyspark"} <= found.keys()
    assert list((tmp_path / "lake").iterdir()) == []
    assert run(["doctor"]) == 0
    assert "put-if-absent" in capsys.readouterr().out


def test_settings_that_mean_nothing_are_named_without_their_values(doctor):
    code, found = doctor(port="a-secret")

    assert code == 1
    assert found["configuration"]["found"].startswith("DELVEC_PORT:")
    assert "a-secret" not in json.dumps(found)


def test_what_would_be_refused_at_the_start_is_a_finding(doctor):
    code, found = doctor(host="0.0.0.0")  # nobody listens

    assert code == 1
    assert "DELVEC_TOKEN" in found["configuration"]["found"]


def test_a_database_that_does_not_answer_is_a_finding(doctor, tmp_path):
    code, found = doctor(database_url=f"postgresql://delvec:s3cret@/x?host={tmp_path}")

    assert code == 1
    assert found["database"]["state"] == "failed"
    assert "s3cret" not in json.dumps(found)


def test_a_store_whose_condition_is_dropped_is_found_out(doctor, monkeypatch):
    def put(location, path, data, **options):
        files.write_file(location, path, data, allowed=options["allowed"])
        return True

    monkeypatch.setattr(files, "create_file", put)
    code, found = doctor()

    assert code == 1
    assert "8 were told" in found["put-if-absent"]["found"]


def test_a_root_that_is_a_file_is_a_finding(doctor, tmp_path):
    (tmp_path / "file").write_text("")
    code, found = doctor(roots=str(tmp_path / "file"))

    assert code == 1
    assert found["storage"]["state"] == "failed"
