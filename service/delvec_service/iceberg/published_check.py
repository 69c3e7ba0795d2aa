"""Checks published conversions: manifests and deletes of the current Iceberg snapshot, compared with Delta.

It only reads, and continues after a finding.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import (
    CorruptIcebergMetadata,
    CorruptTable,
    DelvecError,
    IcebergUnsupported,
    LocationNotAllowed,
    NotFound,
    StorageError,
    UnsupportedTable,
)
from delvec_iceberg.data_files import Definition, file_path
from delvec_iceberg.manifests import DATA, ManifestEntry, ManifestFile, read_manifest
from delvec_iceberg.partitions import partition_tuples
from delvec_iceberg.schema import V3
from delvec_iceberg.table_metadata import (
    DELTA_TABLE_ID,
    DELTA_VERSION,
    current_snapshot,
    delta_version,
    expired_snapshots,
)
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.row_tracking import ENABLED as ROW_TRACKING
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.table_properties import is_true
from delvec_maintenance.checks.findings import Finding, Severity
from delvec_maintenance.checks.iceberg_invariants import (
    ENTRIES_SCHEMA,
    LIVE_SCHEMA,
    IcebergSnapshot,
    columns_of,
    count_findings,
    delete_findings,
    file_findings,
    manifest_findings,
    partition_key,
    row_id_findings,
    sequence_findings,
)
from delvec_service.iceberg.conversion import FORMAT_VERSIONS, definition_of
from delvec_service.iceberg.delete_check import DeletesCheck, DeltaVector
from delvec_service.iceberg.lost_files import lost_files
from delvec_service.iceberg.manifest_files import ManifestFiles, ManifestIndex
from delvec_service.iceberg.metadata_directory import IcebergDirectory, Published
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.open_table import OpenTable

__all__ = ["PublishedCheck", "check_published"]

_INVALID_METADATA: Final = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    StopIteration,
    RuntimeError,
)
"""Errors for metadata that violates the specification; Arrow's errors are ValueErrors or TypeErrors."""

_Expected: TypeAlias = tuple[pa.Table, dict[str, DeltaVector], list[Finding]]
"""Live files, LIVE_SCHEMA; deletion vectors by path; and how the table's definition differs from Delta's."""


@dataclass
class PublishedCheck:
    """What was checked, and what is wrong with it.

    Attributes:
        format_version: 2 or 3.
        metadata_location: the URI of the metadata file; None if none can be read.
        delta_version: the version that it shows; None if none can be read.
        data_files: number of data files in the current snapshot.
        delete_files: number of deletion vectors or position delete files in it, all of which were read.
        findings: in no particular order.
    """

    format_version: int
    metadata_location: str | None = None
    delta_version: int | None = None
    data_files: int = 0
    delete_files: int = 0
    findings: list[Finding] = field(default_factory=list)


def check_published(loader: SnapshotLoader, table: OpenTable) -> list[PublishedCheck]:
    """Check the Iceberg metadata of a table, in each format version that it was converted to.

    Raises:
        StorageError: storage did not answer.
    """
    configuration = loader.load(table.objects, table.name).configuration
    check_results = []
    for version in FORMAT_VERSIONS:
        try:
            directory = IcebergDirectory(table, version, configuration)
        except (CorruptTable, LocationNotAllowed) as error:
            done = PublishedCheck(version)
            done.findings.append(Finding("iceberg-metadata", "error", None, None, error.message))
            return [done]  # the other format version would have the same finding
        one = _checked(loader, table, directory)
        if one is not None:
            check_results.append(one)
    return check_results


