"""Table changes: computed from the newest version, and again if another commit changed the table in the meantime.

Conditions on the rows are checked before the commit: with the statistics of the newest version, or because the client
states which version it has verified. Files that others add afterwards are treated like those that conflict with a
DELETE with that condition.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from delvec_contract.alterations import AlterRequest
from delvec_errors import InvalidTableChange, VersionFromFuture
from delvec_kernel.alter_table.alteration import Alteration, Requirement
from delvec_kernel.alter_table.constraints import violating
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.alter_table.table_preparation import TablePreparation
from delvec_service.commits.commit import Commits, Committed
from delvec_service.commits.idempotency import request_hash
from delvec_service.commits.metadata_changes import alteration_of
from delvec_service.maintenance.log_maintenance import LogMaintenance
from delvec_service.scans.plan import plan
from delvec_service.snapshots.loader import SnapshotLoader, keeps_losing
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.new_table import ENGINE_INFO

__all__ = ["AlterResult", "Altered", "Unchanged", "alter"]

_ATTEMPTS: Final = 20


@dataclass(frozen=True)
class Altered:
    """The changes are a version of the table; ``committed`` says which."""

    committed: Committed
    operation: str


@dataclass(frozen=True)
class Unchanged:
    """The table already is as requested."""

    read_version: int
    transaction_id: str


AlterResult: TypeAlias = Altered | Unchanged | Conflict


def alter(
    table: OpenTable,
    loader: SnapshotLoader,
    commits: Commits,
    log_maintenance: LogMaintenance,
    request: AlterRequest,
    key: str | None = None,
) -> AlterResult:
    """Change a table once, no matter how often the request is sent.

    Args:
        table: the table.
        loader: reads snapshots.
        commits: commits.
        log_maintenance: writes checkpoints, if a change needs them.
        request: what to change.
        key: the request's idempotency key, which becomes the transaction id of the commit.

    Returns:
        A conflict only if the client has to verify new rows, or if others changed the table during every one of many
        attempts.

    Raises:
        InvalidTableChange: the table cannot be changed this way, or it is unknown whether its rows satisfy the
            change.
        BadRequest: or a subclass: a value, type, name or expression is invalid.
        UnsupportedTable: or a subclass: Delvec cannot write the table.
        VersionFromFuture: the verified version does not exist yet.
        IdempotencyKeyReused: another request was committed under that key.
        CommitOutcomeUnknown: storage failed during the commit, or the log no longer has the answer.
        StorageError: the database lost what the snapshot needs in every attempt; nothing was committed.
    """
    hashed = request_hash("alter", table.record.id, request.model_dump(mode="json", by_alias=True))
    transaction_id = key or str(uuid.uuid4())
    preparation = TablePreparation(table, loader, commits, log_maintenance)
    result: AlterResult | None = None
    for _ in range(_ATTEMPTS):
        snapshot = loader.load(table.objects, table.name)
        earlier = commits.log.earlier(table, key, hashed, request.read_version, snapshot.version)
        if earlier is not None:
            answer, winner = earlier
            return Altered(answer, (winner.info and winner.info.operation) or "")
        if preparation.prepare(request.changes):
            snapshot = loader.load(table.objects, table.name)
        try:
            alteration = alteration_of(table, request.changes, snapshot)
        except SegmentsLost as error:
            loader.lost(snapshot, error)
            continue
        if alteration.is_empty:
            return Unchanged(snapshot.version, transaction_id)
        verified = _verified(table, loader, alteration.requirements, request.verified_version, snapshot)
        if verified is None:
            continue  # data that the snapshot needs was dropped; read it again
        changes = _changes(alteration, request, verified, transaction_id, hashed)
        committed = commits.commit(table, changes)
        if isinstance(committed, Committed):
            preparation.finish(request.changes)
            return Altered(committed, alteration.operation)
        if not isinstance(committed, Conflict):
            return Unchanged(snapshot.version, transaction_id)
        result = committed
        if request.verified_version is not None:
            return committed  # the client has to verify the rows of the newest version first
    return _last_conflict(table, result)


def _last_conflict(table: OpenTable, result: AlterResult | None) -> AlterResult:
    if result is None:
        raise keeps_losing(table.name)
    return result


def _verified(
    table: OpenTable,
    loader: SnapshotLoader,
    requirements: Sequence[Requirement],
    verified_version: int | None,
    snapshot: Snapshot,
) -> int | None:
    """Return the version whose rows are known to satisfy the change, or None to try again."""
    if verified_version is not None and verified_version > snapshot.version:
        raise VersionFromFuture(
            f"The rows of version {verified_version} of table '{table.name}' cannot have been verified: the newest "
            f"version is {snapshot.version}.",
            table=table.name,
            version=verified_version,
        )
    if not requirements:
        return snapshot.version
    if verified_version is not None:
        return verified_version
    try:
        unproven = [each for each in requirements if not _proven(table, each, snapshot)]
    except SegmentsLost as error:
        loader.lost(snapshot, error)
        return None
    if unproven:
        raise InvalidTableChange(
            f"The statistics of table '{table.name}' (version {snapshot.version}) do not prove that every row "
            f"satisfies {', '.join(each.what for each in unproven)}. Count the rows that do not with an engine; "
            "if there are none, send the version you counted in as verified-version. The client does this "
            "automatically.",
            table=table.name,
            version=snapshot.version,
            violating=[violating(each.condition) for each in unproven],
        )
    return snapshot.version


def _proven(table: OpenTable, requirement: Requirement, snapshot: Snapshot) -> bool:
    """Whether statistics and partition values prove that no file has a row that violates a condition."""
    broken = violating(requirement.condition)
    return plan(snapshot, table.name, predicate=broken, inline_deletion_vectors=False).num_files == 0


def _changes(
    alteration: Alteration, request: AlterRequest, verified: int, transaction_id: str, hashed: str
) -> Changes:
    broken = [f"({violating(each.condition)})" for each in alteration.requirements]
    return Changes(
        operation=alteration.operation,
        read_version=verified,
        transaction_id=transaction_id,
        engine_info=f"{request.engine_info} {ENGINE_INFO}" if request.engine_info else ENGINE_INFO,
        predicate=" OR ".join(broken) or None,
        parameters=alteration.parameters,
        metadata=alteration.metadata,
        protocol=alteration.protocol,
        domains=alteration.domains,
        user_metadata=request.user_metadata,
        request_hash=hashed,
    )
