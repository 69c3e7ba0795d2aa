"""Scan planning for clients of the REST catalog: a snapshot's data files with their deletes, in the protocol's JSON.

One task of a plan is one manifest of data files, so that no answer is larger than a manifest, however large the
table.

Tested in `tests/integration/service/test_iceberg_catalog.py`.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any, Final

from delvec_errors import NotFound, UnsupportedOperation
from delvec_iceberg.manifests import DATA, DELETES, ManifestEntry, ManifestFile
from delvec_iceberg.partitions import PartitionSpec, decimal_of
from delvec_iceberg.table_metadata import current_snapshot, partition_spec_of
from delvec_service.iceberg.conversion import IcebergTable
from delvec_service.iceberg.manifest_files import ManifestFiles, ManifestIndex, is_shared
from delvec_service.store.open_table import OpenTable

__all__ = ["ScanTasks"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORMATS: Final = {"PARQUET": "parquet", "PUFFIN": "puffin"}


class ScanTasks:
    """The files of one snapshot.

    Args:
        table: the Delta table.
        iceberg: its metadata.
        snapshot_id: the snapshot; None for the current one.
        index: the index of manifests that were read before.

    Raises:
        NotFound: the metadata has no such snapshot.
    """

    def __init__(
        self, table: OpenTable, iceberg: IcebergTable, snapshot_id: int | None, index: ManifestIndex
    ) -> None:
        self._table = table
        self._metadata = iceberg.metadata
        self._files = ManifestFiles(iceberg.directory, index)
        self._snapshot = self._snapshot_of(snapshot_id)
        self._specs: dict[int, PartitionSpec] = {}

    @property
    def snapshot_id(self) -> int | None:
        """The id of the snapshot; None if the table never had a file."""
        return None if self._snapshot is None else int(self._snapshot["snapshot-id"])

    def manifests(self) -> list[str]:
        """Return the names of the manifests of data files, in order."""
        return [_name(manifest) for manifest in self._manifests if manifest["content"] == DATA]

    def of(self, manifest: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Return the data files of a manifest, each with its deletes; shared ones are the same object.

        Raises:
            NotFound: the snapshot has no such manifest.
            UnsupportedOperation: a partition value has no JSON form.
            CorruptIcebergMetadata: a manifest is missing or invalid.
            StorageError: storage did not answer.
        """
        matching_manifests = [
            each for each in self._manifests if each["content"] == DATA and _name(each) == manifest
        ]
        if not matching_manifests:
            raise NotFound(
                f"Snapshot {self.snapshot_id} of table '{self._table.name}' has no plan task {manifest[:200]!r}; "
                "plan the scan again.",
                table=self._table.name,
            )
        entries = self._files.live(matching_manifests[0])
        deletes = self._deletes({entry["data_file"]["file_path"] for entry in entries})
        return [
            (
                self._data_file(entry, matching_manifests[0]["partition_spec_id"]),
                deletes.get(entry["data_file"]["file_path"], []),
            )
            for entry in entries
        ]

    def _snapshot_of(self, snapshot_id: int | None) -> Mapping[str, Any] | None:
        if snapshot_id is None:
            return current_snapshot(self._metadata)
        for snapshot in self._metadata["snapshots"]:
            if snapshot["snapshot-id"] == snapshot_id:
                found: Mapping[str, Any] = snapshot
                return found
        raise NotFound(
            f"Table '{self._table.name}' has no Iceberg snapshot {snapshot_id}; load the table again.",
            table=self._table.name,
        )

    @cached_property
    def _manifests(self) -> list[ManifestFile]:
        return [] if self._snapshot is None else self._files.of_snapshot(self._snapshot)

    def _deletes(self, paths: set[str]) -> dict[str, list[dict[str, Any]]]:
        deletes_by_path: dict[str, list[dict[str, Any]]] = defaultdict(list)
        of_deletes = [each for each in self._manifests if each["content"] == DELETES]
        for manifest, entry, its in self._files.deletes_of(of_deletes, paths):
            delete_file = self._delete_file(entry, manifest["partition_spec_id"])
            for path in its:
                deletes_by_path[path].append(delete_file)
        return deletes_by_path

    def _data_file(self, entry: ManifestEntry, spec_id: int) -> dict[str, Any]:
        found = self._file(entry, spec_id, "data")
        row_id = entry["data_file"].get("first_row_id")
        return found if row_id is None else {**found, "first-row-id": row_id}

    def _delete_file(self, entry: ManifestEntry, spec_id: int) -> dict[str, Any]:
        file = entry["data_file"]
        delete_file = self._file(entry, spec_id, "position-deletes")
        if not is_shared(entry):
            delete_file["referenced-data-file"] = file["referenced_data_file"]
        if file.get("content_offset") is not None:
            delete_file["content-offset"] = file["content_offset"]
            delete_file["content-size-in-bytes"] = file["content_size_in_bytes"]
        return delete_file

    def _file(self, entry: ManifestEntry, spec_id: int, content: str) -> dict[str, Any]:
        file = entry["data_file"]
        fields = self._spec(spec_id).fields
        return {
            "spec-id": spec_id,
            "partition": [
                self._json(value, field.type)
                for value, field in zip((file["partition"] or {}).values(), fields, strict=True)
            ],
            "content": content,
            "file-path": file["file_path"],
            "file-format": _FORMATS[file["file_format"].upper()],
            "file-size-in-bytes": file["file_size_in_bytes"],
            "record-count": file["record_count"],
        }

    def _spec(self, spec_id: int) -> PartitionSpec:
        if spec_id not in self._specs:
            self._specs[spec_id] = partition_spec_of(self._metadata, spec_id)
        return self._specs[spec_id]

    def _json(self, value: Any, kind: str) -> Any:
        """Return a value in the specification's "JSON Single-Value Serialization"."""
        try:
            return _json_value(value, kind)
        except (OverflowError, ValueError) as error:
            raise UnsupportedOperation(
                f"A partition value of table '{self._table.name}' ({value!r}, {kind}) cannot be written as JSON; "
                "plan the scan in the client, from the table's manifests.",
                operation="PLAN",
                table=self._table.name,
            ) from error


def _name(manifest: ManifestFile) -> str:
    return str(manifest["manifest_path"]).rpartition("/")[2]


def _json_value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "date":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if kind in ("timestamp", "timestamptz"):
        moment = _EPOCH + timedelta(microseconds=value)
        return (moment if kind == "timestamptz" else moment.replace(tzinfo=None)).isoformat(
            timespec="microseconds"
        )
    if isinstance(value, bytes):
        if kind.startswith("decimal"):
            scale = int(kind.rpartition(",")[2].strip(" )"))
            return f"{decimal_of(value, scale):f}"
        return value.hex().upper()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("JSON cannot represent the number")
    return value
