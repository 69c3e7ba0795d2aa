"""The commit: check the request, write deletion vectors, create the next version, or say who was first.

One commit is a loop over "read the newest version, look at the commits since the one that was read, try to
create the next". What is expected comes back as a value: Committed, Rebased, NothingToDo or Conflict.

Order of effects: the ledger, the deletion vector files, the log entry. Nothing is ever deleted here: after a
failure the ledger names what may be an orphan, and whether it is one is decided by whoever reads the log.
"""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyroaring import BitMap64

from delvec.protocol import locations
from delvec.protocol.deletion_vector import Descriptor
from delvec.protocol.errors import (
    AtomicCreateUnsupported,
    CommitOutcomeUnknown,
    ConcurrentDeleteDelete,
    ConcurrentWrite,
    DelvecError,
    InvalidCommit,
    MissingLogFile,
    ServiceUnavailable,
    StorageError,
)
from delvec_service.delta import commit_builder, conflicts, dv_packing
from delvec_service.delta.actions import Action, AddFile, CommitInfo, RemoveFile
from delvec_service.delta.changes import Changes
from delvec_service.delta.commit_builder import Resolved
from delvec_service.delta.conflicts import Conflict, Ours, Winner
from delvec_service.delta.log.commit_file import serialize_commit
from delvec_service.delta.segments.segment import SegmentsLost
from delvec_service.delta.snapshot import Snapshot
from delvec_service.logs import logger
from delvec_service.operations import commit_request
from delvec_service.operations.log_reader import LogReader
from delvec_service.operations.log_upkeep import LogUpkeep
from delvec_service.operations.snapshots import SnapshotLoader
from delvec_service.operations.tables import OpenTable, commit_path
from delvec_service.store.ledger import Ledger, Outcome

__all__ = ["CommitResult", "Commits", "Committed", "NothingToDo", "Rebased"]

_PUT_ATTEMPTS: Final = 4
_PUT_PAUSE_SECONDS: Final = 0.2
_PAUSE_SECONDS: Final = 0.005


@dataclass(frozen=True)
class Committed:
    """The commit is a version of the table; ``winners_passed`` came between it and the version that was read."""

    version: int
    read_version: int
    transaction_id: str
    metrics: Mapping[str, int]
    winners_passed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rebased(Committed):
    """The commit took effect on a newer version than the one that it read."""


@dataclass(frozen=True)
class NothingToDo:
    """No row and no file changes, so there is no new version."""

    read_version: int
    transaction_id: str
    metrics: Mapping[str, int]


CommitResult: TypeAlias = Committed | Rebased | NothingToDo | Conflict


