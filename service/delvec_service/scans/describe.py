"""Tables described: snapshots, DESCRIBE DETAIL and DESCRIBE HISTORY, and the ranges of columns.

Tested in `tests/integration/service/scans/test_history_detail_health.py`.
"""

import random
import time
from collections.abc import Sequence
from typing import Any, Final

from delvec_contract.tables import (
    ColumnRange,
    HistoryEntry,
    SnapshotResponse,
)
from delvec_contract.transactions import SnapshotsResponse
from delvec_errors import ConcurrentWrite
from delvec_kernel.actions.actions import CommitInfo, Metadata, first_of
from delvec_kernel.features.table_features import reader_features, writer_features
from delvec_kernel.file_index.column_bounds import known_columns, least_and_greatest
from delvec_kernel.schema.column_paths import path_text
from delvec_kernel.snapshot.replay import Commit
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_maintenance.zcubes import clustering_columns
from delvec_service.scans.plan import naming
from delvec_service.snapshots.history_entry import history_entry
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.time_travel import first_stamped
from delvec_service.snapshots.version_marks import read_mark
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord

__all__ = [
    "column_ranges",
    "detail",
    "history",
    "snapshot_answer",
    "snapshot_fields",
    "snapshots_answer",
]

_ROUNDS: Final = 50


def history(objects: ObjectStore, table: str, limit: int | None = None) -> list[HistoryEntry]:
    """Return the commits that the log holds, newest first.

    This also works for tables that Delvec cannot read: only commitInfo is used.

    Args:
        objects: the table's files.
        table: the table's name, for errors.
        limit: how many commits to return, newest first.

    Returns:
        Delta's columns. Parameters and metrics are text, whatever their type in the log; a commit without
        commitInfo has only a version and a timestamp. Timestamps are those of time travel. ``members`` are the
        transactions that Delvec committed together.

    Raises:
        NotADeltaTable: there is no log.
        MissingLogFile: a commit was deleted meanwhile.
        CorruptLog: a commit cannot be read.
    """
    reader = LogReader(objects, table)
    listing = reader.list_all()
    times = listing.times
    versions = sorted(listing.commits, reverse=True)[:limit]
    entries = []
    # Until the newest metadata is found, commits are trusted about themselves.
    known, stamped_from = False, 0
    for version, commit in zip(versions, reader.each(versions), strict=True):
        metadata = [action for action in commit.actions if isinstance(action, Metadata)]
        if metadata and not known:
            since = first_stamped(metadata[-1].configuration)
            known, stamped_from = True, version + 1 if since is None else since
        entries.append(_entry(version, commit, times[version], is_stamped=version >= stamped_from))
    return entries


def _entry(version: int, commit: Commit, file_time: int, *, is_stamped: bool) -> HistoryEntry:
    info = first_of(CommitInfo, commit.actions) or CommitInfo()
    stamp = info.in_commit_timestamp if is_stamped else None
    return history_entry(version, info, file_time if stamp is None else stamp)


def detail(snapshot: Snapshot, table: str) -> dict[str, Any]:
    """Return Delta's columns; times in milliseconds since the epoch.

    Args:
        snapshot: the version.
        table: the name to use if the table has none.
    """
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "format": "delta",
        "id": metadata.id,
        "name": metadata.name or table,
        "description": metadata.description,
        "location": snapshot.location,
        "createdAt": metadata.created_time,
        "lastModified": snapshot.timestamp,
        "partitionColumns": list(snapshot.partition_columns),
        "clusteringColumns": [path_text(path) for path in clustering_columns(snapshot)],
        "numFiles": snapshot.num_files,
        "sizeInBytes": snapshot.size_in_bytes,
        "properties": dict(metadata.configuration),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted(reader_features(protocol) | writer_features(protocol)),
    }


