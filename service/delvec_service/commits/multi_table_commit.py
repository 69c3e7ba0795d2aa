"""Commits over several tables: all of their versions, or none.

The next version of each table is reserved first, so that nothing can be committed to any of them any more. Then every commit
is checked and staged right after its reservation, the outcome is recorded, which is the commit point, and the staged commits
are published. Tables are reserved in the order of their locations: of two transactions that share tables, one waits for the
other at the first of them.

Tested in `tests/integration/service/commits/test_multi_table_commit.py`.
"""

import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from delvec_errors import (
    BadRequest,
    CommitOutcomeUnknown,
    ConcurrentWrite,
    DelvecError,
    StorageError,
    UnsupportedOperation,
)
from delvec_kernel.actions.actions import Action, CommitInfo
from delvec_kernel.features.managed_tables import is_catalog_managed
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.log.commit_file import serialize_commit
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction import reserved_version as reserving
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_kernel.transaction.reserved_version import Reservation
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits import fault_points
from delvec_service.commits.commit import Commits
from delvec_service.commits.commit_log import check_size
from delvec_service.commits.commit_loop import Run
from delvec_service.commits.commit_result import AlreadyApplied, Committed, NothingToDo
from delvec_service.commits.idempotency import key_reused
from delvec_service.commits.metadata_changes import resolved
from delvec_service.commits.pending_commit import PendingCommit
from delvec_service.commits.reservations import Reservations
from delvec_service.commits.transaction_records import (
    Decision,
    StagedVersion,
    TransactionRecords,
    record_name,
)
from delvec_service.logs import bind_log_context, log_context, logger
from delvec_service.snapshots.loader import SnapshotLoader, keeps_losing
from delvec_service.store.commit_coordinator import STAGED
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.new_table import ENGINE_INFO

__all__ = ["MultiTableCommits", "Participant"]

_ATTEMPTS: Final = 5


@dataclass(frozen=True)
class Participant:
    """One table of a transaction, and what changes in it."""

    table: OpenTable
    changes: Changes


@dataclass(eq=False)
class _Member:
    """A participant under way.

    Attributes:
        run: the run that commits it.
        reserved: the version that reserves its next one.
        actions: that it stages; None if it changes nothing.
        data: the same as bytes.
        staged: where they are.
        metadata_id: the id of the table's metadata.
    """

    run: Run
    reserved: int = -1
    actions: list[Action] | None = None
    data: bytes = b""
    staged: StagedVersion | None = None
    metadata_id: str = ""

    @property
    def table(self) -> OpenTable:
        return self.run.table

    @property
    def pending(self) -> PendingCommit:
        return self.run.members[0]


@dataclass(eq=False)
class _Attempt:
    """One attempt of a transaction.

    Attributes:
        reservation: what it leaves in the logs.
        members: in the order of the request.
    """

    reservation: Reservation
    request_hash: str
    members: list[_Member] = field(default_factory=list)

    @property
    def in_order(self) -> list[_Member]:
        """The members in the order in which every transaction reserves tables."""
        return sorted(self.members, key=lambda member: member.table.location)


