"""What follows a commit, whoever made it: the ledger, and everything that is notified of it.

The log already has the commit, so nothing here changes its answer.

Tested in `tests/integration/service/commits/test_commit_loop.py` and
`tests/integration/service/catalog/test_ratification.py`.
"""

from collections.abc import Mapping

from delvec_errors import CommitOutcomeUnknown, ServiceUnavailable, StorageError
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_service.commits import fault_points
from delvec_service.commits.commit_loop import Run
from delvec_service.commits.commit_result import AlreadyApplied, Committed, NothingToDo, Rebased
from delvec_service.commits.conflict_record import conflict_record
from delvec_service.commits.dv_writer import files_named
from delvec_service.commits.overwrite_watch import OverwriteWatch
from delvec_service.commits.pending_commit import PendingCommit
from delvec_service.events.commit_events import CommitEvents
from delvec_service.logs import bind_log_context, logger
from delvec_service.maintenance.health_watch import HealthWatch, rows_changed
from delvec_service.maintenance.log_maintenance import LogMaintenance
from delvec_service.maintenance.symlink_manifests import SymlinkManifests
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.ledger import Ending, Ledger, Outcome
from delvec_service.store.open_table import OpenTable
from delvec_service.telemetry.observer import NO_OBSERVER, CommitOutcome, Observer

__all__ = ["PostCommit"]


class PostCommit:
    """Records how transactions ended, and notifies of the versions that they created.

    Args:
        loader: knows the properties of the newest version.
        ledger: records the outcome.
        overwrite_watch: notified of every version.
        log_maintenance: notified of every version.
        manifests: notified of every version; updates the manifests of tables that want them.
        health: counts outcomes.
        events: notified of every version.
        observer: notified of every outcome.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        ledger: Ledger,
        overwrite_watch: OverwriteWatch,
        log_maintenance: LogMaintenance,
        manifests: SymlinkManifests,
        health: HealthWatch,
        events: CommitEvents,
        *,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self._loader = loader
        self._ledger = ledger
        self._overwrite_watch = overwrite_watch
        self._log_maintenance = log_maintenance
        self._manifests = manifests
        self._health = health
        self._events = events
        self._observer = observer

    def run(self, run: Run) -> None:
        """Record the outcome of a run, and do what follows the version that it created."""
        table = run.table
        if run.own is not None:
            keys = [
                member.key
                for member in run.members
                if isinstance(member.result, Committed) and member.result.version == run.version
            ]
            self._overwrite_watch.committed(table.objects, table.name, run.own, keys)
        for member in run.members:
            self._count(table, member)
        self._close(run)
        if run.version is not None:
            self.notify(table, run.version, run.transaction_id, self._configuration(run))

    def notify(
        self, table: OpenTable, version: int, transaction_id: str, configuration: Mapping[str, str]
    ) -> None:
        """Do what follows a version that was created, also the first one of a table.

        Args:
            table: the table.
            version: the version.
            transaction_id: the transaction id of its commit.
            configuration: the table properties of that version.
        """
        self._log_maintenance.committed(table, version, transaction_id)
        self._events.committed(table)
        # Before the answer, so that a client with the answer finds the rows through the manifests, too.
        self._manifests.committed(table, version, configuration)

    def observe(self, table: OpenTable, member: PendingCommit) -> None:
        """Report a transaction's outcome to metrics and the log, right before the answer.

        Raises:
            CommitOutcomeUnknown: a fault is armed there.
        """
        outcome, result = _observed_outcome(member), member.result
        rows = rows_changed(result.metrics) if isinstance(result, Rebased) and outcome == "rebased" else 0
        self._observer.committed(outcome, rows)
        bind_log_context(outcome=outcome)
        if isinstance(result, Conflict):
            self._observer.conflicted(result.error(table.name).type)
        elif isinstance(result, Committed):
            bind_log_context(version=result.version)
        try:
            fault_points.reach("before-answer")
        except StorageError as error:
            raise CommitOutcomeUnknown(error.message, transaction_id=member.key) from error

    def _count(self, table: OpenTable, member: PendingCommit) -> None:
        result = member.result
        if isinstance(result, Conflict):
            self._health.conflicted(table.record.id, conflict_record(member, result))
        elif isinstance(result, Committed) and not result.replayed:
            self._health.committed(
                table.record.id,
                result.metrics,
                rebased=isinstance(result, Rebased),
                version=result.version,
                principal=member.principal,
            )

    def _configuration(self, run: Run) -> Mapping[str, str]:
        """Return the table properties of the version that was created."""
        changed = [one.changes.metadata for one in run.members if one.changes.metadata is not None]
        if changed:
            return changed[-1].configuration
        known = self._loader.known(run.table.location)
        return {} if known is None else known.configuration

    def _close(self, run: Run) -> None:
        endings = [
            Ending(
                member.key,
                member.changes.operation,
                _outcome(member),
                member.result.version if isinstance(member.result, Committed) else None,
                _files(run, member) if member.key == run.key else (),
            )
            for member in run.members
        ]
        if len(run.members) > 1:
            outcome: Outcome = "failed" if run.version is None else "committed"
            files = run.written if run.version is None else run.files
            endings.append(
                Ending(run.key, run.members[0].changes.operation, outcome, run.version, tuple(files))
            )
        try:
            fault_points.reach("before-close")
            self._ledger.close_all(run.table.record.id, endings, run.own)
        except (ServiceUnavailable, StorageError) as error:
            # The log is the source of truth; an answer must not depend on a row that only speeds up a search.
            logger.warning("ledger not updated", transaction=run.key, reason=error.message)


def _files(run: Run, member: PendingCommit) -> tuple[str, ...]:
    """Return the files that a transaction's outcome covers; for a committed one, those that the log names.

    If the same request ran twice at once, both wrote deletion vectors and one was committed: the other's files stay
    open in the ledger, as candidates for removal. So do those of lost attempts.
    """
    if run.version is not None:
        return tuple(run.files)
    if member.found is not None:
        named = files_named(member.found.adds.values())
        return tuple(path for path in run.written if path in named)
    return tuple(run.written)


def _observed_outcome(member: PendingCommit) -> CommitOutcome:
    match member.result:
        case Committed(replayed=True):
            return "replayed"
        case Rebased():
            return "rebased"
        case AlreadyApplied():
            return "already-applied"
    return _outcome(member)


def _outcome(member: PendingCommit) -> Outcome:
    match member.result:
        case Committed():
            return "committed"
        case NothingToDo() | AlreadyApplied():
            return "nothing-to-do"
        case Conflict():
            return "conflict"
        case None:
            return "unknown" if isinstance(member.error, CommitOutcomeUnknown) else "failed"
