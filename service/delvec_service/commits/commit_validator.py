"""One transaction against the commits since its read version: is it one of them, and does it conflict with any?"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyroaring import BitMap64

from delvec_errors import (
    CommitOutcomeUnknown,
    MissingLogFile,
    ServiceUnavailable,
    StaleReadVersion,
    VersionFromFuture,
    VersionNotFound,
)
from delvec_kernel.actions.actions import AddFile, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.locations import canonical_log_path
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction import conflict_checker as conflicts
from delvec_kernel.transaction.conflict_checker import Conflict, CurrentTransaction, Passed, WinningCommit
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits import uploaded_dvs as written_vectors
from delvec_service.commits.commit_log import CommitLog, LogEntry
from delvec_service.commits.commit_result import AlreadyApplied
from delvec_service.commits.dv_cache import DeletionVectorCache
from delvec_service.commits.idempotency import key_reused
from delvec_service.commits.overwrite_watch import OverwriteWatch
from delvec_service.commits.pending_commit import PendingCommit
from delvec_service.commits.row_map_cache import RowMapCache
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.version_marks import VersionMarks, is_same
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable

__all__ = ["Candidate", "CommitValidator"]


@dataclass(frozen=True)
class Candidate:
    """A member that conflicts with no winner.

    Attributes:
        changes: the changes to make to the newest version.
        already_gone: rows to delete that winners have already deleted.
    """

    member: PendingCommit
    changes: Changes
    already_gone: int = 0


class CommitValidator:
    """Checks transactions against the log.

    Args:
        loader: reads snapshots.
        log: reads commits.
        ledger: may know a commit whose version a search no longer finds.
        overwrite_watch: knows commits that are no longer in the log.
        vectors: reads deletion vectors.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        log: CommitLog,
        ledger: Ledger,
        overwrite_watch: OverwriteWatch,
        vectors: DeletionVectorCache,
    ) -> None:
        self._loader = loader
        self._log = log
        self._ledger = ledger
        self._overwrite_watch = overwrite_watch
        self._vectors = vectors
        self._row_maps = RowMapCache()
        self._marks = VersionMarks(loader)

    def check_conflicts(
        self, table: OpenTable, members: Sequence[PendingCommit], snapshot: Snapshot
    ) -> list[Candidate]:
        """Return the members that may be committed right after ``snapshot``. The others get their answers.

        Raises:
            StorageError: storage did not answer for a long time.
            ServiceUnavailable: the database did not answer.
        """
        candidates = []
        marked = {member.changes.read_version for member in members if member.changes.read_mark is not None}
        marks = self._marks.now(table, snapshot, marked) if marked else {}
        for member in members:
            with member.own_errors():
                candidate = self._check_one(table, member, snapshot, marks)
                if candidate is not None:
                    candidates.append(candidate)
        return candidates

    def find_earlier(self, table: OpenTable, members: Sequence[PendingCommit]) -> None:
        """Answer transactions whose keys are in versions that they have read: other requests used those keys.

        The search of the versions since would miss them. A transaction is not rejected because the database does not
        answer. One whose version was cleaned up gets CommitOutcomeUnknown: it must not be committed again.

        Raises:
            StorageError: storage did not answer for a long time.
        """
        versions = {one.key: self._overwrite_watch.version_of(table.location, one.key) for one in members}
        unknown = [key for key, version in versions.items() if version is None]
        if unknown:
            with suppress(ServiceUnavailable):
                known = self._ledger.transactions(table.record.id, unknown)
                versions.update((key, record.version) for key, record in known.items())
        for member in members:
            with member.own_errors():
                self._is_earlier(table, member, versions[member.key])

    def _is_earlier(self, table: OpenTable, member: PendingCommit, version: int | None) -> bool:
        if version is None or version > member.changes.read_version:
            return False
        try:
            (entry,) = self._log.entries(table, version, version)
        except MissingLogFile as error:
            # It was committed once and nothing remains to prove it: repeating it could apply it twice.
            raise CommitOutcomeUnknown(
                f"Transaction {member.key} was recorded as version {version} of table '{table.name}', but the log "
                "no longer has that version, so it is unknown whether it was committed. Read the table and decide "
                "again, with a new transaction id.",
                table=table.name,
                version=version,
                transaction_id=member.key,
            ) from error
        return _is_in(member, entry)

    def _check_one(
        self, table: OpenTable, member: PendingCommit, snapshot: Snapshot, marks: Mapping[int, str]
    ) -> Candidate | None:
        changes = member.changes
        if snapshot.version < changes.read_version:
            raise VersionFromFuture(
                f"The commit claims to have read version {changes.read_version} of table '{table.name}', whose "
                f"newest version is {snapshot.version}.",
                table=table.name,
                version=changes.read_version,
            )
        if self._find(table, member, snapshot) or _is_applied(member, snapshot):
            return None
        if self._is_earlier(table, member, self._overwrite_watch.version_of(table.location, member.key)):
            return None
        self._overwrite_watch.check(table.objects, table.name, member.key, snapshot.version)
        self._check_read(table, changes, marks.get(changes.read_version))
        if member.ours is None and changes.written_vectors:
            # Only now: files that are already committed may have been removed from storage since.
            before = _vectors_before(table, member, snapshot)
            member.changes = changes = written_vectors.read(table, changes, self._vectors, before)
        if member.ours is None or (member.ours.before is None and _changed_table(member)):
            member.ours = CurrentTransaction.of(changes, snapshot, self._read_snapshot(table, member))
        if not member.winners:
            return Candidate(member, changes)
        verdict = conflicts.check(
            member.ours,
            member.winners,
            lambda action: self._rows(table, action, snapshot.version),
            lambda row_map, sources: self._row_maps.load(table, row_map, sources),
        )
        match verdict:
            case Conflict():
                member.result = verdict
                return None
            case Passed():
                return Candidate(member, verdict.changes, verdict.rows_already_gone)

    def _check_read(self, table: OpenTable, changes: Changes, mark: str | None) -> None:
        """Reject a transaction that is based on a replaced version. A version that was cleaned up cannot be checked.

        Raises:
            CommitOverwritten: the version that was read was replaced.
        """
        if changes.read_mark is None or mark is None or is_same(changes.read_mark, mark):
            return
        error = self._marks.replaced(table, changes.read_version, mark)
        raise self._overwrite_watch.explain(table.objects, table.name, changes.read_version) or error

    def _find(self, table: OpenTable, member: PendingCommit, snapshot: Snapshot) -> bool:
        """Search for the member in the versions since; return whether that answers it."""
        try:
            if member.last is not None:
                (last,) = self._log.entries(table, member.checked_to, member.checked_to)
                if last.commit is not member.last:
                    # The log was read again: one of its commits has changed.
                    member.checked_to, member.winners, member.last = member.changes.read_version, [], None
            entries = self._log.entries(table, member.checked_to + 1, snapshot.version)
        except MissingLogFile as error:
            self._ask_ledger(table, member, snapshot, error)
            return True
        for entry in entries:
            if _is_in(member, entry):
                return True
            member.winners.append(entry.winner)
        member.checked_to = snapshot.version
        member.last = entries[-1].commit if entries else member.last
        return False

    def _ask_ledger(
        self, table: OpenTable, member: PendingCommit, snapshot: Snapshot, error: MissingLogFile
    ) -> None:
        """Answer a transaction when some of its winners have been cleaned up.

        Raises:
            CommitOutcomeUnknown: it was sent before, and may be one of the versions that are gone.
            StaleReadVersion: nothing is known of it.
        """
        changes = member.changes
        try:
            transaction_record = self._ledger.transaction(table.record.id, member.key)
        except ServiceUnavailable:
            transaction_record = None
        if (
            transaction_record is not None
            and transaction_record.version is not None
            and transaction_record.version <= snapshot.version
        ):
            try:
                (entry,) = self._log.entries(table, transaction_record.version, transaction_record.version)
            except MissingLogFile:
                pass
            else:
                if _is_in(member, entry):
                    return
        facts = {
            "table": table.name,
            "version": changes.read_version,
            "transaction_id": member.key,
        }
        reason = (
            f"The log of table '{table.name}' no longer has all the versions since {changes.read_version}, which "
            f"this {changes.operation} read"
        )
        if transaction_record is None:
            raise StaleReadVersion(
                f"{reason}, so conflicts cannot be checked. Read the table again; if transaction {member.key} was "
                "sent before, first check whether it was committed.",
                **facts,
            ) from error
        raise CommitOutcomeUnknown(
            f"{reason}, so it is unknown whether transaction {member.key} was committed. Read the table and decide "
            "again.",
            **facts,
        ) from error

    def _read_snapshot(self, table: OpenTable, member: PendingCommit) -> Snapshot | None:
        """Return the version that was read, if the check needs to know how metadata or protocol have changed since."""
        if not _changed_table(member):
            return None
        try:
            return self._loader.load(table.objects, table.name, version=member.changes.read_version)
        except (VersionNotFound, MissingLogFile):
            return None

    def _rows(self, table: OpenTable, action: AddFile | RemoveFile, version: int) -> BitMap64:
        vector = action.deletion_vector
        if vector is None:
            return BitMap64()
        return self._vectors.load(table, [(action.path, vector)], version)[action.path]


