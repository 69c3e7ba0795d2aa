"""Builds the actions and metrics of the next version from a snapshot and a commit request.

Pure, in two steps between which deletion vector files are written: :func:`resolve` decides what
happens to each file, :func:`build` turns that into actions (PROTOCOL.md, "Add File and Remove File",
"Commit Provenance Information"). The order of actions is commitInfo, protocol, metadata, domains, transaction,
removes, adds, change files.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyroaring import BitMap64

from delvec_errors import CorruptTable, InvalidCommit
from delvec_kernel import row_tracking
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import Action, AddFile, CommitInfo, RemoveFile
from delvec_kernel.alter_table import drop_feature
from delvec_kernel.alter_table import first_version as in_commit_timestamps
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics import file_statistics as statistics
from delvec_kernel.transaction import row_maps, row_runs
from delvec_kernel.transaction.commit_rules import check_rows
from delvec_kernel.transaction.current_transaction import isolation_level
from delvec_kernel.transaction.group_commit import REQUEST_HASH_TAG, MemberInfo, members_tag
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_kernel.transaction.winning_commit import stale_files_tag

__all__ = ["ROWS_ALREADY_GONE", "FileWithNewVector", "Resolved", "build", "metrics", "resolve"]

ROWS_ALREADY_GONE: Final = "numRowsAlreadyGone"
"""Metric, if not 0: rows that the commit meant to delete and that a concurrent commit had deleted."""


@dataclass(frozen=True, slots=True)
class FileWithNewVector:
    """A file that stays, with more rows deleted.

    Attributes:
        rows: all its deleted rows, including earlier ones; empty if ``written``.
        num_records: physical rows.
        written: the deletion vector, if the engine has written exactly these rows.
        is_repacked: whether the rows are unchanged, and only move to another deletion vector file.
    """

    file: AddFile
    rows: BitMap64
    num_records: int
    written: Descriptor | None = None
    is_repacked: bool = False


@dataclass(frozen=True, slots=True)
class Resolved:
    """The outcome for each file.

    Attributes:
        removed: files removed whole.
        marked: live files that get a deletion vector.
        added: new files that get one.
        rows_marked: newly deleted rows over all ``marked`` files.
        rows_removed: live rows of ``removed`` files, or None if unknown for a file.
        again: files to add again unchanged, or with other statistics.
        repaired: files that get their correct deletion vector.
    """

    removed: Sequence[AddFile]
    marked: Sequence[FileWithNewVector]
    added: Sequence[FileWithNewVector]
    rows_marked: int
    rows_removed: int | None
    again: Sequence[AddFile] = ()
    repaired: Sequence[FileWithNewVector] = ()

    @property
    def with_vectors(self) -> Sequence[FileWithNewVector]:
        """All files that get a deletion vector."""
        return [*self.marked, *self.added, *self.repaired]

    def changes_files(self, changes: Changes) -> bool:
        """Whether the next version has other files, rows or tombstones."""
        return bool(
            changes.adds
            or changes.restores
            or self.removed
            or self.marked
            or self.again
            or changes.tombstones
            or changes.repairs
        )


def resolve(
    changes: Changes,
    files: Mapping[str, AddFile],
    deleted_rows: Mapping[str, BitMap64],
    num_records: Mapping[str, int | None],
    *,
    table: str,
    version: int,
) -> Resolved:
    """Decide the outcome for files from which a commit removes rows.

    A file that loses its last rows is removed; a file that loses no row is left alone.

    Args:
        changes: the request.
        files: the live file of each path that the request removes from.
        deleted_rows: rows already deleted, for files with a deletion vector.
        num_records: physical rows of each of ``files``, None if unknown.
        table: the table's name, for errors.
        version: the version, for errors; the version of ``files``.

    Raises:
        RowIndexOutOfRange: a row index is not in the file.
        InvalidCommit: a DELETE adds more rows than it removes with whole files.
        CorruptTable: a deletion vector marks rows that its file does not have, or the number of rows is unknown.
    """
    removed_files: list[AddFile] = []
    marked_files: list[FileWithNewVector] = []
    rows_marked = 0
    rows_removed: int | None = 0
    for path in changes.removes:
        removed_files.append(files[path])
        rows_removed = _sum(rows_removed, _live_rows(files[path], num_records[path]))
    for path, rows in changes.row_deletes.items():
        file, old, total = files[path], deleted_rows.get(path, BitMap64()), num_records[path]
        where = f"File '{file.path}' of table '{table}' (version {version})"
        facts = {"table": table, "version": version, "file": file.path}
        if total is None:
            raise CorruptTable(f"{where} has no row count (numRecords) in its statistics.", **facts)
        check_rows(rows, total, where, facts)
        if old and old.max() >= total:
            raise CorruptTable(
                f"{where} has {total} rows, but its deletion vector marks row {old.max()}; "
                "restore the table to a version before it.",
                **facts,
            )
        # The engine's deletion vector includes the old rows, and may be large.
        union = rows if old <= rows else old | rows
        if len(union) == len(old):
            continue
        if len(union) == total:
            removed_files.append(file)
            rows_removed = _sum(rows_removed, total - len(old))
        else:
            vector = changes.written_vectors.get(path)
            same = vector is not None and vector.cardinality == len(union)
            # Do not keep rows that are already written, since they may be large.
            kept = BitMap64() if same else union
            marked_files.append(FileWithNewVector(file, kept, total, vector if same else None))
            rows_marked += len(union) - len(old)
    rows_added = _rows_added(changes)
    if (
        changes.operation == "DELETE"
        and rows_added is not None
        and rows_removed is not None
        and rows_added > rows_removed
    ):
        raise InvalidCommit(
            f"The DELETE adds {rows_added} rows and removes files of table '{table}' (version {version}) with "
            f"{rows_removed}; a DELETE may only add rows that it copies from the files that it removes.",
            table=table,
            version=version,
        )
    marked_files += [
        FileWithNewVector(files[path], deleted_rows[path], num_records[path] or 0, is_repacked=True)
        for path in changes.repacked
        if path in files and files[path].deletion_vector is not None
    ]
    again = [files[path] for path in changes.again if path in files]
    again += [
        replace(files[path], stats=new.stats)
        for path, new in changes.statistics.items()
        if path in files and files[path].deletion_vector == new.deletion_vector
    ]
    repaired_files = [
        FileWithNewVector(repair.becomes, repair.rows, 0, is_repacked=True)
        for repair in changes.repairs
        if repair.becomes is not None and repair.rows is not None
    ]
    return Resolved(
        removed_files,
        marked_files,
        _marked_adds(changes, table),
        rows_marked,
        rows_removed,
        again,
        repaired_files,
    )


def _marked_adds(changes: Changes, table: str) -> list[FileWithNewVector]:
    """Return the new files in which some rows are deleted."""
    adds_with_deletes = []
    for add in changes.adds:
        rows = changes.added_deletes.get(add.path)
        if rows:
            total = statistics.num_records(add.stats)
            where = f"The new file '{add.path}' of table '{table}'"
            if total is None:
                raise InvalidCommit(
                    f"{where} has a deletion vector but no numRecords.", table=table, file=add.path
                )
            check_rows(rows, total, where, {"table": table, "file": add.path})
            adds_with_deletes.append(FileWithNewVector(add, rows, total))
    return adds_with_deletes


def build(
    changes: Changes,
    resolution: Resolved,
    descriptors: Mapping[str, Descriptor],
    snapshot: Snapshot,
    now: int,
    *,
    metrics: Mapping[str, int],
    members: Sequence[MemberInfo] = (),
) -> list[Action]:
    """Return the actions that commit ``changes`` right after ``snapshot``.

    Args:
        changes: the request, or the merged request of a group.
        resolution: from :func:`resolve`.
        descriptors: the descriptors of the new deletion vectors, by path of the data file.
        snapshot: the previous version.
        now: milliseconds since the epoch.
        metrics: the metrics of the commit.
        members: the members of the group.
    """
    metadata, were_timestamped = changes.metadata, snapshot.in_commit_timestamps_enabled
    has_timestamp = were_timestamped if metadata is None else in_commit_timestamps.are_enabled(metadata)
    if has_timestamp:
        # In-commit timestamps must increase strictly, whatever the clock says.
        last = snapshot.in_commit_timestamp if were_timestamped else snapshot.timestamp
        now = max(now, (last or 0) + 1)
        if metadata is not None and not were_timestamped:
            metadata = in_commit_timestamps.enabled_since(metadata, snapshot.version + 1, now)
    if metadata is not None:
        metadata = drop_feature.with_checkpoint_protection(metadata, snapshot.metadata, snapshot.version + 1)
    vectors = {
        one.file.path: _with_vector(one, descriptors[one.file.path]) for one in resolution.with_vectors
    }
    adds = [vectors[one.file.path] for one in resolution.marked]
    adds += [vectors.get(add.path, add) for add in changes.adds]
    adds += [*changes.restores, *resolution.again]
    adds = [
        add if add.data_change is changes.data_change else replace(add, data_change=changes.data_change)
        for add in adds
    ]
    adds += [
        replace(vectors.get(repair.path, repair.becomes), data_change=False)
        for repair in changes.repairs
        if repair.becomes is not None
    ]
    after = replace(
        snapshot, metadata=metadata or snapshot.metadata, protocol=changes.protocol or snapshot.protocol
    )
    adds, mark = row_tracking.assigned(adds, after, snapshot.version + 1)
    info = CommitInfo(
        timestamp=now,
        in_commit_timestamp=now if has_timestamp else None,
        operation=changes.operation,
        operation_parameters=_parameters(changes, after.partition_columns),
        read_version=changes.read_version,
        isolation_level=isolation_level(changes, snapshot.configuration),
        is_blind_append=changes.is_blind_append,
        operation_metrics={name: str(value) for name, value in metrics.items()},
        user_metadata=changes.user_metadata,
        tags=_tags(changes, snapshot, members) or None,
        engine_info=changes.engine_info,
        txn_id=changes.transaction_id,
        extra={} if changes.user_name is None else {"userName": changes.user_name},
    )
    actions: list[Action] = [info]
    if changes.protocol is not None:
        actions.append(changes.protocol)
    if metadata is not None:
        actions.append(metadata)
    actions.extend(changes.domains)
    if mark is not None:
        actions.append(mark)
    if changes.app_transaction is not None:
        actions.append(replace(changes.app_transaction, last_updated=now))
    removed_files = [*resolution.removed, *(one.file for one in resolution.marked)]
    actions.extend(RemoveFile.of(file, now, data_change=changes.data_change) for file in removed_files)
    actions.extend(RemoveFile(path, now, data_change=False) for path in changes.tombstones)
    actions.extend(
        RemoveFile.of(repair.removed, now, data_change=repair.loses_rows)
        for repair in changes.repairs
        if repair.removed is not None
    )
    actions.extend(adds)
    actions.extend(changes.change_files)
    return actions


def _with_vector(marked_file: FileWithNewVector, descriptor: Descriptor) -> AddFile:
    """Return the file with its new deletion vector, otherwise unchanged."""
    file = marked_file.file
    if marked_file.is_repacked:
        return replace(file, deletion_vector=descriptor)
    had = file.deletion_vector.cardinality if file.deletion_vector else 0
    stats = statistics.widen(file.stats, marked_file.num_records, deleted_records=had)
    return replace(file, deletion_vector=descriptor, stats=stats)


def _tags(changes: Changes, snapshot: Snapshot, members: Sequence[MemberInfo]) -> dict[str, str]:
    loses = changes.copies_rows and not changes.keeps_row_ids
    tags = dict(row_tracking.tags(snapshot, loses_ids=loses))
    if changes.rewritten:
        tags[row_runs.TAG] = row_runs.encode(changes.rewritten)
    if changes.row_map is not None:
        tags[row_maps.TAG] = row_maps.encode(changes.row_map)
    tags |= stale_files_tag([repair.path for repair in changes.repairs if repair.stale is not None])
    if members:
        tags |= members_tag(members)
    elif changes.request_hash is not None:
        tags[REQUEST_HASH_TAG] = changes.request_hash
    return tags


def _parameters(changes: Changes, partition_columns: Sequence[str]) -> dict[str, Any]:
    """Return operationParameters, including those that Delta always records for the operation."""
    parameters: dict[str, Any] = dict(changes.parameters)
    if changes.operation in ("DELETE", "UPDATE"):
        predicate = [] if changes.predicate is None else [f"({changes.predicate})"]
        parameters.setdefault("predicate", json_text(predicate))
    elif changes.operation == "WRITE":
        parameters.setdefault("mode", "Append")
        parameters.setdefault("partitionBy", json_text(list(partition_columns)))
    return parameters


def metrics(changes: Changes, resolution: Resolved, *, rows_already_gone: int = 0) -> dict[str, int]:
    """Return operationMetrics under Delta's names, computing those that do not need the engine."""
    count = _COUNTS.get(changes.operation)
    counts = {} if count is None else count(changes, resolution)
    if rows_already_gone:
        counts[ROWS_ALREADY_GONE] = rows_already_gone
    return {**changes.metrics, **counts}


