"""``…/clone``: create another table with the contents of some version of this one."""

import uuid

from delvec_kernel.errors import (
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
from delvec_kernel.wire import CloneRequest, CloneResponse
from delvec_service.api.dependencies import Caller, ServiceState, Table
from delvec_service.api.problems import CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import IdempotencyKey, Maintenance
from delvec_service.api.resource import resource_router
from delvec_service.api.tables import resource
from delvec_service.cloning.clone import Cloned, NotCloned, clone
from delvec_service.logs import note

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
    note(change=f"to {body.name or body.location}")
    access.require_place(service.tables, body.location, body.name)
    transaction_id = idempotency_key or str(uuid.uuid4())
    done = clone(
        table,
        service.tables,
        service.loader,
        service.commits,
        service.clone_store,
        body,
        transaction_id,
        access,
    )
    if isinstance(done, Cloned):
        if not done.replaced:
            made = service.tables.open(done.record.id)
            service.log_maintenance.committed(made, done.version, transaction_id)
            service.manifests.created(made)
        return CloneResponse(
            result="replaced" if done.replaced else "created",
            table=resource(done.record, done.version),
            version=done.version,
            source_version=done.source_version,
            operation_metrics=done.metrics,
        )
    if isinstance(done, NotCloned):
        return CloneResponse(
            result="exists",
            table=resource(done.record),
            version=None,
            source_version=None,
            operation_metrics={},
        )
    raise done.error(table.name)
