"""How far the published Iceberg metadata lags behind the Delta table."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from delvec_errors import CorruptTable, IcebergUnsupported, LocationNotAllowed
from delvec_iceberg.table_metadata import delta_version
from delvec_kernel.actions.actions import CommitInfo, first_of
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.iceberg.conversion import FORMAT_VERSIONS, asked_formats
from delvec_service.iceberg.metadata_directory import IcebergDirectory
from delvec_service.logs import logger
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.open_table import OpenTable

__all__ = ["IcebergLag", "iceberg_lags"]


@dataclass(frozen=True)
class IcebergLag:
    """The lag of one format version.

    Attributes:
        format_version: 2 or 3.
        metadata_location: the URI of the newest metadata file; None if nothing has been converted yet.
        delta_version: the version that it shows; None if nothing has been converted yet.
        versions: number of Delta versions after it.
        seconds: the age of the oldest of them; 0 if there is none, None if unknown.
    """

    format_version: int
    metadata_location: str | None
    delta_version: int | None
    versions: int
    seconds: int | None


def iceberg_lags(loader: SnapshotLoader, table: OpenTable, snapshot: Snapshot) -> Sequence[IcebergLag]:
    """Return the lag of each format version that was converted, or that the table's property lists.

    Metadata that cannot be read is left out: ``delvec check --iceberg`` says what is wrong with it.

    Args:
        loader: reads the oldest unconverted commit.
        table: the Delta table.
        snapshot: its newest version.

    Raises:
        StorageError: storage did not answer.
    """
    formats = asked_formats(snapshot.configuration)
    lags = []
    for format_version in FORMAT_VERSIONS:
        try:
            directory = IcebergDirectory(table, format_version, snapshot.configuration)
            publication = directory.newest()
        except (CorruptTable, IcebergUnsupported, LocationNotAllowed) as error:
            logger.warning("Iceberg lag unknown", table=table.name, error=error.message)
            continue
        if publication is not None:
            version = delta_version(publication.metadata)
            behind = max(0, snapshot.version - version)
            seconds = _waiting(loader, table, snapshot, version + 1) if behind else 0
            location = directory.metadata_location(publication.number)
            lags.append(IcebergLag(format_version, location, version, behind, seconds))
        elif format_version in formats:
            behind = snapshot.version + 1
            lags.append(IcebergLag(format_version, None, None, behind, _waiting(loader, table, snapshot, 0)))
    return lags


def _waiting(loader: SnapshotLoader, table: OpenTable, snapshot: Snapshot, version: int) -> int | None:
    """Return the age of a version in seconds, if its commit has a time."""
    commit_time: int | None = snapshot.timestamp
    if version < snapshot.version:
        try:
            [commit] = loader.commits(table.objects, table.name, range(version, version + 1))
        except CorruptTable:  # the same as for a missing one
            return None
        info = first_of(CommitInfo, commit.actions)
        commit_time = None if info is None else info.in_commit_timestamp or info.timestamp
    return None if commit_time is None else max(0, time.time_ns() // 1_000_000 - commit_time) // 1000
