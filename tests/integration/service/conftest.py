"""Fixtures: a service in this process, used over HTTP, and tables in temporary directories."""

import base64
import json
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.support.checked import assert_sound
from tests.support.in_process_service import running_service

from delvec_kernel import locations
from delvec_kernel.deletion_vectors.deletion_vector import serialize_bitmap

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "name", "type": "string", "nullable": True, "metadata": {}},
    ],
}

COMMITTING = ("test_alter", "test_commit", "test_commit_validator", "test_repeats")
DAMAGING = (
    "test_a_commit_whose_winners_are_cleaned_up_is_not_made",
    "test_a_transaction_whose_own_version_was_cleaned_up_is_not_done_again",
    "test_a_damaged_deletion_vector_is_named_and_nothing_is_committed",
)
"""Modules whose tests must leave sound tables, and the tests that damage them on purpose."""


@pytest.fixture
def running():
    """``with running(**settings) as client``."""
    return running_service


@pytest.fixture
def client():
    with running_service() as client:
        yield client


@dataclass
class TableUnderTest:
    """A table on local disk, with the operations of an engine."""

    client: httpx.Client
    name: str
    folder: Path

    @property
    def url(self):
        return f"/v1/tables/{self.name}"

    @property
    def log(self):
        return self.folder / "_delta_log"

    def actions(self, version):
        lines = (self.log / f"{version:020}.json").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def action(self, version, key):
        (found,) = [action[key] for action in self.actions(version) if key in action]
        return found

    def version(self):
        return max(int(path.stem) for path in self.log.glob("*.json"))

    def write_file(self, name, ids, *, stats=True, partition_values=None):
        """Write a Parquet file, and return it in the form of a commit request."""
        table = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        described = {"numRecords": len(ids), "minValues": {"id": min(ids)}, "maxValues": {"id": max(ids)}}
        described |= {"nullCount": {"id": 0, "name": 0}}
        return {
            "path": quote(name),
            "size": path.stat().st_size,
            "modificationTime": time.time_ns() // 1_000_000,
            "partitionValues": partition_values or {},
            **({"stats": json.dumps(described)} if stats else {}),
        }

    def commit(self, **request):
        headers = request.pop("headers", {})
        body = {key.replace("_", "-"): value for key, value in request.items()}
        body.setdefault("read-version", self.version())
        return self.client.post(f"{self.url}/commits", json=body, headers=headers)

    def append(self, *adds, **request):
        return self.commit(operation="WRITE", adds=list(adds), **request)

    def delete(self, rows, *, removes=(), **request):
        row_deletes = [{"path": path, "rows": _bitmap(*indexes)} for path, indexes in rows.items()]
        request = {"operation": "DELETE", "predicate": "id = 1", **request}
        return self.commit(row_deletes=row_deletes, removes=[{"path": path} for path in removes], **request)


def _bitmap(*indexes):
    return base64.b64encode(serialize_bitmap(BitMap64(indexes))).decode()


@pytest.fixture
def bitmap():
    """Row indexes in the form of a request."""
    return _bitmap


@pytest.fixture
def create():
    """``create(client, folder, **request)`` creates a table and returns it."""
    return _create


def _create(client, folder, **request):
    body = {"location": str(folder), "schema": SCHEMA, **request}
    answer = client.post("/v1/tables", json=body)
    assert answer.status_code == 201, answer.text
    resource = answer.json()
    return TableUnderTest(client, resource["name"], Path(locations.local_path(resource["location"])))


@pytest.fixture
def table(client, tmp_path, request):
    """An empty table with deletion vectors; after a test of commits every invariant holds."""
    created = _create(client, tmp_path / "people")
    yield created
    module, name = request.module.__name__.rpartition(".")[2], request.node.originalname
    if module in COMMITTING and name not in DAMAGING:
        assert_sound(created.folder, data_files=False)


@pytest.fixture
def filled(table):
    """A table with ten rows in ``a.parquet`` and five in ``b.parquet``, at version 1."""
    a = table.write_file("a.parquet", range(10))
    b = table.write_file("b.parquet", range(10, 15))
    answer = table.append(a, b)
    assert answer.status_code == 200, answer.text
    return table


@pytest.fixture
def error():
    """``error(answer)`` returns the error in an answer, checked to be an envelope."""
    return _error


def _error(answer):
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "code", "retryable", "details"}
    assert answer.headers["X-Request-Id"]
    return body["error"]
