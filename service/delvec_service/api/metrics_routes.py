"""``/metrics``: metrics of the service, in Prometheus and OpenMetrics format.

Tested in `tests/integration/service/test_metrics.py`.
"""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Final

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Header, Request, Response

from delvec_errors import BadRequest, DelvecError, ServiceUnavailable
from delvec_service.api.dependencies import ServiceState
from delvec_service.api.lanes import Lanes
from delvec_service.api.problems import COMMON, responses
from delvec_service.api.resource import resource_router
from delvec_service.logs import logger
from delvec_service.service import Service
from delvec_service.telemetry.observer import Gauges
from delvec_service.telemetry.table_metrics import band_lines, database_line, iceberg_lines, table_lines

__all__ = ["gauges", "router"]

_MAX_TABLES: Final = 1000
_DATABASE_SECONDS: Final = 5.0
_AT_ONCE: Final = 2

router = resource_router("probes", prefix="")


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Metrics as text; OpenMetrics if the client accepts it.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **responses(*COMMON),
    },
)
async def metrics(
    request: Request,
    service: ServiceState,
    accept: Annotated[
        str, Header(description="OpenMetrics if it names that format; otherwise Prometheus' text format.")
    ] = "text/plain",
) -> Response:
    """Return the metrics of the service.

    The request never waits in a queue: metrics matter most when other requests do.
    """
    if not service.settings.metrics:
        raise BadRequest("Metrics are turned off; turn them on with DELVEC_METRICS=true.")
    lines = await _database_lines(request, service, openmetrics="openmetrics" in accept)
    found = await anyio.to_thread.run_sync(
        service.observer.expose, accept, gauges(service, request.app.state.lanes), lines
    )
    assert found is not None  # noqa: S101 - metrics are on
    content, media_type = found
    return Response(content, media_type=media_type)


def gauges(service: Service, admission: Lanes) -> Gauges:
    """Return gauges of this process, measured on request."""
    connections = service.database.connections()
    lanes = admission.loads()
    return {
        "cache_bytes": {
            ("snapshots",): service.loader.nbytes,
            ("deletion-vectors",): service.commits.vectors.nbytes,
        },
        "database_connections": {("in-use",): connections.in_use, ("idle",): connections.idle},
        "database_connections_limit": {(): connections.limit},
        "lane_requests": {
            (kind, state): load
            for kind, loads in lanes.items()
            for state, load in zip(("running", "waiting"), loads, strict=True)
        },
        "background_task_backlog": {
            (task,): waiting for task, waiting in service.log_maintenance.backlog().items()
        },
    }


async def _database_lines(request: Request, service: Service, *, openmetrics: bool) -> bytes:
    """Return gauges from the database, or only that it is down if it does not answer in time."""
    state = request.app.state
    if not hasattr(state, "metrics_threads"):
        # Separate threads: a stuck database must not take threads from anything else.
        state.metrics_threads = CapacityLimiter(_AT_ONCE)
    future = asyncio.ensure_future(
        anyio.to_thread.run_sync(_look, service, openmetrics, limiter=state.metrics_threads)
    )
    finished, _ = await asyncio.wait((future,), timeout=_DATABASE_SECONDS)
    try:
        if not finished:
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise ServiceUnavailable("The database does not answer.")
        return future.result()
    except DelvecError as error:
        logger.warning("metrics without the database", reason=error.message)
        return database_line(is_up=False, openmetrics=openmetrics)


def _look(service: Service, openmetrics: bool) -> bytes:
    store, catalog = service.health.store, service.tables.catalog
    patterns = service.settings.metrics_tables
    lines = band_lines(store.bands(catalog), openmetrics=openmetrics)
    if patterns:
        lines += table_lines(store.observed(catalog, patterns, _MAX_TABLES), openmetrics=openmetrics)
        converted = service.iceberg_conversions.observed(catalog, patterns, _MAX_TABLES)
        lines += iceberg_lines(converted, datetime.now(UTC))
    return database_line(is_up=True, openmetrics=openmetrics) + lines
