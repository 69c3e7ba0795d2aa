"""A commit that a client of the catalog has staged: checked against the newest version before it is published.

The file becomes the log entry as it is, so everything that would make the table unreadable, lose a row or bring one back
has to be found here (PROTOCOL.md, "Catalog-managed tables", "Action Reconciliation" and "Writer Requirements"). Here is what
only such a commit can get wrong, because Delvec computes it for its own: names and ids, times, deletion vectors of removes,
and row ids. The rest is in :mod:`~delvec_kernel.transaction.commit_rules`, and what storage says is asked by the service.

Tested in `tests/unit/kernel/transaction/test_staged_commit.py`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from delvec_errors import (
    CorruptLog,
    CorruptTable,
    DuplicateFile,
    FileNotInSnapshot,
    InvalidCommit,
    InvalidDeletionVector,
)
from delvec_kernel import row_tracking
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
    first_of,
)
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.features.table_features import check_readable, writer_features
from delvec_kernel.log.commit_file import parse_commit
from delvec_kernel.schema.types import StructType
from delvec_kernel.snapshot.replay import Commit
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics import file_statistics as statistics
from delvec_kernel.transaction import commit_rules as rules
from delvec_kernel.transaction.transaction_changes import Changes

__all__ = ["RESTORE", "StagedCommit", "check", "is_staged_name", "parse", "vectors_before"]

RESTORE: Final = "RESTORE"
"""The operation that may bring deleted rows and removed files back."""
_MAX_AHEAD: Final = 24 * 3600 * 1000
"""By how many milliseconds a writer's clock may be ahead."""
_NAME: Final = re.compile(r"(\d{20})\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json", re.IGNORECASE)


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


def is_staged_name(name: str, version: int) -> bool:
    """Whether a file in ``_delta_log/_staged_commits`` is named as a commit of that version."""
    match = _NAME.fullmatch(name)
    return match is not None and int(match.group(1)) == version


