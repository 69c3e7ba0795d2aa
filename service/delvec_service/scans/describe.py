"""DESCRIBE DETAIL and DESCRIBE HISTORY of a table, and the ranges of its columns.

Tested in `tests/integration/service/scans/test_history_detail_health.py`.
"""

from collections.abc import Sequence
from typing import Any

from delvec_contract.tables import ColumnRange, HistoryEntry
from delvec_kernel.actions.actions import CommitInfo, Metadata, first_of
from delvec_kernel.features.table_features import reader_features, writer_features
from delvec_kernel.file_index.column_bounds import known_columns, least_and_greatest
from delvec_kernel.schema.column_paths import path_text
from delvec_kernel.snapshot.replay import Commit
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_maintenance.zcubes import clustering_columns
from delvec_service.scans.plan import naming
from delvec_service.snapshots.history_entry import history_entry
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.time_travel import first_stamped
from delvec_service.store.objects import ObjectStore

__all__ = ["column_ranges", "detail", "history"]


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
