"""A service process killed during a commit leaves a table that all readers read alike.

It leaves only files that no version names, each in the ledger. The request, sent again, takes effect once.
"""

import base64
import json
import time
import uuid
from dataclasses import dataclass

import deltalake
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.chaos.campaign import read_with_deltalake
from tests.chaos.oracle import Log
from tests.chaos.replica import Replica
from tests.support.suites import some_in_gate

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap
from delvec_service.commits.fault_points import POINTS

ROWS = set(range(10))
CREATED, FILLED, COMMITTED = 0, 1, 2


@dataclass(frozen=True)
class Crash:
    """A point where a commit is killed, and the state afterwards.

    Attributes:
        operation: the commit's operation.
        version: the newest version after the crash.
        files: deletion vector files in storage afterwards.
    """

    point: str
    operation: str
    version: int
    files: int


CRASHES = [
    Crash("begin", "DELETE", FILLED, 0),
    Crash("before-ledger", "DELETE", FILLED, 0),
    Crash("after-ledger", "DELETE", FILLED, 0),
    Crash("after-deletion-vectors", "DELETE", FILLED, 1),
    Crash("before-put", "DELETE", FILLED, 1),
    Crash("after-put", "DELETE", COMMITTED, 1),
    Crash("before-close", "DELETE", COMMITTED, 1),
    Crash("before-answer", "DELETE", COMMITTED, 1),
    Crash("before-put", "WRITE", FILLED, 0),
    Crash("after-put", "WRITE", COMMITTED, 0),
]
IN_GATE = [
    crash for crash in CRASHES if crash.point in ("before-put", "after-put") and crash.operation == "DELETE"
]


def test_every_fault_point_is_in_the_table():
    assert {crash.point for crash in CRASHES} == POINTS


@pytest.mark.parametrize(
    "crash",
    some_in_gate(CRASHES, IN_GATE, "the other moments of the same commits"),
    ids=lambda crash: f"{crash.point} {crash.operation}",
)
def test_a_killed_service_leaves_a_table_and_ledgered_files(tmp_path, running, crash):
    roots = tmp_path / "tables"
    location = roots / "people"
    location.mkdir(parents=True)
    database = f"sqlite:///{tmp_path / 'store.db'}"
    with running(database_url=database, log_maintenance=False) as client:
        name = filled(client, location)
    request = {"json": body(crash.operation, location), "headers": {"Idempotency-Key": str(uuid.uuid4())}}
    key = request["headers"]["Idempotency-Key"]

    replica = Replica(0, tmp_path, str(roots), database, DELVEC_LOG_MAINTENANCE="false")
    replica.start(fault_points=f"{crash.point}:kill")
    assert replica.wait(), replica.tail()
    with pytest.raises(httpx.TransportError):
        httpx.post(f"{replica.url}/v1/tables/{name}/commits", timeout=60, **request)
    assert replica.ended() == -9, replica.tail()

    # Before any restart, readers see exactly what was committed.
    expected = after(crash.operation) if crash.version == COMMITTED else ROWS
    assert deltalake.DeltaTable(str(location)).version() == crash.version
    assert sorted(read_with_deltalake(location)) == sorted(expected)
    assert len(list(location.rglob("*.bin"))) == crash.files

    with running(database_url=database, log_maintenance=False) as client:
        url = f"/v1/tables/{name}"
        assert client.get(f"{url}/snapshot").json()["version"] == crash.version
        assert sorted(read_with_delvec(client, location)) == sorted(expected)

        answers = [client.post(f"{url}/commits", **request) for _ in range(2)]

        assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
        assert answers[0].json() == answers[1].json()
        assert (answers[0].json()["version"], answers[0].json()["transaction-id"]) == (COMMITTED, key)
        for rows in (read_with_deltalake(location), read_with_delvec(client, location)):
            assert sorted(rows) == sorted(after(crash.operation))
        check_files(client, url, location)


def check_files(client, url, location):
    """The log has each transaction once; files it does not name are in the ledger, and not as committed."""
    log = Log()
    log.read(location)
    assert set(log.keys.values()) == {1}
    checked = client.get(f"{url}/check").json()
    assert checked["num-errors"] == 0, checked["findings"]
    files = {path.relative_to(location).as_posix() for path in location.rglob("*.bin")}
    assert {orphan["path"] for orphan in checked["orphans"]} == files - log.named
    assert "committed" not in {orphan["state"] for orphan in checked["orphans"]}


def filled(client, location):
    """Create a table with ten rows in one file, at version 1."""
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    created = client.post("/v1/tables", json={"location": str(location), "schema": schema})
    assert created.status_code == 201, created.text
    name = created.json()["name"]
    request = {"read-version": CREATED, "operation": "WRITE", "adds": [add(location, "a.parquet", ROWS)]}
    assert client.post(f"/v1/tables/{name}/commits", json=request).json()["version"] == FILLED
    return name


def add(location, name, ids):
    pq.write_table(pa.table({"id": pa.array(sorted(ids), pa.int64())}), location / name)
    return {
        "path": name,
        "size": (location / name).stat().st_size,
        "modificationTime": time.time_ns() // 1_000_000,
        "partitionValues": {},
        "stats": json.dumps({"numRecords": len(ids)}),
    }


def body(operation, location):
    if operation == "WRITE":
        return {
            "read-version": FILLED,
            "operation": "WRITE",
            "adds": [add(location, "b.parquet", {100, 101})],
        }
    rows = base64.b64encode(serialize_bitmap(BitMap64([3, 4]))).decode()
    return {
        "read-version": FILLED,
        "operation": "DELETE",
        "predicate": "id IN (3, 4)",
        "row-deletes": [{"path": "a.parquet", "rows": rows}],
    }


def after(operation):
    return ROWS | {100, 101} if operation == "WRITE" else ROWS - {3, 4}


def read_with_delvec(client, location):
    # Not closed: that would close the service, which belongs to the client.
    lake = Connection(ServiceClient("http://embedded", transport=client._transport))
    return lake.table(str(location), engine="duckdb").to_arrow(columns=["id"])["id"].to_pylist()
