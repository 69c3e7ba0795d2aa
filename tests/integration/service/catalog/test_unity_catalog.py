"""The Unity Catalog APIs: names, creation, what a table looks like, and who may do what."""

import json
import time
from pathlib import Path

import pytest
from tests.integration.service.conftest import SCHEMA
from tests.support.catalog_client import BASE, DELTA, ManagedTable
from tests.support.in_process_service import running_service

import delvec_service.tables.registry as tables_registry
from delvec_service.store.registry import Registry

ADMIN = "the-configured-token"
ROLES = ("reader", "writer", "maintainer", "admin")
UNIFORM = {"iceberg": {"metadata-location": "file:///m.json", "converted-delta-version": 1}}
NESTED = {
    "type": "struct",
    "fields": [
        {
            "name": "tags",
            "type": {
                "type": "map",
                "keyType": "string",
                "valueType": {"type": "array", "elementType": "long", "containsNull": True},
                "valueContainsNull": False,
            },
            "nullable": True,
            "metadata": {"elementType": "is text here"},
        }
    ],
}


def test_a_table_is_created_loaded_and_used_by_delvec(people, client):
    people.commit([people.file([1, 2, 3])])
    deleted = client.post("/v1/tables/sales.people/delete", json={"predicate": "id = 2"})
    assert deleted.status_code == 200, deleted.text
    answer = people.load()
    metadata = answer["metadata"]
    assert answer["latest-table-version"] == 2
    assert answer["commits"] == []
    assert metadata["table-type"] == "MANAGED"
    assert metadata["table-uuid"] == people.uuid == metadata["properties"]["io.unitycatalog.tableId"]
    assert metadata["properties"]["delta.feature.catalogManaged"] == "supported"
    assert metadata["properties"]["delta.lastUpdateVersion"] == "2"
    assert metadata["columns"]["fields"][0]["name"] == "id"
    assert client.head(people.url).status_code == 204


def test_the_etag_changes_with_metadata_only(people):
    before = people.load()["metadata"]["etag"]
    assert people.commit([people.file([1])])["metadata"]["etag"] == before
    stale = people.staged([people.file([2])])
    lines = Path(people.folder, "_delta_log", f"{0:020}.json").read_text().splitlines()
    metadata = next(json.loads(line) for line in lines if "metaData" in line)
    metadata["metaData"]["configuration"]["owner"] = "x"
    after = people.commit([metadata])["metadata"]["etag"]
    assert after != before
    assert after.isascii()
    assert '"' not in after
    stale = people.staged([people.file([2])])
    stale["requirements"].append({"type": "assert-etag", "etag": before})
    answer = people.update(stale)
    assert (answer.status_code, answer.json()["error"]["type"]) == (409, "UpdateRequirementConflictException")


def test_complex_types_are_hyphenated_and_metadata_is_not(client):
    client.post("/v1/tables", json={"name": "sales.nested", "schema": NESTED})
    (field,) = ManagedTable(client, "nested").load()["metadata"]["columns"]["fields"]
    assert field["type"] == {
        "type": "map",
        "key-type": "string",
        "value-type": {"type": "array", "element-type": "long", "contains-null": True},
        "value-contains-null": False,
    }
    assert field["metadata"] == {"elementType": "is text here"}
    (column,) = client.get(f"{BASE}/tables/delvec.sales.nested").json()["columns"]
    assert column["type_text"] == "map<string,array<bigint>>"


def test_clustering_columns_are_a_property_that_a_replace_does_not_copy_into_the_log(client):
    client.post("/v1/tables", json={"name": "sales.grouped", "schema": SCHEMA, "cluster-by": ["id"]})
    properties = ManagedTable(client, "grouped").load()["metadata"]["properties"]
    assert properties["clusteringColumns"] == '[["id"]]'
    assert "delta.clusteringColumns" not in properties


def test_a_table_that_delvec_created_has_a_folder_for_staged_commits_once_it_is_loaded(client):
    client.post("/v1/tables", json={"name": "sales.ours", "schema": SCHEMA, "managed": True})
    client.post("/v1/tables", json={"name": "sales.plain", "schema": SCHEMA})
    ours, plain = (ManagedTable(client, name).load()["metadata"]["location"] for name in ("ours", "plain"))
    staged = Path(ours.removeprefix("file://"), "_delta_log", "_staged_commits")
    assert staged.is_dir()
    assert not Path(plain.removeprefix("file://"), "_delta_log", "_staged_commits").exists()
    staged.rmdir()
    staged.touch()  # stands in for a folder that the service cannot make
    assert ManagedTable(client, "ours").load()["latest-table-version"] == 0


