"""Converts a Delta table's newest version to Iceberg.

Each conversion continues from the version that the published Iceberg metadata shows; no other state is kept. It reads
the commits since then and rewrites only what they touch. If that is impossible (commits were cleaned up, a type was
widened, files are not as expected), it converts the version as a whole.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from delvec_errors import (
    CorruptDeletionVector,
    CorruptIcebergMetadata,
    IcebergUnsupported,
    MissingDataFile,
    MissingLogFile,
    ServiceUnavailable,
    VersionNotFound,
)
from delvec_iceberg.data_files import Definition
from delvec_iceberg.file_changes import file_changes
from delvec_iceberg.partitions import partition_spec
from delvec_iceberg.schema import iceberg_schema
from delvec_iceberg.table_metadata import (
    DELTA_TABLE_ID,
    changes_types,
    current_snapshot,
    delta_version,
    expired_snapshots,
    is_continued_by,
    new_metadata,
    with_previous_file,
    with_table_definition,
    with_version,
    with_version_tag,
    without_snapshots,
)
from delvec_kernel.actions.actions import CommitInfo, Metadata, first_of
from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.row_tracking import ENABLED as ROW_TRACKING
from delvec_kernel.schema.column_mapping import is_mapped, without_physical_names
from delvec_kernel.schema.types import StructType
from delvec_kernel.snapshot.replay import Commit
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.table_properties import (
    ICEBERG_CATALOG,
    ICEBERG_DELETE_GRANULARITY,
    ICEBERG_FORMAT_VERSIONS,
    ICEBERG_TAG_VERSIONS,
    is_true,
)
from delvec_service.iceberg.external_catalogs import ExternalCatalogs
from delvec_service.iceberg.lost_files import lost_files, passing_files
from delvec_service.iceberg.manifest_files import ManifestFiles, ManifestIndex
from delvec_service.iceberg.metadata_directory import IcebergDirectory, Published
from delvec_service.iceberg.published_snapshot import DeltaVersion, FilesNotFound, IcebergSnapshotWriter
from delvec_service.logs import logger
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.iceberg_conversions import IcebergConversionStore
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.places import UNRESTRICTED, Places, Requester

__all__ = ["FORMAT_VERSIONS", "IcebergConversion", "IcebergTable", "asked_formats"]

FORMAT_VERSIONS: Final = (2, 3)
_ATTEMPTS: Final = 10
_MAX_SNAPSHOTS: Final = 100
"""How many versions one conversion publishes individually; if there are more, only the newest is."""


@dataclass(frozen=True)
class IcebergTable:
    """The published metadata.

    Attributes:
        metadata: Iceberg's table metadata.
        metadata_location: the URI of its file.
        format_version: 2 or 3.
        delta_version: the Delta version that it shows.
        snapshot_id: the id of the current snapshot; None for a table that never had a file.
        directory: its directory.
        catalog: the table in an external catalog that also shows it, or None.
    """

    metadata: Mapping[str, Any]
    metadata_location: str
    format_version: int
    delta_version: int
    snapshot_id: int | None
    directory: IcebergDirectory = field(repr=False, compare=False)
    catalog: str | None = None


class _FullConversionNeeded(Exception):
    """An incremental conversion is impossible; ``from_scratch``: older snapshots must be dropped, too."""

    def __init__(self, reason: str, *, from_scratch: bool = False) -> None:
        super().__init__(reason)
        self.from_scratch = from_scratch


class IcebergConversion:
    """Converts tables. Safe to share between threads, and to run alongside other converters of the same table.

    Args:
        loader: reads snapshots and commits.
        conversions: records what was converted, for metrics.
        catalogs: external catalogs to update.
        places: decides who may use a directory outside the table's own; without it no such directory is begun.
        unattended: asks for directories when no request does.
        clock: returns milliseconds since the epoch.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        conversions: IcebergConversionStore | None = None,
        catalogs: ExternalCatalogs | None = None,
        *,
        places: Places | None = None,
        unattended: Requester = UNRESTRICTED,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._loader = loader
        self._places = places
        self._unattended = unattended
        self._conversions = conversions
        self._catalogs = catalogs or ExternalCatalogs()
        self._clock = clock
        self.index = ManifestIndex()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def convert(
        self,
        table: OpenTable,
        *,
        format_version: int = 2,
        squash: bool = False,
        requester: Requester | None = None,
    ) -> IcebergTable:
        """Update the Iceberg metadata to the table's newest version, and return what is published.

        Args:
            table: the Delta table.
            format_version: 2 or 3.
            squash: one snapshot for all new versions instead of one for each.
            requester: who asks for it; None for the service itself.

        Raises:
            IcebergUnsupported: Iceberg does not support the table, or its directory contains another Iceberg table.
            LocationNotAllowed: that directory is outside the roots, or inside or above another Delta table.
            PermissionDenied: nothing is published there yet, and it is not the requester's.
            CorruptTable: the property with that directory is invalid.
            CorruptIcebergMetadata: the published metadata cannot be read.
            CorruptLog: the log cannot be read.
            CorruptDeletionVector: or a subclass: a deletion vector cannot be read.
            MissingDataFile: a file whose statistics lack the number of rows does not exist in storage.
            StorageError: storage did not answer. Nothing is published then.
            ServiceUnavailable: other converters were repeatedly faster.
        """
        for _ in range(_ATTEMPTS):
            known = self._loader.known(table.location) or self._loader.load(table.objects, table.name)
            directory = IcebergDirectory(table, format_version, known.configuration)
            with self._locks[directory.location]:
                before = directory.newest()
                snapshot = self._loader.load(table.objects, table.name)
                if not directory.is_of(snapshot.configuration):
                    continue
                if before is None:
                    directory.check_usable(self._places, requester or self._unattended)
                elif self._is_shown(before, snapshot, directory):
                    directory.point_to(before.number)
                    return _table(before, directory)
                metadata = self._next(table, directory, before, snapshot, squash=squash)
                metadata = without_snapshots(metadata, expired_snapshots(metadata, self._clock()))
                after = Published(1 if before is None else before.number + 1, metadata)
                if directory.publish(after.number, metadata):
                    self._note(table, format_version, delta_version(metadata))
                    if before is None and directory.warning is not None:
                        logger.warning(
                            "Iceberg metadata may be deleted", table=table.name, reason=directory.warning
                        )
                    return _table(after, directory)
        raise ServiceUnavailable(
            f"Other converters of table '{table.name}' published Iceberg metadata first, {_ATTEMPTS} times; try "
            "again.",
            table=table.name,
        )

    def publish(
        self,
        table: OpenTable,
        *,
        format_version: int = 2,
        squash: bool = False,
        catalog: str | None = None,
        requester: Requester | None = None,
    ) -> IcebergTable:
        """Convert as :meth:`convert` does, then update a catalog: the given one, or that of the table's property.

        Args:
            table: the Delta table.
            format_version: 2 or 3.
            squash: see :meth:`convert`.
            catalog: see :meth:`ExternalCatalogs.point`.
            requester: see :meth:`convert`.

        Raises:
            DelvecError: see :meth:`convert` and :meth:`ExternalCatalogs.point`; by the time of the latter everything
                is published.
        """
        iceberg_table = self.convert(table, format_version=format_version, squash=squash, requester=requester)
        configuration = self._loader.load(table.objects, table.name).configuration
        asked = asked_formats(configuration)
        # With several format versions the property refers to the newest: a catalog name has a single one.
        if catalog is None and format_version == max(asked, default=format_version):
            catalog = ICEBERG_CATALOG.of(configuration)
        if not catalog:
            return iceberg_table
        return replace(
            iceberg_table, catalog=self._catalogs.point(catalog, iceberg_table.directory, table.name)
        )

    def published(self, table: OpenTable, format_version: int) -> IcebergTable | None:
        """Return the published metadata without converting anything, or None.

        Raises:
            IcebergUnsupported: the directory contains another Iceberg table.
            CorruptIcebergMetadata: it cannot be read.
            StorageError: storage did not answer.
        """
        configuration = self._loader.load(table.objects, table.name).configuration
        directory = IcebergDirectory(table, format_version, configuration)
        found = directory.newest()
        return None if found is None else _table(found, directory)

    def _note(self, table: OpenTable, format_version: int, version: int) -> None:
        if self._conversions is None:
            return
        try:
            self._conversions.record(table.record.id, format_version, version)
        except ServiceUnavailable as error:  # the conversion is published, and the next one is recorded again
            logger.warning("Iceberg conversion not recorded", table=table.name, error=error.message)

    @staticmethod
    def _is_shown(before: Published, snapshot: Snapshot, directory: IcebergDirectory) -> bool:
        return (
            delta_version(before.metadata) == snapshot.version
            and before.metadata["properties"][DELTA_TABLE_ID] == snapshot.metadata.id
            and before.metadata["location"] == directory.location
        )

    # --- the next metadata ------------------------------------------------------------------------------

    def _next(
        self,
        table: OpenTable,
        directory: IcebergDirectory,
        before: Published | None,
        snapshot: Snapshot,
        *,
        squash: bool,
    ) -> dict[str, Any]:
        manifests = ManifestFiles(directory, self.index)
        fresh = new_metadata(
            snapshot.metadata.id, table.location, directory.location, directory.format_version
        )
        if before is None:
            return self._whole(table, directory, manifests, fresh, snapshot)
        base = with_previous_file(
            before.metadata,
            directory.metadata_location(before.number),
            before.metadata["last-updated-ms"],
        )
        log = base["metadata-log"]
        try:
            self._check_same_table(base, snapshot, directory)
            work = _IncrementalConversion(self._loader, table, directory, manifests, snapshot)
            return work.after(base, squash=squash)
        except (_FullConversionNeeded, CorruptIcebergMetadata) as error:
            from_scratch = isinstance(error, CorruptIcebergMetadata) or error.from_scratch
            logger.info(
                "Iceberg metadata converted as a whole",
                table=table.name,
                version=snapshot.version,
                reason=str(error),
            )
        start = {**fresh, "metadata-log": log} if from_scratch else base
        return self._whole(table, directory, manifests, start, snapshot)

    @staticmethod
    def _check_same_table(base: Mapping[str, Any], snapshot: Snapshot, directory: IcebergDirectory) -> None:
        if base["properties"][DELTA_TABLE_ID] != snapshot.metadata.id:
            raise _FullConversionNeeded("the location now has another table", from_scratch=True)
        if base["location"] != directory.location:
            raise _FullConversionNeeded("the table was moved", from_scratch=True)
        if delta_version(base) > snapshot.version:
            raise _FullConversionNeeded("the log is older than the converted version", from_scratch=True)

    def _whole(
        self,
        table: OpenTable,
        directory: IcebergDirectory,
        manifests: ManifestFiles,
        base: Mapping[str, Any],
        snapshot: Snapshot,
    ) -> dict[str, Any]:
        def work(snapshot: Snapshot) -> dict[str, Any]:
            definition = definition_of(
                snapshot.metadata, base, directory.format_version, table, snapshot.version
            )
            start = base
            if base["schemas"] and not is_continued_by(base, definition.schema, snapshot.configuration):
                log = base["metadata-log"]
                start = new_metadata(
                    snapshot.metadata.id, table.location, directory.location, directory.format_version
                )
                start = {**start, "metadata-log": log}
                definition = definition_of(
                    snapshot.metadata, start, directory.format_version, table, snapshot.version
                )
            start = with_table_definition(
                start,
                definition.schema,
                definition.spec,
                snapshot.configuration,
                retention_ms=_retention(snapshot),
            )
            shown_version = DeltaVersion(
                snapshot.version, snapshot.timestamp, self._operation(table, snapshot.version)
            )
            if not snapshot.num_files and current_snapshot(start) is None:
                return with_version(start, snapshot.version, snapshot.timestamp)
            writer = IcebergSnapshotWriter(
                table,
                directory,
                manifests,
                start,
                definition,
                shown_version,
                shared_deletes=_shares_deletes(snapshot.configuration),
            )
            return _tagged(writer.whole(snapshot.live.batches()), snapshot.configuration)

        return self._loader.reading(table.objects, table.name, work, version=snapshot.version)

    def _operation(self, table: OpenTable, version: int) -> str | None:
        try:
            commits = self._loader.commits(table.objects, table.name, range(version, version + 1))
        except MissingLogFile:
            return None
        return operation_of(commits[0])


