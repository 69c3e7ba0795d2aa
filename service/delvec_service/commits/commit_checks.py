"""The requirements a commit must meet, and the resulting change for each file.

Everything is checked before the first effect, so that a rejected request leaves nothing behind.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from delvec_errors import (
    CorruptLog,
    CorruptTable,
    DuplicateFile,
    FileNotInStorage,
    FileSizeMismatch,
    FileTooOld,
    InvalidCommit,
    InvalidTableChange,
    MissingChangeFiles,
    MissingDataFile,
)
from delvec_kernel import locations
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.features.managed_tables import is_catalog_managed
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics import file_statistics as statistics
from delvec_kernel.transaction import commit_rules as rules
from delvec_kernel.transaction import proven_violations as violations
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_parquet.parquet_file import read_footer
from delvec_service.commits.metadata_changes import as_written
from delvec_service.store.commit_coordinator import REORGANIZE
from delvec_service.store.objects import ObjectMeta
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.places import check_new_files
from delvec_storage import files as storage

__all__ = [
    "check_adds",
    "check_files",
    "check_repacking",
    "check_statistics",
    "check_table",
    "num_records",
]

_CONCURRENT_HEADS: Final = 16


def check_table(table: OpenTable, changes: Changes, snapshot: Snapshot) -> None:
    """Reject writes that Delvec must not make to this table.

    Raises:
        UnsupportedWriterFeature: the table has a writer feature that Delvec does not implement, or not for this
            operation: copied rows do not keep their row ids.
        AppendOnlyTable: the commit removes rows from an append-only table.
        MissingChangeFiles: the table keeps a change data feed, and rows are copied or changed without change files.
        InvalidTableChange: the commit rewrites deletion vectors, and the table has them turned off; or it would take a
            managed table out of the catalog.
        UnsupportedOperation: the commit only moves rows, and the table's catalog keeps that to itself.
        InvalidCommit: the commit deletes rows by deletion vector, and the table has those turned off; or it replaces
            all columns without removing all files.
    """
    check_writable(
        snapshot.protocol,
        snapshot.metadata,
        table.name,
        keeps_row_ids=changes.keeps_row_ids or not changes.copies_rows,
        writes_rows=bool(changes.adds or changes.change_files),
    )
    after = as_written(snapshot, changes)
    leaves = changes.operation == "DROP FEATURE" and not is_catalog_managed(after.protocol)
    if not leaves or table.objects.is_coordinated:  # a commit does not take a table from another catalog
        rules.check_definition(snapshot, after, table.name, table.objects.catalog_id)
    if (changes.removes and not changes.data_change) or changes.repacked:
        table.check_maintenance(REORGANIZE)
    _check_change_files(table, changes, snapshot)
    loses_rows = (
        changes.removes or changes.row_deletes or any(repair.loses_rows for repair in changes.repairs)
    )
    if loses_rows and changes.data_change:
        rules.check_append_only(snapshot, table.name)
    if changes.repacked:
        check_repacking(table, snapshot)
    if (changes.row_deletes or changes.added_deletes) and not snapshot.dv_enabled:
        raise InvalidCommit(
            f"Table '{table.name}' does not have deletion vectors enabled, and a commit does not enable them. "
            "Rewrite the files, sending adds and removes, or set delta.enableDeletionVectors=true.",
            table=table.name,
            version=snapshot.version,
        )
    if changes.replaces_schema and (changes.row_deletes or len(changes.removes) < snapshot.num_files):
        raise InvalidCommit(
            f"The commit replaces the columns of table '{table.name}' but keeps files without the new ones: it "
            f"removes {len(changes.removes)} of the {snapshot.num_files} files of version {snapshot.version}. "
            "Remove all of them.",
            table=table.name,
            version=snapshot.version,
        )


def check_repacking(table: OpenTable, snapshot: Snapshot) -> None:
    """Reject the compaction of deletion vectors for a table that has them turned off.

    Raises:
        InvalidTableChange: it has; the message says what to do instead.
    """
    if not snapshot.dv_enabled:
        raise InvalidTableChange(
            f"Table '{table.name}' has delta.enableDeletionVectors=false, so its deletion vectors cannot be "
            "compacted. Rewrite the files that have one without their deleted rows: table.optimize.purge().",
            table=table.name,
            version=snapshot.version,
        )


def _check_change_files(table: OpenTable, changes: Changes, snapshot: Snapshot) -> None:
    """Reject a commit whose change feed cannot be derived from its change files or its file actions."""
    if not changes.change_files and snapshot.cdf_enabled and changes.data_change and changes.copies_rows:
        raise MissingChangeFiles(
            f"Table '{table.name}' has delta.enableChangeDataFeed=true, and this {changes.operation} adds files "
            "that also contain rows from before, so the changes cannot be derived from the files. Send "
            "change-files with all changed rows, or write with Delvec's own commands, which do so.",
            table=table.name,
            version=snapshot.version,
        )


def check_adds(table: OpenTable, changes: Changes, snapshot: Snapshot) -> None:
    """Reject new files that contradict the newest version, without access to storage.

    Raises:
        DuplicateFile: a file is already live.
        InvalidCommit: a file lacks something the table requires.
        ConstraintViolation: a file's statistics or partition values prove that rows violate a constraint.
    """
    rules.check_new_files(changes.adds, changes.change_files, snapshot, table.name, own=True)
    if not changes.adds:
        return
    for path in snapshot.live.find_all([add.path for add in changes.adds]):
        what = "is already a live file of the table; write new files under new names"
        raise rules.refused(table.name, path, what, DuplicateFile)
    # The rows that a DELETE or a compaction adds existed before, maybe before the constraint.
    if changes.data_change and changes.operation != "DELETE":
        violation = violations.proven(changes.adds, snapshot)
        if violation is not None:
            raise violation


def check_statistics(table: OpenTable, changes: Changes, live: Mapping[str, AddFile]) -> None:
    """Reject new statistics that are invalid, or whose number of rows differs from the log.

    Raises:
        InvalidCommit: one is; the message names the file.
    """
    for path, new in changes.statistics.items():
        count = rules.check_statistics(table.name, path, new.stats, needs_rows=True)
        file = live.get(path)
        known = None if file is None or file.stats is None else statistics.num_records(file.stats)
        if known is not None and known != count:
            what = (
                f"has {known} rows according to the log, but its new statistics have a different numRecords"
            )
            raise rules.refused(table.name, path, what)


def check_files(table: OpenTable, changes: Changes, max_age_seconds: float) -> None:
    """Reject new files that storage does not have as described: data, change, and deletion vector files.

    The number of rows is not compared with the footers: that takes a request per file, and the engine that sent the
    statistics also wrote the footer.

    Raises:
        FileNotInStorage: a file does not exist.
        FileSizeMismatch: it has another size.
        FileTooOld: it is so old that VACUUM may treat it as an orphan.
        FileNotInTable: it is in another table below this one.
        StorageError: storage did not answer.
    """
    sizes: dict[str, int | None] = {add.path: add.size for add in changes.adds}
    sizes |= {file.path: file.size for file in changes.change_files}
    places = (vector.relative_path() for vector in changes.written_vectors.values())
    sizes |= dict.fromkeys(place for place in places if place is not None)
    now = time.time_ns() // 1_000_000
    oldest = now - max_age_seconds * 1000
    check_new_files(table, sizes)
    for (path, size), object_meta in zip(sizes.items(), _metadata_of(table, list(sizes)), strict=True):
        if object_meta is None:
            what = f"does not exist in storage under {table.location}; write it, then commit"
            raise rules.refused(table.name, path, what, FileNotInStorage)
        if size is not None and object_meta.size != size:
            what = f"has {object_meta.size} bytes in storage, but {size} in the request"
            raise rules.refused(table.name, path, what, FileSizeMismatch)
        if object_meta.last_modified_ms < oldest:
            written, here = _utc_text(object_meta.last_modified_ms), _utc_text(now)
            raise FileTooOld(
                f"File '{path}' was written {round((now - object_meta.last_modified_ms) / 1000)} s ago (at {written} by "
                f"the storage's clock; this service's clock says {here}), but a commit only accepts files of the "
                f"last {max_age_seconds:.0f} s, because VACUUM may remove older ones as orphans (table "
                f"'{table.name}'). Write the file again, or raise DELVEC_MAX_FILE_AGE_SECONDS. If the file is new, "
                "correct the service's clock.",
                table=table.name,
                file=path,
                storage_time=written,
                service_time=here,
                max_file_age_seconds=max_age_seconds,
            )


def _utc_text(milliseconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds")


def _metadata_of(table: OpenTable, paths: Sequence[str]) -> Iterable[ObjectMeta | None]:
    if locations.local_path(table.location) is not None or len(paths) < 2:  # noqa: PLR2004
        return map(table.objects.head, paths)
    with ThreadPoolExecutor(min(_CONCURRENT_HEADS, len(paths)), "delvec-head") as pool:
        return list(pool.map(table.objects.head, paths))


def num_records(table: OpenTable, file: AddFile, version: int, *, from_footer: bool) -> int | None:
    """Return a file's number of physical rows: from the log, or from the file's footer if requested.

    Raises:
        MissingDataFile: its footer is needed, and the file does not exist.
        CorruptTable: it is not a Parquet file.
        UnusableFile: its footer is larger than 256 MiB.
        StorageError: storage did not answer.
    """
    try:
        count = None if file.stats is None else statistics.num_records(file.stats)
    except (CorruptLog, CorruptTable):
        count = None
    if count is not None or not from_footer:
        return count
    facts = {"table": table.name, "version": version, "file": file.path}
    try:
        with storage.open_input(table.location, file.path, is_allowed=table.roots.allows) as source:
            return int(read_footer(source, file.path).num_rows)
    except FileNotFoundError as error:
        raise MissingDataFile(
            f"File '{file.path}' of table '{table.name}' (version {version}) does not exist in storage. Restore it "
            "from a backup, or remove it from the table.",
            **facts,
        ) from error
    except pa.ArrowException as error:
        raise CorruptTable(
            f"The rows of file '{file.path}' of table '{table.name}' (version {version}) cannot be counted: {error}. "
            "Restore it from a backup.",
            **facts,
        ) from error
