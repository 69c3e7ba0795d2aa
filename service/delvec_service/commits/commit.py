"""The commit: one transaction in, one answer out.

Expected outcomes are values: Committed, Rebased, NothingToDo, AlreadyApplied or Conflict. The loop is in
:mod:`~delvec_service.commits.commit_loop`, what follows a commit in :mod:`~delvec_service.commits.post_commit`.
"""

from collections.abc import Mapping

from delvec_errors import FileNotInSnapshot, InternalError
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_maintenance import auto_compaction
from delvec_service.commits import fault_points
from delvec_service.commits.commit_log import CommitLog
from delvec_service.commits.commit_loop import CommitLoop
from delvec_service.commits.commit_queue import GroupCommit
from delvec_service.commits.commit_result import AlreadyApplied, CommitResult, Committed, NothingToDo, Rebased
from delvec_service.commits.commit_validator import CommitValidator
from delvec_service.commits.dv_cache import DeletionVectorCache
from delvec_service.commits.idempotency import Answers
from delvec_service.commits.metadata_changes import resolved
from delvec_service.commits.overwrite_watch import OverwriteWatch
from delvec_service.commits.pending_commit import PendingCommit
from delvec_service.commits.post_commit import PostCommit
from delvec_service.logs import bind_log_context, log_context, logger
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable
from delvec_service.telemetry.observer import NO_OBSERVER, Observer

__all__ = ["AlreadyApplied", "CommitResult", "Commits", "Committed", "NothingToDo", "Rebased"]


class Commits:
    """Commits to tables.

    Args:
        loader: reads snapshots.
        ledger: records files before they are written.
        overwrite_watch: knows which commits other writers replaced.
        post_commit: does what follows a commit.
        answers: note when requests were first sent.
        attempts: how many times a commit tries to create a version.
        deletion_vector_target_bytes: the approximate size of the files that deletion vectors of one commit share.
        max_file_age_seconds: the maximum age of new files.
        observer: notified of the outcome of commits.

    Attributes:
        log: the latest commits, read once for all callers.
        vectors: deletion vectors of live files, read once for all callers.
        loop: what creates versions.
        validator: checks transactions against the log.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        ledger: Ledger,
        overwrite_watch: OverwriteWatch,
        post_commit: PostCommit,
        answers: Answers,
        *,
        attempts: int,
        deletion_vector_target_bytes: int,
        max_file_age_seconds: float = 3600,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self._overwrite_watch = overwrite_watch
        self.post_commit = post_commit
        self._observer = observer
        self._loader = loader
        self.vectors = DeletionVectorCache()
        self._groups: GroupCommit[PendingCommit] = GroupCommit(self.run, self._properties)
        self.log = CommitLog(loader, answers)
        self.validator = CommitValidator(loader, self.log, ledger, overwrite_watch, self.vectors)
        self.loop = CommitLoop(
            loader,
            self.log,
            self.validator,
            ledger,
            self.vectors,
            attempts=attempts,
            target_bytes=deletion_vector_target_bytes,
            max_file_age_seconds=max_file_age_seconds,
        )

    def commit(self, table: OpenTable, changes: Changes) -> CommitResult:
        """Commit a transaction once, no matter how often it is sent.

        Raises:
            InvalidCommit: or a subclass: the request contradicts the table.
            InvalidTableChange: or a sibling: the table cannot be changed as the commit asks.
            IdempotencyKeyReused: another request was committed under its key.
            UnsupportedTable: or a subclass: Delvec cannot write the table, or not this way.
            CorruptTable: or a subclass: something the commit has to read is damaged.
            CommitOutcomeUnknown: storage failed during the commit, or the log no longer has the answer.
            CommitOverwritten: it was committed, or is based on a commit, that another commit has replaced.
            ServiceUnavailable: the database does not answer; nothing was done.
            StorageError: storage does not answer; nothing was committed.
        """
        fault_points.reach("begin")
        bind_log_context(transaction=changes.transaction_id)
        with self._observer.commit(table.name, changes.transaction_id):
            try:
                member = PendingCommit(resolved(table, self._loader, changes), log_context().get("principal"))
                self._groups.submit(table, member)
            except Exception:
                self._observer.committed("failed")
                raise
            self.post_commit.observe(table, member)
        if isinstance(member.error, FileNotInSnapshot):
            # It may have read a commit that has since been replaced.
            gone = self._overwrite_watch.explain(table.objects, table.name, changes.read_version)
            raise gone or member.error
        return member.answer()

    def to_compact(self, table: OpenTable, changes: Changes) -> list[dict[str, str | None]] | None:
        """Return the partitions of a commit's new files if the table has auto compaction, else None."""
        if not changes.adds or not changes.data_change:
            return None
        configuration = self._properties(table)
        if not auto_compaction.is_asked_for(configuration):
            return None
        return auto_compaction.touched_partitions(add.partition_values for add in changes.adds)

    def run(self, table: OpenTable, members: list[PendingCommit]) -> None:
        """Give each member of a group its answer, and record the outcome in the ledger."""
        is_alone = len(members) == 1
        try:
            # A client that chooses keys may use one twice.
            self.validator.find_earlier(
                table, [one for one in members if one.changes.request_hash is not None]
            )
            members = [member for member in members if not member.is_done]
            if not members:
                return
            run = self.loop.run(table, members)
            self._observer.tried(len(members), run.attempts)
        except Exception:
            if is_alone:
                raise
            logger.error("group commit failed; retrying each commit alone", table=table.name, exc_info=True)
            self._run_apart(table, members)
            return
        if run.is_refused:
            self._run_apart(table, members)
            return
        self.post_commit.run(run)

    def _run_apart(self, table: OpenTable, members: list[PendingCommit]) -> None:
        """Answer each member separately: a defect that affects one must not affect the others."""
        for member in members:
            alone = PendingCommit(
                member.changes, member.principal
            )  # The group's work on this member may be half done.
            try:
                self.run(table, [alone])
            except Exception:  # noqa: BLE001 - the others are to have their answers
                logger.error("commit failed", table=table.name, transaction=member.key, exc_info=True)
                alone.error = InternalError(
                    f"Delvec failed unexpectedly. The service's log has the cause under transaction {member.key}.",
                    transaction_id=member.key,
                )
            member.result, member.error, member.found = alone.result, alone.error, alone.found

    def _properties(self, table: OpenTable) -> Mapping[str, str]:
        known = self._loader.known(table.location)
        return {} if known is None else known.configuration
