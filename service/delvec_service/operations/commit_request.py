"""What a commit request must satisfy, and what it comes to for each file.

Everything is checked before the first effect, so that a refused request leaves nothing behind.
"""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from delvec import storage
from delvec.protocol import locations, partition_values, statistics
from delvec.protocol.deletion_vector import deserialize_bitmap
from delvec.protocol.errors import (
    AppendOnlyTable,
    CorruptDeletionVector,
    CorruptLog,
    CorruptTable,
    DelvecError,
    InvalidCommit,
    MissingDataFile,
)
from delvec.protocol.wire import CommitRequest
from delvec_service.delta import commit_builder
from delvec_service.delta.actions import AddFile
from delvec_service.delta.changes import Changes
from delvec_service.delta.commit_builder import Resolved
from delvec_service.delta.features import check_writable
from delvec_service.delta.snapshot import Snapshot
from delvec_service.operations.tables import ENGINE_INFO, OpenTable

__all__ = ["changes_of", "check_adds", "check_table", "resolve"]

_CONCURRENT_HEADS: Final = 16
_MAX_ID: Final = 128


def changes_of(request: CommitRequest, transaction_id: str, table: OpenTable) -> Changes:
    """Return a request's content, checked as far as that needs no snapshot.

    Raises:
        InvalidCommit: a file is named twice, a path cannot be, or a bitmap does not parse.
    """
    if not request.operation.strip():
        raise InvalidCommit("A commit needs the name of its operation: WRITE, DELETE, ...")
    if not transaction_id.isprintable() or not 0 < len(transaction_id) <= _MAX_ID:
        raise InvalidCommit(f"A transaction id has 1 to {_MAX_ID} printable characters; use a UUID.")
    if any(value < 0 for value in request.operation_metrics.values()):
        raise InvalidCommit("A metric cannot be negative.")
    touched = [remove.path for remove in request.removes] + [entry.path for entry in request.row_deletes]
    _distinct(touched, table.location, "is removed, or loses rows,")
    for add in request.adds:
        _check_new_path(add.path)
    _distinct([add.path for add in request.adds] + touched, table.location, "is changed")
    return Changes(
        operation=request.operation,
        read_version=request.read_version,
        transaction_id=transaction_id,
        engine_info=f"{request.engine_info} {ENGINE_INFO}" if request.engine_info else ENGINE_INFO,
        adds=[
            AddFile(
                path=add.path,
                partition_values=add.partition_values,
                size=add.size,
                modification_time=add.modification_time,
                data_change=True,
                stats=add.stats,
                tags=add.tags,
            )
            for add in request.adds
        ],
        removes=[remove.path for remove in request.removes],
        row_deletes={entry.path: _rows(entry.path, entry.rows or b"") for entry in request.row_deletes},
        predicate=request.predicate,
        parameters=request.operation_parameters,
        metrics=request.operation_metrics,
        user_metadata=request.user_metadata,
    )


def _rows(path: str, data: bytes) -> BitMap64:
    try:
        return deserialize_bitmap(data)
    except CorruptDeletionVector as error:
        raise InvalidCommit(
            f"The rows of file '{path}' are not a 64-bit Roaring bitmap in the portable layout; send them again.",
            file=path,
        ) from error


def _distinct(paths: Sequence[str], location: str, what: str) -> None:
    seen: set[str] = set()
    for path in paths:
        try:
            key = locations.canonical_log_path(path, location)
        except DelvecError as error:
            raise InvalidCommit(
                f"'{path[:300]}' is not the path of a file of this table.", file=path
            ) from error
        if key in seen:
            raise InvalidCommit(f"File '{path}' {what} twice in one commit; name each file once.", file=path)
        seen.add(key)


def _check_new_path(path: str) -> None:
    """Refuse what is not a plain relative path, or would be hidden from readers and sweepers."""
    parts = unquote(path).split("/")
    plain = path and ":" not in path.partition("/")[0] and not any(part in ("", ".", "..") for part in parts)
    if not plain or "\0" in path or "%00" in path:
        raise InvalidCommit(
            f"A new file is named by its path relative to the table's location, URL-encoded, not by '{path[:300]}'.",
            file=path[:300],
        )
    if parts[0] == "_delta_log" or parts[-1].startswith(("_", ".")):
        raise InvalidCommit(
            f"'{path}' is not a place for a data file: the log and hidden files have their own meaning.",
            file=path,
        )


def check_table(table: OpenTable, changes: Changes, snapshot: Snapshot) -> None:
    """Refuse to write tables that Delvec must not write, or not in this way.

    Raises:
        UnsupportedWriterFeature: the table has a writer feature that Delvec does not implement, or does not for
            what the commit does: a change feed needs change files where rows are copied.
        AppendOnlyTable: the commit removes rows, and the table does not let go of any.
        InvalidCommit: rows are to be deleted by deletion vector, and the table has those turned off.
    """
    rewrites = changes.removes and changes.adds and changes.operation in ("DELETE", "UPDATE", "MERGE")
    check_writable(snapshot.protocol, snapshot.metadata, table.name, keeps_change_data=not rewrites)
    if (changes.removes or changes.row_deletes) and snapshot.append_only:
        raise AppendOnlyTable(
            f"Table '{table.name}' has delta.appendOnly=true, so rows cannot be removed from it; "
            "unset the property first.",
            table=table.name,
            version=snapshot.version,
        )
    if changes.row_deletes and not snapshot.dv_enabled:
        raise InvalidCommit(
            f"Table '{table.name}' does not have deletion vectors enabled, and Delvec does not enable them by "
            "itself: rewrite the files, sending adds and removes, or set delta.enableDeletionVectors=true.",
            table=table.name,
            version=snapshot.version,
        )


