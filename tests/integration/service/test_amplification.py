"""No answer is many times as large as its request: what a client sends is not repeated for each file of a table."""

import json

import pyarrow as pa
import pytest

import delvec

FILES = 60
LARGE = 40_000


@pytest.fixture(scope="module")
def location(tmp_path_factory):
    folder = tmp_path_factory.mktemp("amplification") / "people"
    with delvec.connect() as lake:
        table = lake.create_table(folder, "id long, name string", partition_by=["name"])
        table.append(pa.table({"id": range(FILES), "name": [f"n{number}" for number in range(FILES)]}))
    return folder


@pytest.fixture
def people(client, location):
    client.post("/v1/tables", json={"location": str(location), "name": "people"}).raise_for_status()


TEXT = "x" * LARGE
LONG_OR = " OR ".join(["id >= 0"] * (LARGE // 11))
REQUESTS = {
    "plan: predicate": ("POST", "/v1/tables/people/plan", {"predicate": LONG_OR}),
    "plan: literal": ("POST", "/v1/tables/people/plan", {"predicate": f"name <> '{TEXT}'"}),
    "plan: columns": ("POST", "/v1/tables/people/plan", {"columns": ["id"] * 5000}),
    "plan: unknown column": ("POST", "/v1/tables/people/plan", {"columns": [TEXT]}),
    "plan: page token": ("POST", "/v1/tables/people/plan", {"page-token": TEXT}),
    "delete": ("POST", "/v1/tables/people/delete", {"predicate": f"id < 0 AND name <> '{TEXT}'"}),
    "update": ("POST", "/v1/tables/people/update", {"set": {"name": f"'{TEXT}'"}, "predicate": "id < 0"}),
    "update: unknown columns": (
        "POST",
        "/v1/tables/people/update",
        {"set": {f"column {number}": 1 for number in range(2000)}, "predicate": "id < 0"},
    ),
    "health": ("GET", f"/v1/tables/people/health?columns={','.join(['id'] * 2000)}", None),
    "invalid items": ("POST", "/v1/tables/people/plan", {"columns": [1] * 10_000}),
    "commit: removes": (
        "POST",
        "/v1/tables/people/commits",
        {
            "read-version": 0,
            "operation": "DELETE",
            "removes": [{"path": f"p{number}"} for number in range(2000)],
        },
    ),
    "commit: adds": (
        "POST",
        "/v1/tables/people/commits",
        {"read-version": 0, "operation": "WRITE", "adds": [{"path": "../x" + TEXT}] * 20},
    ),
    "create": ("POST", "/v1/tables", {"location": TEXT, "name": TEXT, "schema": TEXT}),
    "convert": ("POST", "/v1/convert", {"location": "/" + TEXT, "partition-schema": TEXT}),
    "headers": ("GET", "/v1/tables/people", None),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_an_answer_is_not_many_times_as_large_as_its_request(client, people, name):
    method, path, body = REQUESTS[name]
    headers = {"X-Request-Id": "y" * 2000} if name == "headers" else {}
    answer = client.request(method, path, json=body, headers=headers)
    sent = len(path) + (0 if body is None else len(json.dumps(body))) + sum(map(len, headers.values()))

    # What the service says about 60 files of its own accord takes less than 64 KB.
    assert len(answer.content) <= 64_000 + 3 * sent
