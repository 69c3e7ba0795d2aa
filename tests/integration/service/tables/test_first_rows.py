"""``POST /v1/new-tables``, and `first-rows` of ``POST /v1/tables``: a table and its rows in one version."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


@pytest.fixture
def begun(client, tmp_path):
    body = {"location": str(tmp_path / "people"), "schema": SCHEMA}
    answer = client.post("/v1/new-tables", json=body)
    assert answer.status_code == 201, answer.text
    return body, answer.json()


def written(place, name, ids=(1, 2)):
    """Write a data file, and return its add action."""
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(ids)}), place / name)
    stats = {"numRecords": len(ids)}
    return {
        "path": name,
        "partitionValues": {},
        "size": (place / name).stat().st_size,
        "modificationTime": 0,
        "stats": json.dumps(stats),
    }


def create(client, body, begun, adds, key=None, **rows):
    first = {"transaction-id": begun["transaction-id"], "adds": adds, **rows}
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post("/v1/tables", json={**body, "first-rows": first}, headers=headers)


def test_nothing_exists_before_the_rows_do(client, tmp_path, begun):
    _body, state = begun
    assert (state["version"], state["num-files"]) == (-1, 0)
    assert state["location"] == f"file://{tmp_path}/people"
    assert state["configuration"] == {"delta.enableDeletionVectors": "true"}
    assert client.get("/v1/tables").json()["tables"] == []
    assert not (tmp_path / "people").exists()


def test_the_table_and_its_rows_are_one_version(client, tmp_path, begun):
    body, state = begun
    made = create(client, body, state, [written(tmp_path / "people", "one.parquet")])
    assert made.status_code == 201, made.text
    assert made.json()["version"] == 0
    snapshot = client.get(f"/v1/tables/{made.json()['id']}/snapshot").json()
    assert (snapshot["version"], snapshot["num-files"], snapshot["num-rows"]) == (0, 1, 2)


def test_a_request_that_is_sent_again_changes_nothing(client, tmp_path, begun):
    """With another key, too: the log knows the transaction."""
    body, state = begun
    adds = [written(tmp_path / "people", "one.parquet")]
    first = create(client, body, state, adds, key="a")
    (tmp_path / "people" / "one.parquet").unlink()  # not looked at a second time
    for key in ("a", "b"):
        again = create(client, body, state, adds, key=key)
        assert (again.status_code, again.json()["id"]) == (201, first.json()["id"]), again.text
    assert [each.name for each in (tmp_path / "people" / "_delta_log").glob("*.json")] == [f"{0:020}.json"]


def test_of_two_that_create_a_table_one_does(client, tmp_path, begun, error):
    body, state = begun
    other = client.post("/v1/new-tables", json=body).json()
    assert create(client, body, other, [written(tmp_path / "people", "o.parquet")]).status_code == 201
    refused = create(client, body, state, [written(tmp_path / "people", "s.parquet")])
    assert error(refused)["type"] == "TableAlreadyExists"
    assert error(client.post("/v1/new-tables", json=body))["type"] == "TableAlreadyExists"


def test_files_are_checked(client, tmp_path, begun, error):
    body, state = begun
    place = tmp_path / "people"
    add = written(place, "one.parquet")
    for wrong, kind in (
        ({**add, "size": add["size"] + 1}, "FileSizeMismatch"),
        ({**add, "path": "two.parquet"}, "FileNotInStorage"),
        ({**add, "path": "../one.parquet"}, "FileNotInTable"),
        ({**add, "stats": "{}"}, "InvalidCommit"),
        ({**add, "partitionValues": {"x": "1"}}, "InvalidCommit"),
    ):
        refused = create(client, body, state, [wrong])
        assert error(refused)["type"] == kind
        assert 400 <= refused.status_code < 500
    assert not (place / "_delta_log").exists()
    assert client.get("/v1/tables").json()["tables"] == []


def test_rows_are_for_new_tables_and_a_definition_is_needed(client, tmp_path, begun, error):
    _body, state = begun
    rows = {"transaction-id": state["transaction-id"]}
    assert "schema" in error(client.post("/v1/new-tables", json={"name": "x"}))["message"]
    refused = client.post("/v1/tables", json={"location": str(tmp_path), "first-rows": rows})
    assert "only for new tables" in error(refused)["message"]
