"""``…/clone``: create another table with the contents of some version of this one."""

import uuid

from delvec_contract.tables import CloneRequest, CloneResponse
from delvec_errors import (
    AppendOnlyTable,
    ConcurrentTransaction,
    CorruptTable,
    InvalidCommit,
    InvalidLocation,
    InvalidTableChange,
    LocationNotAllowed,
    MissingCloneFiles,
    TableAlreadyExists,
    UnsupportedTable,
    UnsupportedWriterFeature,
)
from delvec_service.api.dependencies import Caller, ServiceState, Table
from delvec_service.api.problems import CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import IdempotencyKey, Maintenance
from delvec_service.api.resource import resource_router
from delvec_service.cloning.clone import Cloned, NotCloned, clone
from delvec_service.logs import bind_log_context
from delvec_service.registration import resource

__all__ = ["router"]


router = resource_router("tables", Maintenance)


@router.post(
    "/tables/{table}/clone",
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        InvalidLocation,
        LocationNotAllowed,
        TableAlreadyExists,
        MissingCloneFiles,
        InvalidTableChange,
        InvalidCommit,
        AppendOnlyTable,
        UnsupportedTable,
        UnsupportedWriterFeature,
        CorruptTable,
        ConcurrentTransaction,
        *CONFLICTS,
    ),
)
def clone_table(
    table: Table,
    body: CloneRequest,
    service: ServiceState,
    access: Caller,
    idempotency_key: IdempotencyKey = None,
) -> CloneResponse:
    """Clone a version of the table: shallow, which refers to its files, or deep, which copies them."""
    bind_log_context(change=f"to {body.name or body.location}")
    access.require_place(service.tables, body.location, body.name)
    transaction_id = idempotency_key or str(uuid.uuid4())
    clone_result = clone(
        table,
        service.tables,
        service.loader,
        service.commits,
        service.clone_store,
        body,
        transaction_id,
        access,
    )
    if isinstance(clone_result, Cloned):
        if not clone_result.replaced:
            made = service.tables.open(clone_result.record.id)
            service.log_maintenance.committed(made, clone_result.version, transaction_id)
            service.events.committed(made)
            service.manifests.created(made)
        return CloneResponse(
            result="replaced" if clone_result.replaced else "created",
            table=resource(clone_result.record, clone_result.version),
            version=clone_result.version,
            source_version=clone_result.source_version,
            operation_metrics=clone_result.metrics,
        )
    if isinstance(clone_result, NotCloned):
        return CloneResponse(
            result="exists",
            table=resource(clone_result.record),
            version=None,
            source_version=None,
            operation_metrics={},
        )
    raise clone_result.error(table.name)