def _vectors_dropped(resolution: Resolved) -> tuple[int, int]:
    """Return how many deletion vectors are replaced, and how many are removed with their files."""
    num_updated = sum(one.file.deletion_vector is not None for one in resolution.marked)
    return num_updated, sum(file.deletion_vector is not None for file in resolution.removed)


def _count_rows(changes: Changes, resolution: Resolved) -> dict[str, int]:
    num_updated, num_dropped = _vectors_dropped(resolution)
    added_rows = _rows_added(changes)
    counts = {
        "numAddedFiles": len(changes.adds),
        "numAddedBytes": sum(file.size for file in changes.adds),
        "numRemovedFiles": len(resolution.removed),
        "numRemovedBytes": sum(file.size for file in resolution.removed),
        "numDeletionVectorsAdded": len(resolution.marked),
        "numDeletionVectorsRemoved": num_updated + num_dropped,
        "numDeletionVectorsUpdated": num_updated,
        "numAddedChangeFiles": len(changes.change_files),
        "numCopiedRows": changes.metrics.get("numCopiedRows", 0),
    }
    if changes.operation == "DELETE" and resolution.rows_removed is not None and added_rows is not None:
        # Files added by a DELETE contain copied rows.
        counts["numDeletedRows"] = resolution.rows_marked + resolution.rows_removed - added_rows
    return counts


