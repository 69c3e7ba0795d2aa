"""``delvec doctor``: its findings and its advice."""

import json

import pytest

from delvec.cli import run
from delvec_storage import files


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
    assert found["configuration"]["found"].startswith("DELVEC_PORT: must be a valid integer")
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
        files.write_file(location, path, data, is_allowed=options["is_allowed"])
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


def test_a_root_inside_a_table_is_a_finding(doctor, tmp_path):
    (tmp_path / "orders" / "_delta_log").mkdir(parents=True)
    (tmp_path / "orders" / "lake").mkdir()
    code, found = doctor(roots=str(tmp_path / "orders" / "lake"))

    assert code == 1
    assert f"in the Delta table at file://{tmp_path}/orders," in found["storage"]["found"]


@pytest.mark.parametrize(
    ("settings", "check", "words"),
    [
        (
            {"ports": "1"},
            "variables",
            "DELVEC_PORTS is not a setting and has no effect; did you mean DELVEC_PORT?",
        ),
        ({"host": "203.0.113.7"}, "address", "cannot listen on '203.0.113.7'"),
        ({"host": "nowhere.invalid"}, "address", "cannot listen on 'nowhere.invalid'"),
        ({"roots": "/nowhere/lake"}, "storage", "the directory /nowhere/lake does not exist"),
        ({"roots": "/tmp/" + "x" * 300}, "storage", "File name too long"),
        ({"roots": '["/data"'}, "configuration", "DELVEC_ROOTS: must be a JSON list"),
        ({"namespace_roots": "sales=/x"}, "configuration", "DELVEC_NAMESPACE_ROOTS: must be a JSON object"),
        (
            {"namespace_roots": '{"sales": 1}'},
            "configuration",
            "DELVEC_NAMESPACE_ROOTS: must be a JSON object",
        ),
        ({"namespace_roots": "[1]"}, "configuration", "DELVEC_NAMESPACE_ROOTS: must be a JSON object"),
        ({"warehouse": "/elsewhere"}, "storage", "file:///elsewhere, which is outside the roots"),
        ({"token": "s\u00e9cret"}, "configuration", "DELVEC_TOKEN: must be printable ASCII"),
        (
            {"oidc_issuer": "https://id.example"},
            "configuration",
            "DELVEC_OIDC_ISSUER and DELVEC_OIDC_AUDIENCE must",
        ),
        (
            {"oidc_issuer": "http://id.example"},
            "configuration",
            "DELVEC_OIDC_ISSUER: must be an https:// URL",
        ),
        (
            {"credential_role_arn": "role"},
            "configuration",
            "DELVEC_CREDENTIAL_ROLE_ARN: must be the ARN of a role",
        ),
        (
            {"workers": "2", "database_url": "sqlite://"},
            "configuration",
            "cannot share an in-memory database",
        ),
        (
            {"oidc_issuer": "http://127.0.0.1:1", "oidc_audience": "delvec"},
            "identity-provider",
            "'http://127.0.0.1:1' cannot be fetched",
        ),
    ],
)
def test_what_is_wrong_is_said_in_words_of_the_settings(doctor, settings, check, words):
    _, found = doctor(**settings)

    assert words in found[check]["found"], found
    assert found[check]["state"] in ("warning", "failed")
    assert found[check]["advice"]
    assert "s\u00e9cret" not in str(found)


def test_a_root_that_does_not_exist_is_not_created(doctor, tmp_path):
    doctor(roots=str(tmp_path / "typo"))

    assert not (tmp_path / "typo").exists()


def test_a_file_that_is_no_database_is_a_finding(doctor, tmp_path):
    (tmp_path / "store.db").write_bytes(b"not a database, and long enough to be taken for one" * 100)

    code, found = doctor()

    assert code == 1
    assert "not an SQLite database, or is damaged" in found["database"]["found"]
    assert run(["database", "migrate"]) == 1


def test_a_namespace_with_one_root_needs_no_list(doctor, tmp_path):
    (tmp_path / "sales").mkdir()
    _, found = doctor(namespace_roots=json.dumps({"sales": str(tmp_path / "sales")}))

    assert found["configuration"]["state"] == "ok"
    assert found["configuration"]["found"].startswith("1 root, and those of the namespaces sales")