def check_adds(table: OpenTable, changes: Changes, snapshot: Snapshot, *, in_storage: bool) -> None:
    """Refuse new files that are not what the request says.

    Args:
        table: the table.
        changes: the request.
        snapshot: the newest version.
        in_storage: also look at the files themselves, and at what does not depend on the version.

    Raises:
        InvalidCommit: a file is live already, is not in storage, has another size, or lacks what the table needs.
        StorageError: storage did not answer.
    """
    for path in snapshot.live.find_all([add.path for add in changes.adds]):
        raise _invalid(table, path, "is a live file of the table already; write new files under new names")
    if not in_storage or not changes.adds:
        return
    for add in changes.adds:
        _check_partition_values(table, add, snapshot)
        _check_stats(table, add, snapshot)
    paths = [add.path for add in changes.adds]
    for add, found in zip(changes.adds, _sizes(table, paths), strict=True):
        if found is None:
            raise _invalid(
                table, add.path, f"is not in storage under {table.location}; write it, then commit"
            )
        if found != add.size:
            raise _invalid(
                table, add.path, f"has {found} bytes in storage, not the {add.size} of the request"
            )


def _sizes(table: OpenTable, paths: Sequence[str]) -> Iterable[int | None]:
    def size(path: str) -> int | None:
        meta = table.objects.head(path)
        return None if meta is None else meta.size

    if locations.local_path(table.location) is not None or len(paths) == 1:
        return [size(path) for path in paths]
    with ThreadPoolExecutor(min(_CONCURRENT_HEADS, len(paths)), "delvec-head") as pool:
        return list(pool.map(size, paths))


def _check_partition_values(table: OpenTable, add: AddFile, snapshot: Snapshot) -> None:
    columns = {
        snapshot.schema.field(name).physical_name: snapshot.schema.field(name)
        for name in snapshot.partition_columns
    }
    if set(add.partition_values) != set(columns):
        raise _invalid(
            table,
            add.path,
            f"has partition values for {sorted(add.partition_values)}, and the table is partitioned by {list(columns)}",
        )
    for name, value in add.partition_values.items():
        try:
            partition_values.parse(value, columns[name].type)
        except DelvecError as error:
            what = f"has the partition value {value!r}, which column '{columns[name].name}' cannot hold"
            raise _invalid(table, add.path, what) from error


def _check_stats(table: OpenTable, add: AddFile, snapshot: Snapshot) -> None:
    stats: Any = {}
    if add.stats is not None:
        try:
            stats = json.loads(add.stats)
        except (ValueError, RecursionError) as error:
            raise _invalid(table, add.path, "has statistics that are not JSON") from error
    if not isinstance(stats, dict):
        raise _invalid(table, add.path, "has statistics that are not a JSON object")
    count = stats.get("numRecords")
    if count is None:
        # PROTOCOL.md, "Writer Requirement for Deletion Vectors".
        if snapshot.dv_enabled:
            what = "has no numRecords in its statistics, which a table with deletion vectors needs"
            raise _invalid(table, add.path, what)
    elif not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise _invalid(table, add.path, "has statistics whose numRecords is not a count")


def resolve(table: OpenTable, changes: Changes, snapshot: Snapshot) -> Resolved:
    """Return what becomes of the files that the request removes, or removes rows of.

    Raises:
        InvalidCommit: a file is not live, or does not have such rows.
        CorruptTable: or a subclass: a deletion vector or a data file is damaged or missing.
        StorageError: storage did not answer.
    """
    touched = [*changes.removes, *changes.row_deletes]
    files = snapshot.live.find_all(touched)
    for path in touched:
        if path not in files:
            what = f"is not a live file of version {snapshot.version}; plan the command again"
            raise _invalid(table, path, what)
    with_vector = [
        (path, files[path].deletion_vector) for path in changes.row_deletes if files[path].deletion_vector
    ]
    deleted = storage.read_deletion_vectors(
        table.location,
        [(path, descriptor) for path, descriptor in with_vector if descriptor is not None],
        table=table.name,
        version=snapshot.version,
        allowed=table.roots.allows,
    )
    counts = {
        path: _num_records(table, file, snapshot, from_footer=path in changes.row_deletes)
        for path, file in files.items()
    }
    return commit_builder.resolve(changes, files, deleted, counts, table=table.name, version=snapshot.version)


def _num_records(table: OpenTable, file: AddFile, snapshot: Snapshot, *, from_footer: bool) -> int | None:
    """Return a file's physical rows: from the log, else from the file's footer where that is asked for."""
    try:
        count = None if file.stats is None else statistics.num_records(file.stats)
    except (CorruptLog, CorruptTable):
        count = None
    if count is not None or not from_footer:
        return count
    facts = {"table": table.name, "version": snapshot.version, "file": file.path}
    try:
        with storage.open_input(table.location, file.path, allowed=table.roots.allows) as source:
            return int(pq.read_metadata(source).num_rows)
    except FileNotFoundError as error:
        raise MissingDataFile(
            f"File '{file.path}' of table '{table.name}' (version {snapshot.version}) is not in storage; restore it "
            "from a backup, or remove it from the table.",
            **facts,
        ) from error
    except pa.ArrowException as error:
        raise CorruptTable(
            f"File '{file.path}' of table '{table.name}' (version {snapshot.version}) is not a Parquet file; "
            "restore it from a backup.",
            **facts,
        ) from error


def _invalid(table: OpenTable, path: str, what: str) -> InvalidCommit:
    return InvalidCommit(f"File '{path}' {what} (table '{table.name}').", table=table.name, file=path)
