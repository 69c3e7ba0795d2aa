"""Plans a read of the change data feed: the rows that a range of versions changed, and the files that hold them.

Tested in `tests/integration/engines/test_changes.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from delvec_contract.plans import ChangesRequest
from delvec_errors import (
    BadRequest,
    ChangeDataNotRecorded,
    IncompatibleSchemaChange,
    ReadLimitExceeded,
    VersionNotFound,
)
from delvec_errors.texts import counted
from delvec_kernel.actions.actions import Action, CommitInfo, Metadata, first_of
from delvec_kernel.change_feed.feed_schema import feed_columns, feed_schema, is_readable_with
from delvec_kernel.change_feed.version_changes import FileChanges, changes_in
from delvec_kernel.data_skipping.truth import prune
from delvec_kernel.expressions import predicate as predicates
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.file_index.file_rows import TEXT_MAP, num_records_from_stats
from delvec_kernel.schema.column_mapping import is_mapped
from delvec_kernel.schema.partition_values import naming_files
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.scans.changed_files import CHANGES_SCHEMA, ChangedRows, files_of
from delvec_service.scans.plan import check_paths, check_vector_paths, naming
from delvec_service.scans.vacuumed_versions import check_changes, is_vacuum
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.time_travel import milliseconds, version_at
from delvec_service.store.open_table import OpenTable

__all__ = ["PlannedChanges", "first_since", "plan_changes"]


@dataclass(frozen=True)
class PlannedChanges:
    """What changed between two versions.

    Attributes:
        snapshot: the version whose schema to read with.
        start: the first version.
        end: the last one; less than ``start`` if no version lies between two times.
        files: CHANGES_SCHEMA, by version.
    """

    snapshot: Snapshot
    start: int
    end: int
    files: pa.Table


def plan_changes(
    loader: SnapshotLoader, table: OpenTable, request: ChangesRequest, *, max_files: int | None = None
) -> PlannedChanges:
    """Plan a read of the change data feed, by the rules of delta-spark.

    Args:
        loader: loads versions.
        table: the table.
        request: the range, and which of its rows.
        max_files: maximum number of files that the versions may have changed, of which each takes a kilobyte of memory.

    Raises:
        ReadLimitExceeded: they changed more.
        BadRequest: there is no start, an end is given twice, the end is before the start, or a timestamp is invalid.
        VersionNotFound: the start is after the newest version or before the oldest that the log retains; or a
            timestamp is after the newest version, or before the oldest.
        ChangeDataNotRecorded: the feed was off in some version.
        IncompatibleSchemaChange: the versions cannot all be read with one schema.
        InvalidPredicate: the predicate is not a Boolean expression that Delvec can parse.
        UnknownColumn: predicate or columns name a column that neither the table nor the feed has.
        CorruptTable: or a subclass: the log or a deletion vector is damaged.
        MissingDataFile: VACUUM has deleted files that only these changes need; names the VACUUM, and the oldest version
            whose changes can be read.
        LocationNotAllowed: a file to be read lies outside the table and is not allowed.
    """
    latest = loader.load(table.objects, table.name)
    reader = LogReader(table.objects, table.name)
    times = reader.list_all().times
    start, end = _range(request, reader, times, latest)
    first = loader.load(table.objects, table.name, version=start) if start <= end else latest
    last = loader.load(table.objects, table.name, version=end) if start <= end else latest
    # Mapped column names may later refer to other columns, and files lack other columns if the partitioning differs.
    mapped = any(is_mapped(each.configuration) for each in (latest, first, last))
    moved = latest.partition_columns != last.partition_columns
    shape = last if mapped or moved else latest
    predicate = _parsed(request, table.name, shape)
    if start > end:
        return PlannedChanges(shape, start, end, CHANGES_SCHEMA.empty_table())
    if not first.cdf_enabled:
        raise _not_recorded(table.name, start, start, end)
    entries, is_vacuumed = [], end < latest.version
    for version, actions in _commits(reader, start, end):
        _check_metadata(reader, actions, version, (start, end), shape)
        timestamp = _timestamp(actions, version, times)
        changed = list(changes_in(actions, table.location))
        if version == start and _is_repartitioned(loader, table, shape, actions, changed, start):
            raise _incompatible(reader, shape, start, (start, end))
        entries += [ChangedRows(version, timestamp, file) for file in changed]
        if max_files is not None and len(entries) > max_files:
            raise _too_many_files(table.name, (start, version, end), max_files)
        is_vacuumed |= is_vacuum(actions)
    _check_schema(reader, shape, first.metadata, start, (start, end))
    found = [entry for group in _matching(entries, predicate, table.name, shape) for entry in group]
    found.sort(key=lambda entry: entry.version)
    if is_vacuumed:  # perhaps, after the range
        check_changes(table, latest, found)
    files = files_of(table, found, shape.partition_columns)
    check_paths(files["path"], table.location, table.name, table.roots.allows)
    check_vector_paths(files["deletion_vector"], table.location, table.name, table.roots.allows)
    return PlannedChanges(shape, start, end, files)


def _too_many_files(table: str, versions: tuple[int, int, int], limit: int) -> ReadLimitExceeded:
    start, limit_version, end = versions
    advice = f"Read versions {start} to {limit_version - 1} first, then those from {limit_version} on"
    if limit_version == start:
        advice = "Read them in your own process: delvec.connect() without a URL has no such limit"
    return ReadLimitExceeded(
        f"Versions {start} to {limit_version} of table '{table}' changed more than {counted(limit, 'file')}, the most that one answer of the "
        f"service tells of; the range ends at version {end}. {advice}.",
        table=table,
        version=limit_version,
        limit=limit,
    )


# --- the range ----------------------------------------------------------------------------------------------


def _range(
    request: ChangesRequest, reader: LogReader, times: dict[int, int], latest: Snapshot
) -> tuple[int, int]:
    for name in ("start", "end"):
        if (
            getattr(request, f"{name}_version") is not None
            and getattr(request, f"{name}_timestamp") is not None
        ):
            raise BadRequest(f"Give either {name}-version or {name}-timestamp, not both.")
    since, until = request.start_timestamp, request.end_timestamp
    if request.start_version is not None:
        start = request.start_version
    elif since is not None:
        start = first_since(since, reader, times, latest)
    else:
        raise BadRequest("Give start-version or start-timestamp as the start of the changes.")
    if start > latest.version:
        raise VersionNotFound(
            f"Table '{reader.table}' has no version {start} to start from; its newest version is {latest.version}.",
            table=reader.table,
            version=start,
            latest=latest.version,
        )
    end = latest.version if request.end_version is None else request.end_version
    if until is not None:
        end = version_at(reader, until, latest)
    between = since is not None and until is not None and milliseconds(since) <= milliseconds(until)
    if end < start and not (between and end == start - 1):
        raise BadRequest(
            f"The changes of table '{reader.table}' cannot end at version {end}, before they start at version "
            f"{start}; give an end that is not before the start.",
            table=reader.table,
            start_version=start,
            end_version=end,
        )
    return start, min(end, latest.version)


def first_since(timestamp: str, reader: LogReader, times: dict[int, int], latest: Snapshot) -> int:
    """Return the first version committed at or after a time.

    Raises:
        VersionNotFound: the time is after the newest version.
        BadRequest: it is not a timestamp.
    """
    try:
        matching_version = version_at(reader, timestamp, latest)
    except VersionNotFound as error:
        if "earliest" not in error.details:
            raise
        return int(error.details["earliest"])
    ((_, actions),) = _commits(reader, matching_version, matching_version)
    return (
        matching_version
        if _timestamp(actions, matching_version, times) >= milliseconds(timestamp)
        else matching_version + 1
    )


def _commits(reader: LogReader, start: int, end: int) -> Iterator[tuple[int, Sequence[Action]]]:
    versions = range(start, end + 1)
    for version, commit in zip(versions, reader.each(versions), strict=True):
        yield version, commit.actions


def _timestamp(actions: Sequence[Action], version: int, times: dict[int, int]) -> int:
    """Return when a version was committed, in milliseconds since the epoch."""
    info = first_of(CommitInfo, actions)
    stamp = None if info is None else info.in_commit_timestamp
    return times.get(version, 0) if stamp is None else stamp


# --- what can be read ---------------------------------------------------------------------------------------


def _check_metadata(
    reader: LogReader,
    actions: Sequence[Action],
    version: int,
    version_range: tuple[int, int],
    shape: Snapshot,
) -> None:
    for action in actions:
        if not isinstance(action, Metadata):
            continue
        if not replace(shape, metadata=action).cdf_enabled:
            raise _not_recorded(reader.table, version, *version_range)
        if version > version_range[0]:
            _check_schema(reader, shape, action, version, version_range)


def _check_schema(
    reader: LogReader, shape: Snapshot, metadata: Metadata, version: int, version_range: tuple[int, int]
) -> None:
    if not is_readable_with(shape.metadata, shape.version, metadata, version):
        raise _incompatible(reader, shape, version, version_range)


def _is_repartitioned(
    loader: SnapshotLoader,
    table: OpenTable,
    shape: Snapshot,
    actions: Sequence[Action],
    file_changes: Sequence[FileChanges],
    version: int,
) -> bool:
    """Return whether the files that a version removes are partitioned differently than its own."""
    if version == 0 or not any(isinstance(action, Metadata) for action in actions):
        return False
    expected = {shape.schema.field(name).physical_name for name in shape.partition_columns}
    given = [set(file.partition_values) for file in file_changes if file.partition_values is not None]
    if all(names == expected for names in given):
        return False
    if not all(names <= expected for names in given):
        return True
    # A remove by delta-spark leaves out NULL partition values, so only the version before has them.
    try:
        before = loader.load(table.objects, table.name, version=version - 1)
    except VersionNotFound:
        return True
    return before.partition_columns != shape.partition_columns


def _incompatible(
    reader: LogReader, shape: Snapshot, version: int, version_range: tuple[int, int]
) -> IncompatibleSchemaChange:
    start, end = version_range
    change = _change_after(reader, version, end, shape)
    what = "a column was renamed, dropped, or changed its type or nullability, or the partitioning changed"
    reads = f"The changes of versions {start} to {end} of table '{reader.table}' are read with the schema of version {shape.version}"
    message = (
        f"{reads}, but the rows of version {version} cannot be: since then {what}. Request the versions before that "
        "change and those from it on separately."
        if change is None
        else f"{reads}, but those before version {change} cannot be: in version {change} {what}. Request versions "
        f"{start} to {change - 1} and {change} to {end} separately."
    )
    return IncompatibleSchemaChange(
        message,
        table=reader.table,
        version=version,
        start_version=start,
        end_version=end,
        schema_version=shape.version,
    )


def _change_after(reader: LogReader, version: int, end: int, shape: Snapshot) -> int | None:
    """Return the version of the last change of the schema, from which on all can be read; None if after the end."""
    change = None
    for later, actions in _commits(reader, version + 1, end):
        for action in actions:
            if isinstance(action, Metadata):
                is_readable = is_readable_with(shape.metadata, shape.version, action, later)
                change = (change or later) if is_readable else None
    return change


def _not_recorded(table: str, version: int, start: int, end: int) -> ChangeDataNotRecorded:
    return ChangeDataNotRecorded(
        f"Table '{table}' does not record changes in version {version}, which is in the requested range {start} to "
        f"{end}. Start after the version that set delta.enableChangeDataFeed=true.",
        table=table,
        version=version,
        start_version=start,
        end_version=end,
    )


def _parsed(request: ChangesRequest, table: str, shape: Snapshot) -> Predicate | None:
    with naming(table, shape.version):
        schema = feed_schema(shape.schema)
        for name in request.columns or ():
            schema.field(name)
        return None if request.predicate is None else predicates.parse(request.predicate, schema)


# --- files --------------------------------------------------------------------------------------------------


def _matching(
    entries: Sequence[ChangedRows], predicate: Predicate | None, table: str, shape: Snapshot
) -> Iterator[list[ChangedRows]]:
    """Yield the entries that may have rows matching a predicate, change files separate from the others."""
    schema = feed_schema(shape.schema)
    for is_change_file in (True, False):
        group = [entry for entry in entries if (entry.file.change_type is None) is is_change_file]
        if predicate is None or not group:
            yield group
            continue
        stats = pa.array([entry.file.stats for entry in group], pa.string())
        values = [
            list({**(entry.file.partition_values or {}), **entry.feed_values}.items()) for entry in group
        ]
        files = pa.table(
            {
                "path": [entry.file.path for entry in group],
                "partition_values": pa.array(values, TEXT_MAP),
                "stats": stats,
                "num_records": num_records_from_stats(stats),
            }
        )
        columns = [*shape.partition_columns, *feed_columns(is_change_file=is_change_file)]
        with naming_files([files], schema, columns, table=table, version=shape.version):
            may_match = prune(files, predicate, schema, columns).may_match.to_pylist()
        yield [entry for entry, may in zip(group, may_match, strict=True) if may]