def _checked(loader: SnapshotLoader, table: OpenTable, directory: IcebergDirectory) -> PublishedCheck | None:
    check_result = PublishedCheck(directory.format_version)
    try:
        publication = directory.newest()
    except (CorruptIcebergMetadata, IcebergUnsupported) as error:
        file = error.details.get("file")
        severity: Severity = "warning" if isinstance(error, IcebergUnsupported) else "error"
        check_result.findings.append(
            Finding("iceberg-metadata", severity, None, None if file is None else str(file), error.message)
        )
        return check_result
    if publication is None:
        return None
    check_result.metadata_location = directory.metadata_location(publication.number)
    check_result.delta_version = delta_version(publication.metadata)
    try:
        _Check(loader, table, directory, publication, check_result).run()
    except StorageError:
        raise
    except (CorruptIcebergMetadata, *_INVALID_METADATA) as error:
        said = (
            error.message if isinstance(error, DelvecError) else f"{type(error).__name__}: {str(error)[:200]}"
        )
        message = (
            f"'{check_result.metadata_location}' violates Iceberg's specification ({said.rstrip('.')}): delete "
            f"'{directory.location}/metadata', and convert the table again."
        )
        check_result.findings.append(
            Finding(
                "iceberg-metadata",
                "error",
                check_result.delta_version,
                check_result.metadata_location,
                message,
            )
        )
    return check_result


