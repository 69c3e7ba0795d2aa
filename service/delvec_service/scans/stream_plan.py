"""Plans a step of a stream of added rows: the files from one position to another.

Tested in `tests/integration/service/scans/test_additions.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec_contract.plans import AdditionsRequest, ReadSchema, StreamPosition
from delvec_errors import (
    ChangeDataNotRecorded,
    IncompatibleSchemaChange,
    MissingLogFile,
    SourceRowsChanged,
    StreamSchemaChanged,
    UnsupportedReaderFeature,
    VersionNotFound,
)
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.actions.actions import Action, AddFile, Metadata, Protocol
from delvec_kernel.change_feed.stream_positions import Position, StepLimits, committed_rows, schema_fit
from delvec_kernel.change_feed.version_changes import changes_in
from delvec_kernel.features.table_features import check_readable
from delvec_kernel.file_index.file_rows import FILES_SCHEMA, table_from_adds
from delvec_kernel.snapshot.replay import Commit
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.scans.change_feed_plan import first_since
from delvec_service.scans.plan import PLAN_SCHEMA, check_paths, check_vector_paths, inlined_vectors
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.open_table import OpenTable

__all__ = ["PlannedAdditions", "plan_additions"]

_AT_ONCE: Final = 32
_COLUMNS: Final = tuple(name for name in FILES_SCHEMA.names if name in PLAN_SCHEMA.names and name != "stats")
_ORDER_COLUMNS: Final = ("path", "modification_time", "size")
_ORDER: Final = [("modification_time", "ascending"), ("path", "ascending")]

_REFUSALS: Final = (
    SourceRowsChanged,
    StreamSchemaChanged,
    IncompatibleSchemaChange,
    ChangeDataNotRecorded,
    UnsupportedReaderFeature,
)


@dataclass(frozen=True)
class PlannedAdditions:
    """A step of a stream.

    Attributes:
        version: the newest version considered.
        snapshot_timestamp: timestamp of the version that is read as a whole, in milliseconds since the epoch.
        files: PLAN_SCHEMA, in order; empty if they were not requested.
        num_found: the number of files between start and end.
    """

    version: int
    start: Position
    end: Position
    snapshot_timestamp: int | None
    files: pa.Table
    num_found: int


def plan_additions(loader: SnapshotLoader, table: OpenTable, request: AdditionsRequest) -> PlannedAdditions:
    """Plan a step of a stream of added rows.

    An error of a version is raised if the step begins with that version; a step with files before it ends before it.

    Raises:
        BadRequest: a position does not belong to this table, or the starting time is not a timestamp.
        VersionNotFound: the start is after the newest version, or before the oldest that the log retains.
        SourceRowsChanged: a version deleted or changed rows, and the options do not skip it; or the table was
            replaced.
        StreamSchemaChanged: a version added columns that the stream lacks.
        IncompatibleSchemaChange: a version's rows cannot be read with the stream's schema.
        ChangeDataNotRecorded: the change feed was requested, and was off in some version.
        CorruptTable: or a subclass: the log or a deletion vector is damaged.
        LocationNotAllowed: a file to read lies outside the table and is not allowed.
    """
    latest = loader.load(table.objects, table.name)
    _check_same_table(request, table, latest)
    last = latest.version if request.last_version is None else min(latest.version, request.last_version)
    start = _position(request.start) or _beginning(request, table, latest, last)
    end = _position(request.end)
    if start.version > latest.version + 1 or (end is not None and end.version > latest.version + 1):
        raise VersionNotFound(
            f"A stream of table '{table.name}' continues at version "
            f"{max(start.version, end.version if end else 0)}, but the newest version is {latest.version}: the log "
            "was replaced. Start a new query with a new checkpoint.",
            table=table.name,
            latest=latest.version,
        )
    step = _StreamBatch(loader, table, request, latest, last, end)
    try:
        at = step.begin(start)
    except VersionNotFound as error:
        earliest = error.details.get("earliest")
        if start.snapshot or earliest is None or error.details.get("version") != start.version:
            raise
        if not request.pass_lost_versions:
            raise _lost(table.name, start.version, earliest) from error
        if end is not None and (end.version, end.index) <= (earliest, 0):
            # Nothing is left of a batch that was planned before.
            return PlannedAdditions(last, end, end, None, PLAN_SCHEMA.empty_table(), 0)
        start = Position(earliest)
        step = _StreamBatch(loader, table, request, latest, last, end)
        at = step.begin(start)
    files = pa.concat_tables(step.tables) if step.tables else PLAN_SCHEMA.empty_table()
    check_paths(files["path"], table.location, table.name, table.roots.allows)
    check_vector_paths(files["deletion_vector"], table.location, table.name, table.roots.allows)
    return PlannedAdditions(last, start, at, step.snapshot_timestamp, files, step.num_found)


def _position(given: StreamPosition | None) -> Position | None:
    return None if given is None else Position(given.version, given.index, given.snapshot)


def _beginning(request: AdditionsRequest, table: OpenTable, latest: Snapshot, last: int) -> Position:
    """Return the start of a stream that has not read anything."""
    if request.starting_version == "latest":
        return Position(last + 1)
    if request.starting_timestamp is not None:
        reader = LogReader(table.objects, table.name)
        return Position(first_since(request.starting_timestamp, reader, reader.list_all().times, latest))
    if request.starting_version is None:
        return Position(last, snapshot=True)
    if request.starting_version > last:
        raise VersionNotFound(
            f"Table '{table.name}' has no version {request.starting_version} to start a stream from; its newest "
            f"version is {last}. Use 'latest' to start with the next one.",
            table=table.name,
            version=request.starting_version,
            latest=last,
        )
    return Position(request.starting_version)


def _check_same_table(request: AdditionsRequest, table: OpenTable, latest: Snapshot) -> None:
    if request.metadata_id not in (None, latest.metadata.id):
        raise SourceRowsChanged(
            f"The table that the stream read at {table.location} was replaced by another one, '{table.name}', so "
            "its new rows cannot be distinguished from those already read. Start a new query with a new "
            "checkpoint.",
            table=table.name,
            location=table.location,
        )


@dataclass
class _StreamBatch:
    """The files taken so far, and the limits."""

    loader: SnapshotLoader
    table: OpenTable
    request: AdditionsRequest
    latest: Snapshot
    last: int
    end: Position | None
    tables: list[pa.Table] = field(default_factory=list)
    num_found: int = 0
    snapshot_timestamp: int | None = None

    def __post_init__(self) -> None:
        request = self.request
        self._limits = StepLimits() if self.end else StepLimits(request.max_files, request.max_bytes)

    def begin(self, start: Position) -> Position:
        """Take all files from the start on, if the schema can be read; see :meth:`take_all`."""
        if self.request.check_start and not start.snapshot:
            self.check_start(min(start.version, self.latest.version))
        return self.take_all(start)

    def take_all(self, at: Position) -> Position:
        """Take the files from a position on, up to the limits; return the position of the next ones."""
        if self._limits.reached:
            return at
        if at.snapshot:
            at = self._take_snapshot(at)
        return at if at.snapshot or self._limits.reached else self._take_commits(at)

    # --- a whole version ------------------------------------------------------------------------------------

    def _take_snapshot(self, at: Position) -> Position:
        """Take files of the version that is read as a whole; return the position of the next ones."""
        end = self.end if self.end is not None and self.end.version == at.version else None

        def taken(snapshot: Snapshot) -> tuple[pa.Table, int, int]:
            self._check_metadata(snapshot.metadata, snapshot.version)
            names = _COLUMNS if self.request.list_files else _ORDER_COLUMNS
            files = snapshot.live.columns(names)
            order = pc.sort_indices(files, _ORDER)
            sizes = (
                files["size"].take(order).to_numpy()[at.index : files.num_rows if end is None else end.index]
            )
            chosen = files.take(order.slice(at.index, self._limits.room_for(sizes))).combine_chunks()
            listed = self._listed(chosen, snapshot) if self.request.list_files else chosen
            return listed, files.num_rows, snapshot.timestamp

        files, total, self.snapshot_timestamp = self.loader.reading(
            self.table.objects, self.table.name, taken, version=at.version
        )
        self._take(files.num_rows, pc.sum(files["size"]).as_py() or 0, files)
        index = at.index + files.num_rows
        if end is not None or index < total:
            return Position(at.version, index, snapshot=True)
        return at.after_version

    def _listed(self, files: pa.Table, snapshot: Snapshot | None = None) -> pa.Table:
        """Return files in the form of a plan.

        With ``snapshot`` as their version, small deletion vectors are included.
        """
        count = files.num_rows
        plan_columns = {name: files[name] for name in files.column_names if name in PLAN_SCHEMA.names}
        plan_columns["matches_all"] = pa.array(np.zeros(count, np.bool_))
        plan_columns["stats"] = pa.nulls(count, pa.string())
        plan_columns["deleted_rows"] = pa.nulls(count, pa.binary())
        if snapshot is not None and files["deletion_vector"].null_count < count:
            plan_columns["deleted_rows"] = inlined_vectors(
                files, snapshot, self.table.name, self.table.roots.allows
            )
        return pa.table([plan_columns[name] for name in PLAN_SCHEMA.names], schema=PLAN_SCHEMA)

    def _take(self, count: int, nbytes: int, files: pa.Table | None) -> None:
        self._limits.spend(count, nbytes)
        self.num_found += count
        if files is not None and count and self.request.list_files:
            self.tables.append(files)

    # --- what versions added --------------------------------------------------------------------------------

    def _take_commits(self, at: Position) -> Position:
        """Take files that versions added, from a position on; return the position of the next ones."""
        last = self.last if self.end is None else self.end.version if self.end.index else self.end.version - 1
        for version, commit in _commits(self.loader, self.table, range(at.version, last + 1)):
            try:
                at = self._take_commit(at, version, commit.actions)
            except _REFUSALS:
                if self.num_found and self.end is None:
                    break  # everything before it is fine, and the next step begins with it
                raise
            if at.version == version or self._limits.reached:
                break
        return at

    def _take_commit(self, at: Position, version: int, actions: Sequence[Action]) -> Position:
        for action in actions:
            if isinstance(action, Metadata):
                self._check_metadata(action, version)
            elif isinstance(action, Protocol):
                check_readable(action, self.latest.metadata, self.table.name)
        if self.request.change_feed:
            changed = list(changes_in(actions, self.table.location))
            self._take(len(changed), sum(file.size or 0 for file in changed), None)
            return at.after_version
        adds = self._added(version, actions)
        stop = self.end.index if self.end is not None and self.end.version == version else len(adds)
        sizes = np.array([add.size for add in adds[at.index : stop]], np.int64)
        count = self._limits.room_for(sizes)
        files = (
            self._listed(table_from_adds(adds[at.index : at.index + count]))
            if self.request.list_files and count
            else None
        )
        self._take(count, int(sizes[:count].sum()), files)
        index = at.index + count
        return Position(version, index) if index < len(adds) else at.after_version

    def _added(self, version: int, actions: Sequence[Action]) -> Sequence[AddFile]:
        rows = committed_rows(actions, self.table.location)
        if rows.lost is None:
            return rows.added
        if self.request.skip_change_commits or (rows.only_lost and self.request.ignore_deletes):
            return ()
        name, facts = self.table.name, {"table": self.table.name, "version": version, "file": rows.lost}
        if rows.only_lost:
            raise SourceRowsChanged(
                f"Version {version} of table '{name}' deleted rows (for example of file '{rows.lost}'), which a "
                "stream of added rows cannot represent. Set the option ignoreDeletes to skip such versions, or "
                "readChangeFeed to read the deleted rows, and restart the query.",
                **facts,
            )
        raise SourceRowsChanged(
            f"Version {version} of table '{name}' changed or replaced rows (for example of file '{rows.lost}'), "
            "which a stream of added rows cannot represent. Set the option skipChangeCommits to skip such versions "
            "completely, including the rows they added, or readChangeFeed to read the changes, and restart the "
            "query.",
            **facts,
        )

    # --- what can be read -----------------------------------------------------------------------------------

    def check_start(self, version: int) -> None:
        """Check the schema that was in force at the position where the stream continues."""
        snapshot = self.loader.load(self.table.objects, self.table.name, version=version)
        self._check_metadata(snapshot.metadata, version)

    def _check_metadata(self, metadata: Metadata, version: int) -> None:
        name = self.table.name
        if self.request.change_feed and not replace(self.latest, metadata=metadata).cdf_enabled:
            raise ChangeDataNotRecorded(
                f"Table '{name}' does not record changes in version {version}, but the stream has to read them from "
                "that version. Start after the version that set delta.enableChangeDataFeed=true (startingVersion).",
                table=name,
                version=version,
            )
        read = self.request.read_with
        if read is None:
            return
        fit = schema_fit(_metadata(read), read.version, metadata, version)
        if fit == "fits":
            return
        facts = {"table": name, "version": version, "schema_version": read.version}
        if fit == "added":
            raise StreamSchemaChanged(
                f"Version {version} of table '{name}' has columns that the stream lacks: it reads with the schema "
                f"of version {read.version}. Load the table again and restart the query with the same checkpoint. "
                "It continues at that version, with the new columns.",
                **facts,
            )
        if fit == "changed":
            raise IncompatibleSchemaChange(
                f"In version {version} of table '{name}' a column was renamed, dropped, or changed its type or "
                "nullability, or the partitioning changed, but the stream reads with the schema of version "
                f"{read.version}. If the consumer of the stream can handle the new columns, load the table again "
                "and restart the query. It continues at that version.",
                **facts,
            )
        raise IncompatibleSchemaChange(
            f"The stream of table '{name}' reads with the schema of version {read.version}, and the rows of version "
            f"{version} cannot be read with it: since then a column was renamed, dropped, or changed its type or "
            "nullability, or the partitioning changed. Start a new query after that change (startingVersion), with "
            "a new checkpoint.",
            **facts,
        )


def _metadata(read: ReadSchema) -> Metadata:
    return Metadata(
        id="",
        schema_string=json_text(read.table_schema),
        partition_columns=tuple(read.partition_columns),
        configuration=read.configuration,
    )


def _commits(loader: SnapshotLoader, table: OpenTable, versions: range) -> Iterator[tuple[int, Commit]]:
    """Yield commits, reading a few at a time: a step may end long before the last one.

    Raises:
        VersionNotFound: the log was cleaned up meanwhile.
    """
    for start in range(0, len(versions), _AT_ONCE):
        some = versions[start : start + _AT_ONCE]
        try:
            commits = loader.commits(table.objects, table.name, some)
        except MissingLogFile as error:
            earliest = min(LogReader(table.objects, table.name).list_all().commits, default=None)
            if earliest is None or earliest <= some[0]:
                raise
            raise _lost(table.name, some[0], earliest) from error
        yield from zip(some, commits, strict=True)


def _lost(table: str, version: int, earliest: int) -> VersionNotFound:
    return VersionNotFound(
        f"A stream of table '{table}' continues at version {version}, but the log now begins at version {earliest}: "
        "it was cleaned up, and the files that the versions in between added are no longer known. Start a new "
        "query with a new checkpoint, or set the option failOnDataLoss=false to continue without them. Run the "
        "query more often than delta.logRetentionDuration.",
        table=table,
        version=version,
        earliest=earliest,
    )
