"""``/v1/convert``: turn Parquet files into a table in place."""

import uuid

from delvec_contract.tables import ConvertRequest, ConvertResponse
from delvec_errors import (
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
from delvec_service.api.dependencies import Caller, ServiceState
from delvec_service.api.problems import MUTATION, SNAPSHOT, responses
from delvec_service.api.repeats import IdempotencyKey, Maintenance
from delvec_service.api.resource import resource_router
from delvec_service.cloning.convert import convert
from delvec_service.logs import bind_log_context
from delvec_service.registration import resource

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
    bind_log_context(table=body.name, change=body.location)
    access.require_place(service.tables, body.location, body.name)
    if body.source_format == "iceberg":
        access.require_all("admin", "importing Iceberg tables, whose metadata may name any file,")
    transaction_id = idempotency_key or str(uuid.uuid4())
    convert_result = convert(service.tables, service.clone_store, body, transaction_id, access)
    bind_log_context(
        table=convert_result.record.name, table_id=convert_result.record.id, version=convert_result.version
    )
    if convert_result.version is not None:
        made = service.tables.open(convert_result.record.id)
        service.log_maintenance.committed(made, convert_result.version, transaction_id)
        service.events.committed(made)
        service.manifests.created(made)
    return ConvertResponse(
        result="exists" if convert_result.version is None else "converted",
        table=resource(convert_result.record, convert_result.version),
        version=convert_result.version,
        operation_metrics=convert_result.metrics,
    )