class MultiTableCommits:
    """Commits to several managed tables at one moment.

    Args:
        loader: reads snapshots.
        commits: commits to one table.
        records: the records of the outcomes.
        reservations: finishes or undoes other transactions.
        attempts: how many times it tries to reserve a version.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        commits: Commits,
        records: TransactionRecords,
        reservations: Reservations,
        *,
        attempts: int,
    ) -> None:
        self._loader = loader
        self._commits = commits
        self._records = records
        self._reservations = reservations
        self._attempts = attempts

    def find(self, transaction_id: str) -> Decision | None:
        """Return the outcome of the last attempt of a transaction; None if there is none yet.

        Raises:
            BadRequest: there is no warehouse.
            StorageError: storage does not answer.
        """
        decision: Decision | None = None
        for attempt in range(_ATTEMPTS):
            found = self._records.find(record_name(transaction_id, attempt))
            if found is None:
                break
            decision = found
        return decision

    def commit(
        self, participants: Sequence[Participant], transaction_id: str, request_hash: str
    ) -> tuple[Decision, bool]:
        """Commit to all tables, or to none; return the outcome, and whether an earlier request brought it about.

        Raises:
            UnsupportedOperation: a table is not managed by the catalog.
            ConcurrentModification: or a subclass: another commit won; nothing was committed.
            InvalidCommit: or a sibling, see :meth:`~delvec_service.commits.commit.Commits.commit`; nothing was committed.
            CommitOutcomeUnknown: storage failed while the outcome was recorded.
            StorageError: storage does not answer; nothing was committed.
        """
        fault_points.reach("begin")
        bind_log_context(transaction=transaction_id)
        self._check(participants)
        for number in range(_ATTEMPTS):
            name = record_name(transaction_id, number)
            decision = self._records.find(name)
            is_earlier = decision is not None
            if decision is None:
                reservation = Reservation(transaction_id, self._records.warehouse, name)
                attempt = _Attempt(reservation, request_hash)
                decision, is_earlier = self._attempt(attempt, participants)
            if decision.request_hash not in ("", request_hash):
                raise key_reused(transaction_id)
            if decision.is_commit:
                if is_earlier:
                    self._publish_earlier(participants)
                fault_points.reach("before-answer")
                return decision, is_earlier
        raise ConcurrentWrite(
            f"Transaction {transaction_id} was undone {_ATTEMPTS} times, because it left other commits to its tables waiting "
            "for too long; nothing was committed. Repeat it with fewer tables, or raise DELVEC_TRANSACTION_SECONDS.",
            transaction_id=transaction_id,
        )

    def _check(self, participants: Sequence[Participant]) -> None:
        locations = [each.table.location for each in participants]
        if len(set(locations)) < len(locations):
            twice = next(each.table.name for each in participants if locations.count(each.table.location) > 1)
            raise BadRequest(
                f"The transaction names table '{twice}' twice; put all of its changes into one commit.",
                table=twice,
            )
        for each in participants:
            snapshot = self._loader.load(each.table.objects, each.table.name, checkpoints=False)
            if not is_catalog_managed(snapshot.protocol):
                raise UnsupportedOperation(
                    f"Table '{each.table.name}' is not managed by the catalog, so other writers may commit to its log at any "
                    "time, and it cannot take part in a transaction over several tables. Create a managed table (CREATE "
                    "TABLE through the catalog), and write its rows there.",
                    table=each.table.name,
                )

    # --- one attempt --------------------------------------------------------------------------------------

    def _attempt(self, attempt: _Attempt, participants: Sequence[Participant]) -> tuple[Decision, bool]:
        """Try to commit; return the outcome, and whether another request decided it."""
        principal = log_context().get("principal")
        for each in participants:
            changes = resolved(each.table, self._loader, each.changes)
            attempt.members.append(
                _Member(self._commits.loop.begin(each.table, [PendingCommit(changes, principal)]))
            )
        try:
            for member in attempt.in_order:
                self._prepare(attempt, member)  # most conflicts show here, before anything is reserved
            for member in attempt.in_order:
                self._reserve(attempt, member)
            for member in attempt.in_order:
                self._prepare(attempt, member)
            self._stage(attempt)
        except _Decided as decided:
            return decided.decision, True
        except DelvecError as error:
            return self._undone(attempt, error), True
        return self._decide(attempt)

    def _undone(self, attempt: _Attempt, error: DelvecError) -> Decision:
        """Undo an attempt that failed; return the outcome if it was decided meanwhile.

        Raises:
            DelvecError: the error.
        """
        self._conclude(attempt)
        with suppress(StorageError):  # a commit that waits will undo it
            if any(member.reserved >= 0 for member in attempt.members):
                decision = self._reservations.undo(
                    attempt.reservation, f"{error.type}: {error.message}", attempt.request_hash
                )
                if decision.is_commit:
                    return decision
        raise error

    def _decided(self, attempt: _Attempt) -> Decision | None:
        return self._records.find(attempt.reservation.record)

    def _reserve(self, attempt: _Attempt, member: _Member) -> None:
        """Reserve the next version of a table."""
        table = member.table
        fault_points.reach("before-reservation")
        for _ in range(self._attempts):
            snapshot = self._loader.load(table.objects, table.name, checkpoints=False)
            found = self._reservations.of(table.objects, table.name, snapshot)
            if found is not None and found.record == attempt.reservation.record:
                member.reserved = snapshot.version  # of the same request, sent before
                break
            actions = reserving.actions_of(
                attempt.reservation, snapshot, ENGINE_INFO, time.time_ns() // 1_000_000
            )
            if self._commits.log.create(table, snapshot.version + 1, serialize_commit(actions)):
                member.reserved = snapshot.version + 1
                break
        else:
            raise ConcurrentWrite(
                f"Table '{table.name}' is written so often that all {self._attempts} attempts of transaction "
                f"{attempt.reservation.transaction_id} to reserve its next version lost the race. Try again.",
                table=table.name,
            )
        fault_points.reach("after-reservation")

    def _prepare(self, attempt: _Attempt, member: _Member) -> None:
        """Check a member after the newest version, and build what it commits.

        Raises:
            DelvecError: it must not be committed, or could not be checked.
        """
        table, pending = member.table, member.pending
        pending.result = None
        for _ in range(self._attempts):
            snapshot = self._loader.load(table.objects, table.name, checkpoints=False)
            if member.reserved not in (-1, snapshot.version):
                raise _Decided(self._decided(attempt) or self._overtaken(attempt, member, snapshot))
            try:
                actions = self._commits.loop.actions_after(member.run, snapshot)
            except SegmentsLost as error:
                self._loader.lost(snapshot, error)
                continue
            break
        else:
            raise keeps_losing(table.name)
        if pending.error is not None:
            raise pending.error
        if isinstance(pending.result, Conflict):
            raise pending.result.error(table.name)
        if isinstance(pending.result, Committed):  # by the same request, sent before
            decision = self._decided(attempt)
            raise key_reused(pending.key) if decision is None else _Decided(decision)
        member.actions, member.metadata_id = actions, snapshot.metadata.id

    def _overtaken(self, attempt: _Attempt, member: _Member, snapshot: Snapshot) -> Decision:
        return self._reservations.undo(
            attempt.reservation,
            f"version {snapshot.version} of table '{member.table.name}' was created by a writer that bypassed the catalog",
            attempt.request_hash,
        )

    def _stage(self, attempt: _Attempt) -> None:
        changed = [member for member in attempt.in_order if member.actions is not None]
        group = {member.table.record.id: member.reserved + 1 for member in changed}
        for member in changed:
            assert member.actions is not None  # noqa: S101 - as selected
            table, version = member.table, member.reserved + 1
            fault_points.reach("before-staging")
            member.actions = reserving.with_group(member.actions, attempt.reservation.transaction_id, group)
            member.data = serialize_commit(member.actions)
            check_size(table, member.data)
            name = f"{version:020}.{uuid.uuid4()}.json"
            table.objects.put_if_absent(f"{STAGED}/{name}", member.data)
            digest = hashlib.sha256(member.data).hexdigest()
            member.staged = StagedVersion(table.record.id, table.location, version, name, digest)

    # --- the commit point, and after it -------------------------------------------------------------------

    def _decide(self, attempt: _Attempt) -> tuple[Decision, bool]:
        ours = Decision(
            is_commit=True,
            transaction_id=attempt.reservation.transaction_id,
            request_hash=attempt.request_hash,
            versions=tuple(member.staged for member in attempt.members if member.staged is not None),
            answers=tuple(_answer(member) for member in attempt.members),
        )
        try:
            fault_points.reach("before-decision")
            decision = self._records.decide(attempt.reservation.record, ours)
        except StorageError as error:
            raise CommitOutcomeUnknown(
                f"Storage failed while the outcome of transaction {ours.transaction_id} was recorded: {error.message} Send "
                "the same request again.",
                transaction_id=ours.transaction_id,
            ) from error
        fault_points.reach("after-decision")
        if decision is not ours:
            return decision, True
        for member in attempt.in_order:
            self._publish(member, decision)
        self._conclude(attempt)
        return decision, False

    def _publish(self, member: _Member, decision: Decision) -> None:
        """Publish what a member has staged: readers of the log wait for that, readers through the service do it themselves."""
        if member.actions is None or member.staged is None:
            return
        table, version = member.table, member.staged.version
        try:
            self._reservations.publish(table.objects, table.name, version, decision, member.data)
        except DelvecError as error:
            logger.error("commit not published yet", table=table.name, version=version, reason=error.message)
            return
        member.run.created(version, member.actions, len(member.data), member.metadata_id)
        member.pending.committed(version, _metrics(member.actions))

    def _publish_earlier(self, participants: Sequence[Participant]) -> None:
        for each in participants:
            with suppress(DelvecError):  # it is committed; readers publish it
                self._loader.load(each.table.objects, each.table.name, checkpoints=False)

    def _conclude(self, attempt: _Attempt) -> None:
        for member in attempt.members:
            if member.pending.is_done:
                self._commits.post_commit.observe(member.table, member.pending)
                self._commits.post_commit.run(member.run)


class _Decided(Exception):
    """Another request, or a commit that waited, has decided on this attempt."""

    def __init__(self, decision: Decision) -> None:
        super().__init__()
        self.decision = decision


def _metrics(actions: Sequence[Action]) -> dict[str, int]:
    info = actions[0]
    assert isinstance(info, CommitInfo)  # noqa: S101 - as it was built
    return {name: int(value) for name, value in (info.operation_metrics or {}).items()}


def _answer(member: _Member) -> Mapping[str, Any]:
    """Return what the client is told about one table."""
    changes, result = member.pending.changes, member.pending.result
    passed_versions = list(range(changes.read_version + 1, member.reserved))
    answer: dict[str, Any] = {
        "result": "rebased" if passed_versions else "committed",
        "version": None if member.staged is None else member.staged.version,
        "read-version": changes.read_version,
        "transaction-id": changes.transaction_id,
        "winners-passed": passed_versions,
        "operation-metrics": {} if member.actions is None else _metrics(member.actions),
    }
    match result:
        case NothingToDo():
            answer |= {
                "result": "nothing-to-do",
                "winners-passed": [],
                "operation-metrics": dict(result.metrics),
            }
        case AlreadyApplied():
            answer |= {"result": "already-applied", "winners-passed": []}
    return {"table-id": member.table.record.id, "name": member.table.name, "commit": answer}
