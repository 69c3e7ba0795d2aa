"""Tables to mutate: those of the corpus, and a few built in, so that there are always some.

Built-in tables are written with json, pyarrow and pyroaring only, so that they do not share mistakes of Delvec's writer.
"""

import io
import json
import os
import struct
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("DELVEC_CORPUS", ROOT.parent / "shared" / "corpus")) / "dev"

MAX_BYTES = 400_000
MAX_FILES = 120
MAX_ROWS = 2_500


@dataclass(frozen=True)
class SeedTable:
    """A table before its mutation.

    Attributes:
        files: content by path relative to the table.
    """

    name: str
    files: dict[str, bytes]


def seeds(source):
    """Return the tables of ``builtin`` or ``corpus``, in a fixed order."""
    return {"builtin": builtin, "corpus": corpus}[source]()


def sources():
    """Return the available sources: the corpus may be missing."""
    return ["builtin", "corpus"] if (CORPUS / "MANIFEST.json").exists() else ["builtin"]


@cache
def corpus():
    """Return the corpus tables small enough to be copied and read many times."""
    entries = json.loads((CORPUS / "MANIFEST.json").read_text())["tables"]
    chosen = []
    for entry in sorted(entries, key=lambda item: item["id"]):
        small = entry["bytes"] <= MAX_BYTES and entry["files_on_disk"] <= MAX_FILES
        if small and "prepare" not in entry and (entry["expected"].get("rows") or 0) <= MAX_ROWS:
            folder = CORPUS / entry["path"]
            files = {
                str(path.relative_to(folder)): path.read_bytes()
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            }
            chosen.append(SeedTable(entry["id"], files))
    return tuple(chosen)


@cache
def builtin():
    """Return the built-in tables."""
    return (
        plain(),
        with_vectors(),
        partitioned(),
        with_checkpoint(),
        with_v2_checkpoint(),
        with_parts(),
        with_compaction(),
    )


# --- built-in tables --------------------------------------------------------------------------------------------

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
FIELDS = [("id", "long"), ("name", "string"), ("score", "double"), ("day", "date")]
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def features(*names):
    """Return a protocol action with these reader and writer features."""
    found = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": {**found, "readerFeatures": list(names), "writerFeatures": list(names)}}


def metadata(partition_by=(), configuration=None, mapped=False):
    """Return the table's ``metaData`` action."""
    fields = []
    for number, (name, kind) in enumerate(FIELDS, start=1):
        extra = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": extra if mapped else {}})
    return {
        "metaData": {
            "id": "5f7b3c0e-0000-4000-8000-000000000001",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(partition_by),
            "configuration": configuration or {},
            "createdTime": 1_700_000_000_000,
        }
    }


def rows(start, stop):
    """Return rows as Arrow."""
    return pa.table(
        {
            "id": pa.array(range(start, stop), pa.int64()),
            "name": [None if number % 7 == 3 else f"name {number}" for number in range(start, stop)],
            "score": [number / 4 for number in range(start, stop)],
            "day": pa.array(range(19_000 + start, 19_000 + stop), pa.int32()).cast(pa.date32()),
        }
    )


