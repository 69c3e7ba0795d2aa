"""What a version that reserves the next one means for whoever reads the table, or commits to it.

The version after it belongs to a transaction, whose outcome a record in the warehouse tells. A reader that meets it looks for
the record: where the transaction is committed, it publishes what was staged, and reads that; otherwise the table is as it
was. A commit waits for the outcome, and undoes a transaction that leaves it waiting for too long.

Tested in `tests/integration/service/commits/test_multi_table_commit.py`.
"""

import hashlib
import threading
import time
from collections.abc import Sequence
from typing import Final

from cachetools import LRUCache

from delvec_errors import CorruptLog, UnsupportedOperation
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import Action
from delvec_kernel.features.managed_tables import is_catalog_managed
from delvec_kernel.log.commit_file import parse_commit
from delvec_kernel.log.log_segment import commit_name, commit_path
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction.reserved_version import OPERATION, Reservation, reservation_of
from delvec_service.commits import fault_points
from delvec_service.commits.commit_log import AmbiguousPutError, CommitLog
from delvec_service.commits.transaction_records import Decision, StagedVersion, TransactionRecords
from delvec_service.logs import logger
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.commit_coordinator import STAGED
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable

__all__ = ["Reservations"]

_PAUSE_SECONDS: Final = 0.02
_MAX_CACHED: Final = 10_000
_MAX_BYTES: Final = 16 * 1024
"""A reservation is smaller."""


