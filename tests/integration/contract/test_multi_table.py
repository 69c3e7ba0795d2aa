"""Transactions over several tables on object stores."""

import json

import pytest
from tests.chaos.transaction_campaign import first_version
from tests.support.in_process_service import running_service

from delvec_errors import StorageError
from delvec_service.commits import fault_points
from delvec_service.store.objects import ObjectStore


@pytest.fixture(params=["local_location", "memory_location", "s3_location"])
def warehouse(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def client(warehouse):
    settings = {
        "roots": [warehouse],
        "warehouse": warehouse,
        "log_maintenance": False,
        "transaction_seconds": 0.5,
    }
    with running_service(**settings) as client:
        create(client, warehouse)
        yield client


def create(client, warehouse):
    for name in ("orders", "stock"):
        place = f"{warehouse}/{name}"
        text = "".join(f"{json.dumps(action)}\n" for action in first_version(place))
        ObjectStore(place).put(f"_delta_log/{0:020}.json", text.encode())
        answer = client.post("/v1/tables", json={"location": place, "name": name})
        assert answer.status_code == 201, answer.text


def part(warehouse, name, version, path):
    ObjectStore(f"{warehouse}/{name}").put(path, b"PAR1")
    add = {
        "path": path,
        "size": 4,
        "modificationTime": 1,
        "partitionValues": {},
        "stats": '{"numRecords": 1}',
    }
    return {"table": name, "commit": {"read-version": version, "operation": "WRITE", "adds": [add]}}


def commit(client, warehouse, version, path, key):
    parts = [part(warehouse, name, version, path) for name in ("orders", "stock")]
    return client.post("/v1/transactions", json={"tables": parts, "transaction-id": key})


def state(client):
    answer = client.post("/v1/snapshots", json={"tables": ["orders", "stock"]})
    assert answer.status_code == 200, answer.text
    return [(each["version"], each["num-files"]) for each in answer.json()["snapshots"]]


def test_all_or_nothing_on_every_store(client, warehouse):
    assert commit(client, warehouse, 0, "a.parquet", "key-1").status_code == 200
    assert state(client) == [(2, 1), (2, 1)]

    def fail():
        raise StorageError("storage failed")

    with fault_points.armed(before_publication=fail):
        assert commit(client, warehouse, 2, "b.parquet", "key-2").status_code == 200
    assert ObjectStore(f"{warehouse}/stock").head(f"_delta_log/{4:020}.json") is None
    assert state(client) == [(4, 2), (4, 2)]
    with fault_points.armed("before-decision:error*1"):
        assert commit(client, warehouse, 4, "c.parquet", "key-3").status_code == 504
    assert state(client) == [(5, 2), (5, 2)]
    alone = part(warehouse, "stock", 4, "d.parquet")["commit"]
    assert client.post("/v1/tables/stock/commits", json=alone).json()["version"] == 6
    again = commit(client, warehouse, 4, "c.parquet", "key-3")
    assert [each["commit"]["version"] for each in again.json()["tables"]] == [7, 8]
    assert state(client) == [(7, 3), (8, 4)]


def test_requests_of_a_transaction(s3_location, s3_server):
    warehouse = s3_location
    settings = {"roots": [warehouse], "warehouse": warehouse, "log_maintenance": False, "event_days": 0}
    with running_service(**settings) as client:
        create(client, warehouse)
        assert commit(client, warehouse, 0, "a.parquet", "key-1").status_code == 200
        parts = [part(warehouse, name, 2, "b.parquet") for name in ("orders", "stock")]
        del s3_server.requests[:]
        assert client.post("/v1/transactions", json={"tables": parts}).status_code == 200
        kinds = [each.kind for each in s3_server.requests]
    # For each table the reservation, the staged commit and the version; and the record.
    assert kinds.count("PUT") == 7
    assert len(kinds) <= 31, kinds
