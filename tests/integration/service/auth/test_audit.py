"""The audit log: changes, denied requests, and who may read it."""

import json
import logging
import threading
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.service.conftest import SCHEMA

from delvec_errors import ServiceUnavailable
from delvec_service.auth import audit
from delvec_service.auth.rules import RULES
from delvec_service.store.audit_store import AuditRecord, AuditStore

ADMIN = "the-configured-token"
READING = {"plan_scan", "plan_of_changes", "plan_of_additions", "get_snapshots"}
"""Read-only requests that are POST because they have a body."""


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def settings(tmp_path):
    return {
        "token": ADMIN,
        "roots": (str(tmp_path),),
        "database_url": f"sqlite:///{tmp_path / 'store.db'}",
        "log_maintenance": False,
    }


@pytest.fixture
def guarded(running, settings):
    """A service with the table ``sales.orders``, and tokens of a reader, a writer and a maintainer of ``sales``."""
    with running(**settings) as client:
        client.headers.update(bearer(ADMIN))
        client.tokens = {}
        for name in ("sales.orders", "hr.people"):
            client.post("/v1/tables", json={"name": name, "schema": SCHEMA}).raise_for_status()
        for role in ("reader", "writer", "maintainer"):
            made = client.post("/v1/tokens", json={"name": f"the-{role}"})
            client.tokens[role] = bearer(made.json()["token"])
            grant = {"grantee": f"the-{role}", "role": role, "namespace": "sales"}
            client.post("/v1/grants", json=grant).raise_for_status()
        yield client


