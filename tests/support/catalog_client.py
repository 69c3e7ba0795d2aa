"""A client of the Unity Catalog Delta API that sends what delta-spark 4.4.0 sends, in that order."""

import json
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from delvec_kernel import locations

BASE = "/api/2.1/unity-catalog"
DELTA = f"{BASE}/delta/v1"
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


class ManagedTable:
    """A managed table on local disk, created and changed as by another engine."""

    def __init__(self, http, name, schema="sales", catalog="delvec"):
        self.http = http
        self.name = name
        self.tables = f"{DELTA}/catalogs/{catalog}/schemas/{schema}/tables"
        self.url = f"{self.tables}/{name}"
        self.uuid = None
        self.folder = None
        self.location = None

    def stage(self):
        """Request a place, and return the answer."""
        place = self.http.post(self.tables.replace("/tables", "/staging-tables"), json={"name": self.name})
        assert place.status_code == 200, place.text
        answer = place.json()
        self.uuid = answer["table-id"]
        self.location = answer["location"]
        self.folder = locations.local_path(self.location)
        return answer

    def first_actions(self, answer, **properties):
        """Return the actions of version 0 that the staging answer asks for."""
        protocol = answer["required-protocol"]
        now = time.time_ns() // 1_000_000
        return [
            info("CREATE TABLE", now),
            {
                "protocol": {
                    "minReaderVersion": protocol["min-reader-version"],
                    "minWriterVersion": protocol["min-writer-version"],
                    "readerFeatures": protocol["reader-features"],
                    "writerFeatures": protocol["writer-features"],
                }
            },
            {
                "metaData": {
                    "id": str(uuid.uuid4()),
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": SCHEMA,
                    "partitionColumns": [],
                    "configuration": {**answer["required-properties"], **properties},
                    "createdTime": now,
                }
            },
        ]

    def write_log(self, name, actions):
        """Write a file of the log; return its path."""
        path = Path(self.folder) / "_delta_log" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        return path

    def register(self, **body):
        """Create the table whose version 0 is written."""
        columns = {"type": "struct", "fields": json.loads(SCHEMA)["fields"]}
        request = {
            "name": self.name,
            "table-type": "MANAGED",
            "location": self.location,
            "columns": columns,
            "partition-columns": [],
            "last-commit-timestamp-ms": 1,
        }
        return self.http.post(self.tables, json={**request, **body})

    def create(self, **properties):
        """Create the table as CREATE TABLE does, and return itself."""
        assert self.http.get(self.url).status_code == 404
        answer = self.stage()
        self.write_log(f"{0:020}.json", self.first_actions(answer, **properties))
        created = self.register()
        assert created.status_code == 200, created.text
        return self

    def load(self):
        """Return the load answer."""
        answer = self.http.get(self.url)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def version(self):
        """Return the newest version, as the catalog knows it."""
        return self.load()["latest-table-version"]

    def file(self, ids, **fields):
        """Write a data file; return its add."""
        name = f"part-{uuid.uuid4()}.parquet"
        path = Path(self.folder) / name
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
        add = {
            "path": name,
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": time.time_ns() // 1_000_000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(ids)}),
        }
        return {"add": {**add, **fields}}

    def staged(self, actions, *, version=None, operation="WRITE", **commit_info):
        """Stage a commit; return the body of the request that commits it."""
        version = self.version() + 1 if version is None else version
        stamp = int(self.load()["metadata"]["properties"]["delta.lastCommitTimestamp"]) + 1
        stamp = commit_info.setdefault("inCommitTimestamp", max(stamp, time.time_ns() // 1_000_000))
        name = f"{version:020}.{uuid.uuid4()}.json"
        path = self.write_log(f"_staged_commits/{name}", [info(operation, **commit_info), *actions])
        commit = {
            "version": version,
            "timestamp": stamp,
            "file-name": name,
            "file-size": path.stat().st_size,
            "file-modification-timestamp": time.time_ns() // 1_000_000,
        }
        return {
            "requirements": [{"type": "assert-table-uuid", "uuid": self.uuid}],
            "updates": [
                {"action": "add-commit", "commit": commit},
                {"action": "set-latest-backfilled-version", "latest-published-version": version - 1},
            ],
        }

    def update(self, body):
        """Send an update request; return the answer."""
        return self.http.post(self.url, json=body)

    def commit(self, actions, **commit_info):
        """Stage a commit and have it ratified; return the load answer."""
        answer = self.update(self.staged(actions, **commit_info))
        assert answer.status_code == 200, answer.text
        return answer.json()


def info(operation, inCommitTimestamp, txnId=None, **more):  # noqa: N803 - as in the log
    """Return a commitInfo."""
    found = {
        "inCommitTimestamp": inCommitTimestamp,
        "timestamp": inCommitTimestamp,
        "operation": operation,
        "operationParameters": {},
        "engineInfo": "Apache-Spark/4.1.0 Delta-Lake/4.4.0",
        "txnId": str(uuid.uuid4()) if txnId is None else txnId,
        **more,
    }
    return {"commitInfo": found}