class _Check:
    """The check of one metadata file."""

    def __init__(
        self,
        loader: SnapshotLoader,
        table: OpenTable,
        directory: IcebergDirectory,
        publication: Published,
        check_result: PublishedCheck,
    ) -> None:
        self._loader = loader
        self._table = table
        self._directory = directory
        self._metadata = publication.metadata
        self._manifests = ManifestFiles(directory, ManifestIndex(0))
        self._done = check_result
        self._version = delta_version(publication.metadata)
        current = current_snapshot(publication.metadata)
        self._of = IcebergSnapshot(
            self._version, directory.format_version, directory.location, publication.metadata, current or {}
        )
        self._has_snapshot = current is not None

    def run(self) -> None:
        findings = self._done.findings
        findings += self._metadata_findings()
        data, deletes = self._entries()
        self._done.data_files, self._done.delete_files = data.num_rows, deletes.num_rows
        vectors: dict[str, DeltaVector] | None = None
        live = self._live()
        if live is not None:
            files, vectors, differences = live
            findings += differences
            findings += file_findings(data, files, self._metadata["default-spec-id"], self._of)
        by_data_file = self._by_data_file(deletes)
        findings += delete_findings(data, by_data_file, None if live is None else live[0], self._of)
        if self._has_snapshot:
            findings += count_findings(data, deletes, self._of)
            findings += sequence_findings(data, deletes, self._of)
            findings += row_id_findings(data, self._of)
        findings += DeletesCheck(self._table, self._directory, self._of).findings(by_data_file, vectors)
        findings += self._history(data)

    # --- the metadata -----------------------------------------------------------------------------------

    def _metadata_findings(self) -> Iterator[Finding]:
        metadata, location = self._metadata, self._done.metadata_location
        if metadata["format-version"] != self._of.format_version:
            yield self._of.finding(
                "iceberg-metadata",
                location,
                f"The metadata has format version {metadata['format-version']}",
            )
        if metadata["location"] != self._directory.location:
            yield self._of.finding(
                "iceberg-metadata", location, f"The metadata belongs to a table at '{metadata['location']}'"
            )
        ids = {one["snapshot-id"] for one in metadata["snapshots"]}
        current = metadata.get("current-snapshot-id")
        main = metadata["refs"].get("main", {}).get("snapshot-id")
        for name, ref in metadata["refs"].items():
            if ref["snapshot-id"] not in ids:
                yield self._of.finding(
                    "iceberg-metadata", location, f"'{name}' refers to a snapshot that does not exist"
                )
        if current != -1 and (current not in ids or main != current):
            yield self._of.finding(
                "iceberg-metadata",
                location,
                f"The current snapshot is {current}, the branch 'main' is at {main}, and there are {len(ids)} snapshots",
            )
        numbers = [one["sequence-number"] for one in metadata["snapshots"]]
        if numbers != sorted(set(numbers)):
            yield self._of.finding(
                "iceberg-sequence-numbers",
                location,
                "The sequence numbers of snapshots do not increase strictly",
            )
        if self._has_snapshot:
            shown_version = self._of.snapshot["summary"].get(DELTA_VERSION)
            if shown_version is None or int(shown_version) > self._version:
                yield self._of.finding(
                    "iceberg-version",
                    location,
                    f"The metadata shows Delta version {self._version}, but its current snapshot shows version "
                    f"{shown_version}",
                )

    # --- Iceberg's files --------------------------------------------------------------------------------

    def _entries(self) -> tuple[pa.Table, pa.Table]:
        data, deletes = [ENTRIES_SCHEMA.empty_table()], [ENTRIES_SCHEMA.empty_table()]
        for manifest in self._manifests.of_snapshot(self._of.snapshot) if self._has_snapshot else ():
            try:
                entries = self._read(manifest)
                self._done.findings += manifest_findings(manifest, entries, self._of)
                part = pa.Table.from_batches([columns_of(entries, manifest)])
            except (CorruptIcebergMetadata, *_INVALID_METADATA) as error:
                path = str(manifest["manifest_path"])
                said = error.message if isinstance(error, DelvecError) else f"{type(error).__name__}: {error}"
                self._done.findings.append(
                    self._of.finding(
                        "iceberg-metadata",
                        path,
                        f"Manifest '{path}' cannot be read: {said[:500].rstrip('.')}",
                    )
                )
                continue
            (data if manifest["content"] == DATA else deletes).append(part)
        return pa.concat_tables(data).combine_chunks(), pa.concat_tables(deletes).combine_chunks()

    def _read(self, manifest: ManifestFile) -> list[ManifestEntry]:
        data = self._directory.get(manifest["manifest_path"])
        if len(data) != manifest["manifest_length"]:
            path = manifest["manifest_path"]
            self._done.findings.append(
                self._of.finding(
                    "iceberg-metadata",
                    path,
                    f"Manifest '{path}' has {len(data)} bytes, but the manifest list says "
                    f"{manifest['manifest_length']}",
                )
            )
        return read_manifest(data, manifest)

    def _by_data_file(self, deletes: pa.Table) -> pa.Table:
        """Return the deletes with one row for each data file: a shared delete file has several."""
        mask = pc.and_(pc.is_null(deletes["referenced"]), pc.equal(deletes["format"], "PARQUET"))
        rows: list[dict[str, Any]] = []
        for row in deletes.filter(mask).to_pylist():
            try:
                covered_files = self._manifests.covered(row["path"])
            except CorruptIcebergMetadata:
                rows.append(row)  # reported as a file that names no data file, or as unreadable
                continue
            count = sum(one.descriptor.cardinality for one in covered_files)
            if count != row["records"]:
                self._done.findings.append(
                    self._of.finding(
                        "iceberg-delete-file",
                        row["path"],
                        f"The delete file '{row['path']}' has {row['records']} rows according to its manifest, but "
                        f"{count} according to its footer",
                    )
                )
            rows += [
                {**row, "referenced": one.file_path, "records": one.descriptor.cardinality}
                for one in covered_files
            ]
        others = deletes.filter(pc.invert(mask))
        return pa.concat_tables([others, pa.Table.from_pylist(rows, ENTRIES_SCHEMA)]).combine_chunks()

    # --- Delta's files ----------------------------------------------------------------------------------

    def _live(self) -> _Expected | None:
        """Return what Iceberg should contain, or None if unknown."""
        newest = self._loader.load(self._table.objects, self._table.name)
        of, location = self._of, self._done.metadata_location
        if self._metadata["properties"][DELTA_TABLE_ID] != newest.metadata.id:
            self._done.findings.append(
                of.finding(
                    "iceberg-version",
                    location,
                    "The metadata belongs to another Delta table, which this one replaced",
                )
            )
            return None
        if self._version > newest.version:
            self._done.findings.append(
                of.finding(
                    "iceberg-version",
                    location,
                    f"The metadata is newer than the log, which ends at version {newest.version}",
                )
            )
            return None
        try:
            return self._loader.reading(
                self._table.objects, self._table.name, self._expected, version=self._version
            )
        except NotFound:
            self._done.findings.append(
                of.finding(
                    "iceberg-version",
                    location,
                    f"Version {self._version} is no longer in the log, so its files could not be compared",
                    "warning",
                )
            )
        except (CorruptTable, UnsupportedTable, IcebergUnsupported) as error:
            self._done.findings.append(
                of.finding(
                    "iceberg-version",
                    location,
                    f"Version {self._version} cannot be read, so its files could not be compared "
                    f"({error.message.rstrip('.')})",
                    "warning",
                )
            )
        return None

    def _expected(self, snapshot: Snapshot) -> _Expected:
        definition = definition_of(
            snapshot.metadata, self._metadata, self._of.format_version, self._table, self._version
        )
        lineage = self._of.format_version >= V3 and is_true(snapshot.configuration, ROW_TRACKING)
        tables, vectors = [LIVE_SCHEMA.empty_table()], dict[str, DeltaVector]()
        for batch in snapshot.live.batches():
            names = batch.column("path").to_pylist()
            paths = [file_path(self._table.location, name) for name in names]
            stored = batch.column("deletion_vector").to_pylist()
            descriptors = [None if one is None else Descriptor.from_json(one) for one in stored]
            tuples = partition_tuples(
                batch.column("partition_values"), definition.delta, definition.columns, definition.spec
            )
            for path, name, vector in zip(paths, names, descriptors, strict=True):
                if vector is not None and vector.cardinality:
                    vectors[path] = DeltaVector(name, vector)
            ids = batch.column("base_row_id") if lineage else pa.nulls(batch.num_rows, pa.int64())
            columns = [
                pa.array(paths, pa.large_string()),
                pa.array(map(partition_key, tuples), pa.large_string()),
                batch.column("num_records"),
                batch.column("size"),
                ids,
                pa.array([0 if one is None else one.cardinality for one in descriptors], pa.int64()),
            ]
            tables.append(pa.Table.from_arrays(columns, schema=LIVE_SCHEMA))
        return pa.concat_tables(tables).combine_chunks(), vectors, list(self._differences(definition))

    def _differences(self, definition: Definition) -> Iterator[Finding]:
        """Report where the current schema or partition spec differs from Delta's."""
        location, metadata = self._done.metadata_location, self._metadata
        wanted = metadata["current-schema-id"]
        current = [one["fields"] for one in metadata["schemas"] if one["schema-id"] == wanted]
        if current != [list(definition.schema.fields)]:
            yield self._of.finding(
                "iceberg-metadata", location, "The current schema differs from that of the Delta table"
            )
        specs = [one["spec-id"] for one in metadata["partition-specs"]]
        if metadata["default-spec-id"] != definition.spec.spec_id or definition.spec.spec_id not in specs:
            yield self._of.finding(
                "iceberg-metadata",
                location,
                "The default partition spec differs from that of the Delta table",
            )

    # --- history ----------------------------------------------------------------------------------------

    def _history(self, current: pa.Table) -> Iterator[Finding]:
        """Report missing files of older snapshots that have not expired; the newest has Delta's, which `check` looks up."""
        gone = set(expired_snapshots(self._metadata, time.time_ns() // 1_000_000))
        seen_paths = set(current["path"].to_pylist())
        for snapshot in self._metadata["snapshots"]:
            if snapshot["snapshot-id"] in gone or snapshot["snapshot-id"] == self._of.snapshot.get(
                "snapshot-id"
            ):
                continue
            try:
                missing = self._missing(snapshot, seen_paths)
            except CorruptIcebergMetadata as error:
                missing = [str(error.details.get("file"))]
            for path in missing:
                yield self._of.finding(
                    "iceberg-history",
                    path,
                    f"Snapshot {snapshot['snapshot-id']} of version {snapshot['summary'].get(DELTA_VERSION)} cannot "
                    f"be read: '{path}' is missing or damaged",
                    "warning",
                )

    def _missing(self, snapshot: Any, seen_paths: set[str]) -> Sequence[str]:
        data, deletes = set[str](), set[str]()
        for manifest in self._manifests.of_snapshot(snapshot):
            if manifest["manifest_path"] in seen_paths:
                continue
            seen_paths.add(manifest["manifest_path"])
            entries = self._manifests.live(manifest)
            paths = {entry["data_file"]["file_path"] for entry in entries} - seen_paths
            seen_paths |= paths
            (data if manifest["content"] == DATA else deletes).update(paths)
        return [
            *(path for path in sorted(deletes) if not self._directory.has(path)),
            *lost_files(self._table, sorted(data)),
        ]
