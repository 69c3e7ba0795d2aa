"""``…/health``: how much care a table needs."""

from typing import Annotated

from fastapi import APIRouter, Query

from delvec_kernel.wire import HealthResponse
from delvec_service.api.dependencies import PointInTime, ServiceState, Table
from delvec_service.api.problems import COMMON, OPENING, SNAPSHOT, responses
from delvec_service.api.routes import Route
from delvec_service.maintenance.health import health

__all__ = ["router"]

router = APIRouter(tags=["reading"], route_class=Route)


@router.get("/tables/{table}/health", responses=responses(*COMMON, *OPENING, *SNAPSHOT))
def get_health(
    table: Table,
    service: ServiceState,
    moment: PointInTime,
    files: Annotated[
        int,
        Query(ge=0, le=1000, description="How many files each recommendation names, the costliest first."),
    ] = 0,
    partitions: Annotated[
        int, Query(ge=0, le=10_000, description="How many partitions to report on, the costliest first.")
    ] = 0,
) -> HealthResponse:
    """Return deleted rows, small files, deletion vector files, and what to do about them, from the log alone."""
    overwritten = service.own_commits.overwritten(table.location)
    return service.loader.reading(
        table.objects,
        table.name,
        lambda snapshot: health(
            snapshot, table.objects, table.name, overwritten, traced=files, partitions=partitions
        ),
        version=moment.version,
        timestamp=moment.timestamp,
    )
