"""Writes one Iceberg snapshot: delete files, manifests and the manifest list; returns the metadata that names them.

Nothing is visible before the metadata is published; nothing refers to what a crash leaves behind.

Tested in `tests/integration/service/iceberg/test_conversion.py`.
"""

import hashlib
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import MissingDataFile
from delvec_iceberg.data_files import Definition, added, data_files, file_path
from delvec_iceberg.file_changes import FileChanges
from delvec_iceberg.manifests import (
    DATA,
    DELETED,
    DELETES,
    EXISTING,
    ManifestEntry,
    ManifestFile,
    write_manifest_list,
)
from delvec_iceberg.partitions import PartitionSpec
from delvec_iceberg.schema import V3
from delvec_iceberg.table_metadata import (
    SnapshotSummary,
    current_schema,
    current_snapshot,
    partition_spec_of,
    with_snapshot,
)
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.file_rows import batch_from_adds
from delvec_kernel.locations import canonical_log_paths
from delvec_kernel.schema.partition_values import naming_files
from delvec_parquet.parquet_file import read_footer
from delvec_service.iceberg.delete_files import DeletedRows, write_deletes
from delvec_service.iceberg.manifest_files import ENTRIES, ManifestFiles, is_shared, key_of
from delvec_service.iceberg.metadata_directory import IcebergDirectory
from delvec_service.store.open_table import OpenTable

__all__ = ["DeltaVersion", "FilesNotFound", "IcebergSnapshotWriter"]

_SMALL: Final = ENTRIES // 4
_MAX_SMALL: Final = 32
"""How many small manifests are kept before they are merged."""


class FilesNotFound(Exception):
    """The Iceberg metadata lacks files that commits change: it has to be converted as a whole."""


class DeltaVersion:
    """The Delta version that a snapshot shows.

    Attributes:
        version: the version.
        timestamp: the timestamp of the version, milliseconds since the epoch.
        operation: as in the commit, or None.
    """

    def __init__(self, version: int, timestamp: int, operation: str | None) -> None:
        self.version = version
        self.timestamp = timestamp
        self.operation = operation


