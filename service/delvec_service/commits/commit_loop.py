"""The loop of a commit: read the newest version, check what was committed first, try to create the next one.

It works on lists of transactions that may share a version; a single one is a list of one. Order of effects: the
ledger, the deletion vector files, the log entry. Nothing is ever deleted here: after a failure the ledger names
possible orphans, and a reader of the log decides whether they are.
"""

import random
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from delvec_errors import ConcurrentWrite, DelvecError
from delvec_kernel.actions.actions import Action, AddFile, CommitInfo
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.log.commit_file import serialize_commit
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction import commit_builder
from delvec_kernel.transaction.commit_builder import Resolved
from delvec_kernel.transaction.commit_rules import not_live
from delvec_kernel.transaction.group_commit import MemberInfo, combined, is_enabled, rows_removed_by, without
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits import commit_checks
from delvec_service.commits.commit_log import AmbiguousPutError, CommitLog
from delvec_service.commits.commit_result import NothingToDo
from delvec_service.commits.commit_validator import Candidate, CommitValidator
from delvec_service.commits.dv_cache import DeletionVectorCache, StoredRows
from delvec_service.commits.dv_writer import VectorWriter, files_named
from delvec_service.commits.metadata_changes import as_written
from delvec_service.commits.pending_commit import PendingCommit
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable
from delvec_service.store.own_commits import OwnCommit

__all__ = ["CommitLoop", "Run"]

_PAUSE_SECONDS: Final = 0.005
_REVERIFY_FILES_SECONDS: Final = 60.0


@dataclass(eq=False)
class Run:
    """Transactions that may share a version, and the version that they created; a staged commit is a single one.

    Attributes:
        key: transaction id of the version: the member's own, or a new one of a group.
        writer: writes its deletion vectors; None for a staged commit, which has them.
        version: the version that it created.
        transaction_id: transaction id of that version; the only remaining member of a group keeps its own.
        files: the deletion vector files that the version names.
        own: identifies the version later.
        is_refused: whether nothing was done because the table does not allow transactions to share a version.
        attempts: how many times it tried to create the next version.
    """

    table: OpenTable
    members: Sequence[PendingCommit]
    key: str
    writer: VectorWriter | None = None
    version: int | None = None
    transaction_id: str = ""
    files: Sequence[str] = ()
    own: OwnCommit | None = None
    is_refused: bool = False
    attempts: int = 0

    @property
    def waiting(self) -> list[PendingCommit]:
        """Members without an answer."""
        return [member for member in self.members if not member.is_done]

    @property
    def written(self) -> Sequence[str]:
        """The deletion vector files that were written for it, also in lost attempts."""
        return () if self.writer is None else self.writer.files

    def created(self, version: int, actions: Sequence[Action], size: int, metadata_id: str) -> None:
        """Record the version that it created, with the size of its log entry."""
        info = actions[0]
        assert isinstance(info, CommitInfo) and info.txn_id is not None  # noqa: S101, PT018 - as it was built
        self.version, self.transaction_id = version, info.txn_id
        self.own = OwnCommit(version, info.txn_id, size, metadata_id)
        self.files = files_named(action for action in actions if isinstance(action, AddFile))


