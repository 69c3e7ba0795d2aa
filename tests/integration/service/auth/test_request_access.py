"""Tokens and grants: authentication, visible tables, and creating tables."""

import json
import logging
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.service.conftest import SCHEMA

from delvec_errors import ServiceUnavailable
from delvec_service.auth import directory

ADMIN = "the-configured-token"


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def guarded(running, tmp_path):
    with running(
        token=ADMIN, roots=(str(tmp_path),), database_url=f"sqlite:///{tmp_path / 'store.db'}"
    ) as client:
        client.headers.update(bearer(ADMIN))
        for name in ("sales.orders", "sales.returns", "hr.people"):
            made = client.post("/v1/tables", json={"name": name, "schema": SCHEMA})
            assert made.status_code == 201, made.text
        yield client


def token(client, name, **fields):
    answer = client.post("/v1/tokens", json={"name": name, **fields})
    assert answer.status_code == 201, answer.text
    return bearer(answer.json()["token"])


def grant(client, grantee, role, **on):
    answer = client.post("/v1/grants", json={"grantee": grantee, "role": role, **on})
    assert answer.status_code == 200, answer.text


def message(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]["message"]


def names(answer):
    return [table["name"] for table in answer.json()["tables"]]


def test_a_token_is_let_in_until_it_is_revoked(guarded):
    headers = token(guarded, "etl-1", principal="etl")
    me = guarded.get("/v1/access", headers=headers).json()
    assert (me["principal"], me["is-restricted"]) == ("etl", True)

    assert guarded.delete("/v1/tokens/etl-1").json()["state"] == "revoked"

    assert "'etl-1' was revoked" in message(guarded.get("/v1/access", headers=headers), 401)


def test_a_token_is_rotated_without_a_gap(guarded):
    grant(guarded, "etl", "reader", namespace="sales")
    old = token(guarded, "etl-1", principal="etl")
    new = token(guarded, "etl-2", principal="etl")
    for headers in (old, new):
        assert guarded.get("/v1/tables/sales.orders", headers=headers).status_code == 200

    guarded.delete("/v1/tokens/etl-1")

    assert guarded.get("/v1/tables/sales.orders", headers=new).status_code == 200
    assert guarded.get("/v1/tables/sales.orders", headers=old).status_code == 401


def test_an_expired_token_says_so(guarded, monkeypatch):
    soon = datetime.now(UTC) + timedelta(hours=1)
    headers = token(guarded, "short", **{"expires-at": soon.isoformat()})

    class Later(datetime):
        @classmethod
        def now(cls, zone=None):
            return super().now(zone) + timedelta(hours=2)

    monkeypatch.setattr(directory, "datetime", Later)

    assert "'short' expired at" in message(guarded.get("/v1/tables", headers=headers), 401)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"name": "etl"}, 409, "Token 'etl' already exists"),
        ({"name": "x", "expires-at": "2020-01-01T00:00:00Z"}, 400, "would already be expired"),
        ({"name": "x", "expires-at": "2030-01-01T00:00:00"}, 400, "timezone"),
        ({"name": "oidc:x"}, 400, "field 'name'"),
        ({"name": "DELVEC_TOKEN"}, 400, "the service's configuration"),
    ],
)
def test_what_no_token_can_be(guarded, body, status, says):
    token(guarded, "etl")
    assert says in message(guarded.post("/v1/tokens", json=body), status)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"role": "owner", "namespace": "sales"}, "'reader', 'writer', 'maintainer' or 'admin'"),
        ({"role": "reader"}, "give exactly one of table, pattern, namespace and all-tables"),
        ({"role": "reader", "namespace": "sales", "pattern": "x*"}, "give exactly one of"),
        ({"role": "reader", "pattern": "[a]"}, "field 'pattern'"),
    ],
)
def test_what_no_grant_can_be(guarded, body, says):
    assert says in message(guarded.post("/v1/grants", json={"grantee": "etl", **body}), 400)


