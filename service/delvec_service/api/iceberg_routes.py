"""``…/iceberg``: the table for Iceberg readers."""

from delvec_contract.maintenance import IcebergRequest, IcebergResponse
from delvec_errors import (
    CorruptDeletionVector,
    CorruptIcebergMetadata,
    CorruptTable,
    EngineUnavailable,
    IcebergCatalogError,
    IcebergUnsupported,
)
from delvec_service.api.dependencies import Caller, ServiceState, Table
from delvec_service.api.problems import MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import Maintenance
from delvec_service.api.resource import resource_router

__all__ = ["router"]


router = resource_router("maintenance", Maintenance)


@router.post(
    "/tables/{table}/iceberg",
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        IcebergUnsupported,
        CorruptTable,
        CorruptDeletionVector,
        CorruptIcebergMetadata,
        EngineUnavailable,
        IcebergCatalogError,
    ),
)
def convert_to_iceberg(
    table: Table, service: ServiceState, access: Caller, body: IcebergRequest | None = None
) -> IcebergResponse:
    """Update the table's Iceberg metadata to its newest version. Deleted rows become Iceberg deletes."""
    request = body or IcebergRequest()
    iceberg_table = service.iceberg.publish(
        table,
        format_version=request.format_version,
        squash=request.squash,
        catalog=request.catalog,
        requester=access,
    )
    return IcebergResponse(
        table=table.name,
        format_version=request.format_version,
        metadata_location=iceberg_table.metadata_location,
        delta_version=iceberg_table.delta_version,
        snapshot_id=iceberg_table.snapshot_id,
        catalog=iceberg_table.catalog,
        warning=iceberg_table.directory.warning,
    )