@dataclass(frozen=True)
class _Files:
    """The live files that transactions remove rows from, by path as spelled in the request.

    Attributes:
        counts: physical rows.
    """

    live: Mapping[str, AddFile]
    counts: dict[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class _PreparedCommit:
    """A member that can be in the next version.

    Attributes:
        changes: without what earlier members do.
        resolved: the resulting state of the files.
        metrics: the metrics of this member alone.
    """

    member: PendingCommit
    changes: Changes
    resolved: Resolved
    metrics: Mapping[str, int]


class CommitLoop:
    """Commits transactions.

    Args:
        loader: reads snapshots.
        log: reads and creates versions.
        race: checks transactions against the winners.
        ledger: records files before they are written.
        vectors: cache of deletion vectors.
        attempts: how many times a commit tries to create a version.
        target_bytes: the approximate size of the files that deletion vectors of one commit share.
        max_file_age_seconds: the maximum age of new files.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        log: CommitLog,
        race: CommitValidator,
        ledger: Ledger,
        vectors: DeletionVectorCache,
        *,
        attempts: int,
        target_bytes: int,
        max_file_age_seconds: float,
    ) -> None:
        self._loader = loader
        self._log = log
        self._race = race
        self._ledger = ledger
        self._vectors = vectors
        self._attempts = attempts
        self._target_bytes = target_bytes
        self._max_file_age = max_file_age_seconds

    def run(self, table: OpenTable, members: Sequence[PendingCommit]) -> Run:
        """Give each member its result or its error, unless the run is refused; they must be of one group.

        Only defects are raised.
        """
        run = self.begin(table, members)
        try:
            self._attempt_all(run)
        except AmbiguousPutError as error:
            for member in run.waiting:
                member.error = error.outcome(table, member.key)
        except DelvecError as error:
            for member in run.waiting:
                member.error = error
        return run

    def begin(self, table: OpenTable, members: Sequence[PendingCommit]) -> Run:
        """Return a run that has not begun."""
        key = members[0].key if len(members) == 1 else str(uuid.uuid4())
        writer = VectorWriter(
            table,
            self._ledger,
            self._vectors,
            transaction_id=key,
            operation=members[0].changes.operation,
            target_bytes=self._target_bytes,
        )
        return Run(table, members, key, writer)

    def actions_after(self, run: Run, snapshot: Snapshot) -> list[Action] | None:
        """Return what a run commits right after a version, with its deletion vectors written; None if all have their answers.

        Raises:
            SegmentsLost: the store has dropped data that the snapshot needs; load it again.
            DelvecError: the check could not be completed.
        """
        candidates = self._race.check_conflicts(run.table, run.waiting, snapshot)
        ready, files = self._ready(run.table, candidates, snapshot)
        return self._actions(run, ready, files, snapshot, is_first=True) if ready else None

    def _attempt_all(self, run: Run) -> None:
        table, seen_version = run.table, -1
        for number in range(self._attempts):
            run.attempts = number + 1
            snapshot = self._loader.load(table.objects, table.name, checkpoints=False)
            if snapshot.version == seen_version:
                # The version that was taken is not listed yet, or its file is being replaced.
                time.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 - spreads load
            seen_version = snapshot.version
            if number == 0 and len(run.members) > 1 and not is_enabled(snapshot.configuration):
                # The table properties known when the members were grouped were not the newest.
                run.is_refused = True
                return
            try:
                candidates = self._race.check_conflicts(table, run.waiting, snapshot)
                ready, files = self._ready(table, candidates, snapshot)
                if ready:
                    self._attempt(run, ready, files, snapshot, is_first=number == 0)
            except SegmentsLost as error:
                self._loader.lost(snapshot, error)
            if not run.waiting:
                return
        for member in run.waiting:
            member.error = _overtaken(table, member, self._attempts)

    def _ready(
        self, table: OpenTable, candidates: Sequence[Candidate], snapshot: Snapshot
    ) -> tuple[list[_PreparedCommit], _Files]:
        """Return the members that can be in the next version. Those that contradict the table get their errors."""
        paths = {
            path
            for one in candidates
            for path in (
                *one.changes.removes,
                *one.changes.row_deletes,
                *one.changes.again,
                *one.changes.statistics,
                *one.changes.repacked,
            )
        }
        files = _Files(snapshot.live.find_all(paths) if paths else {})
        ready: list[_PreparedCommit] = []
        for candidate in candidates:
            with candidate.member.own_errors():
                one = self._checked(table, candidate, ready, files, snapshot)
                if one is not None:
                    ready.append(one)
        return ready, files

    def _attempt(
        self, run: Run, ready: Sequence[_PreparedCommit], files: _Files, snapshot: Snapshot, *, is_first: bool
    ) -> None:
        """Try to create the version after ``snapshot``. If another commit takes it, no member gets an answer."""
        actions = self._actions(run, ready, files, snapshot, is_first=is_first)
        if actions is None:
            return
        version, data = snapshot.version + 1, serialize_commit(actions)
        if self._log.create(run.table, version, data):
            run.created(version, actions, len(data), snapshot.metadata.id)
            for one in ready:
                one.member.committed(version, one.metrics)

    def _actions(
        self, run: Run, ready: Sequence[_PreparedCommit], files: _Files, snapshot: Snapshot, *, is_first: bool
    ) -> list[Action] | None:
        """Return the version after ``snapshot`` after writing its deletion vectors; None, and the answers, if it is empty."""
        changes = combined([one.changes for one in ready], run.key, run.table.location)
        alone = len(ready) == 1
        resolution = ready[0].resolved if alone else self._resolved(run.table, changes, files, snapshot)
        if not _does_something(changes, resolution):
            for one in ready:
                one.member.result = NothingToDo(one.changes.read_version, one.member.key, one.metrics)
            return None
        assert run.writer is not None  # noqa: S101 - of `begin`
        descriptors = run.writer.write(resolution.with_vectors, snapshot.configuration, may_fail=is_first)
        members = [
            MemberInfo(
                one.member.key,
                one.changes.read_version,
                one.changes.predicate,
                one.metrics,
                one.changes.request_hash,
            )
            for one in ready
        ]
        return commit_builder.build(
            changes,
            resolution,
            descriptors,
            snapshot,
            time.time_ns() // 1_000_000,
            metrics=ready[0].metrics if alone else commit_builder.metrics(changes, resolution),
            members=() if alone else members,
        )

    def _checked(
        self,
        table: OpenTable,
        candidate: Candidate,
        before: Sequence[_PreparedCommit],
        files: _Files,
        snapshot: Snapshot,
    ) -> _PreparedCommit | None:
        """Return what a member changes after those before it; None if nothing, whatever others commit.

        Raises:
            DelvecError: the member contradicts the table, or cannot be checked.
        """
        member, whole = candidate.member, candidate.changes
        commit_checks.check_table(table, whole, snapshot)
        commit_checks.check_adds(table, whole, as_written(snapshot, whole))
        commit_checks.check_statistics(table, whole, files.live)
        now = time.monotonic()
        new = whole.adds or whole.written_vectors or whole.change_files
        if new and (member.looked_at is None or now - member.looked_at > _REVERIFY_FILES_SECONDS):
            commit_checks.check_files(table, whole, self._max_file_age)
            member.looked_at = now
        earlier = [one.changes for one in before]
        changes = without(whole, earlier, table.location) if before else whole
        resolution = self._resolved(table, changes, files, snapshot)
        if earlier and changes.removes and resolution.rows_removed is not None:
            # Earlier members may have deleted rows of a file that is removed as a whole: those rows count as theirs.
            taken = sum(self._taken(table, path, earlier, files, snapshot) for path in changes.removes)
            resolution = replace(resolution, rows_removed=resolution.rows_removed - taken)
        metrics = commit_builder.metrics(changes, resolution, rows_already_gone=candidate.already_gone)
        if changes is whole and not _does_something(changes, resolution):
            member.result = NothingToDo(changes.read_version, member.key, metrics)
            return None
        return _PreparedCommit(member, changes, resolution, metrics)

    def _taken(
        self, table: OpenTable, path: str, earlier: Sequence[Changes], files: _Files, snapshot: Snapshot
    ) -> int:
        """Return how many live rows of a file the earlier members delete individually."""
        rows, vector = rows_removed_by(path, earlier, table.location), files.live[path].deletion_vector
        if not rows or vector is None:
            return len(rows)
        return len(rows - self._vectors.load(table, [(path, vector)], snapshot.version)[path])

    def _resolved(self, table: OpenTable, changes: Changes, files: _Files, snapshot: Snapshot) -> Resolved:
        """Return the resulting state of the files.

        Raises:
            FileNotInSnapshot: a file is not live.
            CorruptTable: or a subclass: a deletion vector or a data file is damaged or missing.
            StorageError: storage did not answer.
        """
        deletion_vectors = {}
        for path in (*changes.removes, *changes.row_deletes):
            file = files.live.get(path)
            if file is None:
                raise not_live(table.name, table.location, path, snapshot.version)
            by_row = path in changes.row_deletes
            if by_row and file.deletion_vector is not None:
                deletion_vectors[path] = file.deletion_vector
            if files.counts.get(path) is None:
                files.counts[path] = commit_checks.num_records(
                    table, file, snapshot.version, from_footer=by_row
                )
        for path in changes.repacked:
            file = files.live.get(path)
            if file is not None and file.deletion_vector is not None:
                deletion_vectors[path] = file.deletion_vector
                files.counts.setdefault(path, None)
        deleted = StoredRows(self._vectors, table, deletion_vectors, snapshot.version)
        return commit_builder.resolve(
            changes, files.live, deleted, files.counts, table=table.name, version=snapshot.version
        )


def _does_something(changes: Changes, resolution: Resolved) -> bool:
    about_table = changes.metadata or changes.protocol or changes.domains or changes.app_transaction
    return resolution.changes_files(changes) or bool(about_table) or changes.makes_version


def _overtaken(table: OpenTable, member: PendingCommit, attempts: int) -> ConcurrentWrite:
    return ConcurrentWrite(
        f"Table '{table.name}' is written so often that all {attempts} attempts to commit after version "
        f"{member.changes.read_version} lost the race. Try again.",
        table=table.name,
        version=member.changes.read_version,
    )