def test_no_answer_no_log_and_no_database_has_a_token(guarded, tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="delvec_service"):
        secret = token(guarded, "etl")["Authorization"].removeprefix("Bearer ")
        guarded.get("/v1/tables", headers=bearer(secret))
        forged = message(guarded.get("/v1/tables", headers=bearer(f"{secret}x")), 401)

    assert secret not in forged
    assert secret not in guarded.get("/v1/tokens").text
    assert not [record for record in caplog.records if secret in record.getMessage()]
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert "etl" in {line.get("principal") for line in lines if line.get("path") == "/v1/tables"}
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))
    assert secret.encode() not in stored


def test_a_token_is_never_an_answer_of_an_idempotency_key(guarded):
    headers = {"Idempotency-Key": "once"}
    first = guarded.post("/v1/tokens", json={"name": "etl"}, headers=headers)
    again = guarded.post("/v1/tokens", json={"name": "etl"}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 409)


def test_a_service_without_tokens_is_open_until_one_is_made(running):
    with running() as client:
        assert client.get("/v1/tables").status_code == 200
        assert client.get("/v1/access").json() == {
            "principal": None,
            "groups": [],
            "grants": [],
            "is-restricted": False,
            "role": None,
        }

        made = client.post("/v1/tokens", json={"name": "first"}).json()["token"]

        assert client.get("/v1/tables").status_code == 401
        assert client.get("/v1/tables", headers=bearer(made)).json()["tables"] == []
        assert client.get("/v1/tokens", headers=bearer(made)).status_code == 403


def test_a_database_that_was_emptied_opens_nothing(running, tmp_path):
    with running(database_url=f"sqlite:///{tmp_path / 'store.db'}") as client:
        client.post("/v1/tokens", json={"name": "first"})
        for path in tmp_path.glob("store.db*"):
            path.unlink()
        client.service.directory._checked = -1e9

        assert client.get("/v1/tables").status_code in (401, 503)
        assert client.get("/v1/tables").status_code == 401


def test_required_authentication_needs_no_token_to_have_been_made(running):
    with running(authentication="required") as client:
        assert client.get("/v1/tables").status_code == 401
        assert client.get("/livez").status_code == 200


def test_what_another_replica_changes_holds_here(running, tmp_path):
    settings = {"token": ADMIN, "database_url": f"sqlite:///{tmp_path / 'store.db'}"}
    with running(**settings) as one, running(**settings) as other:
        one.headers.update(bearer(ADMIN))
        headers = token(one, "etl")
        other.service.directory._checked = -1e9  # as if two seconds had passed
        assert other.get("/v1/access", headers=headers).status_code == 200
        one.delete("/v1/tokens/etl")
        other.service.directory._checked = -1e9

        assert other.get("/v1/access", headers=headers).status_code == 401


def test_while_the_database_is_away_what_is_known_holds_for_some_minutes(guarded, monkeypatch):
    headers = token(guarded, "etl")
    known = guarded.service.directory

    def away():
        raise ServiceUnavailable("away")

    monkeypatch.setattr(known.store, "generation", away)
    known._checked = -1e9
    assert guarded.get("/v1/access", headers=headers).status_code == 200

    known._checked = known._answered = -1e9
    assert guarded.get("/v1/access", headers=headers).status_code == 503


def test_lists_show_what_one_may_read(guarded):
    headers = token(guarded, "etl")
    assert names(guarded.get("/v1/tables", headers=headers)) == []
    grant(guarded, "etl", "reader", namespace="sales")
    for path in ("/v1/tables", "/v1/health"):
        assert sorted(names(guarded.get(path, headers=headers))) == ["sales.orders", "sales.returns"]
    grant(guarded, "etl", "reader", table="hr.people")
    assert names(guarded.get("/v1/tables", headers=headers)) == ["hr.people", "sales.orders", "sales.returns"]

    page = guarded.get("/v1/tables?page-size=2", headers=headers)
    assert names(page) == ["hr.people", "sales.orders"]
    rest = guarded.get("/v1/tables", params={"page-token": page.json()["next-page-token"]}, headers=headers)
    assert names(rest) == ["sales.returns"]