def test_local_files_have_credentials_without_configuration(client):
    # As Unity Catalog answers. Its Hadoop connector and kernel-rs take an empty list for an error.
    table = ManagedTable(client, "people")
    staging = table.stage()
    asked = client.get(f"{DELTA}/staging-tables/{table.uuid}/credentials").json()
    assert asked["storage-credentials"][0] | {"expiration-time-ms": 0} == {
        "prefix": f"{table.location}/",
        "operation": "READ_WRITE",
        "expiration-time-ms": 0,
        "config": {},
    }
    assert staging["storage-credentials"][0]["config"] == {}
    table.write_log(f"{0:020}.json", table.first_actions(staging))
    assert table.register().status_code == 200
    for operation in ("READ", "READ_WRITE"):
        answer = client.get(f"{table.url}/credentials", params={"operation": operation})
        [issued] = answer.json()["storage-credentials"]
        assert (issued["operation"], issued["config"]) == (operation, {})
        assert issued["expiration-time-ms"] > time.time() * 1000


def test_the_place_of_another_name_is_refused(client):
    table, other = ManagedTable(client, "people"), ManagedTable(client, "others")
    table.write_log(f"{0:020}.json", table.first_actions(table.stage()))
    for location in (table.location, "/etc", table.location.rpartition("-")[0]):
        answer = other.register(location=location)
        assert answer.status_code in (400, 403), answer.text
    assert client.get(other.url).status_code == 404
    assert table.register(uniform=UNIFORM).status_code == 400  # nobody would keep it
    assert table.register().status_code == 200
    assert table.register().status_code == 200
    assert table.load()["latest-table-version"] == 0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda actions: actions[1]["protocol"].update(readerFeatures=[], writerFeatures=[]),
            "catalogManaged",
        ),
        (lambda actions: actions[2]["metaData"]["configuration"].pop("io.unitycatalog.tableId"), "tableId"),
        (lambda actions: actions[0]["commitInfo"].pop("inCommitTimestamp"), "no inCommitTimestamp"),
        (lambda actions: actions.pop(2), "no metadata"),
    ],
)
def test_a_version_0_that_is_not_a_managed_tables_is_refused(client, change, match):
    table = ManagedTable(client, "people")
    actions = table.first_actions(table.stage())
    change(actions)
    table.write_log(f"{0:020}.json", actions)
    answer = table.register()
    assert answer.status_code == 400, answer.text
    assert match in answer.json()["error"]["message"]
    assert client.get(table.url).status_code == 404


def test_a_missing_version_0_and_a_taken_name_are_refused(people, client):
    again = ManagedTable(client, "people")
    staging = client.post(again.tables.replace("/tables", "/staging-tables"), json={"name": "people"})
    assert (staging.status_code, staging.json()["error"]["type"]) == (409, "AlreadyExistsException")
    other = ManagedTable(client, "others")
    other.stage()
    assert "There is no version 0" in other.register().json()["error"]["message"]


def test_two_creations_of_one_name_have_two_places_and_one_wins(client):
    tables = [ManagedTable(client, "people") for _ in range(2)]
    for table in tables:
        table.write_log(f"{0:020}.json", table.first_actions(table.stage()))
    assert tables[0].location != tables[1].location
    assert [table.register().status_code for table in tables] == [200, 409]