class _IncrementalConversion:
    """The commits since the last conversion, as snapshots."""

    def __init__(
        self,
        loader: SnapshotLoader,
        table: OpenTable,
        directory: IcebergDirectory,
        manifests: ManifestFiles,
        snapshot: Snapshot,
    ) -> None:
        self._loader = loader
        self._table = table
        self._directory = directory
        self._manifests = manifests
        self._snapshot = snapshot

    def after(self, base: dict[str, Any], *, squash: bool) -> dict[str, Any]:
        """Return the next metadata.

        Raises:
            _FullConversionNeeded: the commits are not enough.
        """
        first, last = delta_version(base) + 1, self._snapshot.version
        if last - first >= _MAX_SNAPSHOTS and not squash:
            squash = True
        try:
            commits = self._loader.commits(self._table.objects, self._table.name, range(first, last + 1))
        except MissingLogFile as error:
            raise _FullConversionNeeded("commits since the last conversion are gone") from error
        # What VACUUM has deleted, and versions in between need, makes their snapshots unreadable.
        passing = set() if squash else passing_files(commits, self._table.location)
        squash = squash or any(True for _ in lost_files(self._table, sorted(passing)))
        groups = [commits] if squash else [[commit] for commit in commits]
        current = self._first_definition(commits, groups)
        for group in groups:
            current = next(
                (
                    action
                    for commit in reversed(group)
                    for action in commit.actions
                    if isinstance(action, Metadata)
                ),
                current,
            )
            base = _tagged(self._group(base, group, current), current.configuration)
        self._check_counts(base)
        return base

    def _first_definition(self, commits: Sequence[Commit], groups: Sequence[Sequence[Commit]]) -> Metadata:
        """Return the metadata in force before the first group."""
        changes = [any(isinstance(action, Metadata) for action in commit.actions) for commit in commits]
        if not any(changes) or len(groups) == 1 or changes[0]:
            return self._snapshot.metadata
        version = commits[changes.index(True)].where.version
        assert version is not None  # noqa: S101 - it is a commit's
        try:
            return self._loader.load(
                self._table.objects, self._table.name, version=version - 1, checkpoints=False
            ).metadata
        except (VersionNotFound, MissingLogFile) as error:
            raise _FullConversionNeeded("an earlier schema is gone") from error

    def _group(self, base: dict[str, Any], group: Sequence[Commit], metadata: Metadata) -> dict[str, Any]:
        version = group[-1].where.version
        assert version is not None  # noqa: S101 - it is a commit's
        definition = definition_of(metadata, base, self._directory.format_version, self._table, version)
        if not is_continued_by(base, definition.schema, metadata.configuration):
            raise _FullConversionNeeded(
                "columns changed in a way that older snapshots cannot be read with", from_scratch=True
            )
        if changes_types(base, definition.schema):
            raise _FullConversionNeeded("a column's type was widened")
        base = with_table_definition(
            base,
            definition.schema,
            definition.spec,
            metadata.configuration,
            retention_ms=_retention(self._snapshot),
        )
        timestamp = self._timestamp(group[-1], version)
        if any(_repairs(commit) for commit in group):
            # It removes logical files whose paths stay live, and adds others again: counts could match by accident.
            raise _FullConversionNeeded("a repair changed which files are live")
        changes = file_changes(group, self._table.location)
        if definition.row_lineage and changes.renumbered:
            raise _FullConversionNeeded("rows got other ids")
        if not changes:
            return with_version(base, version, timestamp)
        shown_version = DeltaVersion(version, timestamp, operation_of(group[-1]))
        writer = IcebergSnapshotWriter(
            self._table,
            self._directory,
            self._manifests,
            base,
            definition,
            shown_version,
            shared_deletes=_shares_deletes(metadata.configuration),
        )
        try:
            return writer.changed(changes)
        except FilesNotFound as error:
            raise _FullConversionNeeded("files that changed are not in the Iceberg metadata") from error
        except (CorruptDeletionVector, MissingDataFile) as error:
            if version == self._snapshot.version:
                raise
            # VACUUM may have deleted what only this version needs; the newest needs all of its files.
            raise _FullConversionNeeded("files of a version since the last conversion are gone") from error

    def _timestamp(self, commit: Commit, version: int) -> int:
        if version == self._snapshot.version:
            return self._snapshot.timestamp
        info = first_of(CommitInfo, commit.actions)
        found = None if info is None else info.in_commit_timestamp or info.timestamp
        return self._snapshot.timestamp if found is None else min(found, self._snapshot.timestamp)

    def _check_counts(self, base: Mapping[str, Any]) -> None:
        """Compare the result of the commits with the Delta table: foreign commits may contain anything."""
        current = current_snapshot(base)
        summary = {} if current is None else current["summary"]
        expected = {
            "total-data-files": self._snapshot.num_files,
            "total-position-deletes": self._snapshot.num_deleted_rows,
        }
        for name, count in expected.items():
            if int(summary.get(name, "0")) != count:
                raise _FullConversionNeeded(f"{name} would be {summary.get(name)} instead of {count}")


