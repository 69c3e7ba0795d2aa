"""A table on local disk that consists of its log, written line by line."""

import json
import os
import uuid
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq

from delvec_kernel import locations
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
VECTORS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}
HOUR = 3_600_000
START = 1_700_000_000_000

_TEXTS = pa.map_(pa.string(), pa.string())
_DESCRIPTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_FILE = [("path", pa.string()), ("partitionValues", _TEXTS), ("size", pa.int64())]
_FEATURES = [("readerFeatures", pa.list_(pa.string())), ("writerFeatures", pa.list_(pa.string()))]
CHECKPOINT = pa.schema(
    {
        "add": pa.struct([*_FILE, ("modificationTime", pa.int64()), ("deletionVector", _DESCRIPTOR)]),
        "remove": pa.struct(
            [("path", pa.string()), ("deletionTimestamp", pa.int64()), ("deletionVector", _DESCRIPTOR)]
        ),
        "protocol": pa.struct(
            [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), *_FEATURES]
        ),
        "metaData": pa.struct(
            [("id", pa.string()), ("schemaString", pa.string()), ("configuration", _TEXTS)]
        ),
        "txn": pa.struct([("appId", pa.string()), ("version", pa.int64())]),
        "sidecar": pa.struct(
            [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]
        ),
        "checkpointMetadata": pa.struct([("version", pa.int64())]),
    }
)


class CountingStore(ObjectStore):
    """Counts storage requests."""

    def __init__(self, location):
        super().__init__(location)
        self.asked = Counter()
        self.names = []

    def list_from(self, prefix, start_after=""):
        self.asked["list"] += 1
        return super().list_from(prefix, start_after)

    def get(self, path):
        self.asked["get"] += 1
        self.names.append(path.rpartition("/")[2])
        return super().get(path)


def vector(number, *, rows=1):
    """Return a descriptor of a nonexistent file."""
    return {
        "storageType": "u",
        "pathOrInlineDv": "x" * 20,
        "offset": number,
        "sizeInBytes": 40,
        "cardinality": rows,
    }


def add(path, dv=None, **others):
    value = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": value | ({} if dv is None else {"deletionVector": dv}) | others}


def remove(path, dv=None):
    value = {"path": path, "deletionTimestamp": 1, "dataChange": True}
    return {"remove": value | ({} if dv is None else {"deletionVector": dv})}


class LogByHand:
    """A log in a directory; version 0 has protocol and metadata, and version n, at hour n, adds ``fn``."""

    def __init__(self, folder, versions=0, *, protocol=PROTOCOL, **configuration):
        self.folder = folder
        self.log = folder / "_delta_log"
        self.log.mkdir(parents=True)
        self.location = locations.canonical(str(folder))
        self.protocol = {"protocol": protocol}
        self.metadata = {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": SCHEMA,
                "partitionColumns": [],
                "configuration": configuration,
            }
        }
        self.commit(0, self.protocol, self.metadata)
        for version in range(1, versions + 1):
            self.commit(version, add(f"f{version}"))

    def commit(self, version, *actions, time=None, info=None):
        """Write a commit of these actions; ``info`` is its commitInfo."""
        lines = [{"commitInfo": {"operation": "TEST"} | (info or {})}, *actions]
        path = self.write(f"{version:020d}.json", "\n".join(map(json.dumps, lines)) + "\n")
        moment = START + version * HOUR if time is None else time
        os.utime(path, ns=(moment * 1_000_000,) * 2)
        return path

    def write(self, name, content):
        path = self.log / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def checkpoint(self, version, *actions, name=None, whole=True):
        """Write a checkpoint of these actions; ``whole`` adds protocol and metadata."""
        rows = [self.protocol, self._metadata_row(), *actions] if whole else list(actions)
        path = self.log / (name or f"{version:020d}.checkpoint.parquet")
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist([_row(row) for row in rows], CHECKPOINT), path)
        return path

    def _metadata_row(self):
        value = self.metadata["metaData"]
        return {"metaData": {name: value[name] for name in ("id", "schemaString", "configuration")}}

    def compaction(self, first, last, *actions):
        name = f"{first:020d}.{last:020d}.compacted.json"
        return self.write(name, "\n".join(map(json.dumps, actions)))

    def checksum(self, version, num_files, **others):
        """Write a version checksum for files of one byte each."""
        value = {"tableSizeBytes": num_files, "numFiles": num_files, "numMetadata": 1, "numProtocol": 1}
        value |= {"metadata": self.metadata["metaData"], "protocol": self.protocol["protocol"]}
        return self.write(f"{version:020d}.crc", json.dumps(value | others))

    def forget(self, *versions):
        for version in versions:
            (self.log / f"{version:020d}.json").unlink()

    def store(self):
        return CountingStore(self.location)

    def load(self, *, store=None, loader=None, **point):
        return (loader or SnapshotLoader()).load(store or self.store(), "people", **point)

    def files(self, **point):
        """Return paths and deletion vector offsets of a version."""
        rows = self.load(**point).files.select(["path", "deletion_vector"]).to_pylist()
        return {row["path"]: (row["deletion_vector"] or {}).get("offset") for row in rows}


def _row(action):
    return {
        kind: {
            name: _plain(item) for name, item in value.items() if name in CHECKPOINT.field(kind).type.names
        }
        for kind, value in action.items()
    }


def _plain(item):
    is_map = isinstance(item, dict) and "storageType" not in item
    return list(item.items()) if is_map else item
