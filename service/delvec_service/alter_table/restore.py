"""RESTORE: an earlier version becomes the newest one, in one commit.

It is computed from the newest version, and again if another commit changed rows or the table in the meantime: a
RESTORE undoes everything committed before it, no matter when the RESTORE was requested.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from delvec_contract.maintenance import RestoreRequest
from delvec_errors import InvalidTableChange, MissingRestoreFiles, UnsupportedTable
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.file_index.file_rows import batch_from_adds
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_kernel.transaction.restoration import Restoration, restoration
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits.commit import CommitResult, Commits, Committed
from delvec_service.commits.idempotency import request_hash
from delvec_service.scans.vacuumed_versions import Use, check_complete
from delvec_service.snapshots.loader import SnapshotLoader, keeps_losing
from delvec_service.store.clones import CloneStore
from delvec_service.store.deletion_locks import DeletionLocks, FileLease
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.new_table import ENGINE_INFO
from delvec_service.tables.places import check_new_files

__all__ = ["NotRestored", "RestoreResult", "Restored", "restore"]

_ATTEMPTS: Final = 20
_USE: Final = Use(
    "Restore",
    "restored",
    MissingRestoreFiles,
    lambda finding: {"file": finding.file, "problem": finding.message},
)
_FILES_AT_ONCE: Final = 10_000


@dataclass(frozen=True)
class Restored:
    """The table was restored to the earlier version; ``committed`` is the new version."""

    committed: Committed
    restored_version: int


@dataclass(frozen=True)
class NotRestored:
    """Nothing was committed: the version already is the newest, or it was a dry run.

    Attributes:
        metrics: for a dry run, the metrics that the commit would have.
    """

    read_version: int
    restored_version: int
    restoration: Restoration | None


RestoreResult: TypeAlias = Restored | NotRestored | Conflict


def restore(
    table: OpenTable,
    loader: SnapshotLoader,
    commits: Commits,
    locks: DeletionLocks,
    clones: CloneStore,
    request: RestoreRequest,
    key: str | None,
) -> RestoreResult:
    """Restore a table to a version once, no matter how often the request is sent.

    Args:
        table: the table.
        loader: reads snapshots.
        commits: commits.
        locks: keep VACUUMs from deleting what comes back.
        clones: knows the tables whose files the table may need, if it is a shallow clone.
        request: which version.
        key: the request's idempotency key, which becomes the transaction id of the commit.

    Returns:
        A conflict only if others changed the table during every one of many attempts.

    Raises:
        VersionNotFound: the log does not have that version.
        MissingRestoreFiles: files of it are missing from storage; up to 100 of them are listed.
        InvalidTableChange: Delvec could not write the table afterwards, or its rows have lost their row ids.
        CorruptLog: the metadata of either version cannot be read.
        AppendOnlyTable: rows would be removed from an append-only table.
        UnsupportedTable: or a subclass: Delvec cannot write the table.
        IdempotencyKeyReused: another request was committed under that key.
        CommitOutcomeUnknown: storage failed during the commit, or the log no longer has the answer.
        ServiceUnavailable: the database does not answer, so a VACUUM in another process cannot be held back.
        StorageError: the database lost what the snapshots need in every attempt; nothing was committed.
    """
    hashed = request_hash("restore", table.record.id, request.model_dump(mode="json", by_alias=True))
    key = None if request.dry_run else key
    transaction_id = key or str(uuid.uuid4())
    result: CommitResult | None = None
    # Over all attempts, so that no VACUUM starts between two of them.
    with _restoring(table.location, locks, clones) as leases:
        for _ in range(_ATTEMPTS):
            latest = loader.load(table.objects, table.name)
            earlier = commits.log.earlier(table, key, hashed, request.read_version, latest.version)
            if earlier is not None:
                return Restored(earlier[0], _restored_version(table, loader, request))
            target = loader.load(
                table.objects, table.name, version=request.version, timestamp=request.timestamp
            )
            if target.version > latest.version:
                continue  # given a timestamp, and a version committed in between
            check_writable(latest.protocol, latest.metadata, table.name)
            if target.version == latest.version:
                return NotRestored(latest.version, target.version, None)
            try:
                restore_plan = restoration(target, latest)
            except SegmentsLost as error:
                loader.lost(target, error)
                loader.lost(latest, error)
                continue
            _check_table(table, target, latest, restore_plan)
            check_new_files(table, [add.path for add in restore_plan.adds])
            _check_files(table, loader, target, () if request.ignore_missing_files else restore_plan.adds)
            if request.dry_run:
                return NotRestored(latest.version, target.version, restore_plan)
            for lease in leases:
                lease.check()
            result = commits.commit(table, _changes(restore_plan, latest, request, transaction_id, hashed))
            if isinstance(result, Committed):
                return Restored(result, target.version)
    if result is None:
        raise keeps_losing(table.name)
    assert isinstance(result, Conflict)  # noqa: S101 - a RESTORE always does something
    return result


@contextmanager
def _restoring(location: str, locks: DeletionLocks, clones: CloneStore) -> Iterator[list[FileLease]]:
    """Block deletes of files of a table, and of the tables that it is a shallow clone of."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(locks.restoring(each))
            for each in dict.fromkeys((location, *clones.above(location)))
        ]


def _restored_version(table: OpenTable, loader: SnapshotLoader, request: RestoreRequest) -> int:
    if request.version is not None:
        return request.version
    return loader.load(table.objects, table.name, timestamp=request.timestamp).version


def _check_table(table: OpenTable, target: Snapshot, latest: Snapshot, restore_plan: Restoration) -> None:
    """Refuse a restore after which Delvec could not write the table."""
    # Raises, where the metadata of that version cannot be read: the table could not be read afterwards.
    _ = target.schema
    try:
        # The features of the target on their own: merging them may hide that they are unknown.
        check_writable(target.protocol, target.metadata, table.name)
        check_writable(restore_plan.protocol or latest.protocol, restore_plan.metadata, table.name)
    except UnsupportedTable as error:
        raise InvalidTableChange(
            f"Delvec could no longer write table '{table.name}' if version {target.version} were restored: "
            f"{error.message}",
            **{"table": table.name, "version": target.version, **error.details},
        ) from error


def _check_files(table: OpenTable, loader: SnapshotLoader, target: Snapshot, adds: Sequence[AddFile]) -> None:
    batches = (
        batch_from_adds(adds[start : start + _FILES_AT_ONCE]) for start in range(0, len(adds), _FILES_AT_ONCE)
    )
    check_complete(table, loader, target, _USE, among=batches)


def _changes(
    restore_plan: Restoration, latest: Snapshot, request: RestoreRequest, transaction_id: str, hashed: str
) -> Changes:
    return Changes(
        operation="RESTORE",
        read_version=latest.version,
        transaction_id=transaction_id,
        engine_info=f"{request.engine_info} {ENGINE_INFO}" if request.engine_info else ENGINE_INFO,
        restores=restore_plan.adds,
        removes=restore_plan.removes,
        # As in delta-spark: the one that was requested, and null.
        parameters={"version": request.version, "timestamp": request.timestamp},
        metrics=restore_plan.metrics,
        # Always included, so that commits that change the metadata meanwhile are detected.
        metadata=restore_plan.metadata,
        protocol=restore_plan.protocol,
        domains=restore_plan.domains,
        makes_version=True,
        user_metadata=request.user_metadata,
        request_hash=hashed,
    )