def test_a_hidden_table_is_told_from_none_by_nothing(guarded):
    headers = token(guarded, "etl")
    grant(guarded, "etl", "writer", namespace="sales")
    identifier = guarded.get("/v1/tables/hr.people").json()["id"]
    place = guarded.get("/v1/tables/hr.people").json()["location"]

    hidden = guarded.get("/v1/tables/hr.people", headers=headers)
    missing = guarded.get("/v1/tables/hr.nobody", headers=headers)

    assert hidden.status_code == missing.status_code == 404
    assert hidden.text.replace("people", "nobody") == missing.text
    assert "hr" not in message(guarded.get(f"/v1/tables/{identifier}", headers=headers), 404)
    assert guarded.get("/v1/tables", params={"location": place}, headers=headers).json()["tables"] == []
    runs = guarded.get("/v1/maintenance-runs?table=hr.people", headers=headers)
    assert runs.json()["error"]["code"] == "TABLE_NOT_FOUND"


def test_a_missing_role_on_what_one_may_read_is_named(guarded):
    headers = token(guarded, "etl")
    grant(guarded, "etl", "reader", pattern="sales.*")

    said = message(guarded.post("/v1/tables/sales.orders/delete", json={}, headers=headers), 403)

    assert said == (
        "'etl' only has the role reader, but this requires writer on table 'sales.orders'. An admin can grant it: "
        "delvec grant writer etl --table sales.orders."
    )


def test_grants_on_a_table_go_with_it_and_end_with_it(guarded):
    headers = token(guarded, "etl")
    grant(guarded, "etl", "reader", table="hr.people")
    guarded.post("/v1/tables/hr.people/rename", json={"name": "hr.staff"})
    assert guarded.get("/v1/tables/hr.staff", headers=headers).status_code == 200
    (held,) = guarded.get("/v1/grants?grantee=etl").json()["grants"]
    assert (held["scope"], held["table"]) == ("table", "hr.staff")

    place = guarded.get("/v1/tables/hr.staff").json()["location"]
    guarded.delete("/v1/tables/hr.staff")
    guarded.post("/v1/tables", json={"location": place, "name": "hr.staff"})

    assert guarded.get("/v1/tables/hr.staff", headers=headers).status_code == 404
    assert guarded.get("/v1/grants?grantee=etl").json()["grants"] == []


def test_a_secret_that_is_given_for_a_name_is_in_no_answer(guarded):
    secret = guarded.post("/v1/tokens", json={"name": "etl-9"}).json()["token"]
    answer = guarded.delete(f"/v1/tokens/{secret}")
    assert "by its name" in message(answer, 404)
    assert secret not in answer.text


def test_a_role_is_replaced_and_revoked(guarded):
    headers = token(guarded, "etl")
    for role in ("reader", "maintainer"):
        grant(guarded, "etl", role, namespace="sales")
    assert guarded.post("/v1/tables/sales.orders/checkpoint", json={}, headers=headers).status_code == 200

    where = {"grantee": "etl", "namespace": "sales"}
    assert guarded.delete("/v1/grants", params=where).status_code == 204

    assert guarded.get("/v1/tables/sales.orders", headers=headers).status_code == 404
    assert "'etl' has no role on the namespace 'sales'" in message(
        guarded.delete("/v1/grants", params=where), 404
    )


def test_admins_of_a_namespace_grant_there_and_nowhere_else(guarded):
    headers = token(guarded, "lead")
    grant(guarded, "lead", "admin", namespace="sales")
    grant(guarded, "other", "reader", namespace="hr")

    def may(**on):
        body = {"grantee": "etl", "role": "reader", **on}
        return guarded.post("/v1/grants", json=body, headers=headers).status_code

    assert may(namespace="sales") == may(pattern="sales.o*") == may(table="sales.orders") == 200
    assert may(namespace="hr") == may(pattern="*") == may(pattern="s*") == may(**{"all-tables": True}) == 403
    assert may(pattern="?ales.*") == 403
    assert may(table="hr.people") == 404
    seen = guarded.get("/v1/grants", headers=headers).json()["grants"]
    assert {each["grantee"] for each in seen} == {"etl", "lead"}


