"""Transactions over several managed tables of integers, as requests."""

import base64
import json
import uuid
from pathlib import Path

import pyarrow.parquet as pq
from pyroaring import BitMap64
from tests.support.catalog_client import ManagedTable

from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, serialize_bitmap
from delvec_storage.files import read_deletion_vectors


def managed(client, *names):
    """Create managed tables in the schema ``sales``."""
    return [ManagedTable(client, name).create() for name in names]


def appended(table, ids, version=None):
    """Return the part of a transaction that adds rows to a table."""
    add = table.file(ids)["add"]
    read = table.version() if version is None else version
    return {
        "table": f"sales.{table.name}",
        "commit": {"read-version": read, "operation": "WRITE", "adds": [add]},
    }


def deleted(client, table, ids, version=None, predicate=None):
    """Return the part of a transaction that deletes rows from a table, where they are now."""
    ids = set(ids)
    files = live_files(client, table)
    read = table.version() if version is None else version
    row_deletes = []
    for path, rows in files.items():
        found = BitMap64(index for index, value in rows.items() if value in ids)
        if found:
            encoded = base64.b64encode(serialize_bitmap(found)).decode()
            row_deletes.append({"path": path, "rows": encoded})
    commit = {
        "read-version": read,
        "operation": "DELETE",
        "predicate": predicate or f"id IN ({', '.join(map(str, sorted(ids)))})",
        "row-deletes": row_deletes,
    }
    return {"table": f"sales.{table.name}", "commit": commit}


def live_files(client, table, version=None):
    """Return the live rows of a table: by file, and by row index."""
    body = {} if version is None else {"version": version}
    answer = client.post(f"/v1/tables/sales.{table.name}/plan", json=body)
    assert answer.status_code == 200, answer.text
    files = {}
    for file in answer.json()["files"]:
        values = pq.read_table(Path(table.folder) / file["path"])["id"].to_pylist()
        gone = _rows_of(table, file["path"], file.get("deletionVector"))
        files[file["path"]] = {index: value for index, value in enumerate(values) if index not in gone}
    return files


def rows(client, table, version=None):
    """Return the values in a table, sorted."""
    return sorted(value for file in live_files(client, table, version).values() for value in file.values())


def _rows_of(table, path, vector):
    if vector is None:
        return ()
    found = [(path, Descriptor.from_json(vector))]
    return read_deletion_vectors(table.location, found, table=table.name, version=None)[path]


def commit(client, *parts, key=None):
    """Send a transaction."""
    headers = {"Idempotency-Key": key or str(uuid.uuid4())}
    return client.post("/v1/transactions", json={"tables": list(parts)}, headers=headers)


def committed(client, *parts, key=None):
    """Send a transaction that is to succeed; return the versions it created, by table."""
    answer = commit(client, *parts, key=key)
    assert answer.status_code == 200, answer.text
    return {
        each["name"].removeprefix("sales."): each["commit"]["version"] for each in answer.json()["tables"]
    }


def log_versions(table):
    """Return the versions in a table's log, as whoever reads the path sees them."""
    return sorted(int(path.stem) for path in (Path(table.folder) / "_delta_log").glob("*.json"))


def actions(table, version):
    """Return the actions of a version."""
    text = (Path(table.folder) / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def records(warehouse):
    """Return the outcomes in the warehouse."""
    return [
        json.loads(path.read_text()) for path in sorted((Path(warehouse) / "_delvec/transactions").glob("*"))
    ]
