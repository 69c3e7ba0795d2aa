"""``…/restore``: return a table to an earlier version."""

import uuid

from delvec_contract.maintenance import RestoreRequest, RestoreResponse
from delvec_errors import (
    AppendOnlyTable,
    ConcurrentTransaction,
    CorruptTable,
    FileNotInTable,
    InvalidTableChange,
    MissingRestoreFiles,
    UnsupportedTable,
    UnsupportedWriterFeature,
)
from delvec_service.alter_table.restore import NotRestored, Restored, restore
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import IdempotencyKey, Maintenance
from delvec_service.api.resource import resource_router
from delvec_service.commits.commit import Rebased
from delvec_service.logs import bind_log_context

__all__ = ["router"]


router = resource_router("maintenance", Maintenance)


@router.post(
    "/tables/{table}/restore",
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        MissingRestoreFiles,
        FileNotInTable,
        InvalidTableChange,
        AppendOnlyTable,
        UnsupportedTable,
        UnsupportedWriterFeature,
        CorruptTable,
        ConcurrentTransaction,
        *CONFLICTS,
    ),
)
def restore_table(
    table: Table, body: RestoreRequest, service: ServiceState, idempotency_key: IdempotencyKey = None
) -> RestoreResponse:
    """Restore the table to an earlier version, in one commit. The history stays."""
    target = f"to {body.timestamp if body.version is None else f'version {body.version}'}"
    bind_log_context(change=f"dry run {target}" if body.dry_run else target)
    result = restore(
        table,
        service.loader,
        service.commits,
        service.deletion_locks,
        service.clone_store,
        body,
        idempotency_key,
    )
    if isinstance(result, Restored):
        commit = result.committed
        return RestoreResponse(
            result="rebased" if isinstance(commit, Rebased) else "committed",
            version=commit.version,
            read_version=commit.read_version,
            restored_version=result.restored_version,
            transaction_id=commit.transaction_id,
            winners_passed=list(commit.winners_passed),
            operation_metrics=dict(commit.metrics),
        )
    if isinstance(result, NotRestored):
        restore_plan = result.restoration
        return RestoreResponse(
            result="nothing-to-do" if restore_plan is None else "dry-run",
            version=None,
            read_version=result.read_version,
            restored_version=result.restored_version,
            transaction_id=idempotency_key or str(uuid.uuid4()),
            operation_metrics={} if restore_plan is None else dict(restore_plan.metrics),
        )
    raise result.error(table.name)