def asked_formats(configuration: Mapping[str, str]) -> tuple[int, ...]:
    """Return the format versions to convert a table to after each commit, ignoring invalid ones."""
    return ICEBERG_FORMAT_VERSIONS.of(configuration)


def definition_of(
    metadata: Metadata, base: Mapping[str, Any], format_version: int, table: OpenTable, version: int
) -> Definition:
    """Return a table's schema and partitioning at a version, with ids that continue from ``base``.

    Raises:
        IcebergUnsupported: Iceberg does not support a column, which the message names.
    """
    mapped = is_mapped(metadata.configuration)
    delta = StructType.from_json(metadata.schema_string)
    delta = delta if mapped else without_physical_names(delta)
    try:
        schema = iceberg_schema(
            delta,
            metadata.configuration,
            format_version=format_version,
            earlier=base["schemas"],
            last_column_id=base["last-column-id"],
        )
    except IcebergUnsupported as error:
        raise IcebergUnsupported(
            f"Table '{table.name}' (version {version}) cannot be converted to Iceberg: {error.message}",
            table=table.name,
            version=version,
            **error.details,
        ) from error
    spec = partition_spec(
        schema, metadata.partition_columns, base["partition-specs"], base["last-partition-id"]
    )
    lineage = format_version >= FORMAT_VERSIONS[-1] and is_true(metadata.configuration, ROW_TRACKING)
    return Definition(delta, metadata.partition_columns, schema, spec, lineage)


