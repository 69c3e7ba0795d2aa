"""``/v1/convert``: turn Parquet files into a table in place."""

import uuid

from delvec_kernel.errors import (
    AtomicCreateUnsupported,
    InvalidCommit,
    InvalidLocation,
    InvalidSchema,
    InvalidTableChange,
    LocationNotAllowed,
    PermissionDenied,
    TableAlreadyExists,
    TableNotFound,
    UnsupportedOperation,
)
from delvec_kernel.wire import ConvertRequest, ConvertResponse
from delvec_service.api.dependencies import Caller, ServiceState
from delvec_service.api.problems import MUTATION, SNAPSHOT, responses
from delvec_service.api.repeats import IdempotencyKey, Maintenance
from delvec_service.api.resource import resource_router
from delvec_service.api.tables import resource
from delvec_service.cloning.convert import convert
from delvec_service.logs import note

__all__ = ["router"]


router = resource_router("tables", Maintenance)


@router.post(
    "/convert",
    responses=responses(
        *MUTATION,
        *SNAPSHOT,
        InvalidLocation,
        LocationNotAllowed,
        PermissionDenied,
        TableNotFound,
        TableAlreadyExists,
        UnsupportedOperation,
        InvalidSchema,
        InvalidTableChange,
        InvalidCommit,
        AtomicCreateUnsupported,
    ),
)
def convert_to_delta(
    body: ConvertRequest, service: ServiceState, access: Caller, idempotency_key: IdempotencyKey = None
) -> ConvertResponse:
    """Create a Delta table from the Parquet files of a directory. The log is written; no data file changes."""
    note(table=body.name, change=body.location)
    access.require_place(service.tables, body.location, body.name)
    if body.source_format == "iceberg":
        access.require_all("admin", "importing Iceberg tables, whose metadata may name any file,")
    transaction_id = idempotency_key or str(uuid.uuid4())
    done = convert(service.tables, service.clone_store, body, transaction_id, access)
    note(table=done.record.name, table_id=done.record.id, version=done.version)
    if done.version is not None:
        made = service.tables.open(done.record.id)
        service.log_maintenance.committed(made, done.version, transaction_id)
        service.manifests.created(made)
    return ConvertResponse(
        result="exists" if done.version is None else "converted",
        table=resource(done.record, done.version),
        version=done.version,
        operation_metrics=done.metrics,
    )