def parse(data: bytes, table: str, location: str, version: int, name: str) -> StagedCommit:
    """Read a staged commit.

    Args:
        data: the file.
        table: the table's name, for errors.
        location: the table's canonical location.
        version: that it is to become.
        name: the name of the file, for errors.

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
    adds = [action for action in actions if isinstance(action, AddFile)]
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    keys = (
        rules.distinct([file.path for file in adds], table, location, "is added"),
        rules.distinct([file.path for file in removes], table, location, "is removed"),
    )
    domains = [action.domain for action in actions if isinstance(action, DomainMetadata)]
    if len(set(domains)) < len(domains):
        raise refused("sets a domain twice")
    return StagedCommit(
        version,
        actions,
        info,
        info.txn_id,
        dict(zip(keys[0], adds, strict=True)),
        dict(zip(keys[1], removes, strict=True)),
        [action for action in actions if isinstance(action, Cdc)],
        first_of(Protocol, actions),
        first_of(Metadata, actions),
    )


def check(
    staged_commit: StagedCommit, snapshot: Snapshot, table: str, now: int, timestamp: int | None = None
) -> Changes:
    """Return what a staged commit changes, after checking that it may follow a version.

    Args:
        staged_commit: the commit.
        snapshot: the newest version, right before it.
        table: the table's name, for errors.
        now: the time by the service's clock, in milliseconds.
        timestamp: what the client told the catalog.

    Returns:
        The changes as those of any commit, without the rows of ``written_vectors``, which are in storage, and without
        ``row_deletes`` for them. Of files that were live before, only those with another deletion vector are in it.

    Raises:
        InvalidCommit: or a subclass: it contradicts the version, or itself.
        InvalidTableChange: it would take the table out of the catalog.
        UnsupportedTable: or a subclass: after it Delvec could no longer read the table.
        AppendOnlyTable: it removes rows from an append-only table.
    """
    _check_time(staged_commit, snapshot, table, now, timestamp)
    protocol, metadata = (
        staged_commit.protocol or snapshot.protocol,
        staged_commit.metadata or snapshot.metadata,
    )
    if staged_commit.protocol or staged_commit.metadata:
        check_readable(protocol, metadata, table)
        rules.check_definition(snapshot, replace(snapshot, protocol=protocol, metadata=metadata), table)
    live = snapshot.live.find_all([*staged_commit.adds, *staged_commit.removes])
    _check_removes(staged_commit, live, snapshot, table)
    after = _after(staged_commit, snapshot, table)
    new = [add for path, add in staged_commit.adds.items() if path not in live]
    rules.check_new_paths(new, staged_commit.changes, snapshot.location)
    rules.check_new_files(list(staged_commit.adds.values()), staged_commit.changes, after, table, own=False)
    if staged_commit.info.operation != RESTORE:
        _check_column_names(new, after.schema, table)
    for path, add in staged_commit.adds.items():
        _check_add(staged_commit, path, add, live.get(path), table)
        if add.deletion_vector is not None:
            _check_vector(add, table, has_vectors="deletionVectors" in writer_features(protocol))
    _check_row_ids(staged_commit, snapshot, after, table)
    return Changes(
        operation=staged_commit.info.operation or "WRITE",
        read_version=snapshot.version,
        transaction_id=staged_commit.key,
        engine_info=staged_commit.info.engine_info or "",
        adds=new,
        removes=[path for path in staged_commit.removes if path not in staged_commit.adds],
        written_vectors={
            path: add.deletion_vector
            for path, add in staged_commit.adds.items()
            if add.deletion_vector is not None and _vector(add) != _vector(live.get(path))
        },
        change_files=staged_commit.changes,
        protocol=staged_commit.protocol,
        metadata=staged_commit.metadata,
    )


def vectors_before(staged_commit: StagedCommit, snapshot: Snapshot) -> dict[str, Descriptor]:
    """Return the deletion vectors whose rows must stay deleted, by path: those of files that stay live.

    A RESTORE may bring rows back.
    """
    if staged_commit.info.operation == RESTORE or not staged_commit.adds:
        return {}
    live = snapshot.live.find_all(list(staged_commit.adds))
    return {path: add.deletion_vector for path, add in live.items() if add.deletion_vector is not None}


def _check_time(
    staged_commit: StagedCommit, snapshot: Snapshot, table: str, now: int, timestamp: int | None
) -> None:
    stamp = staged_commit.info.in_commit_timestamp
    before = snapshot.in_commit_timestamp
    if stamp is None:
        raise _invalid(staged_commit, table, "has no inCommitTimestamp, which a managed table requires")
    if timestamp is not None and stamp != timestamp:
        raise _invalid(
            staged_commit, table, f"has the inCommitTimestamp {stamp}, but the request says {timestamp}"
        )
    if before is not None and stamp <= before:
        what = f"has the inCommitTimestamp {stamp}, which must be later than {before}, that of the version before"
        raise _invalid(staged_commit, table, what)
    if stamp > max(now, before or 0) + _MAX_AHEAD:
        # Every later version must have a later time: near the largest number there would be none.
        what = f"has the inCommitTimestamp {stamp}, more than a day after the service's clock ({now}); correct the clock"
        raise _invalid(staged_commit, table, what)


def _after(staged_commit: StagedCommit, snapshot: Snapshot, table: str) -> Snapshot:
    """Return the version that the commit leads to, with a schema that Delvec can read."""
    commit = Commit(
        LogFile(table, staged_commit.version, f"{staged_commit.version:020}.json"),
        list(staged_commit.actions),
    )
    try:
        after = snapshot.after([commit], file_time=snapshot.timestamp + 1)
        _ = after.schema
    except CorruptLog as error:
        raise _invalid(staged_commit, table, f"would make the table unreadable: {error.message}") from error
    return after


def _check_removes(
    staged_commit: StagedCommit, live: Mapping[str, AddFile], snapshot: Snapshot, table: str
) -> None:
    for path, remove in staged_commit.removes.items():
        if path not in live:
            raise rules.not_live(table, snapshot.location, path, snapshot.version)
        if _vector(live[path]) != _vector(remove):
            what = (
                f"is removed with the deletion vector {_vector(remove)}, but the live file has "
                f"{_vector(live[path])}"
            )
            raise rules.refused(table, path, what, FileNotInSnapshot)
    if any(remove.data_change for remove in staged_commit.removes.values()):
        rules.check_append_only(snapshot, table)


def _check_add(
    staged_commit: StagedCommit, path: str, add: AddFile, before: AddFile | None, table: str
) -> None:
    """Reject a file that is live with other rows, or whose deleted rows would come back."""
    if before is None:
        return
    if path not in staged_commit.removes and _vector(before) != _vector(add):
        what = "is added again, with another deletion vector than it has, and without being removed"
        raise rules.refused(table, path, what, DuplicateFile)
    if path not in staged_commit.removes and add.data_change:
        what = "is live already, and added with dataChange=true: readers of changes would see its rows twice"
        raise rules.refused(table, path, what, DuplicateFile)
    if before.deletion_vector and not add.deletion_vector and staged_commit.info.operation != RESTORE:
        what = f"is added without its deletion vector, so {before.deletion_vector.cardinality} deleted rows would come back"
        raise rules.refused(table, path, what, InvalidDeletionVector)


def _check_column_names(adds: Sequence[AddFile], schema: StructType, table: str) -> None:
    """Reject files with columns by their names in the schema where files name them otherwise: they would read as NULL.

    DuckDB's extension writes such files to tables with column mapping; their statistics show it.
    """
    physical = {column.physical_name for column in schema.fields}
    logical = {column.name: column.physical_name for column in schema.fields if column.name not in physical}
    for add in adds if logical else ():
        columns = statistics.load(add.stats or "{}").get("nullCount")
        wrong = [name for name in columns if name in logical] if isinstance(columns, dict) else []
        if wrong:
            what = (
                f"has the column {wrong[0]!r}, which files of a table with column mapping call "
                f"{logical[wrong[0]]!r}: its writer does not know column mapping, and its rows would read as NULL"
            )
            raise rules.refused(table, add.path, what)


def _check_vector(add: AddFile, table: str, *, has_vectors: bool) -> None:
    assert add.deletion_vector is not None  # noqa: S101 - asked by the caller
    count, rows = statistics.num_records(add.stats), add.deletion_vector.cardinality
    for what, is_wrong in (
        ("has a deletion vector, and the table does not have the feature deletionVectors", not has_vectors),
        ("has a deletion vector, and no numRecords in its statistics", count is None),
        (f"has {count} rows, and a deletion vector of {rows} rows", rows > (count or 0)),
    ):
        if is_wrong:
            raise rules.refused(table, add.path, what, InvalidDeletionVector)


def _check_row_ids(staged_commit: StagedCommit, snapshot: Snapshot, after: Snapshot, table: str) -> None:
    """Reject row ids that others have or will get; own commits never have such."""
    if not row_tracking.gives_ids(after):
        return
    before, mark = row_tracking.high_water_mark(snapshot), row_tracking.high_water_mark(after)
    if mark < before:
        raise _invalid(staged_commit, table, f"lowers the high-water mark of row ids from {before} to {mark}")
    for path, add in staged_commit.adds.items():
        count = statistics.num_records(add.stats)
        if add.base_row_id is None or add.default_row_commit_version is None or count is None:
            what = "is added without baseRowId, defaultRowCommitVersion or numRecords, which row tracking requires"
            raise rules.refused(table, path, what)
        if count and add.base_row_id + count - 1 > mark:
            what = (
                f"is added with row ids up to {add.base_row_id + count - 1}, above the high-water mark {mark}"
            )
            raise rules.refused(table, path, what)


def _vector(action: AddFile | RemoveFile | None) -> str | None:
    return None if action is None or action.deletion_vector is None else action.deletion_vector.unique_id


def _invalid(staged_commit: StagedCommit, table: str, what: str) -> InvalidCommit:
    return InvalidCommit(
        f"The staged commit of version {staged_commit.version} to table '{table}' {what}; nothing was committed.",
        table=table,
        version=staged_commit.version,
    )
