"""Iceberg tables for tests, written by PyIceberg or, for deletes, which it cannot write, by fastavro."""

import copy
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import StaticTable, Table
from pyroaring import BitMap64

from delvec_kernel.deletion_vectors.deletion_vector import encode, frame

POSITION_DELETES, EQUALITY_DELETES = 1, 2
_ENTRIES = {
    POSITION_DELETES: [("file_path", pa.string(), 2147483546), ("pos", pa.int64(), 2147483545)],
    EQUALITY_DELETES: [("id", pa.int64(), 1)],
}


def create(folder: Path, schema: Any, **options: Any) -> Table:
    """Create a table in a folder; other options are those of ``Catalog.create_table``."""
    catalog = InMemoryCatalog("local", warehouse=str(folder.parent))
    catalog.create_namespace("ns")
    return catalog.create_table("ns.t", schema, location=f"file://{folder}", **options)


def publish(table: Table) -> Path:
    """Write the version hint of a path-based table, and return its folder."""
    folder = Path(table.location().removeprefix("file://"))
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    write_metadata(folder, metadata)
    return folder


def write_metadata(folder: Path, metadata: dict[str, Any]) -> Path:
    """Write another version of the metadata, and the hint."""
    hint = folder / "metadata" / "version-hint.text"
    version = int(hint.read_text()) + 1 if hint.exists() else 1
    path = folder / "metadata" / f"v{version}.metadata.json"
    path.write_text(json.dumps(metadata))
    hint.write_text(str(version))
    return path


def newest_metadata(folder: Path) -> dict[str, Any]:
    """Return the metadata that the hint points to."""
    version = (folder / "metadata" / "version-hint.text").read_text()
    return json.loads((folder / "metadata" / f"v{version}.metadata.json").read_text())


def rows(folder: Path) -> pa.Table:
    """Return the rows that PyIceberg reads."""
    version = (folder / "metadata" / "version-hint.text").read_text()
    return StaticTable.from_metadata(f"file://{folder}/metadata/v{version}.metadata.json").scan().to_arrow()


def data_files(folder: Path) -> list[dict[str, Any]]:
    """Return the live data files as in their manifests, each with its manifest's ``partition_spec_id``."""
    return [
        entry["data_file"] | {"spec": manifest["partition_spec_id"]}
        for manifest in _manifests(newest_metadata(folder))
        if manifest.get("content", 0) == 0
        for entry in _read(manifest["manifest_path"])[1]
        if entry["status"] != 2
    ]


def delete_positions(folder: Path, positions: dict[str, list[int]], **changes: Any) -> None:
    """Commit a snapshot with one Parquet position delete file per data file; ``changes`` override entry fields."""
    files = {each["file_path"]: each for each in data_files(folder)}
    entries = []
    for number, (path, indexes) in enumerate(positions.items()):
        schema = _delete_schema(POSITION_DELETES)
        data = pa.table([[path] * len(indexes), sorted(indexes)], schema=schema)
        name = folder / "data" / f"deletes-{_next(folder)}-{number}.parquet"
        pq.write_table(data, name)
        bounds = [{"key": 2147483546, "value": path.encode()}]
        entries.append(
            _delete_entry(
                files[path],
                name,
                "PARQUET",
                len(indexes),
                {"lower_bounds": bounds, "upper_bounds": bounds, **changes},
            )
        )
    _commit_deletes(folder, entries, next(iter(files.values())))


def delete_equal(folder: Path) -> None:
    """Commit a snapshot with a file of equality deletes."""
    name = folder / "data" / "equality.parquet"
    pq.write_table(pa.table([[1]], schema=_delete_schema(EQUALITY_DELETES)), name)
    first = data_files(folder)[0]
    changes = {"content": EQUALITY_DELETES, "equality_ids": [1]}
    _commit_deletes(folder, [_delete_entry(first, name, "PARQUET", 1, changes)], first)


