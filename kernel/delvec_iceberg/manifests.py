"""Manifests and manifest lists: Avro files whose records use the names of the Iceberg specification.

Entries are plain dictionaries with the file's field names, so that a kept entry is copied unchanged into the next manifest.
Fields that entries inherit (snapshot, sequence numbers, first row id) are filled in on reading.

Tested in `tests/integration/service/iceberg/test_conversion.py`.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from delvec_errors import CorruptIcebergMetadata
from delvec_iceberg.avro import read_records, write_records
from delvec_iceberg.manifest_schemas import manifest_list_schema, manifest_schema
from delvec_iceberg.partitions import PartitionSpec, single_value

__all__ = [
    "ADDED",
    "DATA",
    "DELETED",
    "DELETES",
    "EXISTING",
    "ManifestEntry",
    "ManifestFile",
    "describe",
    "read_manifest",
    "read_manifest_list",
    "write_manifest",
    "write_manifest_list",
]

ManifestEntry: TypeAlias = dict[str, Any]
"""``manifest_entry`` of the specification."""
ManifestFile: TypeAlias = dict[str, Any]
"""``manifest_file`` of the specification: a row of a manifest list."""

EXISTING: Final = 0
ADDED: Final = 1
DELETED: Final = 2
DATA: Final = 0
DELETES: Final = 1

_CONTENTS: Final = ("data", "deletes")


def write_manifest(
    entries: Sequence[ManifestEntry],
    *,
    content: int,
    spec: PartitionSpec,
    schema: Mapping[str, Any],
    format_version: int,
) -> bytes:
    """Serialize a manifest.

    Args:
        entries: the entries of files with this spec.
        content: DATA or DELETES.
        spec: the partition spec of the files.
        schema: the schema of the table, as in the metadata.
        format_version: 2 or 3.
    """
    header = {
        "schema": json.dumps(schema),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": json.dumps([item.to_json() for item in spec.fields]),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(format_version),
        "content": _CONTENTS[content],
    }
    return write_records(manifest_schema(spec, format_version), entries, header)


def describe(
    entries: Sequence[ManifestEntry],
    *,
    path: str,
    length: int,
    content: int,
    spec: PartitionSpec,
    snapshot_id: int,
    sequence_number: int,
) -> ManifestFile:
    """Return the manifest list's entry for a manifest written by a snapshot.

    Args:
        entries: the entries of the manifest.
        path: its URI.
        length: in bytes.
        content: DATA or DELETES.
        spec: the partition spec of the files.
        snapshot_id: the id of the snapshot.
        sequence_number: the sequence number of the snapshot, which entries without one inherit.
    """
    files = dict.fromkeys((EXISTING, ADDED, DELETED), 0)
    rows = dict(files)
    lowest = sequence_number
    for entry in entries:
        status = entry["status"]
        files[status] += 1
        rows[status] += entry["data_file"]["record_count"]
        if status != DELETED and entry["sequence_number"] is not None:
            lowest = min(lowest, entry["sequence_number"])
    return {
        "manifest_path": path,
        "manifest_length": length,
        "partition_spec_id": spec.spec_id,
        "content": content,
        "sequence_number": sequence_number,
        "min_sequence_number": lowest,
        "added_snapshot_id": snapshot_id,
        "added_files_count": files[ADDED],
        "existing_files_count": files[EXISTING],
        "deleted_files_count": files[DELETED],
        "added_rows_count": rows[ADDED],
        "existing_rows_count": rows[EXISTING],
        "deleted_rows_count": rows[DELETED],
        "partitions": _summaries(entries, spec),
        "first_row_id": None,
    }


def _summaries(entries: Sequence[ManifestEntry], spec: PartitionSpec) -> list[dict[str, Any]]:
    field_summaries = []
    for item in spec.fields:
        values = {entry["data_file"]["partition"][item.avro_name] for entry in entries}
        nan = any(isinstance(value, float) and math.isnan(value) for value in values)
        numbers: list[Any] = [
            value
            for value in values
            if value is not None and not (isinstance(value, float) and math.isnan(value))
        ]
        if item.type.startswith("decimal("):
            numbers.sort(key=lambda value: int.from_bytes(value, "big", signed=True))
        elif item.type == "string":
            # Iceberg orders strings by UTF-8 bytes, as Python orders them by code point.
            numbers.sort(key=lambda value: value.encode())
        else:
            numbers.sort()
        field_summaries.append(
            {
                "contains_null": None in values,
                "contains_nan": nan,
                "lower_bound": single_value(numbers[0], item.type) if numbers else None,
                "upper_bound": single_value(numbers[-1], item.type) if numbers else None,
            }
        )
    return field_summaries


def read_manifest(data: bytes, manifest: ManifestFile) -> list[ManifestEntry]:
    """Parse a manifest, filling in inherited fields.

    Args:
        data: the file.
        manifest: its entry in the manifest list.

    Raises:
        CorruptIcebergMetadata: the file is not a manifest.
    """
    path = manifest["manifest_path"]
    entries = _read(data, path)
    next_row_id = manifest.get("first_row_id")
    try:
        for entry in entries:
            file = entry["data_file"]
            file.setdefault("content", DATA)
            if entry.get("snapshot_id") is None:
                entry["snapshot_id"] = manifest["added_snapshot_id"]
            for name in ("sequence_number", "file_sequence_number"):
                if entry.get(name) is None and entry["status"] == ADDED:
                    entry[name] = manifest["sequence_number"]
            if manifest["content"] == DATA and next_row_id is not None and file.get("first_row_id") is None:
                file["first_row_id"] = next_row_id
                if entry["status"] != DELETED:
                    next_row_id += file["record_count"]
    except (KeyError, TypeError, AttributeError) as error:
        raise _not_one(path, error) from error
    return entries


def write_manifest_list(
    manifests: Iterable[ManifestFile],
    *,
    format_version: int,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
    first_row_id: int | None,
) -> bytes:
    """Serialize a manifest list; ids and numbers are those of its snapshot."""
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        "sequence-number": str(sequence_number),
        "format-version": str(format_version),
    }
    if first_row_id is not None:
        header["first-row-id"] = str(first_row_id)
    return write_records(manifest_list_schema(format_version), manifests, header)


def read_manifest_list(data: bytes, path: str = "the manifest list") -> list[ManifestFile]:
    """Parse a manifest list.

    Args:
        data: the file.
        path: the path, for errors.

    Raises:
        CorruptIcebergMetadata: the file is not a manifest list.
    """
    manifests = _read(data, path)
    for manifest in manifests:
        if not isinstance(manifest.get("manifest_path"), str):
            raise _not_one(path, KeyError("manifest_path"))
        # Format version 1 has no deletes and no sequence numbers.
        manifest.setdefault("content", DATA)
        manifest.setdefault("sequence_number", 0)
        manifest.setdefault("first_row_id", None)
    return manifests


def _read(data: bytes, path: str) -> list[dict[str, Any]]:
    try:
        found = read_records(data)
    except Exception as error:
        raise _not_one(path, error) from error
    if not all(isinstance(record, dict) for record in found):
        raise _not_one(path, TypeError("its records have no fields"))
    return found


def _not_one(path: str, error: Exception) -> CorruptIcebergMetadata:
    return CorruptIcebergMetadata(
        f"'{path}' is not a readable Avro file of Iceberg metadata ({type(error).__name__}: "
        f"{str(error)[:200]}). Restore it from a backup, or, if Delvec wrote the metadata, delete it and "
        "convert the table again.",
        file=path,
    )
