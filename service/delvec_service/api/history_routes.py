"""``…/history`` and ``…/detail``: what DESCRIBE HISTORY and DESCRIBE DETAIL return."""

from typing import Annotated

from fastapi import Query

from delvec_contract.tables import DetailResponse, HistoryResponse
from delvec_service.api.dependencies import PointInTime, ServiceState, Table
from delvec_service.api.problems import COMMON, OPENING, SNAPSHOT, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.scans.describe import detail_answer, history_answer

__all__ = ["router"]

router = resource_router("reading", Route)


@router.get("/tables/{table}/history", responses=responses(*COMMON, *OPENING, *SNAPSHOT))
def get_history(
    table: Table,
    limit: Annotated[
        int | None, Query(ge=1, lt=2**31, description=("How many commits to return, newest first."))
    ] = None,
) -> HistoryResponse:
    """Return the commits that the log still has, newest first, with Delta's columns."""
    return history_answer(table, limit)


@router.get("/tables/{table}/detail", responses=responses(*COMMON, *OPENING, *SNAPSHOT))
def get_detail(table: Table, service: ServiceState, moment: PointInTime) -> DetailResponse:
    """Return the details of a table, with Delta's columns."""
    return detail_answer(service.loader, table, version=moment.version, timestamp=moment.timestamp)