def delete_by_vectors(folder: Path, positions: dict[str, list[int]], **changes: Any) -> Path:
    """Upgrade the table to format version 3, and commit a snapshot with deletion vectors in one Puffin file."""
    metadata = newest_metadata(folder)
    if metadata["format-version"] < 3:
        total = sum(each["record_count"] for each in data_files(folder))
        write_metadata(folder, metadata | {"format-version": 3, "next-row-id": total})
    files = {each["file_path"]: each for each in data_files(folder)}
    name = folder / "data" / f"deletes-{_next(folder)}.puffin"
    content, blobs, entries = b"PFA1", [], []
    for path, indexes in positions.items():
        blob = frame(encode(BitMap64(indexes)))
        place = {"offset": len(content), "length": len(blob)}
        properties = {"referenced-data-file": path, "cardinality": str(len(indexes))}
        fixed = {"type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1}
        blobs.append(fixed | place | {"properties": properties})
        content += blob
        extent = {"content_offset": place["offset"], "content_size_in_bytes": place["length"]}
        entries.append((path, len(indexes), {"referenced_data_file": path, **extent, **changes}))
    footer = json.dumps({"blobs": blobs}).encode()
    name.write_bytes(content + b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1")
    written = [_delete_entry(files[path], name, "PUFFIN", count, more) for path, count, more in entries]
    _commit_deletes(folder, written, next(iter(files.values())))
    return name


def _next(folder: Path) -> int:
    return newest_metadata(folder)["last-sequence-number"] + 1


def _delete_schema(kind: int) -> pa.Schema:
    fields = (
        pa.field(name, type_, nullable=False, metadata={"PARQUET:field_id": str(number)})
        for name, type_, number in _ENTRIES[kind]
    )
    return pa.schema(list(fields))


def _delete_entry(
    data: dict[str, Any], path: Path, form: str, count: int, changes: dict[str, Any]
) -> dict[str, Any]:
    empty = dict.fromkeys(data, None)
    size = path.stat().st_size
    return empty | {
        "content": POSITION_DELETES,
        "file_path": f"file://{path}",
        "file_format": form,
        "partition": data["partition"],
        "record_count": count,
        "file_size_in_bytes": size,
        **changes,
    }


def _commit_deletes(folder: Path, files: list[dict[str, Any]], like: dict[str, Any]) -> None:
    metadata = newest_metadata(folder)
    sequence, snapshot_id = metadata["last-sequence-number"] + 1, 1000 + metadata["last-sequence-number"]
    manifests = _manifests(metadata)
    schema, _, header = _read(manifests[0]["manifest_path"])
    entry_schema = _with_delete_fields(schema)
    entries = [
        {
            "status": 1,
            "snapshot_id": snapshot_id,
            "sequence_number": sequence,
            "file_sequence_number": sequence,
            "data_file": {key: value for key, value in file.items() if key != "spec"},
        }
        for file in files
    ]
    path = folder / "metadata" / f"deletes-{sequence}.avro"
    kept = {key: value for key, value in header.items() if not key.startswith("avro.")}
    _write(path, entry_schema, entries, kept | {"content": "deletes"})
    list_schema, _, list_header = _read(_current(metadata)["manifest-list"])
    added = dict.fromkeys(manifests[0], None) | {
        "manifest_path": f"file://{path}",
        "manifest_length": path.stat().st_size,
        "partition_spec_id": like["spec"],
        "content": 1,
        "sequence_number": sequence,
        "min_sequence_number": sequence,
        "added_snapshot_id": snapshot_id,
        "added_files_count": len(files),
        "existing_files_count": 0,
        "deleted_files_count": 0,
        "added_rows_count": sum(file["record_count"] for file in files),
        "existing_rows_count": 0,
        "deleted_rows_count": 0,
    }
    listed = folder / "metadata" / f"snap-{snapshot_id}.avro"
    kept = {key: value for key, value in list_header.items() if not key.startswith("avro.")}
    replaced = (
        [] if files[0]["file_format"] != "PUFFIN" else [each for each in manifests if each["content"] == 1]
    )
    _write(listed, list_schema, [*(each for each in manifests if each not in replaced), added], kept)
    snapshot = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": metadata["current-snapshot-id"],
        "sequence-number": sequence,
        "timestamp-ms": metadata["last-updated-ms"] + 1,
        "manifest-list": f"file://{listed}",
        "summary": {"operation": "delete"},
        "schema-id": metadata["current-schema-id"],
    }
    if metadata["format-version"] == 3:
        snapshot |= {"first-row-id": metadata["next-row-id"], "added-rows": 0}
    changed = {
        "last-sequence-number": sequence,
        "last-updated-ms": metadata["last-updated-ms"] + 1,
        "snapshots": [*metadata["snapshots"], snapshot],
        "current-snapshot-id": snapshot_id,
        "refs": {"main": {"snapshot-id": snapshot_id, "type": "branch"}},
    }
    write_metadata(folder, metadata | changed)


def _with_delete_fields(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of manifest entries with the fields of format version 3."""
    found = copy.deepcopy(schema)
    [file] = [each["type"] for each in found["fields"] if each["name"] == "data_file"]
    there = {each["name"] for each in file["fields"]}
    more = [("referenced_data_file", "string", 143), ("content_offset", "long", 144)]
    for name, kind, number in [*more, ("content_size_in_bytes", "long", 145)]:
        if name not in there:
            field = {"name": name, "type": ["null", kind], "default": None, "field-id": number}
            file["fields"].append(field)
    return found


def _current(metadata: dict[str, Any]) -> dict[str, Any]:
    [found] = [
        each for each in metadata["snapshots"] if each["snapshot-id"] == metadata["current-snapshot-id"]
    ]
    return found


def _manifests(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    return _read(_current(metadata)["manifest-list"])[1]


def _read(location: str) -> tuple[dict[str, Any], list[Any], dict[str, str]]:
    reader = fastavro.reader(io.BytesIO(Path(location.removeprefix("file://")).read_bytes()))
    found = list(reader)
    return json.loads(reader.metadata["avro.schema"]), found, dict(reader.metadata)


def _write(path: Path, schema: dict[str, Any], records: list[Any], metadata: dict[str, str]) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, schema, records, codec="deflate", metadata=metadata)
