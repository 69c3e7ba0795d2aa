"""Managed tables are created in another catalog, and dropped there, once, whatever becomes of the answers."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.service.catalog_client.test_managed_log import ids, rows
from tests.support.foreign_catalog import TOKEN, error
from tests.support.in_process_service import running_service

import delvec
from delvec_errors import (
    BadRequest,
    CatalogUnavailable,
    CommitOutcomeUnknown,
    InvalidTableChange,
    LocationNotAllowed,
    PermissionDenied,
    TableAlreadyExists,
    TableNotFound,
    TooManyRequests,
)

NAME = "main.sales.new"
FIELDS = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for module in ("staged_table", "catalog_table", "unity_catalog"):
        monkeypatch.setattr(f"delvec_service.catalog_client.{module}._PAUSE_SECONDS", 0.001)


def instead(server, *answers, path="/tables", method="POST"):
    """Have the server answer requests with each of some functions of what does the request, then as always."""
    waiting = list(answers)

    def answer(asked, where, body, act):
        return waiting.pop(0)(act) if asked == method and where.endswith(path) and waiting else act()

    server.instead = answer


def log_of(table):
    return [json.loads(line) for line in (table.log / f"{0:020}.json").read_text().splitlines()]


# --- creation -------------------------------------------------------------------------------------------


def test_a_table_is_created_and_used(server, lake):
    table = lake.create_table(
        NAME,
        SCHEMA,
        partition_by=["name"],
        properties={"owner.team": "x", "delta.enableRowTracking": "true"},
        description="what is new",
    )
    table.append(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    table.delete("id = 1")

    assert ids(lake.table(NAME)) == [2]
    theirs = server.tables[NAME]
    assert theirs.latest == 2
    (body,) = server.created
    assert (body["name"], body["table-type"], body["comment"]) == ("new", "MANAGED", "what is new")
    assert body["partition-columns"] == ["name"]
    assert [field["name"] for field in body["columns"]["fields"]] == ["id", "name"]
    assert body["properties"]["owner.team"] == "x"
    info, *others = log_of(theirs)
    assert body["last-commit-timestamp-ms"] == info["commitInfo"]["inCommitTimestamp"]
    (protocol,) = [action["protocol"] for action in others if "protocol" in action]
    assert body["protocol"]["reader-features"] == protocol["readerFeatures"]
    assert {"rowTracking", "vacuumProtocolCheck"} <= set(protocol["writerFeatures"])


def test_clustering_is_told_to_the_catalog(server, lake):
    lake.create_table(NAME, "id long, `a.b` string", cluster_by=["id", "`a.b`"])
    (body,) = server.created
    assert body["domain-metadata"] == {"delta.clustering": {"clusteringColumns": [["id"], ["a.b"]]}}


def test_statements_of_sql_create_and_drop(server, lake):
    lake.sql(f"CREATE TABLE {NAME} (id LONG, name STRING) PARTITIONED BY (name) COMMENT 'by SQL'")
    lake.sql(f"INSERT INTO {NAME} VALUES (1, 'a')")
    assert ids(lake.table(NAME)) == [1]
    assert server.created[0]["comment"] == "by SQL"
    lake.sql(f"DROP TABLE {NAME}")
    assert NAME not in server.tables


def test_only_a_maintainer_of_the_name_creates_and_only_an_admin_drops(server, people, tmp_path):
    admin = {"Authorization": "Bearer root"}
    catalogs = {"main": {"url": server.url, "token": TOKEN}}
    lake = str(tmp_path / "lake")
    body = {"name": NAME, "schema": FIELDS}
    with running_service(token="root", catalogs=catalogs, roots=[lake], warehouse=lake) as client:
        tokens = {}
        for name, namespace in (("theirs", "main.sales"), ("others", "main.hr")):
            made = client.post("/v1/tokens", json={"name": name}, headers=admin)
            tokens[name] = {"Authorization": f"Bearer {made.json()['token']}"}
            grant = {"grantee": name, "role": "maintainer", "namespace": namespace}
            assert client.post("/v1/grants", json=grant, headers=admin).status_code < 300
        del server.requests[:]
        assert client.post("/v1/tables", json=body, headers=tokens["others"]).status_code == 403
        assert not [method for method, *_ in server.requests if method != "GET"]
        assert client.post("/v1/tables", json=body, headers=tokens["theirs"]).status_code == 201
        assert client.delete(f"/v1/tables/{NAME}", headers=tokens["theirs"]).status_code == 403
        assert client.delete(f"/v1/tables/{NAME}", headers=tokens["others"]).status_code == 404
        assert client.delete(f"/v1/tables/{NAME}", headers=admin).status_code == 204
    assert NAME not in server.tables


def effect_lost(act):
    act()
    return error(500, "InternalServerErrorException")


def connection_lost(act):
    act()


def as_conflict(act):
    act()
    return error(409, "AlreadyExistsException")


def nonsense(act):
    act()
    return 200, b"<html>proxy</html>"


@pytest.mark.parametrize("answer", [effect_lost, connection_lost, as_conflict, nonsense])
def test_a_creation_whose_answer_is_lost_or_wrong_is_made_once(server, lake, answer):
    instead(server, answer)
    lake.create_table(NAME, SCHEMA).append(pa.table({"id": [1], "name": ["a"]}))
    assert len(server.created) == 1
    assert ids(lake.table(NAME)) == [1]


@pytest.mark.parametrize(
    "answer",
    [
        lambda _act: error(500, "InternalServerErrorException"),
        lambda _act: None,
        lambda _act: (429, b"slow down"),
    ],
)
@pytest.mark.parametrize("path", ["/tables", "/staging-tables"])
def test_a_request_without_an_effect_is_sent_again(server, lake, answer, path):
    instead(server, answer, answer, path=path)
    assert lake.create_table(NAME, SCHEMA).version() == 0
    assert len(server.created) == 1


def test_an_answer_that_never_comes_leaves_the_outcome_open(server, lake):
    delayed = []

    def later(act):
        delayed.append(act)
        return error(500, "InternalServerErrorException")

    instead(server, *[later] * 50)
    with pytest.raises(CommitOutcomeUnknown, match="does not tell"):
        lake.create_table(NAME, SCHEMA)
    assert NAME not in server.tables
    for act in delayed:  # now they arrive
        act()
    assert len(server.created) == 1
    assert lake.table(NAME).version() == 0


def test_a_lost_race_for_the_name_is_an_error(server, lake, connected):
    other = connected()

    def answer(method, path, body, act):
        if method == "POST" and path.endswith("/tables"):
            server.instead = None
            other.create_table(NAME, "other long")
        return act()

    server.instead = answer
    with pytest.raises(TableAlreadyExists, match="already"):
        lake.create_table(NAME, SCHEMA)
    assert lake.table(NAME).schema().names == ["other"]
    with pytest.raises(TableAlreadyExists):
        lake.create_table(NAME, SCHEMA)
    assert lake.create_table(NAME, SCHEMA, if_not_exists=True).schema().names == ["other"]
    lake.create_table(NAME, SCHEMA, replace=True).append(pa.table({"id": [1], "name": ["a"]}))
    assert ids(other.table(NAME)) == [1]
    assert server.tables[NAME].latest == 2


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (error(400, "InvalidParameterValueException", "a bad column"), BadRequest),
        (error(403, "PermissionDeniedException"), PermissionDenied),
        (error(404, "NoSuchSchemaException"), TableNotFound),
        (error(409, "AlreadyExistsException"), TableAlreadyExists),
    ],
)
def test_a_refused_creation_is_an_error(server, lake, answer, raised):
    instead(server, lambda _act: answer)
    with pytest.raises(raised, match="new"):
        lake.create_table(NAME, SCHEMA)
    assert server.created == []
    assert lake.create_table(NAME, SCHEMA).version() == 0


@pytest.mark.parametrize(("status", "raised"), [(429, TooManyRequests), (503, CommitOutcomeUnknown)])
def test_a_catalog_that_takes_nothing_is_reported(server, lake, status, raised):
    instead(server, *[lambda _act: (status, b"")] * 50)
    with pytest.raises(raised):
        lake.create_table(NAME, SCHEMA)


def test_a_schema_that_the_catalog_does_not_have_and_a_silent_catalog_are_reported(server, lake):
    instead(server, lambda _act: error(404, "NoSuchSchemaException", "no schema"), path="/staging-tables")
    with pytest.raises(TableNotFound, match="no schema"):
        lake.create_table(NAME, SCHEMA)
    instead(server, *[lambda _act: error(503, "Busy")] * 200, path="/staging-tables")
    with pytest.raises(CatalogUnavailable):
        lake.create_table(NAME, SCHEMA)


@pytest.mark.parametrize("name", ["main.x", "main.a.b.c"])
def test_what_is_no_name_of_a_table_is_refused(lake, name):
    with pytest.raises(BadRequest, match="not a table of the catalog"):
        lake.create_table(name, SCHEMA)


def test_a_request_that_is_sent_again_creates_no_second_table(server, tmp_path):
    catalogs = {"main": {"url": server.url, "token": TOKEN}}
    body = {"name": NAME, "schema": FIELDS}
    lake = tmp_path / "lake"
    with running_service(catalogs=catalogs, roots=[str(lake)], warehouse=str(lake)) as client:
        keys = ["one", "one", "two"]
        first, again, other = (
            client.post("/v1/tables", json=body, headers={"Idempotency-Key": key}) for key in keys
        )
    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 409), again.text
    assert first.json()["id"] == again.json()["id"]
    assert len(server.created) == 1


# --- what a catalog may not ask for ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "raised"),
    [
        ({"location": "ftp://host/x"}, delvec.DelvecError),
        ({"location": "file:///elsewhere/x"}, LocationNotAllowed),
        ({"required-protocol": {"writer-features": ["timeMachine"]}}, delvec.DelvecError),
        ({"required-properties": {"delta.timeMachine": "on"}}, delvec.DelvecError),
        ({"table-id": ""}, CatalogUnavailable),
    ],
)
def test_a_place_or_a_feature_that_cannot_be_is_refused_before_anything_is_created(
    server, lake, tmp_path, more, raised
):
    server.more = more
    with pytest.raises(raised):
        lake.create_table(NAME, SCHEMA)
    assert server.created == []
    assert not Path("/elsewhere").exists()
    assert not server.place.exists()


def test_the_place_of_another_table_is_refused(server, lake, theirs):
    before = (theirs.log / f"{0:020}.json").read_bytes()
    server.more = {"location": theirs.location}
    with pytest.raises((LocationNotAllowed, CatalogUnavailable)):
        lake.create_table(NAME, SCHEMA)
    assert (theirs.log / f"{0:020}.json").read_bytes() == before


def test_a_property_that_contradicts_the_catalog_is_refused(server, lake):
    with pytest.raises(InvalidTableChange, match="enableDeletionVectors"):
        lake.create_table(NAME, SCHEMA, properties={"delta.enableDeletionVectors": "false"})
    assert server.created == []


# --- the end ----------------------------------------------------------------------------------------------


def test_a_table_is_dropped_in_its_catalog(server, theirs, people, lake):
    people.append(rows(1))
    lake.drop("main.sales.people")
    assert server.tables == {}
    assert theirs.published() == [0, 1]
    for use in (lake.drop, lake.table):
        with pytest.raises(TableNotFound):
            use("main.sales.people")
    assert "main.sales.people" not in [each.name for each in lake.tables()]


@pytest.mark.parametrize("answer", [effect_lost, connection_lost])
def test_a_drop_whose_answer_is_lost_is_done(server, people, lake, answer):
    instead(server, answer, path="/people", method="DELETE")
    lake.drop("main.sales.people")
    assert server.tables == {}


def test_a_table_that_took_the_name_meanwhile_is_not_dropped(server, people, lake):
    def replaced(act):
        act()
        server.tables["main.sales.people"] = successor
        return error(500, "InternalServerErrorException")

    lake.create_table(NAME, SCHEMA)
    successor = server.tables.pop(NAME)
    instead(server, replaced, path="/people", method="DELETE")
    lake.drop("main.sales.people")
    assert server.tables == {"main.sales.people": successor}


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (error(403, "PermissionDeniedException"), PermissionDenied),
        (error(500, "InternalServerErrorException"), CommitOutcomeUnknown),
    ],
)
def test_a_drop_that_is_refused_or_fails_is_an_error(server, people, lake, answer, raised):
    instead(server, *[lambda _act: answer] * 200, path="/people", method="DELETE")
    with pytest.raises(raised):
        lake.drop("main.sales.people")
    assert people.version() == 0