def _count_merge(changes: Changes, resolution: Resolved) -> dict[str, int]:
    num_updated, num_dropped = _vectors_dropped(resolution)
    return {
        "numTargetFilesAdded": len(changes.adds),
        "numTargetBytesAdded": sum(file.size for file in changes.adds),
        "numTargetFilesRemoved": len(resolution.removed),
        "numTargetBytesRemoved": sum(file.size for file in resolution.removed),
        "numTargetDeletionVectorsAdded": len(resolution.marked),
        "numTargetDeletionVectorsRemoved": num_updated + num_dropped,
        "numTargetDeletionVectorsUpdated": num_updated,
        "numTargetChangeFilesAdded": len(changes.change_files),
    }


def _count_compaction(changes: Changes, resolution: Resolved) -> dict[str, int]:
    return {
        "numAddedFiles": len(changes.adds),
        "numAddedBytes": sum(file.size for file in changes.adds),
        "numRemovedFiles": len(resolution.removed),
        "numRemovedBytes": sum(file.size for file in resolution.removed),
        "numDeletionVectorsRemoved": sum(_vectors_dropped(resolution)),
        **({"numDeletionVectorsAdded": len(resolution.added)} if resolution.added else {}),
    } | _file_sizes(changes)


def _file_sizes(changes: Changes) -> dict[str, int]:
    """Return the file size metrics of delta-spark's OPTIMIZE."""
    sizes = sorted(file.size for file in changes.adds)
    if not sizes:
        return {}
    quartiles = {f"p{share}FileSize": sizes[(len(sizes) - 1) * share // 100] for share in (25, 50, 75)}
    return {"minFileSize": sizes[0], **quartiles, "maxFileSize": sizes[-1]}


def _count_write(changes: Changes, resolution: Resolved) -> dict[str, int]:
    counts = {"numFiles": len(changes.adds), "numOutputBytes": sum(file.size for file in changes.adds)}
    num_copied_rows = changes.metrics.get("numCopiedRows", 0)
    added_rows = _rows_added(changes)
    if added_rows is not None:
        counts["numOutputRows"] = added_rows - num_copied_rows
    if "predicate" in changes.parameters and resolution.rows_removed is not None:
        # For a partial overwrite: removed rows less copied rows.
        counts["numDeletedRows"] = resolution.rows_marked + resolution.rows_removed - num_copied_rows
    if resolution.marked:
        num_updated, num_dropped = _vectors_dropped(resolution)
        counts["numDeletionVectorsAdded"] = len(resolution.marked)
        counts["numDeletionVectorsRemoved"] = num_updated + num_dropped
    if resolution.removed:
        counts["numRemovedFiles"] = len(resolution.removed)
        counts["numRemovedBytes"] = sum(file.size for file in resolution.removed)
    return counts


def _count_stream(changes: Changes, resolution: Resolved) -> dict[str, int]:
    counts = {
        "numAddedFiles": len(changes.adds),
        "numRemovedFiles": len(resolution.removed),
        "numOutputBytes": sum(file.size for file in changes.adds),
    }
    added_rows = _rows_added(changes)
    return counts if added_rows is None else {**counts, "numOutputRows": added_rows}


def _count_statistics(changes: Changes, resolution: Resolved) -> dict[str, int]:
    del changes
    return {"numUpdatedFiles": len(resolution.again)}


def _count_repair(changes: Changes, resolution: Resolved) -> dict[str, int]:
    gone = [repair.live for repair in changes.repairs if repair.is_gone and repair.live is not None]
    return {
        "numRemovedFiles": len(gone),
        "numRemovedBytes": sum(file.size for file in gone),
        "numStaleFilesRemoved": sum(repair.stale is not None for repair in changes.repairs),
        "numDeletionVectorsAdded": len(resolution.repaired),
        "numUpdatedFiles": sum(
            repair.becomes is not None and repair.rows is None for repair in changes.repairs
        ),
    }


_COUNTS: Final[Mapping[str, Callable[[Changes, Resolved], dict[str, int]]]] = {
    "DELETE": _count_rows,
    "UPDATE": _count_rows,
    "MERGE": _count_merge,
    "OPTIMIZE": _count_compaction,
    "REORG": _count_compaction,
    "WRITE": _count_write,
    "CREATE TABLE AS SELECT": _count_write,
    "REPLACE TABLE AS SELECT": _count_write,
    "CREATE OR REPLACE TABLE AS SELECT": _count_write,
    "STREAMING UPDATE": _count_stream,
    "COMPUTE STATS": _count_statistics,
    "FSCK REPAIR": _count_repair,
}


def _rows_added(changes: Changes) -> int | None:
    rows: int | None = 0
    for file in changes.adds:
        rows = _sum(rows, statistics.num_records(file.stats))
    return rows


def _live_rows(file: AddFile, num_records: int | None) -> int | None:
    if num_records is None:
        return None
    return num_records - (file.deletion_vector.cardinality if file.deletion_vector else 0)


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right