class Commits:
    """Commits to tables.

    Args:
        loader: reads snapshots.
        ledger: knows of files before they are written.
        attempts: how many times a commit tries to create a version.
        deletion_vector_target_bytes: deletion vectors of one commit share files of about this size.
        upkeep: is told of every commit.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        ledger: Ledger,
        upkeep: LogUpkeep,
        *,
        attempts: int,
        deletion_vector_target_bytes: int,
    ) -> None:
        self._loader = loader
        self._upkeep = upkeep
        self._ledger = ledger
        self._attempts = attempts
        self._target_size = deletion_vector_target_bytes

    def commit(self, table: OpenTable, changes: Changes) -> CommitResult:
        """Commit a transaction once, however often it is asked for.

        Raises:
            InvalidCommit: the request contradicts the table.
            UnsupportedTable: or a subclass: the table must not be written, or not in this way.
            CorruptTable: or a subclass: what the commit has to read is damaged.
            CommitOutcomeUnknown: storage failed in mid-commit, or the log no longer tells.
            ServiceUnavailable: the database does not answer; nothing was done.
            StorageError: storage does not answer; the commit did not take effect.
        """
        attempt = _Attempt(table, changes)
        try:
            result = self._recorded(attempt) or self._run(attempt)
        except CommitOutcomeUnknown:
            self._close(attempt, "unknown")
            raise
        except DelvecError:
            self._close(attempt, "failed")
            raise
        match result:
            case Conflict():
                self._close(attempt, "conflict")
            case NothingToDo():
                self._close(attempt, "nothing-to-do")
            case Committed():
                self._close(attempt, "committed", result.version)
                self._upkeep.committed(table, result.version, result.transaction_id)
        return result

    def _recorded(self, attempt: "_Attempt") -> Committed | None:
        """Return the answer of a transaction that the ledger says is committed, if the log agrees."""
        changes = attempt.changes
        known = self._ledger.transaction(attempt.table.record.id, changes.transaction_id)
        if known is None or known.version is None:
            return None
        newest = self._loader.load(attempt.table.objects, attempt.table.name).version
        if known.version > newest:
            return None  # of a table that was there before this one
        actions = self._winning_actions(attempt, known.version)
        info = _own_commit_info(actions, changes.transaction_id)
        return None if info is None else _committed(changes, known.version, info)

    def _run(self, attempt: "_Attempt") -> CommitResult:  # noqa: C901 - until it is taken apart
        table, changes = attempt.table, attempt.changes
        winners: list[Winner] = []
        checked = changes.read_version
        for number in range(self._attempts):
            snapshot = self._loader.load(table.objects, table.name)
            if snapshot.version < changes.read_version:
                raise InvalidCommit(
                    f"The commit says that it read version {changes.read_version} of table '{table.name}', "
                    f"whose newest version is {snapshot.version}.",
                    table=table.name,
                    version=changes.read_version,
                )
            for version in range(checked + 1, snapshot.version + 1):
                actions = self._winning_actions(attempt, version)
                info = _own_commit_info(actions, changes.transaction_id)
                if info is not None:
                    attempt.keep_written(actions)
                    return _committed(changes, version, info)
                winners.append(Winner.of(version, actions, table.location))
            if number and snapshot.version == checked:
                # The version that was taken is not listed yet, or its file is being replaced.
                time.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 - spreads load
            checked = snapshot.version
            verdict = conflicts.check(Ours.of(changes, snapshot), winners, _no_vectors)
            if isinstance(verdict, Conflict):
                return verdict
            if verdict.changes is not changes:
                # Done to the files as they were; until it is done anew here, this is somebody else's turn.
                what = "changed files that this commit changes,"
                return Conflict(ConcurrentDeleteDelete, changes, winners[-1], (), what)
            try:
                self._prepare(attempt, snapshot)
            except SegmentsLost as error:
                self._loader.lost(snapshot, error)  # nothing is written yet
                continue
            assert attempt.resolved is not None  # noqa: S101 - by _prepare
            built = commit_builder.build(
                changes, attempt.resolved, attempt.descriptors, snapshot, time.time_ns() // 1_000_000
            )
            if not built.actions:
                return NothingToDo(changes.read_version, changes.transaction_id, built.metrics)
            if self._put(attempt, snapshot.version + 1, serialize_commit(built.actions)):
                return _result(changes, snapshot.version + 1, built.metrics, verdict.versions)
        raise ConcurrentWrite(
            f"Table '{table.name}' is written so often that {self._attempts} attempts to commit after version "
            f"{changes.read_version} all came second; try again.",
            table=table.name,
            version=changes.read_version,
        )

    def _prepare(self, attempt: "_Attempt", snapshot: Snapshot) -> None:
        """Check the request against the newest version and, the first time, write its deletion vectors."""
        table, changes = attempt.table, attempt.changes
        commit_request.check_table(table, changes, snapshot)
        commit_request.check_adds(table, changes, snapshot, in_storage=attempt.resolved is None)
        if attempt.resolved is not None:
            return  # only blind appends come here twice, and they remove nothing
        resolved = commit_request.resolve(table, changes, snapshot)
        if resolved.marked:
            attempt.descriptors = self._write_deletion_vectors(attempt, resolved, snapshot)
        attempt.resolved = resolved

    def _write_deletion_vectors(
        self, attempt: "_Attempt", resolved: Resolved, snapshot: Snapshot
    ) -> dict[str, Descriptor]:
        """Write the files, known to the ledger before their first byte; return descriptors by data file."""
        table, changes = attempt.table, attempt.changes
        packed = dv_packing.pack(
            ((marked.file.path, marked.rows) for marked in resolved.marked),
            target_size=self._target_size,
            prefix_length=dv_packing.prefix_length(snapshot.configuration),
        )
        attempt.written = [file.path for file in packed]
        self._ledger.announce(
            table.record.id, changes.transaction_id, changes.operation, attempt.written, "deletion-vector"
        )
        for file in packed:
            table.objects.put(file.path, file.content)
        return {path: descriptor for file in packed for path, descriptor in file.entries.items()}

    def _put(self, attempt: "_Attempt", version: int, data: bytes) -> bool:
        """Create the log entry of a version; False where another commit is there.

        Storage that fails in the middle leaves open whether the entry exists. Asking for the same bytes again
        settles it: they hold the transaction id, so an entry with these bytes is this commit.
        """
        table, path = attempt.table, commit_path(version)
        for number in range(_PUT_ATTEMPTS):
            try:
                return table.objects.put_if_absent(path, data)
            except AtomicCreateUnsupported:
                raise
            except StorageError as error:
                failure = error
            time.sleep(random.uniform(0, _PUT_PAUSE_SECONDS * 2**number))  # noqa: S311 - spreads load
        if locations.local_path(table.location) is not None and _is_absent(table, path):
            raise failure  # a local file that is not there will not appear later
        raise CommitOutcomeUnknown(
            f"Storage failed while version {version} of table '{table.name}' was created: {failure.message} "
            f"Send the same request again, or look for txnId {attempt.changes.transaction_id} in the table's history.",
            table=table.name,
            version=version,
            transaction_id=attempt.changes.transaction_id,
        ) from failure

    def _winning_actions(self, attempt: "_Attempt", version: int) -> list[Action]:
        try:
            return _read_commit(attempt.table, version)
        except MissingLogFile as error:
            table, changes = attempt.table, attempt.changes
            raise CommitOutcomeUnknown(
                f"The log of table '{table.name}' no longer has version {version}, so it cannot be told whether "
                f"transaction {changes.transaction_id}, which read version {changes.read_version}, is committed "
                "already; read the table and decide anew.",
                table=table.name,
                version=version,
                transaction_id=changes.transaction_id,
            ) from error

    def _close(self, attempt: "_Attempt", outcome: Outcome, version: int | None = None) -> None:
        changes = attempt.changes
        try:
            self._ledger.close(
                attempt.table.record.id,
                changes.transaction_id,
                changes.operation,
                outcome,
                version=version,
                written=attempt.written,
            )
        except ServiceUnavailable:
            # The log has the truth; an answer must not depend on a row that only speeds up a search.
            logger.warning("ledger not updated", transaction=changes.transaction_id, outcome=outcome)


class _Attempt:
    """What one call of :meth:`Commits.commit` has done so far."""

    def __init__(self, table: OpenTable, changes: Changes) -> None:
        self.table = table
        self.changes = changes
        self.resolved: Resolved | None = None
        self.descriptors: Mapping[str, Descriptor] = {}
        self.written: list[str] = []

    def keep_written(self, actions: list[Action]) -> None:
        """Forget the written files that a commit does not name.

        Where the same request ran twice at once, both wrote deletion vectors and one was committed: the files of
        the other stay open in the ledger, as what may be removed.
        """
        descriptors = [action.deletion_vector for action in actions if isinstance(action, AddFile)]
        named = {descriptor.relative_path() for descriptor in descriptors if descriptor is not None}
        self.written = [path for path in self.written if path in named]


def _no_vectors(_: AddFile | RemoveFile) -> BitMap64:
    return BitMap64()


def _read_commit(table: OpenTable, version: int) -> list[Action]:
    return list(LogReader(table.objects, table.name).commit(version).actions)


def _is_absent(table: OpenTable, path: str) -> bool:
    """Return whether a file is known not to exist."""
    try:
        return table.objects.head(path) is None
    except StorageError:
        return False


def _own_commit_info(actions: list[Action], transaction_id: str) -> CommitInfo | None:
    """Return the commitInfo of a commit if the transaction made it."""
    for action in actions:
        if isinstance(action, CommitInfo):
            return action if action.txn_id == transaction_id else None
    return None


def _committed(changes: Changes, version: int, info: CommitInfo) -> Committed:
    """Return the answer that a transaction got, or would have got, when it was committed."""
    metrics = {
        name: int(value) for name, value in (info.operation_metrics or {}).items() if str(value).isdecimal()
    }
    read = changes.read_version if info.read_version is None else info.read_version
    return _result(changes, version, metrics, tuple(range(read + 1, version)))


def _result(
    changes: Changes, version: int, metrics: Mapping[str, int], winners: tuple[int, ...]
) -> Committed:
    kind = Rebased if winners else Committed
    return kind(version, changes.read_version, changes.transaction_id, metrics, winners)
