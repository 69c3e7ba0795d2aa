"""The API before the Delta API v1: classic staging tables, and commits below ``/delta/preview``."""

import json
import uuid
from pathlib import Path

import pytest
from tests.support.catalog_client import BASE, SCHEMA, ManagedTable

from delvec_kernel import locations

COMMITS = f"{BASE}/delta/preview/commits"
NAME = {"name": "made", "catalog_name": "delvec", "schema_name": "sales"}
FIELDS = [
    {"name": "id", "type": "long", "nullable": False, "metadata": {"comment": "the id"}},
    {"name": "day", "type": "string", "nullable": True, "metadata": {}},
]
COLUMNS = [
    {"name": field["name"], "type_json": json.dumps(field), "position": position}
    for position, field in enumerate(FIELDS)
]
COLUMNS[1]["partition_index"] = 0


def place(people, **more):
    return {"table_id": people.uuid, "table_uri": people.location, **more}


def proposal(people, *actions, version=None):
    """Stage a commit; return the request that commits it."""
    added, report = people.staged(actions, version=version)["updates"]
    commit = {key.replace("-", "_"): value for key, value in added["commit"].items()}
    return place(people, commit_info=commit, latest_backfilled_version=report["latest-published-version"])


def listed(client, people, **more):
    return client.request("GET", COMMITS, json=place(people, start_version=0, **more))


def test_a_commit_is_checked_and_published_and_sent_again_has_no_effect(people, client):
    request = proposal(people, people.file([1, 2]))

    for _ in range(2):
        assert (client.post(COMMITS, json=request).json(), people.version()) == ({}, 1)

    other = client.post(COMMITS, json=proposal(people, people.file([3]), version=1))
    assert (other.status_code, other.json()["error_code"]) == (409, "CommitVersionConflictException")
    missing = {"add": {**people.file([4])["add"], "path": "missing.parquet"}}
    refused = client.post(COMMITS, json=proposal(people, missing))
    assert (refused.status_code, refused.json()["error_code"]) == (400, "InvalidParameterValueException")
    assert people.version() == 1


def test_no_version_is_named_because_the_log_has_them_all(people, client):
    people.commit([people.file([1])])

    answer = listed(client, people)

    assert (answer.status_code, answer.json()) == (200, {"commits": [], "latest_table_version": -1})


def test_a_report_is_checked(people, client):
    assert client.post(COMMITS, json=place(people, latest_backfilled_version=0)).status_code == 200
    early = client.post(COMMITS, json=place(people, latest_backfilled_version=1))
    assert (early.status_code, early.json()["error_code"]) == (400, "InvalidParameterValueException")


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"table_id": str(uuid.uuid4())}, 404, "NoSuchTableException"),
        ({"table_id": "sales.people"}, 404, "NoSuchTableException"),
        ({"table_uri": "file:///elsewhere"}, 400, "BadRequestException"),
        ({"table_uri": "no location"}, 400, "BadRequestException"),
        ({"table_uri": None}, 400, "BadRequestException"),
        ({"commit_info": {"version": 1}}, 400, "BadRequestException"),
    ],
)
def test_what_is_not_the_table_or_no_commit_is_refused(people, client, changes, status, code):
    answer = client.post(COMMITS, json=place(people) | changes)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    if "commit_info" not in changes:
        assert listed(client, people, **changes).status_code == status


def created(client, **changes):
    staging = client.post(f"{BASE}/staging-tables", json=NAME).json()
    request = {
        **NAME,
        "table_type": "MANAGED",
        "data_source_format": "DELTA",
        "storage_location": staging["staging_location"],
        "columns": COLUMNS,
        "comment": "of days",
        "properties": {"comment": "of days", "owner.team": "x"},
        **changes,
    }
    return staging, client.post(f"{BASE}/tables", json=request), request


def test_a_table_is_created_by_its_columns(client):
    staging, answer, request = created(client)

    table = answer.json()
    assert (table["table_type"], table["comment"]) == ("MANAGED", "of days")
    assert (table["table_id"], table["storage_location"]) == (staging["id"], staging["staging_location"])
    assert [json.loads(column["type_json"]) for column in table["columns"]] == FIELDS
    assert [column.get("partition_index") for column in table["columns"]] == [None, 0]
    assert table["properties"]["owner.team"] == "x"
    assert "comment" not in table["properties"]
    assert client.post(f"{BASE}/tables", json=request).json() == table
    again = client.post(f"{BASE}/staging-tables", json=NAME)
    assert (again.status_code, again.json()["error_code"]) == (409, "AlreadyExistsException")


def test_a_staging_table_has_credentials_until_it_is_a_table(client):
    staging = client.post(f"{BASE}/staging-tables", json=NAME).json()
    body = {"table_id": staging["id"], "operation": "READ_WRITE"}
    asked = client.post(f"{BASE}/temporary-table-credentials", json=body)
    assert (asked.status_code, asked.json()) == (200, {})  # local files need none
    other = client.post(f"{BASE}/temporary-table-credentials", json={**body, "table_id": str(uuid.uuid4())})
    assert (other.status_code, other.json()["error_code"]) == (404, "NoSuchTableException")


def test_a_staging_table_has_no_credentials_after_its_table_was_dropped(client):
    """They could replace version 0, with which the table may be brought back."""
    staging, answer, _ = created(client)
    assert answer.status_code == 200, answer.text
    name = f"{NAME['catalog_name']}.{NAME['schema_name']}.{NAME['name']}"
    assert client.delete(f"{BASE}/tables/{name}").status_code == 200

    body = {"table_id": staging["id"], "operation": "READ_WRITE"}
    refused = client.post(f"{BASE}/temporary-table-credentials", json=body)

    assert (refused.status_code, refused.json()["error_code"]) == (409, "AlreadyExistsException")


def test_a_version_0_that_the_client_has_written_stays(client):
    people = ManagedTable(client, "made")
    people.write_log(f"{0:020}.json", people.first_actions(people.stage()))

    answer = client.post(
        f"{BASE}/tables",
        json={**NAME, "table_type": "MANAGED", "storage_location": people.location, "columns": COLUMNS},
    )

    assert [column["name"] for column in answer.json()["columns"]] == ["id"], answer.text
    assert json.loads(SCHEMA)["fields"][0]["name"] == "id"


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"columns": []}, "no version 0"),
        ({"columns": [{**COLUMNS[0], "type_json": "{"}]}, "not JSON"),
        ({"columns": [{**COLUMNS[0], "type_json": "[]"}]}, "id"),
        ({"columns": [{**COLUMNS[0], "type_json": '{"name":"id","type":"cube","nullable":true}'}]}, "cube"),
        ({"properties": {"delta.enableDeletionVectors": "false"}}, "delta.enableDeletionVectors"),
        ({"data_source_format": "CSV"}, "only Delta tables"),
        ({"storage_location": None}, "staging_location"),
        ({"name": "another"}, "not a staging location"),
    ],
)
def test_a_table_that_cannot_be_is_refused(client, changes, match):
    staging, answer, _ = created(client, **changes)

    assert answer.status_code == 400, answer.text
    assert match in answer.json()["message"]
    assert not (Path(locations.local_path(staging["staging_location"])) / "_delta_log").exists()
    assert client.get(f"{BASE}/tables/delvec.sales.made").status_code == 404