class IcebergSnapshotWriter:
    """Writes one snapshot.

    Args:
        table: the Delta table.
        directory: where to write.
        manifests: the manifests of the table.
        metadata: the metadata that the snapshot follows; the snapshot has its current schema and spec.
        definition: the table's definition.
        shown: the Delta version.
        shared_deletes: whether data files of a partition share position delete files; format version 2 only.
    """

    def __init__(
        self,
        table: OpenTable,
        directory: IcebergDirectory,
        manifests: ManifestFiles,
        metadata: Mapping[str, Any],
        definition: Definition,
        shown_version: DeltaVersion,
        *,
        shared_deletes: bool = False,
    ) -> None:
        self._table = table
        self._directory = directory
        self._manifests = manifests
        self._metadata = metadata
        self._definition = definition
        self._shown = shown_version
        self._shared_deletes = shared_deletes
        self._parent = current_snapshot(metadata)
        last = int(metadata["last-sequence-number"])
        self._sequence_number = max(shown_version.version, last + 1)
        self._snapshot_id = _snapshot_id(metadata, shown_version.version, self._sequence_number)
        self._tag = uuid.uuid4().hex
        self._written = 0
        self._counts: Counter[str] = Counter()
        self._next_row_id = int(metadata.get("next-row-id", 0))

    # --- the two ways -----------------------------------------------------------------------------------

    def whole(self, batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        """Return metadata whose newest snapshot has exactly these files; the cost grows with the table.

        Args:
            batches: rows of FILES_SCHEMA.

        Raises:
            DelvecError: see :meth:`changed`.
        """
        manifests: list[ManifestFile] = []
        pending: list[ManifestEntry] = []
        deletes: list[ManifestEntry] = []
        for batch in batches:
            files = self._entries(batch)
            # Files of a partition next to each other, so that readers can skip whole manifests.
            files.sort(key=lambda one: repr(sorted(one[0]["data_file"]["partition"].items())))
            pending += [entry for entry, _ in files]
            manifests += self._write_full(pending, DATA)
            deletes += self._deletes(rows for _, rows in files)
            manifests += self._write_full(deletes, DELETES)
        manifests += self._write_rest(pending, DATA)
        manifests += self._write_rest(deletes, DELETES)
        totals = {
            "total-data-files": self._counts["added-data-files"],
            "total-records": self._counts["added-records"],
            "total-delete-files": self._counts["added-delete-files"],
            "total-position-deletes": self._counts["added-position-deletes"],
            "total-files-size": self._counts["added-files-size"],
        }
        operation = "append" if self._parent is None and not totals["total-delete-files"] else "overwrite"
        return self._finish(manifests, operation, totals)

    def changed(self, changes: FileChanges) -> dict[str, Any]:
        """Return metadata with these changes as the newest snapshot; the cost grows with the changes.

        Raises:
            FilesNotFound: the previous snapshot lacks a file that is changed.
            CorruptLog: a path or a partition value is invalid.
            CorruptDeletionVector: or a subclass: a deletion vector cannot be read.
            CorruptIcebergMetadata: a manifest is missing or cannot be read.
            MissingDataFile: a file whose statistics lack the number of rows does not exist in storage.
            StorageError: storage did not answer.
        """
        before = [] if self._parent is None else self._manifests.of_snapshot(self._parent)
        location = self._table.location
        removed_paths = {file_path(location, key) for key in changes.removed}
        vectors = {file_path(location, key) for key in changes.vectors}
        adds = [*changes.added.values()]
        batch = batch_from_adds([*adds, *changes.vectors.values()])
        files = self._entries(batch, count=len(adds))
        of_deletes = [one for one in before if one["content"] == DELETES]
        superseded_paths, kept = self._superseded(of_deletes, removed_paths | vectors)
        new = {
            DATA: [entry for entry, _ in files[: len(adds)]],
            DELETES: self._deletes([*(rows for _, rows in files), *kept]),
        }
        manifests: list[ManifestFile] = []
        for content, gone in ((DATA, removed_paths), (DELETES, removed_paths | vectors)):
            of_content = [one for one in before if one["content"] == content]
            manifests += self._replaced(of_content, gone, superseded_paths, new[content], content)
        if self._counts["deleted-data-files"] != len(removed_paths):
            raise FilesNotFound
        return self._finish(manifests, changes.operation, self._totals())

    def _totals(self) -> dict[str, int]:
        summary = {} if self._parent is None else self._parent["summary"]
        counts = self._counts
        try:
            return {
                f"total-{name}": int(summary.get(f"total-{name}", "0")) + counts[plus] - counts[minus]
                for name, plus, minus in (
                    ("data-files", "added-data-files", "deleted-data-files"),
                    ("records", "added-records", "deleted-records"),
                    ("delete-files", "added-delete-files", "removed-delete-files"),
                    ("position-deletes", "added-position-deletes", "removed-position-deletes"),
                    ("files-size", "added-files-size", "removed-files-size"),
                )
            }
        except ValueError:
            raise FilesNotFound from None

    # --- files ------------------------------------------------------------------------------------------

    def _entries(
        self, batch: pa.RecordBatch, count: int | None = None
    ) -> list[tuple[ManifestEntry, DeletedRows | None]]:
        """Return the entries of live files and their deleted rows; only the first ``count`` count as added."""
        self._check_roots(batch)
        batch = self._with_records(batch)
        definition = self._definition
        with naming_files(
            [batch],
            definition.delta,
            definition.columns,
            table=self._table.name,
            version=self._shown.version,
        ):
            described = list(data_files(batch, self._table.location, definition))
        vectors = batch.column("deletion_vector").to_pylist()
        paths = batch.column("path").to_pylist()
        entries: list[tuple[ManifestEntry, DeletedRows | None]] = []
        for (data_file, version), path, vector in zip(described, paths, vectors, strict=True):
            lineage = self._directory.format_version >= V3
            entry = added(data_file, self._snapshot_id, version if lineage else None)
            rows = None if vector is None else DeletedRows(path, data_file, Descriptor.from_json(vector))
            if count is None or len(entries) < count:
                self._count("added", entry)
            entries.append((entry, rows))
        return entries

    def _deletes(self, files: Iterable[DeletedRows | None]) -> list[ManifestEntry]:
        self._written += 1
        delete_files = write_deletes(
            self._table,
            self._directory,
            (rows for rows in files if rows is not None),
            self._shown.version,
            f"{self._tag}-{self._written:05d}",
            may_share=self._shared_deletes,
        )
        entries = []
        for data_file, covered in delete_files:
            entry = added(data_file, self._snapshot_id)
            if is_shared(entry):
                self._manifests.note_covered(
                    data_file["file_path"], (one.data_file["file_path"] for one in covered)
                )
            self._count("added", entry)
            entries.append(entry)
        return entries

    def _superseded(
        self, manifests: Sequence[ManifestFile], removed_paths: set[str]
    ) -> tuple[set[str], list[DeletedRows]]:
        """Return the shared delete files that cover one of these data files, and their other data files.

        Raises:
            FilesNotFound: one has another partition spec than the snapshot.
        """
        superseded_paths: set[str] = set()
        remaining_deletes: list[DeletedRows] = []
        for manifest, entry in self._manifests.shared_about(manifests, removed_paths):
            path, partition = entry["data_file"]["file_path"], entry["data_file"]["partition"]
            covered = self._manifests.covered(path)
            rest = [one for one in covered if one.file_path not in removed_paths]
            if len(rest) == len(covered):
                continue
            if manifest["partition_spec_id"] != self._metadata["default-spec-id"]:
                raise FilesNotFound
            superseded_paths.add(path)
            remaining_deletes += [
                DeletedRows(one.path, {"file_path": one.file_path, "partition": partition}, one.descriptor)
                for one in rest
            ]
        return superseded_paths, remaining_deletes

    def _check_roots(self, batch: pa.RecordBatch) -> None:
        keys = canonical_log_paths(batch.column("path"), self._table.location)
        outside = batch.column("path").filter(pc.match_substring(keys, "://"))
        self._table.roots.check_files(
            self._table.location,
            outside.to_pylist(),
            table=self._table.name,
            version=self._shown.version,
        )

    def _with_records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the files with their numbers of rows, read from footers if statistics lack them."""
        counts = batch.column("num_records")
        if not counts.null_count:
            return batch
        known = [
            self._rows_in(path) if count is None else count
            for path, count in zip(batch.column("path").to_pylist(), counts.to_pylist(), strict=True)
        ]
        place = batch.schema.get_field_index("num_records")
        return batch.set_column(place, batch.schema.field(place), pa.array(known, pa.int64()))

    def _rows_in(self, path: str) -> int:
        try:
            with self._table.objects.open(path) as source:
                return int(read_footer(source, path).num_rows)
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise MissingDataFile(
                f"The data file '{path}' of table '{self._table.name}' (version {self._shown.version}) does not "
                "exist in storage, or is not a Parquet file; restore it from a backup, or remove it from the "
                "table.",
                table=self._table.name,
                version=self._shown.version,
                file=path,
            ) from error

    # --- manifests --------------------------------------------------------------------------------------

    def _replaced(
        self,
        manifests: Sequence[ManifestFile],
        removed_paths: set[str],
        superseded_paths: set[str],
        new: list[ManifestEntry],
        content: int,
    ) -> Iterator[ManifestFile]:
        """Yield the manifests of a content without the entries of some data files and delete files, and with new ones."""
        touched = {one["manifest_path"] for one in self._manifests.about(manifests, removed_paths)}
        manifests_to_merge = self._to_merge([one for one in manifests if one["manifest_path"] not in touched])
        ours = self._metadata["default-spec-id"]
        for manifest in manifests:
            path = manifest["manifest_path"]
            if path in touched:
                entries = [
                    self._kept(
                        entry,
                        entry["data_file"]["file_path"] in superseded_paths
                        if is_shared(entry)
                        else key_of(entry) in removed_paths,
                    )
                    for entry in self._manifests.live(manifest)
                ]
                if manifest["partition_spec_id"] == ours and len(entries) + len(new) <= ENTRIES:
                    entries += new
                    new = []
                yield self._write(entries, content, manifest["partition_spec_id"])
            elif (
                path not in manifests_to_merge
                and manifest["added_files_count"] + manifest["existing_files_count"]
            ):
                yield manifest
        by_spec: defaultdict[int, list[ManifestEntry]] = defaultdict(list)
        for manifest in manifests_to_merge.values():
            by_spec[manifest["partition_spec_id"]] += [
                self._kept(entry, gone=False) for entry in self._manifests.live(manifest)
            ]
        by_spec[ours] += new
        for spec_id, entries in by_spec.items():
            for start in range(0, len(entries), ENTRIES):
                yield self._write(entries[start : start + ENTRIES], content, spec_id)

    @staticmethod
    def _to_merge(manifests: Sequence[ManifestFile]) -> dict[str, ManifestFile]:
        small = {
            one["manifest_path"]: one
            for one in manifests
            if 0 < one["added_files_count"] + one["existing_files_count"] < _SMALL
        }
        return small if len(small) > _MAX_SMALL else {}

    def _kept(self, entry: ManifestEntry, gone: bool) -> ManifestEntry:
        if not gone:
            return {**entry, "status": EXISTING}
        self._count("removed", entry)
        return {**entry, "status": DELETED, "snapshot_id": self._snapshot_id}

    def _write_full(self, entries: list[ManifestEntry], content: int) -> Iterator[ManifestFile]:
        """Write full manifests; the rest stays in ``entries``."""
        while len(entries) >= ENTRIES:
            yield self._write(entries[:ENTRIES], content, self._metadata["default-spec-id"])
            del entries[:ENTRIES]

    def _write_rest(self, entries: list[ManifestEntry], content: int) -> Iterator[ManifestFile]:
        if entries:
            yield self._write(entries, content, self._metadata["default-spec-id"])

    def _write(self, entries: Sequence[ManifestEntry], content: int, spec_id: int) -> ManifestFile:
        self._written += 1
        manifest = self._manifests.write(
            entries,
            content=content,
            spec=self._spec(spec_id),
            schema=current_schema(self._metadata),
            snapshot_id=self._snapshot_id,
            sequence_number=self._sequence_number,
            name=f"{self._tag}-m{self._written}",
        )
        if content == DATA and self._directory.format_version >= V3:
            manifest["first_row_id"] = self._next_row_id
            self._next_row_id += self._new_row_ids(entries)
        return manifest

    def _new_row_ids(self, entries: Sequence[ManifestEntry]) -> int:
        """Return how many ids after the next one are used: by rows without ids, or by ids that Delta assigned."""
        if not self._definition.row_lineage:
            return sum(entry["data_file"]["record_count"] for entry in entries)
        ends = (
            entry["data_file"]["first_row_id"] + entry["data_file"]["record_count"]
            for entry in entries
            if entry["data_file"]["first_row_id"] is not None
        )
        return max(0, max(ends, default=0) - self._next_row_id)

    def _spec(self, spec_id: int) -> PartitionSpec:
        if spec_id == self._definition.spec.spec_id:
            return self._definition.spec
        return partition_spec_of(self._metadata, spec_id)

    # --- the end ----------------------------------------------------------------------------------------

    def _count(self, what: str, entry: ManifestEntry) -> None:
        file = entry["data_file"]
        counts = self._counts
        counts[f"{what}-files-size"] += file.get("content_size_in_bytes") or file["file_size_in_bytes"]
        if file["content"] == DATA:
            of_data = "added" if what == "added" else "deleted"
            counts[f"{of_data}-data-files"] += 1
            counts[f"{of_data}-records"] += file["record_count"]
            return
        counts[f"{what}-delete-files"] += 1
        counts[f"{what}-position-deletes"] += file["record_count"]
        counts[f"{what}-dvs" if file["file_format"] == "PUFFIN" else f"{what}-position-delete-files"] += 1

    def _finish(
        self, manifests: Sequence[ManifestFile], operation: str, totals: Mapping[str, int]
    ) -> dict[str, Any]:
        first_row_id = None
        if self._directory.format_version >= V3:
            first_row_id = int(self._metadata.get("next-row-id", 0))
        data = write_manifest_list(
            manifests,
            format_version=self._directory.format_version,
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=None if self._parent is None else self._parent["snapshot-id"],
            sequence_number=self._sequence_number,
            first_row_id=first_row_id,
        )
        path = self._directory.put(f"metadata/snap-{self._snapshot_id}-{self._tag}.avro", data)
        counts = {name: count for name, count in self._counts.items() if count}
        return with_snapshot(
            self._metadata,
            snapshot_id=self._snapshot_id,
            sequence_number=self._sequence_number,
            manifest_list=path,
            summary=SnapshotSummary(
                operation,
                {**counts, **totals, "total-equality-deletes": 0},
                self._shown.version,
                self._shown.timestamp,
                self._shown.operation,
            ),
            first_row_id=first_row_id,
            added_rows=self._next_row_id - (first_row_id or 0),
        )


def _snapshot_id(metadata: Mapping[str, Any], version: int, sequence_number: int) -> int:
    """Return an id that two converters of one version compute alike."""
    text = f"{metadata['table-uuid']}:{version}:{sequence_number}"
    found = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
    return found or 1