class Reservations:
    """Finishes or undoes transactions over several tables. Safe to share between threads.

    Args:
        loader: reads versions; asks about every newest one.
        log: creates versions; asks before each.
        records: the records of the outcomes.
        patience: how many seconds a commit waits for a transaction before it undoes it.
    """

    def __init__(
        self, loader: SnapshotLoader, log: CommitLog, records: TransactionRecords, *, patience: float
    ) -> None:
        self._loader = loader
        self._log = log
        self._records = records
        self._patience = patience
        self._lock = threading.Lock()
        self._known: LRUCache[tuple[str, int, str], Reservation | None] = LRUCache(_MAX_CACHED)
        self._met: LRUCache[str, float] = LRUCache(_MAX_CACHED)
        loader.when_loaded(self._publishes)
        log.when_following(self._may_follow)

    def of(self, objects: ObjectStore, table: str, snapshot: Snapshot) -> Reservation | None:
        """Return the reservation that the newest version of a table makes.

        Raises:
            UnsupportedOperation: its outcome is recorded in another warehouse.
            StorageError: storage does not answer.
        """
        if not is_catalog_managed(snapshot.protocol):
            return None
        key = objects.location, snapshot.version, snapshot.metadata.id
        with self._lock:
            if key in self._known:
                return self._known[key]
        reservation = self._read(objects, table, snapshot.version)
        with self._lock:
            self._known[key] = reservation
        return reservation

    def _read(self, objects: ObjectStore, table: str, version: int) -> Reservation | None:
        reservation = reservation_of(self._actions(objects, table, version))
        if reservation is not None and not self._records.is_here(reservation.warehouse):
            raise UnsupportedOperation(
                f"Version {version + 1} of table '{table}' is reserved for the transaction {reservation.transaction_id[:128]}, "
                f"whose outcome is recorded in another warehouse ({reservation.warehouse[:300]}). Use the service that has "
                "that warehouse.",
                table=table,
                version=version,
            )
        return reservation

    def _actions(self, objects: ObjectStore, table: str, version: int) -> Sequence[Action]:
        """Return the actions of a version; none if it is too large to be a reservation, which is not read as a whole."""
        commit = self._loader.cached_commit(objects.location, version)
        if commit is not None:
            return commit.actions
        try:
            start = objects.get_start(commit_path(version), _MAX_BYTES)
        except FileNotFoundError:  # a checkpoint has it
            return ()
        if len(start) == _MAX_BYTES or OPERATION.encode() not in start:
            return ()
        return parse_commit(start, LogFile(table, version, commit_name(version)))

    def _publishes(self, objects: ObjectStore, table: str, snapshot: Snapshot) -> bool:
        reservation = self.of(objects, table, snapshot)
        decision = None if reservation is None else self._outcome(reservation)
        return decision is not None and self.publish(objects, table, snapshot.version + 1, decision)

    def _outcome(self, reservation: Reservation) -> Decision | None:
        decision = self._records.find(reservation.record)
        if decision is None:
            with self._lock:
                self._met.setdefault(reservation.record, time.monotonic())
        return decision

    def _may_follow(self, table: OpenTable, version: int) -> bool:
        """Whether a commit may be the version after this one; waits until it is known whom that belongs to."""
        newest = self._loader.known(table.location)
        if newest is not None and not is_catalog_managed(newest.protocol):
            return True
        if newest is not None and newest.version == version:
            reservation = self.of(table.objects, table.name, newest)
        else:  # read since, or no longer in memory
            reservation = self._read(table.objects, table.name, version)
        if reservation is None:
            return True
        while (decision := self._outcome(reservation)) is None:
            with self._lock:
                waited = time.monotonic() - self._met.get(reservation.record, time.monotonic())
            if waited > self._patience:
                decision = self.undo(reservation, "it left another commit waiting for too long")
                break
            time.sleep(_PAUSE_SECONDS)
        return not self.publish(table.objects, table.name, version + 1, decision)

    def undo(self, reservation: Reservation, reason: str, request_hash: str = "") -> Decision:
        """Undo an attempt of a transaction, unless it is decided on; return the outcome.

        Raises:
            StorageError: storage does not answer.
        """
        undone = Decision(
            is_commit=False,
            transaction_id=reservation.transaction_id,
            request_hash=request_hash,
            reason=reason,
        )
        decision = self._records.decide(reservation.record, undone)
        if decision is undone:
            logger.info("transaction undone", transaction=reservation.transaction_id, reason=reason)
        return decision

    def publish(
        self, objects: ObjectStore, table: str, version: int, decision: Decision, data: bytes | None = None
    ) -> bool:
        """Publish what a transaction commits as a version of a table; return False if that is nothing.

        Args:
            objects: the table's files.
            table: the table's name, for errors.
            version: the version.
            decision: the outcome of the transaction.
            data: the staged commit, if it is at hand.

        Raises:
            CorruptLog: the staged commit is damaged or gone, or another writer took its version.
            StorageError: storage does not answer.
        """
        staged_version = decision.version_of(objects.location)
        # A reservation may be left over from a request that was sent twice.
        if not decision.is_commit or staged_version is None or staged_version.version != version:
            return False
        fault_points.reach("before-publication")
        try:
            created = self._log.publish(objects, version, data or _staged(objects, table, staged_version))
        except AmbiguousPutError as error:
            raise error.failure from error
        if not created:
            raise _bypassed(table, staged_version)
        fault_points.reach("after-publication")
        return True


def _staged(objects: ObjectStore, table: str, staged_version: StagedVersion) -> bytes:
    path = f"{STAGED}/{staged_version.staged}"
    try:
        data = objects.get(path)
    except FileNotFoundError:
        data = b""
    if hashlib.sha256(data).hexdigest() != staged_version.digest:
        raise CorruptLog(
            f"Version {staged_version.version} of table '{table}' is committed, but its staged commit {path} is "
            f"{'damaged' if data else 'gone'}; restore that file from a backup.",
            table=table,
            version=staged_version.version,
            file=path,
        )
    return data


def _bypassed(table: str, staged_version: StagedVersion) -> CorruptLog:
    return CorruptLog(
        f"Version {staged_version.version} of table '{table}' belongs to a committed transaction, but a writer that bypassed the "
        f"catalog has taken it. Its staged commit is {STAGED}/{staged_version.staged}; read both, and write what is missing again.",
        table=table,
        version=staged_version.version,
    )
