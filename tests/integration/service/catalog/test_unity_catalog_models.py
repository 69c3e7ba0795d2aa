"""Bodies of the Unity Catalog Delta API, of the service and of Delvec's own client, beside the models of unitycatalog's client."""

import json
import time
import uuid

import pytest
from tests.support.catalog_client import DELTA, ManagedTable
from tests.support.foreign_catalog import TOKEN, ForeignTable, foreign_catalog
from tests.support.packages import NotInstalledError
from tests.support.unity_catalog_models import check, model

import delvec
from delvec_contract.unity_catalog import hyphenated

TYPES = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "price", "type": "decimal(10,2)", "nullable": True, "metadata": {"comment": "of one"}},
        {
            "name": "tags",
            "type": {
                "type": "map",
                "keyType": "string",
                "valueType": {"type": "array", "elementType": "long", "containsNull": True},
                "valueContainsNull": False,
            },
            "nullable": True,
            "metadata": {},
        },
        {
            "name": "inner",
            "type": {
                "type": "struct",
                "fields": [{"name": "x", "type": "integer", "nullable": False, "metadata": {}}],
            },
            "nullable": True,
            "metadata": {},
        },
    ],
}


@pytest.fixture(scope="module", autouse=True)
def models():
    try:
        model("DeltaCommit")
    except NotInstalledError as error:
        pytest.skip(f"unitycatalog-client cannot be installed: {error}")


def answered(answer, name):
    assert answer.status_code == 200, answer.text
    return check(f"Delta{name}", answer.json())


def test_every_answer_is_of_its_model(client):
    answered(client.get(f"{DELTA}/config", params={"catalog": "delvec"}), "CatalogConfig")
    table = ManagedTable(client, "people")
    staging = table.stage()
    assert check("DeltaStagingTableResponse", staging)["table-id"] == table.uuid
    answered(client.get(f"{DELTA}/staging-tables/{table.uuid}/credentials"), "CredentialsResponse")
    table.write_log(f"{0:020}.json", table.first_actions(staging))
    answered(table.register(), "LoadTableResponse")
    answered(client.get(f"{table.url}/credentials"), "CredentialsResponse")
    place = {"location": f"{table.location}-outside", "operation": "READ"}
    answered(client.get(f"{DELTA}/temporary-path-credentials", params=place), "CredentialsResponse")
    loaded = answered(table.update(table.staged([table.file([1])])), "LoadTableResponse")
    assert (loaded["latest-table-version"], loaded["commits"]) == (1, [])


def test_a_table_with_every_kind_of_type_and_metadata(client):
    body = {"name": "sales.nested", "schema": TYPES, "managed": True, "cluster-by": ["id"]}
    body["properties"] = {"delta.enableRowTracking": "true"}
    assert client.post("/v1/tables", json=body).status_code == 201
    loaded = check("DeltaLoadTableResponse", ManagedTable(client, "nested").load())
    assert loaded["metadata"]["columns"] == hyphenated(TYPES)
    client.post("/v1/tables", json={"name": "sales.plain", "schema": TYPES, "partition-columns": ["id"]})
    plain = check("DeltaLoadTableResponse", ManagedTable(client, "plain").load())
    assert (plain["metadata"]["table-type"], plain.get("commits")) == ("EXTERNAL", None)