def test_tables_are_made_where_their_name_belongs(guarded, tmp_path):
    headers = token(guarded, "lead")
    grant(guarded, "lead", "maintainer", namespace="sales")

    def make(**body):
        return guarded.post("/v1/tables", json={"schema": SCHEMA, **body}, headers=headers)

    assert make(name="sales.new").status_code == 201
    assert make(name="sales.here", location=str(tmp_path / "sales.db" / "here")).status_code == 201
    assert "tables called 'hr.new'" in message(make(name="hr.new"), 403)
    assert "a location of its own choice" in message(
        make(name="sales.there", location=str(tmp_path / "hr.db" / "there")), 403
    )
    assert "tables called 'there'" in message(make(location=str(tmp_path / "there")), 403)
    assert "tables called 'hr.x'" in message(
        guarded.post("/v1/tables/sales.new/rename", json={"name": "hr.x"}, headers=headers), 403
    )
    assert "tables called 'hr.y'" in message(
        guarded.post("/v1/tables/sales.new/clone", json={"name": "hr.y"}, headers=headers), 403
    )


def test_readers_register_again_what_they_may_read_and_take_nothing_of_others(guarded, tmp_path):
    headers = token(guarded, "etl")
    grant(guarded, "etl", "reader", namespace="sales")
    grant(guarded, "etl", "maintainer", namespace="mine")
    orders = guarded.get("/v1/tables/sales.orders").json()["location"]
    people = guarded.get("/v1/tables/hr.people").json()["location"]

    def register(**body):
        return guarded.post("/v1/tables", json=body, headers=headers)

    assert register(location=orders).json()["name"] == "sales.orders"
    assert register(location=orders, name="mine.orders").status_code == 403
    assert register(location=people).status_code == 403
    assert register(location=people, name="mine.people").status_code == 403


def test_the_answer_under_a_key_is_told_to_whom_it_was_given(guarded):
    for name in ("one", "two"):
        grant(guarded, name, "maintainer", namespace="sales")
    one, two = token(guarded, "one"), token(guarded, "two")
    request = {"json": {"name": "sales.made", "schema": SCHEMA}}

    made = guarded.post("/v1/tables", headers={**one, "Idempotency-Key": "k"}, **request)
    again = guarded.post("/v1/tables", headers={**one, "Idempotency-Key": "k"}, **request)
    other = guarded.post("/v1/tables", headers={**two, "Idempotency-Key": "k"}, **request)

    assert (made.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert again.headers["Idempotent-Replay"] == "true"


def test_policies_are_for_those_who_maintain_all_that_they_are_about(guarded):
    headers = token(guarded, "lead")
    grant(guarded, "lead", "maintainer", namespace="sales")
    content = {"version": "2025-02-03", "enable": True, "config": {}}

    def keep(name, **on):
        body = {"name": name, "type": "system.vacuum", "content": content, **on}
        return guarded.post("/v1/policies", json=body, headers=headers).status_code

    guarded.post("/v1/policies", json={"name": "all", "type": "system.vacuum", "content": content})
    assert keep("mine", pattern="sales.*") == keep("one", table="sales.orders") == 200
    assert keep("x") == keep("x", pattern="*") == keep("all", pattern="sales.*") == 403
    assert keep("x", table="hr.people") == 404
    seen = guarded.get("/v1/policies", headers=headers).json()["policies"]
    assert {policy["name"] for policy in seen} == {"mine", "one"}
    assert guarded.delete("/v1/policies/all", headers=headers).status_code == 404


def test_commands_that_the_service_runs_itself_are_let_in_once(guarded):
    headers = token(guarded, "etl")
    grant(guarded, "etl", "writer", namespace="sales")

    answer = guarded.post("/v1/tables/sales.orders/delete", json={"predicate": "id = 1"}, headers=headers)

    assert answer.status_code == 200, answer.text
