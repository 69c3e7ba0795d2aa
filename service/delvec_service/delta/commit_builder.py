"""From a snapshot and a commit request to the actions of the next version, and its metrics.

Pure, in two steps with the writing of deletion vector files between them: :func:`resolve` decides what
becomes of each file, :func:`build` writes it down as actions (PROTOCOL.md, "Add File and Remove File",
"Commit Provenance Information").
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyroaring import BitMap64

from delvec.protocol import statistics
from delvec.protocol.deletion_vector import Descriptor
from delvec.protocol.errors import CorruptTable, InvalidCommit
from delvec_service.delta.actions import Action, AddFile, CommitInfo, RemoveFile
from delvec_service.delta.changes import Changes
from delvec_service.delta.snapshot import Snapshot

__all__ = ["Built", "Marked", "Resolved", "build", "resolve"]

_ROW_METRICS: Final = {"DELETE": "numDeletedRows", "UPDATE": "numUpdatedRows"}


@dataclass(frozen=True, slots=True)
class Marked:
    """A file that stays, with more of its rows deleted.

    Attributes:
        rows: all of its deleted rows, the earlier ones among them.
        num_records: physical rows.
    """

    file: AddFile
    rows: BitMap64
    num_records: int


@dataclass(frozen=True, slots=True)
class Resolved:
    """What becomes of the files.

    Attributes:
        removed: whole.
        marked: by deletion vector.
        rows_marked: rows that ``marked`` files lose now, over all of them.
        rows_removed: live rows of ``removed`` files, or None where some file's number of rows is unknown.
    """

    removed: Sequence[AddFile]
    marked: Sequence[Marked]
    rows_marked: int
    rows_removed: int | None


@dataclass(frozen=True, slots=True)
class Built:
    """The next version: empty actions where nothing changes."""

    actions: Sequence[Action]
    metrics: Mapping[str, int]


def resolve(
    changes: Changes,
    files: Mapping[str, AddFile],
    deleted: Mapping[str, BitMap64],
    num_records: Mapping[str, int | None],
    *,
    table: str,
    version: int,
) -> Resolved:
    """Decide what becomes of the files that a commit removes from.

    A file whose last rows go is removed; a file that loses no row is left alone.

    Args:
        changes: the request.
        files: the live file of each path that the request removes from.
        deleted: the rows that are gone already, for files with a deletion vector.
        num_records: physical rows of each of ``files``, None where nobody knows.
        table: for errors.
        version: for errors; the one that ``files`` are of.

    Raises:
        InvalidCommit: a row index is not in the file, or a DELETE adds more rows than it removes files with.
        CorruptTable: a deletion vector marks rows that its file does not have, or the number of rows is unknown.
    """
    removed: list[AddFile] = []
    marked: list[Marked] = []
    rows_marked = 0
    rows_removed: int | None = 0
    for path in changes.removes:
        removed.append(files[path])
        rows_removed = _sum(rows_removed, _live_rows(files[path], num_records[path]))
    for path, rows in changes.row_deletes.items():
        file, old, total = files[path], deleted.get(path, BitMap64()), num_records[path]
        where = f"File '{file.path}' of table '{table}' (version {version})"
        facts = {"table": table, "version": version, "file": file.path}
        if total is None:
            raise CorruptTable(f"{where} has no statistics that say how many rows it has.", **facts)
        if rows and rows.max() >= total:
            raise InvalidCommit(
                f"{where} has {total} rows, so there is no row index {rows.max()}; "
                "send physical row indexes that start at 0 in each file.",
                **facts,
            )
        if old and old.max() >= total:
            raise CorruptTable(
                f"{where} has {total} rows, but its deletion vector marks row {old.max()}; "
                "restore the table to a version before it.",
                **facts,
            )
        union = old | rows
        if len(union) == len(old):
            continue
        if len(union) == total:
            removed.append(file)
            rows_removed = _sum(rows_removed, total - len(old))
        else:
            marked.append(Marked(file, union, total))
            rows_marked += len(union) - len(old)
    added = _rows_added(changes)
    if (
        changes.operation == "DELETE"
        and added is not None
        and rows_removed is not None
        and added > rows_removed
    ):
        raise InvalidCommit(
            f"The DELETE adds {added} rows and removes files of table '{table}' (version {version}) with "
            f"{rows_removed}; a DELETE adds only what it copies from the files that it removes.",
            table=table,
            version=version,
        )
    return Resolved(removed, marked, rows_marked, rows_removed)


def build(
    changes: Changes,
    resolved: Resolved,
    descriptors: Mapping[str, Descriptor],
    snapshot: Snapshot,
    now: int,
) -> Built:
    """Return the actions that commit ``changes`` right after ``snapshot``.

    Args:
        changes: the request.
        resolved: what becomes of the files, by :func:`resolve`.
        descriptors: of the deletion vectors that were written, by path of the ``marked`` files.
        snapshot: the version before.
        now: milliseconds since the epoch.
    """
    metrics = _metrics(changes, resolved)
    if not (changes.adds or resolved.removed or resolved.marked):
        return Built((), metrics)
    timestamped = snapshot.in_commit_timestamps_enabled
    if timestamped:
        # Two versions never share an in-commit timestamp, whatever the clocks say.
        now = max(now, (snapshot.in_commit_timestamp or 0) + 1)
    info = CommitInfo(
        timestamp=now,
        in_commit_timestamp=now if timestamped else None,
        operation=changes.operation,
        operation_parameters=_parameters(changes, snapshot.partition_columns),
        read_version=changes.read_version,
        isolation_level="Serializable",
        is_blind_append=changes.is_blind_append,
        operation_metrics={name: str(value) for name, value in metrics.items()},
        user_metadata=changes.user_metadata,
        engine_info=changes.engine_info,
        txn_id=changes.transaction_id,
    )
    actions: list[Action] = [info]
    actions.extend(RemoveFile.of(file, now) for file in resolved.removed)
    for marked in resolved.marked:
        actions.append(RemoveFile.of(marked.file, now))
        actions.append(_marked(marked, descriptors[marked.file.path]))
    actions.extend(changes.adds)
    return Built(actions, metrics)


def _marked(marked: Marked, descriptor: Descriptor) -> AddFile:
    """Return the file with its new deletion vector; all else about it stays."""
    file = marked.file
    had = file.deletion_vector.cardinality if file.deletion_vector else 0
    stats = statistics.widen(file.stats, marked.num_records, deleted_records=had)
    return replace(file, data_change=True, deletion_vector=descriptor, stats=stats)


def _parameters(changes: Changes, partition_columns: Sequence[str]) -> dict[str, Any]:
    """Return operationParameters, with what Delta always records for the operation."""
    parameters: dict[str, Any] = dict(changes.parameters)
    if changes.operation in _ROW_METRICS:
        predicate = [] if changes.predicate is None else [f"({changes.predicate})"]
        parameters.setdefault("predicate", json.dumps(predicate, ensure_ascii=False))
    elif changes.operation == "WRITE":
        parameters.setdefault("mode", "Append")
        parameters.setdefault("partitionBy", json.dumps(list(partition_columns), separators=(",", ":")))
    return parameters


def _metrics(changes: Changes, resolved: Resolved) -> dict[str, int]:
    """Return operationMetrics: Delta's names, what can be counted here counted here."""
    added_bytes = sum(file.size for file in changes.adds)
    removed_bytes = sum(file.size for file in resolved.removed)
    added_rows = _rows_added(changes)
    computed: dict[str, int] = {}
    if changes.operation in _ROW_METRICS:
        updated = sum(marked.file.deletion_vector is not None for marked in resolved.marked)
        dropped = sum(file.deletion_vector is not None for file in resolved.removed)
        computed = {
            "numAddedFiles": len(changes.adds),
            "numAddedBytes": added_bytes,
            "numRemovedFiles": len(resolved.removed),
            "numRemovedBytes": removed_bytes,
            "numDeletionVectorsAdded": len(resolved.marked),
            "numDeletionVectorsRemoved": updated + dropped,
            "numDeletionVectorsUpdated": updated,
            "numAddedChangeFiles": 0,
            "numCopiedRows": changes.metrics.get("numCopiedRows", 0),
        }
        if changes.operation == "DELETE" and resolved.rows_removed is not None and added_rows is not None:
            # What a DELETE adds are the rows that it had to copy.
            computed["numDeletedRows"] = resolved.rows_marked + resolved.rows_removed - added_rows
    elif changes.operation in ("WRITE", "STREAMING UPDATE"):
        computed = {"numFiles": len(changes.adds), "numOutputBytes": added_bytes}
        if added_rows is not None:
            computed["numOutputRows"] = added_rows
        if resolved.removed:
            computed |= {"numRemovedFiles": len(resolved.removed), "numRemovedBytes": removed_bytes}
    return {**changes.metrics, **computed}


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