def _vectors_before(table: OpenTable, member: PendingCommit, snapshot: Snapshot) -> dict[str, Descriptor]:
    """Return the deletion vectors that the files had when they were read, for files with a new one from the engine."""
    deletion_vectors = {}
    live = snapshot.live.find_all(member.changes.written_vectors)
    for path in member.changes.written_vectors:
        # A file that is not live, and was not when it was read, is rejected later.
        was = _first_remove(canonical_log_path(path, table.location), member.winners) or live.get(path)
        if was is not None and was.deletion_vector is not None:
            deletion_vectors[path] = was.deletion_vector
    return deletion_vectors


def _changed_table(member: PendingCommit) -> bool:
    return any(winner.metadata is not None or winner.protocol is not None for winner in member.winners)


def _is_in(member: PendingCommit, entry: LogEntry) -> bool:
    """Answer a transaction that a version already contains."""
    member_info = entry.transaction(member.key)
    if member_info is None:
        return False
    hashed = member.changes.request_hash
    if hashed is not None and member_info.request_hash not in (None, hashed):
        member.error = key_reused(member.key)
        return True
    member.committed(entry.winner.version, member_info.metrics, member_info.read_version, is_replayed=True)
    member.found = entry.winner
    return True


def _first_remove(key: str, winners: Sequence[WinningCommit]) -> RemoveFile | None:
    return next((winner.removes[key] for winner in winners if key in winner.removes), None)


def _is_applied(member: PendingCommit, snapshot: Snapshot) -> bool:
    """Answer a transaction whose application is already at the same or a later version."""
    ours = member.changes.app_transaction
    theirs = None if ours is None else snapshot.txns.get(ours.app_id)
    if ours is None or theirs is None or theirs.version < ours.version:
        return False
    member.result = AlreadyApplied(member.changes.read_version, member.key)
    return True
