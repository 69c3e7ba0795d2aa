"""``…/snapshot``: a table at one version."""

from typing import Annotated

from fastapi import Query

from delvec_contract.shapes import Column
from delvec_contract.tables import SnapshotResponse
from delvec_errors import UnknownColumn
from delvec_service.api.dependencies import PointInTime, ServiceState, Table
from delvec_service.api.problems import COMMON, OPENING, SNAPSHOT, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.scans.describe import snapshot_answer

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
    return snapshot_answer(
        service.loader,
        table,
        version=moment.version,
        timestamp=moment.timestamp,
        ranges=range_of or (),
    )