def test_requests_of_the_models_are_understood(client):
    table = ManagedTable(client, "people")
    asked = check("DeltaCreateStagingTableRequest", {"name": "people"})
    staging = client.post(table.tables.replace("/tables", "/staging-tables"), json=asked).json()
    table.uuid, table.location = staging["table-id"], staging["location"]
    table.folder = table.location.removeprefix("file://")
    actions = table.first_actions(staging)
    table.write_log(f"{0:020}.json", actions)
    creation = {
        "name": "people",
        "location": table.location,
        "table-type": "MANAGED",
        "comment": "people",
        "columns": hyphenated(json.loads(actions[2]["metaData"]["schemaString"])),
        "partition-columns": [],
        "protocol": {**staging["required-protocol"]},
        "properties": staging["required-properties"],
        "domain-metadata": {"delta.rowTracking": {"rowIdHighWaterMark": 1}},
        "last-commit-timestamp-ms": time.time_ns() // 1_000_000,
    }
    answered(client.post(table.tables, json=check("DeltaCreateTableRequest", creation)), "LoadTableResponse")
    body = table.staged([table.file([1])])
    body["requirements"].append({"type": "assert-etag", "etag": table.load()["metadata"]["etag"]})
    body["updates"] += [
        {"action": "set-properties", "updates": {"a": "b"}},
        {"action": "remove-properties", "removals": ["c"]},
        {"action": "set-protocol", "protocol": creation["protocol"]},
        {"action": "set-columns", "columns": creation["columns"]},
        {"action": "set-partition-columns", "partition-columns": []},
        {"action": "set-table-comment", "comment": "x"},
        {"action": "set-domain-metadata", "updates": {"delta.rowTracking": {"rowIdHighWaterMark": 2}}},
        {"action": "remove-domain-metadata", "domains": ["delta.clustering"]},
    ]
    answered(table.update(check("DeltaUpdateTableRequest", body)), "LoadTableResponse")
    report = {"commit-report": {"num-files-added": 1, "num-bytes-added": 9}}
    metrics = check("DeltaReportMetricsRequest", {"table-id": table.uuid, "report": report})
    assert client.post(f"{table.url}/metrics", json=metrics).status_code == 204
    renamed = check("DeltaRenameTableRequest", {"new-name": "persons"})
    assert client.post(f"{table.url}/rename", json=renamed).status_code == 204


def test_errors_are_of_their_model(people, client):
    taken = people.staged([people.file([1])])
    people.commit([people.file([2])])
    missing = people.staged([people.file([3])])
    missing["updates"][0]["commit"]["file-name"] = f"{2:020}.{uuid.uuid4()}.json"
    answers = {
        "CommitVersionConflictException": people.update(taken),
        "InvalidParameterValueException": people.update(missing),
        "BadRequestException": client.post(people.url, content=b"{"),
        "NoSuchTableException": client.get(f"{people.tables}/nothing"),
        "NoSuchCatalogException": client.get(f"{DELTA}/config", params={"catalog": "x"}),
        "NoSuchSchemaException": client.get(f"{DELTA}/catalogs/delvec/schemas/%2e%2e/tables/x"),
        "NotFoundException": client.get(f"{DELTA}/nothing"),
        "PermissionDeniedException": client.get(
            f"{DELTA}/temporary-path-credentials", params={"location": "/etc", "operation": "READ"}
        ),
        "AlreadyExistsException": client.post(
            people.tables.replace("/tables", "/staging-tables"), json={"name": "people"}
        ),
    }
    for kind, answer in answers.items():
        error = check("DeltaErrorResponse", answer.json())["error"]
        assert (error["type"], error["code"]) == (kind, answer.status_code), answer.text


def test_requests_of_delvecs_own_client_are_of_their_models(tmp_path):
    shapes = {"staging-tables": "CreateStagingTableRequest", "tables": "CreateTableRequest"}
    seen = set()

    def observe(method, path, body, act):
        if method == "POST":
            last = path.rpartition("/")[2]
            name = shapes.get(last, "UpdateTableRequest")
            seen.add(name)
            check(f"Delta{name}", body)
            seen.update(each["action"] for each in body.get("updates", ()))
        return act()

    with foreign_catalog() as (server, url):
        server.place = tmp_path / "lake" / "staged"
        server.tables["main.sales.people"] = ForeignTable(tmp_path / "lake" / "people")
        server.instead = observe
        database = f"sqlite:///{tmp_path / 'store.db'}"
        roots = [tmp_path / "lake"]
        with delvec.connect(catalog=url, token=TOKEN, roots=roots, database_url=database) as lake:
            people = lake.table("main.sales.people")
            people.append([{"id": 1}, {"id": 2}])
            people.delete("id = 1")
            people.alter.set_properties({"a": "b"})
            people.alter.add_columns("tags map<string, array<long>>")
            made = lake.create_table("main.sales.made", TYPES, cluster_by=["id"])
            made.alter.cluster_by(["price"])
            assert people.to_arrow()["id"].to_pylist() == [2]
    wanted = {
        "add-commit",
        "set-latest-backfilled-version",
        "set-properties",
        "set-columns",
        "set-domain-metadata",
    }
    assert seen >= {*shapes.values(), "UpdateTableRequest", *wanted}
