"""A commit that a client of the catalog has staged: checked against the newest version before it is published.

The file becomes the log entry as it is, so everything that would make the table unreadable, lose a row or bring one back
has to be found here (PROTOCOL.md, "Catalog-managed tables", "Action Reconciliation" and "Writer Requirements"). What
storage says about its files is checked by the service.

Tested in `tests/unit/kernel/transaction/test_staged_commit.py`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from delvec_errors import (
    AppendOnlyTable,
    CorruptLog,
    CorruptTable,
    DuplicateFile,
    FileNotInSnapshot,
    InvalidCommit,
    InvalidDeletionVector,
    LocationNotAllowed,
)
from delvec_kernel import locations, row_tracking
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import (
    Action,
    AddFile,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
)
from delvec_kernel.change_feed.feed_schema import CHANGE_DATA
from delvec_kernel.features.managed_tables import check_stays_managed
from delvec_kernel.features.table_features import check_readable, writer_features
from delvec_kernel.log.commit_file import parse_commit
from delvec_kernel.schema import partition_values
from delvec_kernel.snapshot.replay import Commit
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics import file_statistics as statistics

__all__ = ["StagedCommit", "check", "is_staged_name", "parse"]

_NAME: Final = re.compile(r"(\d{20})\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json", re.IGNORECASE)
_File = TypeVar("_File", AddFile, RemoveFile)


@dataclass(frozen=True)
class StagedCommit:
    """A staged commit by kinds of action.

    Attributes:
        version: that it is to become.
        adds: by canonical path.
        removes: by canonical path.
        changes: files of the change data feed.
        protocol: if it changes.
        metadata: if it changes.
    """

    version: int
    actions: Sequence[Action]
    info: CommitInfo
    key: str
    adds: Mapping[str, AddFile]
    removes: Mapping[str, RemoveFile]
    changes: Sequence[Cdc]
    protocol: Protocol | None
    metadata: Metadata | None

    def new_adds(self, snapshot: Snapshot) -> list[AddFile]:
        """Return the files that are not live before the commit: only these are new in storage."""
        live = snapshot.live.find_all(list(self.adds))
        return [add for path, add in self.adds.items() if path not in live]

    def new_vectors(self, snapshot: Snapshot) -> dict[str, AddFile]:
        """Return the files with another deletion vector than before, by canonical path."""
        live = snapshot.live.find_all(list(self.adds))
        return {
            path: add
            for path, add in self.adds.items()
            if add.deletion_vector is not None and _vector(add) != _vector(live.get(path))
        }


def is_staged_name(name: str, version: int) -> bool:
    """Whether a file in ``_delta_log/_staged_commits`` is named as a commit of that version."""
    match = _NAME.fullmatch(name)
    return match is not None and int(match.group(1)) == version


def parse(data: bytes, table: str, location: str, version: int, name: str) -> StagedCommit:
    """Read a staged commit.

    Args:
        data: the file.
        table: for errors.
        location: the table's canonical location.
        version: that it is to become.
        name: of the file, for errors.

    Raises:
        InvalidCommit: it is no commit: damaged, without a commitInfo first that has a transaction id, or with an action
            that commits do not have or have once.
        DuplicateFile: it has two actions for one file.
    """

    def refused(what: str) -> InvalidCommit:
        return InvalidCommit(
            f"The staged commit '{name}' of table '{table}' {what}; nothing was committed. Write it again.",
            table=table,
            version=version,
            file=name,
        )

    try:
        actions = parse_commit(data, LogFile(table, version, name))
    except CorruptTable as error:
        raise refused(f"cannot be read: {error.message}") from error
    info = actions[0]
    if not isinstance(info, CommitInfo) or not info.txn_id:
        raise refused("does not begin with a commitInfo that has a txnId")
    for kind, most in ((CommitInfo, 1), (Protocol, 1), (Metadata, 1), (Sidecar, 0), (CheckpointMetadata, 0)):
        if sum(isinstance(action, kind) for action in actions) > most:
            raise refused(f"has {'several' if most else 'a'} '{kind.key}' action{'s' if most else ''}")
    try:
        adds = _by_path([each for each in actions if isinstance(each, AddFile)], location)
        removes = _by_path([each for each in actions if isinstance(each, RemoveFile)], location)
    except (CorruptTable, LocationNotAllowed) as error:
        raise refused(f"names a file that cannot be in the table: {error.message}") from error
    except ValueError as error:
        raise DuplicateFile(
            f"The staged commit '{name}' of table '{table}' has two actions of one kind for the file '{error}'; "
            "nothing was committed.",
            table=table,
            version=version,
            file=str(error),
        ) from None
    domains = [action.domain for action in actions if isinstance(action, DomainMetadata)]
    if len(set(domains)) < len(domains):
        raise refused("sets a domain twice")
    return StagedCommit(
        version,
        actions,
        info,
        info.txn_id,
        adds,
        removes,
        [action for action in actions if isinstance(action, Cdc)],
        next((action for action in actions if isinstance(action, Protocol)), None),
        next((action for action in actions if isinstance(action, Metadata)), None),
    )


def check(staged: StagedCommit, snapshot: Snapshot, table: str, timestamp: int | None = None) -> None:
    """Reject a staged commit that must not follow a version.

    Args:
        staged: the commit.
        snapshot: the newest version, right before it.
        table: for errors.
        timestamp: what the client told the catalog.

    Raises:
        InvalidCommit: or a subclass: it contradicts the version, or itself.
        InvalidTableChange: it would take the table out of the catalog.
        UnsupportedTable: or a subclass: after it Delvec could no longer read the table.
        AppendOnlyTable: it removes rows from an append-only table.
    """
    _check_time(staged, snapshot, table, timestamp)
    protocol, metadata = staged.protocol or snapshot.protocol, staged.metadata or snapshot.metadata
    if staged.protocol or staged.metadata:
        check_readable(protocol, metadata, table)
        check_stays_managed(protocol, metadata, table, snapshot.location)
    _check_removes(staged, snapshot, table)
    after = _after(staged, snapshot, table)
    _check_adds(staged, snapshot, after, table)
    _check_changes(staged, after, table)
    _check_row_ids(staged, snapshot, after, table)


def _check_time(staged: StagedCommit, snapshot: Snapshot, table: str, timestamp: int | None) -> None:
    stamp = staged.info.in_commit_timestamp
    before = snapshot.in_commit_timestamp
    if stamp is None:
        raise _invalid(
            InvalidCommit, staged, table, "has no inCommitTimestamp, which a managed table requires"
        )
    if timestamp is not None and stamp != timestamp:
        raise _invalid(
            InvalidCommit,
            staged,
            table,
            f"has the inCommitTimestamp {stamp}, but the request says {timestamp}",
        )
    if before is not None and stamp <= before:
        what = f"has the inCommitTimestamp {stamp}, which must be later than {before}, that of the version before"
        raise _invalid(InvalidCommit, staged, table, what)


def _after(staged: StagedCommit, snapshot: Snapshot, table: str) -> Snapshot:
    """Return the version that the commit leads to, with a schema that Delvec can read."""
    commit = Commit(LogFile(table, staged.version, f"{staged.version:020}.json"), list(staged.actions))
    try:
        after = snapshot.after([commit], file_time=snapshot.timestamp + 1)
        _ = after.schema
    except CorruptLog as error:
        raise _invalid(
            InvalidCommit, staged, table, f"would make the table unreadable: {error.message}"
        ) from error
    return after


def _check_removes(staged: StagedCommit, snapshot: Snapshot, table: str) -> None:
    live = snapshot.live.find_all(list(staged.removes)) if staged.removes else {}
    for path, remove in staged.removes.items():
        if path not in live:
            raise _invalid(FileNotInSnapshot, staged, table, f"removes '{path}', which is not a live file")
        if _vector(live[path]) != _vector(remove):
            what = (
                f"removes '{path}' with the deletion vector {_vector(remove)}, but the live file has "
                f"{_vector(live[path])}"
            )
            raise _invalid(FileNotInSnapshot, staged, table, what)
    loses_rows = any(remove.data_change for remove in staged.removes.values())
    if snapshot.append_only and loses_rows:
        raise AppendOnlyTable(
            f"Table '{table}' has delta.appendOnly=true, so rows cannot be removed from it. Unset the property first.",
            table=table,
            version=snapshot.version,
        )


def _check_adds(staged: StagedCommit, snapshot: Snapshot, after: Snapshot, table: str) -> None:
    live = snapshot.live.find_all(list(staged.adds)) if staged.adds else {}
    has_vectors = "deletionVectors" in writer_features(after.protocol)
    for path, add in staged.adds.items():
        if "://" in path:
            raise _invalid(InvalidCommit, staged, table, f"adds '{add.path}', which is not in the table")
        removed = staged.removes.get(path)
        if path in live and removed is None and _vector(live[path]) != _vector(add):
            what = f"adds '{path}', which is live with another deletion vector, and does not remove that"
            raise _invalid(DuplicateFile, staged, table, what)
        if path in live and removed is None and add.data_change:
            what = f"adds '{path}', which is live already, with dataChange=true: readers of changes would see its rows twice"
            raise _invalid(DuplicateFile, staged, table, what)
        _check_partition_values(staged, add, after, table)
        _num_records(staged, add, table)
        if add.deletion_vector is not None:
            _check_vector(staged, add, path, table, has_vectors=has_vectors)


def _check_partition_values(staged: StagedCommit, file: AddFile | Cdc, after: Snapshot, table: str) -> None:
    columns = [after.schema.field(name) for name in after.partition_columns]
    what = partition_values.contradiction(file.partition_values, columns)
    if what is not None:
        raise _invalid(InvalidCommit, staged, table, f"adds '{file.path}', which {what}")


def _check_changes(staged: StagedCommit, after: Snapshot, table: str) -> None:
    if staged.changes and not after.cdf_enabled:
        what = "has files of changes, and the table does not have delta.enableChangeDataFeed=true"
        raise _invalid(InvalidCommit, staged, table, what)
    for file in staged.changes:
        try:
            path = locations.canonical_log_path(file.path, after.location)
        except (CorruptTable, LocationNotAllowed):
            path = ""
        if not path.startswith(CHANGE_DATA):
            what = (
                f"has the file of changes '{file.path[:300]}', which is not below {CHANGE_DATA} in the table"
            )
            raise _invalid(InvalidCommit, staged, table, what)
        _check_partition_values(staged, file, after, table)


def _check_vector(staged: StagedCommit, add: AddFile, path: str, table: str, *, has_vectors: bool) -> None:
    assert add.deletion_vector is not None  # noqa: S101 - asked by the caller
    count = _num_records(staged, add, table)
    if not has_vectors:
        what = (
            f"adds '{path}' with a deletion vector, and the table does not have the feature deletionVectors"
        )
        raise _invalid(InvalidDeletionVector, staged, table, what)
    if count is None:
        what = f"adds '{path}' with a deletion vector, and without numRecords in its statistics"
        raise _invalid(InvalidDeletionVector, staged, table, what)
    if add.deletion_vector.cardinality > count:
        what = (
            f"adds '{path}' with {count} rows and a deletion vector of {add.deletion_vector.cardinality} rows"
        )
        raise _invalid(InvalidDeletionVector, staged, table, what)


def _check_row_ids(staged: StagedCommit, snapshot: Snapshot, after: Snapshot, table: str) -> None:
    if not row_tracking.gives_ids(after):
        return
    before, mark = row_tracking.high_water_mark(snapshot), row_tracking.high_water_mark(after)
    if mark < before:
        what = f"lowers the high-water mark of row ids from {before} to {mark}"
        raise _invalid(InvalidCommit, staged, table, what)
    for path, add in staged.adds.items():
        count = _num_records(staged, add, table)
        if add.base_row_id is None or add.default_row_commit_version is None or count is None:
            what = f"adds '{path}' without baseRowId, defaultRowCommitVersion or numRecords"
            raise _invalid(InvalidCommit, staged, table, f"{what}, which row tracking requires")
        if count and add.base_row_id + count - 1 > mark:
            what = f"adds '{path}' with row ids up to {add.base_row_id + count - 1}, above the high-water mark {mark}"
            raise _invalid(InvalidCommit, staged, table, what)


def _num_records(staged: StagedCommit, add: AddFile, table: str) -> int | None:
    try:
        return None if add.stats is None else statistics.num_records(add.stats)
    except (CorruptLog, CorruptTable) as error:
        raise _invalid(
            InvalidCommit, staged, table, f"adds '{add.path}' with damaged statistics: {error.message}"
        ) from error


def _by_path(actions: Iterable[_File], location: str) -> dict[str, _File]:
    files: dict[str, _File] = {}
    for action in actions:
        path = locations.canonical_log_path(action.path, location)
        if path in files:
            raise ValueError(path)
        files[path] = action
    return files


def _vector(action: AddFile | RemoveFile | None) -> str | None:
    return None if action is None or action.deletion_vector is None else action.deletion_vector.unique_id


def _invalid(kind: type[InvalidCommit], staged: StagedCommit, table: str, what: str) -> InvalidCommit:
    return kind(
        f"The staged commit of version {staged.version} to table '{table}' {what}; nothing was committed.",
        table=table,
        version=staged.version,
    )