def parquet(table, **options):
    """Return the table as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


class Builder:
    """Builds a table."""

    def __init__(self, name):
        self.name = name
        self.files = {}
        self.version = -1

    def data(self, path, start, stop, *, values=None, mapped=False, deleted=None):
        """Write a data file and return its ``add``."""
        table = rows(start, stop)
        if values:
            table = table.drop_columns([name for name in ("name",) if name in values or mapped])
        if mapped:
            numbers = {name: number for number, (name, _) in enumerate(FIELDS, start=1)}
            fields = [
                pa.field(f"col-{numbers[field.name]}", field.type).with_metadata(
                    {"PARQUET:field_id": str(numbers[field.name])}
                )
                for field in table.schema
            ]
            table = pa.table(table.columns, pa.schema(fields))
        body = parquet(table, row_group_size=20)
        self.files[path] = body
        first = table.column_names[0]
        stats = {
            "numRecords": stop - start,
            "minValues": {first: start},
            "maxValues": {first: stop - 1},
            "nullCount": {first: 0},
        }
        if deleted is not None:
            stats["tightBounds"] = False
        add = {
            "path": quote(path),
            "partitionValues": values or {},
            "size": len(body),
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        return {"add": {**add, "deletionVector": deleted} if deleted is not None else add}

    def commit(self, *actions):
        """Write the next version."""
        self.version += 1
        info = {
            "commitInfo": {"timestamp": 1_700_000_000_000 + self.version, "operation": "WRITE"},
        }
        text = "".join(json.dumps(action) + "\n" for action in (info, *actions))
        self.files[f"_delta_log/{self.version:020}.json"] = text.encode()

    def table(self):
        """Return the table."""
        return SeedTable(self.name, dict(self.files))


def removed(action):
    """Return the ``remove`` of an ``add``."""
    add = action["add"]
    kept = {name: add[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in add}
    return {
        "remove": {
            **kept,
            "deletionTimestamp": 1_700_000_100_000,
            "dataChange": True,
            "extendedFileMetadata": True,
        }
    }


def plain():
    """Three files, one of them rewritten."""
    table = Builder("plain")
    first = table.data("part 1.parquet", 0, 50)
    table.commit(PROTOCOL, metadata(), first)
    table.commit(table.data("part-2.parquet", 50, 90))
    table.commit(removed(first), table.data("sub/part-3.parquet", 100, 120))
    table.commit({"txn": {"appId": "stream", "version": 7, "lastUpdated": 1_700_000_000_000}})
    return table.table()


def framed(payload):
    """Return a deletion vector as stored in a file."""
    return struct.pack(">I", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))


def portable(bitmap):
    """Return a bitmap after its magic number."""
    return struct.pack("<I", 1681511377) + bitmap.serialize()


def z85(data):
    """Return bytes as Z85 text."""
    text = ""
    for (number,) in struct.iter_unpack(">I", data + bytes(-len(data) % 4)):
        text += "".join(_ALPHABET[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def with_vectors():
    """Deletion vectors: two in a shared file below a prefix, and one inline."""
    table = Builder("with_vectors")
    identifier = bytes.fromhex("a1b2c3d4e5f64711920304050607aabb")
    name = "a1b2c3d4-e5f6-4711-9203-04050607aabb"
    adds = [table.data(f"part-{number}.parquet", number * 40, number * 40 + 40) for number in range(3)]
    table.commit(features("deletionVectors"), metadata(), *adds)
    bitmaps = [BitMap64(range(0, 40, 3)), BitMap64([1, 2, 39]), BitMap64([0, 5])]
    content, vectors = b"\x01", []
    for bitmap in bitmaps[:2]:
        payload = portable(bitmap)
        vectors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": "ab" + z85(identifier),
                "offset": len(content),
                "sizeInBytes": len(payload),
                "cardinality": len(bitmap),
            }
        )
        content += framed(payload)
    table.files[f"ab/deletion_vector_{name}.bin"] = content
    payload = portable(bitmaps[2])
    vectors.append(
        {
            "storageType": "i",
            "pathOrInlineDv": z85(payload),
            "sizeInBytes": len(payload),
            "cardinality": len(bitmaps[2]),
        }
    )
    after = [
        table.data(f"part-{number}.parquet", number * 40, number * 40 + 40, deleted=vector)
        for number, vector in enumerate(vectors)
    ]
    table.commit(*(removed(add) for add in adds), *after)
    return table.table()


def partitioned():
    """Partitioned by a column with unusual values; columns are mapped by name."""
    table = Builder("partitioned")
    configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"}
    table.commit(
        {
            "protocol": {"minReaderVersion": 2, "minWriterVersion": 5},
        },
        metadata(["name"], configuration, mapped=True),
    )
    for number, value in enumerate(["a b", "ü/é", None, "50%"]):
        folder = "__HIVE_DEFAULT_PARTITION__" if value is None else quote(value, safe="")
        path = f"name={folder}/part-{number}.parquet"
        table.commit(
            table.data(path, number * 10, number * 10 + 10, values={"col-2": value}, mapped=True),
        )
    return table.table()


CHECKPOINT = pa.schema(
    [
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    (
                        "format",
                        pa.struct(
                            [("provider", pa.string()), ("options", pa.map_(pa.string(), pa.string()))]
                        ),
                    ),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", pa.map_(pa.string(), pa.string())),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", pa.map_(pa.string(), pa.string())),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())]),
        ),
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        ("checkpointMetadata", pa.struct([("version", pa.int64())])),
        (
            "sidecar",
            pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]),
        ),
    ]
)


def checkpoint_file(actions):
    """Return a Parquet checkpoint with these actions."""
    columns = {}
    for field in CHECKPOINT:
        values = [_as_maps(action.get(field.name)) for action in actions]
        columns[field.name] = pa.array(values, field.type)
    used = [field for field in CHECKPOINT if columns[field.name].null_count < len(actions)]
    return parquet(pa.table([columns[field.name] for field in used], pa.schema(used)))


def _as_maps(value):
    if not isinstance(value, dict):
        return value
    maps = ("partitionValues", "configuration", "options")
    return {
        key: list(item.items()) if key in maps and isinstance(item, dict) else _as_maps(item)
        for key, item in value.items()
    }


def _last_checkpoint(version, size, **more):
    return json.dumps({"version": version, "size": size, **more}).encode()


def with_checkpoint():
    """A classic checkpoint after version 3, two commits later, and version checksums."""
    table = Builder("with_checkpoint")
    adds = [table.data(f"part-{number}.parquet", number * 20, number * 20 + 20) for number in range(6)]
    table.commit(PROTOCOL, metadata(), adds[0])
    for add in adds[1:4]:
        table.commit(add)
    actions = [PROTOCOL, metadata(), *adds[:4]]
    table.files[f"_delta_log/{3:020}.checkpoint.parquet"] = checkpoint_file(actions)
    table.files["_delta_log/_last_checkpoint"] = _last_checkpoint(3, len(actions))
    table.commit(removed(adds[0]), adds[4])
    table.commit(adds[5])
    live = adds[1:6]
    total = {"tableSizeBytes": sum(add["add"]["size"] for add in live), "numFiles": len(live)}
    checksum = {**total, "numMetadata": 1, "numProtocol": 1, "metadata": metadata()["metaData"]}
    table.files[f"_delta_log/{5:020}.crc"] = json.dumps({**checksum, **PROTOCOL}).encode()
    return table.table()


def with_v2_checkpoint():
    """A V2 checkpoint: a manifest in JSON, a sidecar, and no commits before it."""
    table = Builder("with_v2_checkpoint")
    adds = [table.data(f"part-{number}.parquet", number * 20, number * 20 + 20) for number in range(4)]
    protocol = features("v2Checkpoint")
    description = metadata(configuration={"delta.checkpointPolicy": "v2"})
    table.commit(protocol, description, *adds[:2])
    table.commit(adds[2])
    sidecar = checkpoint_file(adds[:3])
    name = "b0a1c2d3-0000-4000-8000-000000000002.parquet"
    table.files[f"_delta_log/_sidecars/{name}"] = sidecar
    manifest = [
        {"checkpointMetadata": {"version": 1}},
        protocol,
        description,
        {"sidecar": {"path": name, "sizeInBytes": len(sidecar), "modificationTime": 1_700_000_000_000}},
    ]
    text = "".join(json.dumps(action) + "\n" for action in manifest)
    unique = "b0a1c2d3-0000-4000-8000-000000000003"
    table.files[f"_delta_log/{1:020}.checkpoint.{unique}.json"] = text.encode()
    table.files["_delta_log/_last_checkpoint"] = _last_checkpoint(1, len(manifest))
    del table.files[f"_delta_log/{0:020}.json"]
    table.commit(adds[3])
    return table.table()


def with_parts():
    """A checkpoint in two parts, with no commits before it."""
    table = Builder("with_parts")
    adds = [table.data(f"part-{number}.parquet", number * 20, number * 20 + 20) for number in range(4)]
    table.commit(PROTOCOL, metadata(), *adds[:3])
    parts = [[PROTOCOL, metadata(), adds[0]], adds[1:3]]
    for number, actions in enumerate(parts, start=1):
        name = f"{0:020}.checkpoint.{number:010}.{2:010}.parquet"
        table.files[f"_delta_log/{name}"] = checkpoint_file(actions)
    table.files["_delta_log/_last_checkpoint"] = _last_checkpoint(0, 5, parts=2)
    del table.files[f"_delta_log/{0:020}.json"]
    table.commit(adds[3])
    return table.table()


def with_compaction():
    """Five commits, the middle three of them compacted too."""
    table = Builder("with_compaction")
    adds = [table.data(f"part-{number}.parquet", number * 20, number * 20 + 20) for number in range(5)]
    table.commit(PROTOCOL, metadata(), adds[0])
    table.commit(adds[1])
    table.commit(removed(adds[0]), adds[2])
    table.commit(adds[3])
    table.commit(removed(adds[3]), adds[4])
    actions = [*adds[1:4], removed(adds[0])]
    text = "".join(json.dumps(action) + "\n" for action in actions)
    table.files[f"_delta_log/{1:020}.{3:020}.compacted.json"] = text.encode()
    return table.table()