def operation_of(commit: Commit) -> str | None:
    """Return the changes of a commit."""
    info = first_of(CommitInfo, commit.actions)
    return None if info is None else info.operation


def _tagged(metadata: dict[str, Any], configuration: Mapping[str, str]) -> dict[str, Any]:
    return with_version_tag(metadata) if ICEBERG_TAG_VERSIONS.of(configuration) else metadata


def _shares_deletes(configuration: Mapping[str, str]) -> bool:
    return ICEBERG_DELETE_GRANULARITY.of(configuration) == "partition"


def _retention(snapshot: Snapshot) -> int:
    """Return how long snapshots are kept, in milliseconds: as long as Delta can still read their versions."""
    policy = LogPolicy.of(snapshot.configuration, snapshot.protocol)
    return int(min(policy.log_retention, policy.deleted_file_retention).total_seconds() * 1000)


def _table(published_metadata: Published, directory: IcebergDirectory) -> IcebergTable:
    current = current_snapshot(published_metadata.metadata)
    return IcebergTable(
        metadata=published_metadata.metadata,
        metadata_location=directory.metadata_location(published_metadata.number),
        format_version=directory.format_version,
        delta_version=delta_version(published_metadata.metadata),
        snapshot_id=None if current is None else int(current["snapshot-id"]),
        directory=directory,
    )


def _repairs(commit: Commit) -> bool:
    return operation_of(commit) == "FSCK REPAIR"