def test_requirements_and_updates_that_make_no_sense_are_refused(people):
    body = people.staged([people.file([1])])
    for change, status in (
        ({"requirements": []}, 400),
        ({"requirements": [{"type": "assert-table-uuid", "uuid": "another"}]}, 404),
        ({"updates": body["updates"] + body["updates"][:1]}, 400),
        ({"updates": [{"action": "drop-everything"}]}, 400),
        ({"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}, 400),
        ({"updates": [{"action": "set-latest-backfilled-version", "latest-published-version": 7}]}, 400),
        ({"updates": [body["updates"][0], {**body["updates"][1], "latest-published-version": 1}]}, 400),
        ({"updates": [{"action": "update-metadata-snapshot-version", "last-commit-version": 1}]}, 400),
        (
            {
                "updates": [
                    *body["updates"],
                    {"action": "set-properties", "updates": {"a": "b"}},
                    {"action": "remove-properties", "removals": ["c", "a"]},
                ]
            },
            400,
        ),
        (
            {
                "updates": [
                    *body["updates"],
                    {"action": "set-domain-metadata", "updates": {"delta.clustering": {}}},
                    {"action": "remove-domain-metadata", "domains": ["delta.clustering"]},
                ]
            },
            400,
        ),
        ({"updates": [{**body["updates"][0], "uniform": UNIFORM}]}, 400),
    ):
        assert people.update({**body, **change}).status_code == status, change
    assert people.version() == 0
    report = [{"action": "set-latest-backfilled-version", "latest-published-version": 0}]
    assert people.update({**body, "updates": report}).status_code == 200
    assert people.update(body).status_code == 200


def test_a_dropped_table_takes_no_commit_and_keeps_its_files(people, client):
    body = people.staged([people.file([1])])
    assert client.delete(people.url).status_code == 204
    answer = people.update(body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NoSuchTableException")
    again = ManagedTable(client, "people").create()
    assert again.update(body).status_code == 404
    assert Path(people.folder, "_delta_log", f"{0:020}.json").exists()


def test_a_table_is_renamed_in_its_schema(people, client):
    assert client.post(f"{people.url}/rename", json={"new-name": "persons"}).status_code == 204
    assert client.get(people.url).status_code == 404
    assert ManagedTable(client, "persons").load()["metadata"]["table-uuid"] == people.uuid


def test_the_classic_routes_list_what_there_is(people, client):
    client.post("/v1/tables", json={"name": "plain", "schema": SCHEMA})
    schemas = client.get(f"{BASE}/schemas", params={"catalog_name": "delvec"}).json()["schemas"]
    assert [schema["name"] for schema in schemas] == ["default", "sales"]
    for schema, name, kind in (("sales", "people", "MANAGED"), ("default", "plain", "EXTERNAL")):
        listing = client.get(f"{BASE}/tables", params={"catalog_name": "delvec", "schema_name": schema})
        (table,) = listing.json()["tables"]
        assert (table["name"], table["table_type"]) == (name, kind)
        assert client.get(f"{BASE}/tables/delvec.{schema}.{name}").json() == table
    assert table["table_id"] != people.uuid
    assert client.get(f"{BASE}/catalogs").json()["catalogs"][0]["name"] == "delvec"
    assert client.get(f"{BASE}/metastore_summary").json()["metastore_id"]
    assert client.post(f"{BASE}/schemas", json={"name": "new", "catalog_name": "delvec"}).status_code == 200
    assert client.get(f"{BASE}/schemas/delvec.new").json()["full_name"] == "delvec.new"
    made = client.post(
        f"{BASE}/temporary-table-credentials", json={"table_id": people.uuid, "operation": "READ"}
    )
    assert (made.status_code, made.json()) == (200, {})
    missing = client.get(f"{BASE}/tables/delvec.sales.missing")
    assert (missing.status_code, missing.json()["error_code"]) == (404, "NoSuchTableException")
    assert client.delete(f"{BASE}/tables/delvec.sales.people").status_code == 200


@pytest.mark.parametrize("api", ["unity", "iceberg"])
def test_a_page_of_tables_costs_that_page(client, monkeypatch, api):
    names = ["b", "c", "default.a", "sales.a", "sales.b", "sales.c", "sales.eu.a"]
    registry = client.service.tables._registry
    for number, name in enumerate(names):
        registry.add(f"memory:///{number}", name, "folder")
    read = []
    page = Registry.page

    def counted(self, *arguments, **options):
        found = page(self, *arguments, **options)
        read.extend(record.name for record in found)
        return found

    monkeypatch.setattr(Registry, "page", counted)
    monkeypatch.setattr(tables_registry, "_PAGE", 2)

    def names_in(schema, size):
        token = ""
        while token is not None:
            del read[:]
            if api == "unity":
                query = {"catalog_name": "delvec", "schema_name": schema, "max_results": size}
                found = client.get(f"{BASE}/tables", params={**query, "page_token": token}).json()
                tables, token = found["tables"], found["next_page_token"]
            else:
                query = {"pageToken": token, "pageSize": size}
                found = client.get(f"/iceberg/v1/namespaces/{schema}/tables", params=query).json()
                tables, token = found["identifiers"], found["next-page-token"]
            assert len(read) <= size + 3
            yield from (table["name"] for table in tables)

    assert list(names_in("sales", 1)) == list(names_in("sales", 2)) == ["a", "b", "c"]
    assert list(names_in("default", 1)) == list(names_in("default", 50)) == ["b", "c", "a"]


def test_another_catalog_and_odd_names_are_refused(people, client):
    assert (
        ManagedTable(client, "people", catalog="main")
        .http.get(f"{DELTA}/catalogs/main/schemas/sales/tables/people")
        .status_code
        == 404
    )
    assert client.get(f"{DELTA}/config", params={"catalog": "main"}).status_code == 404
    assert client.get(f"{DELTA}/config", params={"catalog": "delvec"}).json()["protocol-version"] == "1.0"
    for name in ("a b", "..", people.uuid, "x" * 200):
        assert client.get(f"{people.tables}/{name}").status_code in (400, 404), name
    staging = client.post(people.tables.replace("/tables", "/staging-tables"), json={"name": "a/b"})
    assert staging.status_code == 400


def corrupt(people):
    entry = Path(people.folder) / "_delta_log" / f"{0:020}.json"
    entry.write_text("not JSON")
    people.http.service.loader.forget(people.location)


TABLES = f"{BASE}/tables"
IN_SALES = {"name": "t", "catalog_name": "delvec", "schema_name": "sales", "storage_location": "{location}"}


@pytest.mark.parametrize(
    ("request_", "status", "kind"),
    [
        (("PUT", "{url}", None), 405, "BadRequestException"),
        (("GET", "{tables}", None), 405, "BadRequestException"),
        (("PATCH", f"{BASE}/schemas/delvec.sales", None), 405, "BadRequestException"),
        (("GET", f"{DELTA}/catalogs/nope/schemas/s/tables/t", None), 404, "NoSuchCatalogException"),
        (("GET", f"{BASE}/schemas?catalog_name=nope", None), 404, "NoSuchCatalogException"),
        (("GET", f"{DELTA}/catalogs/delvec/schemas/%C3%A9/tables/t", None), 404, "NoSuchSchemaException"),
        (("GET", BASE, None), 404, "NotFoundException"),
        (("GET", f"{DELTA}/nope", None), 404, "NotFoundException"),
        (("POST", f"{BASE}/schemas", {"name": "x y", "catalog_name": "delvec"}), 400, "BadRequestException"),
        (("POST", TABLES, {**IN_SALES, "table_type": "VIEW"}), 400, "BadRequestException"),
        (("POST", "{url}", {"requirements": [], "updates": ["x" * 9_000_000]}), 400, "BadRequestException"),
    ],
)
def test_each_mistake_has_a_type_of_unity_catalog(people, client, request_, status, kind):
    method, path, body = request_
    facts = {"url": people.url, "tables": people.tables, "location": people.location}
    filled = body and {
        key: value.format(**facts) if isinstance(value, str) else value for key, value in body.items()
    }

    answer = client.request(method, path.format(**facts), json=filled)

    found = answer.json()
    if "/delta/v1/" in path.format(**facts):
        assert (found["error"]["type"], found["error"]["code"]) == (kind, status), answer.text
    else:
        assert found["error_code"] == kind, answer.text
    assert answer.status_code == status


def test_a_table_whose_log_is_corrupt_is_an_error_that_clients_do_not_repeat(people, client):
    corrupt(people)

    answer = client.get(people.url)

    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException"), answer.text
    listed = client.get(TABLES, params={"catalog_name": "delvec", "schema_name": "sales"})
    assert [each["name"] for each in listed.json()["tables"]] == ["people"]


def test_the_catalogs_name_is_a_setting(tmp_path):
    with running_service(roots=[str(tmp_path)], warehouse=str(tmp_path), catalog_name="main") as client:
        assert client.get(f"{BASE}/catalogs").json()["catalogs"][0]["name"] == "main"
        table = ManagedTable(client, "people", catalog="main").create()
        assert table.commit([table.file([1])])["latest-table-version"] == 1


# --- who may do what ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A service with a managed table in each of two schemas, and a principal for each role in `sales`."""
    root = tmp_path_factory.mktemp("guarded")
    with running_service(
        token=ADMIN, roots=[str(root)], warehouse=str(root), database_url=f"sqlite:///{root / 'store.db'}"
    ) as client:
        client.headers["Authorization"] = f"Bearer {ADMIN}"
        client.tokens = {"admin of all": ADMIN}
        for role in ("nothing", *ROLES):
            client.tokens[role] = client.post("/v1/tokens", json={"name": f"the-{role}"}).json()["token"]
            if role != "nothing":
                client.post("/v1/grants", json={"grantee": f"the-{role}", "role": role, "namespace": "sales"})
        client.of = {schema: ManagedTable(client, "people", schema).create() for schema in ("sales", "hr")}
        yield client


EXTERNAL = {
    "name": "people",
    "catalog_name": "delvec",
    "schema_name": "{schema}",
    "table_type": "EXTERNAL",
    "storage_location": "{location}",
}
NEEDS = {
    "reader": [
        ("GET", "{table}", None),
        ("HEAD", "{table}", None),
        ("GET", "{table}/credentials", None),
        ("GET", BASE + "/tables/delvec.{schema}.people", None),
        ("POST", BASE + "/temporary-table-credentials", {"table_id": "{uuid}"}),
        ("GET", BASE + "/delta/preview/commits", {"table_id": "{uuid}", "table_uri": "{location}"}),
    ],
    "writer": [
        ("POST", "{table}", "commit"),
        ("POST", "{table}/metrics", {}),
        ("GET", "{table}/credentials?operation=READ_WRITE", None),
        ("POST", BASE + "/temporary-table-credentials", {"table_id": "{uuid}", "operation": "READ_WRITE"}),
        ("POST", BASE + "/delta/preview/commits", {"table_id": "{uuid}", "table_uri": "{location}"}),
    ],
    "maintainer": [
        ("POST", "{schemas}/staging-tables", {"name": "another"}),
        ("GET", DELTA + "/temporary-path-credentials?location={location}", None),
        ("POST", "{schemas}/tables", {"name": "people", "location": "{location}"}),
        ("POST", "{table}/rename", {"new-name": "people"}),
        ("POST", BASE + "/tables", EXTERNAL),
        (
            "POST",
            BASE + "/staging-tables",
            {"name": "another", "catalog_name": "delvec", "schema_name": "{schema}"},
        ),
        (
            "POST",
            "{schemas}/tables",
            {"name": "people", "location": "{location}", "table-type": "EXTERNAL"},
        ),
    ],
    "admin": [("DELETE", "{table}", None), ("DELETE", BASE + "/tables/delvec.{schema}.people", None)],
}


@pytest.mark.parametrize("schema", ["sales", "hr"])
@pytest.mark.parametrize("role", ["nothing", *ROLES])
def test_each_request_is_for_those_who_have_the_role(guarded, role, schema):
    held = ROLES.index(role) if role != "nothing" and schema == "sales" else -1
    table = guarded.of[schema]
    facts = {
        "table": table.url,
        "schema": schema,
        "schemas": table.tables.removesuffix("/tables"),
        "uuid": table.uuid,
        "location": table.location,
    }
    for needed, requests in NEEDS.items():
        allowed = held >= ROLES.index(needed)
        if allowed and needed == "admin":
            continue
        for method, path, body in requests:
            filled = (
                table.staged([table.file([1])])
                if body == "commit"
                else None
                if body is None
                else {key: value.format(**facts) for key, value in body.items()}
            )
            answer = guarded.request(
                method,
                path.format(**facts),
                json=filled,
                headers={"Authorization": f"Bearer {guarded.tokens[role]}"},
            )
            refused = answer.status_code in (403, 404)
            assert refused != allowed, (method, path, answer.status_code, answer.text)
    lists = guarded.get(
        f"{BASE}/tables",
        params={"catalog_name": "delvec", "schema_name": schema},
        headers={"Authorization": f"Bearer {guarded.tokens[role]}"},
    )
    assert bool(lists.json()["tables"]) == (held >= 0)


def test_a_table_is_given_to_the_catalog_by_maintainers(guarded):
    made = guarded.post("/v1/tables", json={"name": "sales.given", "schema": SCHEMA}).json()
    for role, status in (("nothing", 403), ("reader", 403), ("writer", 403), ("maintainer", 200)):
        answer = guarded.post(
            "/v1/tables",
            json={"location": made["location"], "managed": True},
            headers={"Authorization": f"Bearer {guarded.tokens[role]}"},
        )
        assert answer.status_code == status, (role, answer.text)
        detail = guarded.get("/v1/tables/sales.given/detail").json()["detail"]
        assert ("catalogManaged" in detail["tableFeatures"]) == (role == "maintainer")


def test_without_a_token_nothing_answers(guarded):
    table = guarded.of["sales"]
    for method, path in (
        ("GET", table.url),
        ("POST", table.url),
        ("GET", f"{BASE}/catalogs"),
        ("GET", f"{DELTA}/config"),
    ):
        answer = guarded.request(method, path, headers={"Authorization": ""})
        assert answer.status_code == 401
    assert (
        guarded.get(table.url, headers={"Authorization": ""}).json()["error"]["type"]
        == "NotAuthorizedException"
    )


def test_commits_are_audited(guarded):
    table = guarded.of["sales"]
    table.commit([table.file([1])], txnId="audited")
    guarded.service.audit.flush()
    entries = guarded.get("/v1/audit", params={"table": "sales.people"}).json()
    (found,) = [entry for entry in entries["entries"] if entry["transaction-id"] == "audited"]
    assert (found["operation"], found["outcome"]) == ("update_managed_table", "done")
    assert found["version"] >= 1


# --- external tables, and changes without a commit -----------------------------------------------------------


def test_an_external_table_is_registered_by_both_apis(client, tmp_path):
    made = client.post("/v1/tables", json={"name": "first", "schema": SCHEMA}).json()
    client.delete("/v1/tables/first")
    body = {"name": "outside", "table-type": "EXTERNAL", "location": made["location"]}
    tables = f"{DELTA}/catalogs/delvec/schemas/sales/tables"
    answer = client.post(tables, json=body)
    assert (answer.status_code, answer.json()["metadata"]["table-type"]) == (200, "EXTERNAL"), answer.text
    assert "commits" not in answer.json()
    client.delete(f"{tables}/outside")
    classic = {
        "name": "outside",
        "catalog_name": "delvec",
        "schema_name": "sales",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": made["location"],
        "columns": [],
    }
    answer = client.post(f"{BASE}/tables", json=classic)
    assert (answer.status_code, answer.json()["table_type"]) == (200, "EXTERNAL"), answer.text
    for change in (
        {"table_type": "MANAGED"},
        {"data_source_format": "CSV"},
        {"name": "x", "storage_location": str(tmp_path / "lake" / "nothing")},
    ):
        assert client.post(f"{BASE}/tables", json={**classic, **change}).status_code in (400, 404), change
    place = {"url": str(tmp_path / "lake" / "new"), "operation": "PATH_CREATE_TABLE"}
    answer = client.post(f"{BASE}/temporary-path-credentials", json=place)
    assert (answer.status_code, answer.json()) == (200, {}), answer.text
    refused = client.post(f"{BASE}/temporary-path-credentials", json={**place, "url": "/etc"})
    assert refused.status_code == 403
    asked = {"location": place["url"], "operation": "READ_WRITE"}
    [issued] = client.get(f"{DELTA}/temporary-path-credentials", params=asked).json()["storage-credentials"]
    assert (issued["operation"], issued["config"]) == ("READ_WRITE", {})
    asked["location"] = "/etc"
    assert client.get(f"{DELTA}/temporary-path-credentials", params=asked).status_code == 403


def test_an_external_tables_report_changes_nothing(client):
    made = client.post("/v1/tables", json={"name": "sales.outside", "schema": SCHEMA}).json()
    body = {
        "requirements": [{"type": "assert-table-uuid", "uuid": made["id"]}],
        "updates": [
            {"action": "update-metadata-snapshot-version", "last-commit-version": 0},
            {"action": "set-properties", "updates": {"a": "b"}},
        ],
    }
    url = f"{DELTA}/catalogs/delvec/schemas/sales/tables/outside"
    answer = client.post(url, json=body)
    assert answer.status_code == 200, answer.text
    assert "a" not in answer.json()["metadata"]["properties"]
    assert client.get("/v1/tables/sales.outside/snapshot").json()["version"] == 0


def test_a_comment_alone_is_a_commit_of_the_catalog(people, client):
    requirements = [{"type": "assert-table-uuid", "uuid": people.uuid}]
    update = {"action": "set-table-comment", "comment": "people"}
    answer = people.update({"requirements": requirements, "updates": [update]})
    assert answer.status_code == 200, answer.text
    assert people.version() == 1
    assert client.get(f"{BASE}/tables/delvec.sales.people").json()["comment"] == "people"


def test_maintenance_by_clients_is_a_setting(tmp_path, people):
    assert "allowed-maintenance-operations" not in people.load()
    roots = [str(tmp_path)]
    with running_service(
        roots=roots, warehouse=roots[0], catalog_maintenance="DATA_REORGANIZATION"
    ) as client:
        table = ManagedTable(client, "others").create()
        assert table.load()["allowed-maintenance-operations"] == ["DATA_REORGANIZATION"]
