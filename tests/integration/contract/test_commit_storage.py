"""A table's life cycle through the service is the same on local disk, in memory and on S3."""

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.support.asgi_transport import EmbeddedTransport

from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, serialize_bitmap
from delvec_service.app import create_app
from delvec_service.config import Settings
from delvec_storage import files as storage

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


@pytest.fixture
def table(location):
    transport = EmbeddedTransport(create_app(Settings.embedded("sqlite://")))
    with httpx.Client(transport=transport, base_url="http://delvec.test", timeout=60) as client:
        body = {"location": location, "name": "people", "schema": SCHEMA}
        answer = client.post("/v1/tables", json=body)
        assert answer.status_code == 201, answer.text
        yield client, location


def write(location, path, ids):
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), sink)
    storage.write_file(location, path, sink.getvalue())
    stats = json.dumps({"numRecords": len(ids)})
    return {"path": path, "size": len(sink.getvalue()), "modificationTime": 1, "stats": stats}


def commit(client, **body):
    return client.post("/v1/tables/people/commits", json=body)


def test_create_append_delete_plan(table):
    client, location = table
    add = write(location, "part%201.parquet", range(10))
    assert commit(client, operation="WRITE", adds=[add], **{"read-version": 0}).json()["version"] == 1

    rows = base64.b64encode(serialize_bitmap(BitMap64([2, 3]))).decode()
    body = {"read-version": 1, "row-deletes": [{"path": "part%201.parquet", "rows": rows}]}
    deleted = commit(client, operation="DELETE", **body).json()

    assert deleted["version"] == 2
    assert deleted["operation-metrics"]["numDeletedRows"] == 2
    assert commit(client, operation="DELETE", **body).json()["result"] == "nothing-to-do"  # they are gone
    (file,) = client.post("/v1/tables/people/plan", json={}).json()["files"]
    assert base64.b64decode(file["deletedRows"]) == serialize_bitmap(BitMap64([2, 3]))
    descriptor = Descriptor.from_json(file["deletionVector"])
    found = storage.read_deletion_vectors(location, [("x", descriptor)], table="people", version=2)
    assert found == {"x": BitMap64([2, 3])}
    again = client.post("/v1/tables", json={"location": location, "schema": SCHEMA})
    assert again.status_code == 409


def test_appends_at_once_all_succeed(table):
    client, location = table
    adds = [write(location, f"{number}.parquet", [number]) for number in range(6)]

    def append(add):
        return commit(client, operation="WRITE", adds=[add], **{"read-version": 0}).json()["version"]

    with ThreadPoolExecutor(6) as pool:
        versions = set(pool.map(append, adds))
    assert versions == set(range(1, max(versions) + 1))  # some may share a version
    files = client.post("/v1/tables/people/plan", json={}).json()["files"]
    assert {file["path"] for file in files} == {add["path"] for add in adds}


def test_missing_files_are_not_committed(table):
    client, location = table
    add = write(location, "a.parquet", [1])

    missing = commit(client, operation="WRITE", adds=[{**add, "path": "b.parquet"}], **{"read-version": 0})
    wrong = commit(client, operation="WRITE", adds=[{**add, "size": 1}], **{"read-version": 0})

    assert "does not exist in storage" in missing.json()["error"]["message"]
    assert "but 1 in the request" in wrong.json()["error"]["message"]
