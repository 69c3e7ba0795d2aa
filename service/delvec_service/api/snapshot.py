"""``…/snapshot``: a table at one version."""

from typing import Annotated

from fastapi import Query

from delvec_contract.shapes import Column
from delvec_contract.tables import SnapshotResponse
from delvec_errors import UnknownColumn
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.api.dependencies import PointInTime, ServiceState, Table
from delvec_service.api.problems import COMMON, OPENING, SNAPSHOT, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.operations import snapshot_fields
from delvec_service.scans.describe import column_ranges

__all__ = ["router"]

router = resource_router("reading", Route)


@router.get("/tables/{table}/snapshot", responses=responses(*COMMON, *OPENING, *SNAPSHOT, UnknownColumn))
def get_snapshot(
    table: Table,
    service: ServiceState,
    moment: PointInTime,
    range_of: Annotated[
        list[Column] | None,
        Query(
            alias="range",
            max_length=32,
            description="Also return the minimum and maximum of this column, if statistics determine them exactly; may be "
            "given several times.",
        ),
    ] = None,
) -> SnapshotResponse:
    """Return a table's protocol, metadata and totals, at the newest version unless requested otherwise."""
    if not range_of:
        snapshot = service.loader.load(
            table.objects, table.name, version=moment.version, timestamp=moment.timestamp
        )
        return SnapshotResponse(**snapshot_fields(table.record, snapshot, service.loader))

    def look(snapshot: Snapshot) -> SnapshotResponse:
        found = column_ranges(snapshot, range_of, table.name)
        return SnapshotResponse(
            **snapshot_fields(table.record, snapshot, service.loader), column_ranges=found
        )

    return service.loader.reading(
        table.objects, table.name, look, version=moment.version, timestamp=moment.timestamp
    )