def column_ranges(snapshot: Snapshot, columns: Sequence[str], table: str) -> dict[str, ColumnRange]:
    """Return the least and greatest value of columns, by requested name, from the statistics of all files.

    Columns without exact statistics are left out: see
    :func:`~delvec_kernel.file_index.column_bounds.least_and_greatest`.

    Raises:
        UnknownColumn: the table does not have one of them.
        SegmentsLost: the store lost what the snapshot needs; load it again.
    """
    with naming(table, snapshot.version):
        known = known_columns([(name,) for name in columns], snapshot.schema, snapshot.partition_columns)
    counts = snapshot.live.counts
    if counts.num_deletion_vectors or counts.num_unknown:
        return {}
    chosen = [member.chosen for member in snapshot.live.members]
    found = {column.path[0]: least_and_greatest(chosen, column) for column in known}
    return {name: ColumnRange(min=each[0], max=each[1]) for name, each in found.items() if each is not None}


def snapshot_answer(
    loader: SnapshotLoader,
    table: OpenTable,
    *,
    version: int | None = None,
    timestamp: str | None = None,
    ranges: Sequence[str] = (),
) -> SnapshotResponse:
    """Return a version of a table, by default the newest.

    Args:
        loader: reads snapshots.
        table: the table.
        version: the version of the table.
        timestamp: the same by time.
        ranges: columns whose least and greatest values to return; see :func:`column_ranges`.
    """
    if not ranges:
        snapshot = loader.load(table.objects, table.name, version=version, timestamp=timestamp)
        return SnapshotResponse(**snapshot_fields(table.record, snapshot, loader))

    def look(snapshot: Snapshot) -> SnapshotResponse:
        found = column_ranges(snapshot, ranges, table.name)
        return SnapshotResponse(**snapshot_fields(table.record, snapshot, loader), column_ranges=found)

    return loader.reading(table.objects, table.name, look, version=version, timestamp=timestamp)


def snapshots_answer(loader: SnapshotLoader, tables: Sequence[OpenTable]) -> SnapshotsResponse:
    """Return several tables at one moment.

    Each version is read twice, all of them before any of them again: one that is the same both times was the newest in
    between, so those of a round without any change were the newest at one moment.

    Raises:
        ConcurrentWrite: the tables are written so often that there was no such round.
    """
    before: list[int] = []
    for number in range(_ROUNDS):
        newest = [loader.load(table.objects, table.name, checkpoints=False) for table in tables]
        versions = [each.version for each in newest]
        if versions == before or len(tables) == 1:
            break
        before = versions
        time.sleep(random.uniform(0, 0.001 * number))  # noqa: S311 - spreads load
    else:
        raise ConcurrentWrite(
            f"The tables {', '.join(table.name for table in tables)} are written so often that they could not be read at one "
            "moment; try again, or with fewer tables."
        )
    return SnapshotsResponse(
        snapshots=[
            SnapshotResponse(**snapshot_fields(table.record, each, loader))
            for table, each in zip(tables, newest, strict=True)
        ]
    )


def snapshot_fields(record: TableRecord, snapshot: Snapshot, loader: SnapshotLoader) -> dict[str, Any]:
    """Return the fields of :class:`~delvec_contract.SnapshotResponse`."""
    return {
        "table_id": record.id,
        "name": record.name,
        "location": record.location,
        "version": snapshot.version,
        "read_mark": read_mark(loader, snapshot),
        "timestamp": snapshot.timestamp,
        "table_schema": snapshot.schema.to_json(),
        "partition_columns": list(snapshot.partition_columns),
        "configuration": dict(snapshot.configuration),
        "protocol": snapshot.protocol.to_json(),
        "metadata_id": snapshot.metadata.id,
        "num_files": snapshot.num_files,
        "size_in_bytes": snapshot.size_in_bytes,
        "num_deletion_vectors": snapshot.num_deletion_vectors,
        "num_deleted_rows": snapshot.num_deleted_rows,
        "num_rows": snapshot.num_rows,
        "app_transactions": {name: txn.version for name, txn in snapshot.txns.items()},
        "domain_metadata": {name: entry.configuration for name, entry in snapshot.domain_metadata.items()},
    }
