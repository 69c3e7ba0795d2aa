"""``delvec token``, ``grant``, ``revoke``, ``grants``, ``audit`` and ``lake.access``."""

import json
from datetime import timedelta

import pytest
from tests.support.asgi_transport import EmbeddedTransport

import delvec
from delvec.access import AccessControl
from delvec.cli import main
from delvec.http.service_client import ServiceClient
from delvec_service.app import create_app
from delvec_service.config import Settings


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    """Run a command on the database of a service; return its exit code, output and errors."""
    monkeypatch.delenv("DELVEC_URL", raising=False)
    monkeypatch.setenv("DELVEC_DATABASE_URL", f"sqlite:///{tmp_path / 'service.db'}")

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


@pytest.fixture
def service(tmp_path):
    """A function that returns ``lake.access`` of the running service for a token."""
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'service.db'}", token="root")
    clients, transports = [], []

    def access(token):
        if not transports:  # what is made before is known to it from the start
            transports.append(EmbeddedTransport(create_app(settings)))
        transport = transports[0]
        clients.append(ServiceClient("http://service.test", token=token, transport=transport))
        return AccessControl(clients[-1])

    yield access
    for client in clients:
        client.close()


def test_a_token_of_the_database_is_let_in_by_the_service(shell, service):
    code, out, err = shell("token", "create", "etl-1", "--principal", "etl", "--expires", "90d")
    assert code == 0
    assert "token 'etl-1' of principal 'etl' is not stored; save it now" in err
    secret = out.strip()
    assert (
        shell("grant", "writer", "etl", "--namespace", "sales")[2]
        == "granted 'etl' the role writer on namespace sales\n"
    )

    me = service(secret).whoami()

    assert me["principal"] == "etl"
    assert [(one["role"], one["target"]) for one in me["grants"]] == [("writer", "sales")]
    code, out, _ = shell("token", "list", "--json")
    (listed,) = json.loads(out)
    assert (listed["name"], listed["state"]) == ("etl-1", "active")
    assert secret not in out


def test_what_was_granted_is_listed_and_taken_away(shell):
    shell("grant", "reader", "group:analysts", "--pattern", "sales.*")
    assert "pattern sales.*" in shell("grants")[1]
    assert shell("revoke", "group:analysts", "--pattern", "sales.*")[0] == 0
    assert json.loads(shell("grants", "--json")[1]) == []
    code, _, err = shell("revoke", "group:analysts", "--pattern", "sales.*")
    assert (code, "has no role on the pattern 'sales.*'" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ["grant", "owner", "etl", "--all"],
            1,
            "role: Input should be 'reader', 'writer', 'maintainer' or 'admin'",
        ),
        (["grant", "reader", "etl"], 1, "give exactly one of"),
        (["grant", "reader", "etl", "--table", "nothing"], 1, "Table 'nothing' is not registered"),
        (["token", "create", "a b"], 1, "name: "),
        (["token", "create", "x", "--expires", "soon"], 2, "neither a duration (90d, 12h) nor a date"),
        (["token", "create", "x", "--expires", "2020-01-01"], 1, "would already be expired"),
        (["token", "create", "x", "--expires", "999999y"], 1, "a token cannot live"),
        (["token", "revoke", "nobody"], 1, "Token 'nobody' does not exist"),
        (["audit", "--since", "soon"], 2, "--since 'soon' is neither a duration (90d, 12h) nor a date"),
        (["audit", "--outcome", "lost"], 1, "'done', 'denied', 'refused', 'failed' or 'unknown'"),
        (["token", "list", "--database-url", "mysql://ann:hunter2@host/db"], 1, "must be for SQLite"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(shell, arguments, code, says):
    found, _, err = shell(*arguments)

    assert found == code
    assert says in " ".join(err.replace("│", " ").split())
    assert "hunter2" not in err


def test_admins_do_the_same_over_http(service):
    root = service("root")
    made = root.create_token("etl-1", expires=timedelta(days=1))
    root.grant("reader", "etl-1", all_tables=True)
    assert [one["name"] for one in root.tokens()] == ["etl-1"]
    assert [one["scope"] for one in root.grants("etl-1")] == ["all"]

    with pytest.raises(
        delvec.PermissionDenied, match=r"requires admin on all tables.*grant admin etl-1 --all"
    ):
        service(made["token"]).create_token("mine")

    root.revoke("etl-1", all_tables=True)
    root.revoke_token("etl-1")
    with pytest.raises(delvec.Unauthorized, match="'etl-1' was revoked"):
        service(made["token"]).whoami()


def test_the_audit_log_of_a_database_and_of_its_service_is_one(shell, service):
    shell("grant", "admin", "ann", "--namespace", "sales")
    with pytest.raises(delvec.PermissionDenied):
        service(shell("token", "create", "ann")[1].strip()).grant("reader", "bob", all_tables=True)
    root = service("root")

    found = root.audit()

    assert [(one["principal"], one["operation"], one["outcome"], one["change"]) for one in found] == [
        ("ann", "grant_role", "denied", "reader on everything for bob"),
        ("anonymous", "create_token", "done", "token ann of ann"),
        ("anonymous", "grant_role", "done", "admin on sales for ann"),
    ]
    assert root.audit(limit=2) == found[:2]
    assert root.audit(limit=None, since=timedelta(days=1), principal="anonymous") == found[1:]
    assert root.audit(outcome="denied") == found[:1]
    assert root.audit(since="2999-01-01") == []
    assert json.loads(shell("audit", "--since", "1d", "--json")[1]) == found
    lines = shell("audit", "--principal", "ann")[1].splitlines()
    assert lines[0].split() == [
        *("answered-at", "principal", "operation", "table", "version", "outcome", "error-code", "change")
    ]
    assert "PERMISSION_DENIED" in lines[1]
    assert len(lines) == 2