def entries(client, headers=None, **query):
    parameters = {name.replace("_", "-"): value for name, value in query.items()}
    answer = client.get("/v1/audit", params=parameters, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["entries"]


def properties(value="1"):
    return {"changes": [{"change": "set-properties", "properties": {"x": value}}]}


def test_a_change_is_noted_with_who_made_it_and_what_came_of_it(guarded):
    headers = {**guarded.tokens["maintainer"], "X-Request-Id": "the-request"}
    altered = guarded.post("/v1/tables/sales.orders/alter", json=properties(), headers=headers).json()

    (entry,) = entries(guarded, principal="the-maintainer")

    table = guarded.get("/v1/tables/sales.orders").json()
    assert datetime.now(UTC) - datetime.fromisoformat(entry["answered-at"]) < timedelta(minutes=5)
    del entry["answered-at"], entry["id"]
    assert entry == {
        "principal": "the-maintainer",
        "request-id": "the-request",
        "operation": "alter_table",
        "table": "sales.orders",
        "table-id": table["id"],
        "change": "set-properties",
        "transaction-id": altered["transaction-id"],
        "version": altered["version"],
        "outcome": "done",
        "status": 200,
        "error-code": None,
    }


def test_what_the_door_denies_is_noted_and_reading_is_not(guarded):
    reader = guarded.tokens["reader"]
    url = "/v1/tables/sales.orders"
    assert guarded.post(f"{url}/plan", json={}, headers=reader).status_code == 200
    assert guarded.post(f"{url}/commits", json={}, headers=reader).status_code == 403
    assert guarded.post(f"{url}/transactions", json={"operation": "WRITE"}, headers=reader).status_code == 403
    assert guarded.post("/v1/tables/hr.people/alter", json=properties(), headers=reader).status_code == 404
    begun = guarded.post(f"{url}/transactions", json={"operation": "WRITE"}, headers=guarded.tokens["writer"])
    assert begun.status_code == 201

    found = entries(guarded, outcome="denied")

    assert [(one["operation"], one["table"], one["principal"], one["error-code"]) for one in found] == [
        ("alter_table", "hr.people", "the-reader", "TABLE_NOT_FOUND"),
        ("begin_transaction", "sales.orders", "the-reader", "PERMISSION_DENIED"),
        ("commit", "sales.orders", "the-reader", "PERMISSION_DENIED"),
    ]
    assert entries(guarded, principal="the-writer") == []


def test_the_log_line_of_a_refused_request_names_table_principal_and_error(guarded, caplog):
    with caplog.at_level(logging.INFO, logger="delvec_service"):
        guarded.post("/v1/tables/sales.orders/commits", json={}, headers=guarded.tokens["reader"])
        guarded.post("/v1/tables/sales.orders/commits", json={}, headers=bearer("nobody's"))
        guarded.get("/v1/tables")  # a log line may follow its response, but not the next one

    lines = [json.loads(record.getMessage()) for record in caplog.records]
    refused = [line for line in lines if line["event"] == "request" and line["path"].endswith("/commits")]
    known, unknown = refused
    assert (known["table"], known["principal"], known["error_code"]) == (
        "sales.orders",
        "the-reader",
        "PERMISSION_DENIED",
    )
    assert (unknown["table"], unknown.get("principal")) == ("sales.orders", None)


def test_the_stream_has_each_entry_once_whatever_the_level_of_the_log(guarded, caplog):
    with (
        caplog.at_level(logging.ERROR, logger="delvec_service"),
        caplog.at_level("INFO", "delvec_service.audit"),
    ):
        guarded.post("/v1/tables/sales.orders/alter", json=properties())
        (entry, *_) = entries(guarded)

    (line,) = [json.loads(record.getMessage()) for record in caplog.records]
    assert line["id"] == entry["id"]
    assert (line["event"], line["operation"], line["table"], line["outcome"], line["version"]) == (
        "audit",
        "alter_table",
        "sales.orders",
        "done",
        1,
    )


def test_grants_and_tokens_say_what_they_gave_and_never_the_token(guarded, tmp_path):
    secret = guarded.tokens["reader"]["Authorization"].removeprefix("Bearer ")
    guarded.delete("/v1/tokens/the-reader")
    guarded.delete("/v1/grants", params={"grantee": "the-reader", "namespace": "sales"})
    grant = {"grantee": "the-writer", "role": "admin", "all-tables": True}
    assert guarded.post("/v1/grants", json=grant, headers=guarded.tokens["writer"]).status_code == 403

    found = entries(guarded)

    assert [(one["operation"], one["change"], one["outcome"]) for one in found[:3]] == [
        ("grant_role", "admin on everything for the-writer", "denied"),
        ("revoke_role", "no role on sales for the-reader", "done"),
        ("revoke_token", "token the-reader", "done"),
    ]
    assert ("create_token", "token the-reader of the-reader") in [
        (one["operation"], one["change"]) for one in found
    ]
    assert secret not in json.dumps(found)


def test_maintainers_read_the_entries_of_their_tables_and_no_others(guarded):
    maintainer = guarded.tokens["maintainer"]
    guarded.post("/v1/tables/sales.orders/rename", json={"name": "sales.all"})

    found = entries(guarded, maintainer, table="sales.all")

    assert [(one["operation"], one["table"]) for one in found] == [
        ("rename_table", "sales.orders"),
        ("register_table", "sales.orders"),
    ]
    assert found[0]["change"] == "to sales.all"
    for query, role, status in (
        ({}, "maintainer", 403),
        ({"table": "hr.people"}, "maintainer", 404),
        ({"table": "sales.all"}, "writer", 403),
    ):
        assert guarded.get("/v1/audit", params=query, headers=guarded.tokens[role]).status_code == status


def test_a_name_that_was_anothers_does_not_show_its_entries(guarded):
    guarded.post("/v1/tables/hr.people/rename", json={"name": "sales.people"})
    guarded.post("/v1/tables/sales.people/rename", json={"name": "hr.people"})
    guarded.post("/v1/tables", json={"name": "sales.people", "schema": SCHEMA})

    found = entries(guarded, guarded.tokens["maintainer"], table="sales.people")

    assert [one["operation"] for one in found] == ["register_table"]
    assert len(entries(guarded, table="sales.people")) == 2  # an admin also sees other tables of that name


def test_entries_outlive_their_table(guarded):
    guarded.delete("/v1/tables/sales.orders")

    assert [one["operation"] for one in entries(guarded, table="sales.orders")] == [
        "forget_table",
        "register_table",
    ]
    missing = guarded.get("/v1/audit", params={"table": "sales.orders"}, headers=guarded.tokens["maintainer"])
    assert missing.status_code == 404


def test_pages_have_each_entry_once(guarded):
    for value in range(5):
        guarded.post("/v1/tables/sales.orders/alter", json=properties(str(value)))
    everything = [one["id"] for one in entries(guarded)]
    read, token = [], ""
    while token is not None:
        page = guarded.get("/v1/audit", params={"page-size": 4, "page-token": token}).json()
        read += [one["id"] for one in page["entries"]]
        token = page["next-page-token"]

    assert read == everything == sorted(everything, reverse=True)
    assert len(everything) == 13


def test_entries_since_a_time(guarded):
    everything = entries(guarded)
    assert entries(guarded, since=everything[2]["answered-at"])[:2] == everything[:2]
    assert entries(guarded, since="2999-01-01") == []
    assert len(entries(guarded, since="1900-01-01")) == len(everything)


@pytest.mark.parametrize(
    "query", [{"page-token": "x"}, {"since": "soon"}, {"outcome": "lost"}, {"page-size": 0}]
)
def test_what_cannot_be_asked_for(guarded, query):
    assert guarded.get("/v1/audit", params=query).status_code == 400


def test_strangers_do_not_fill_the_log(guarded):
    for _ in range(audit._MAX_ANONYMOUS + 5):
        assert guarded.delete("/v1/tables/x", headers=bearer("nobody's")).status_code == 401

    strangers = [one for one in entries(guarded, page_size=1000) if one["principal"] is None]

    assert {(one["operation"], one["outcome"], one["table"]) for one in strangers} == {
        ("forget_table", "denied", "x")
    }
    assert len(strangers) == audit._MAX_ANONYMOUS


def test_where_no_token_is_asked_for_the_principal_is_anonymous(running):
    with running(log_maintenance=False) as client:
        client.post("/v1/policies", json={})
        (entry,) = entries(client)
    assert (entry["principal"], entry["outcome"], entry["error-code"]) == (
        "anonymous",
        "refused",
        "BAD_REQUEST",
    )


def test_a_stop_writes_what_waits(running, settings):
    with running(**settings) as client:
        client.post("/v1/tokens", json={"name": "etl"}, headers=bearer(ADMIN))
    with running(**settings) as client:
        assert [one["change"] for one in entries(client, bearer(ADMIN))] == ["token etl of etl"]


def test_entries_that_are_too_old_go(running, settings):
    with running(**settings, audit_days=30) as client:
        for days in (29, 31):
            moment = datetime.now(UTC) - timedelta(days=days)
            client.service.audit.store.add([AuditRecord(moment, f"{days}", "forget_table", "done", 204)])
        client.post("/v1/tokens", json={"name": "etl"}, headers=bearer(ADMIN))
    with running(**settings) as client:
        found = entries(client, bearer(ADMIN))
    assert [one["operation"] for one in found] == ["create_token", "forget_table"]
    assert found[1]["request-id"] == "29"


def test_entries_wait_for_a_database_that_is_away(guarded, monkeypatch):
    tried = threading.Event()
    add = AuditStore.add

    def away(_self, _records):
        tried.set()
        raise ServiceUnavailable("The service's database does not answer.")

    monkeypatch.setattr(AuditStore, "add", away)
    guarded.post("/v1/tables/sales.orders/alter", json=properties()).raise_for_status()
    assert tried.wait(30)
    assert guarded.get("/v1/audit").status_code == 503
    monkeypatch.setattr(AuditStore, "add", add)

    assert entries(guarded)[0]["operation"] == "alter_table"


def test_without_days_there_is_only_the_stream(running, settings, caplog):
    with caplog.at_level("INFO", "delvec_service.audit"), running(**settings, audit_days=0) as client:
        client.post("/v1/tokens", json={"name": "etl"}, headers=bearer(ADMIN))
        assert entries(client, bearer(ADMIN)) == []
    assert '"operation": "create_token"' in caplog.text.replace('\\"', '"')


def test_every_request_that_changes_something_is_audited_under_its_operation_id(guarded):
    described = guarded.get("/openapi.json").json()["paths"]
    wrong = {}
    for path, methods in described.items():
        for method, operation in methods.items():
            called = operation["operationId"]
            reads = (method == "get" and called != "vend_credentials") or called in READING
            expected = None if reads else called
            noted = RULES[f"{method.upper()} {path}"].operation
            if noted != expected:
                wrong[called] = noted
    assert not wrong


def test_commands_of_the_service_have_one_entry_with_their_version(guarded):
    done = guarded.post(
        "/v1/tables/sales.orders/delete", json={"predicate": "id = 1"}, headers=guarded.tokens["writer"]
    )
    assert done.status_code == 200, done.text
    (entry,) = entries(guarded, principal="the-writer")
    assert (entry["operation"], entry["version"]) == ("delete_rows", done.json()["version"])


def test_dry_runs_are_told_from_changes(guarded):
    url, dry = "/v1/tables/sales.orders", {"dry-run": True}
    guarded.post(f"{url}/alter", json=properties()).raise_for_status()
    for path, body in (
        ("restore", dry | {"version": 0}),
        ("checkpoint", dry),
        ("deletion-vectors/compact", dry),
        ("repair", dry),
        ("optimize", dry),
        ("vacuum", dry),
    ):
        guarded.post(f"{url}/{path}", json=body, headers=guarded.tokens["maintainer"]).raise_for_status()

    changes = {one["operation"]: one["change"] for one in entries(guarded, principal="the-maintainer")}

    assert changes.pop("restore_table") == "dry run to version 0"
    assert len(changes) == 5
    assert set(changes.values()) == {"dry run"}
