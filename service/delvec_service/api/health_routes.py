"""``/v1/health`` and ``…/health``: how much maintenance tables need.

Tested in `tests/integration/client/test_health.py`.
"""

from typing import Annotated, Any, TypeAlias

from fastapi import Query
from pydantic import StringConstraints

from delvec_contract.health import HealthListResponse, HealthResponse, HealthSamplesResponse, TableHealth
from delvec_contract.health_metrics import HealthOrder
from delvec_contract.shapes import Column
from delvec_errors import InvalidTableChange, UnknownColumn
from delvec_service.api.dependencies import Caller, PointInTime, ServiceState, Table
from delvec_service.api.problems import COMMON, OPENING, SNAPSHOT, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.maintenance.health import health_answer
from delvec_service.page_tokens import LONGEST_TOKEN, page_token, place_of
from delvec_service.snapshots.time_travel import moment_of

__all__ = ["router"]

router = resource_router("reading", Route)

_Path: TypeAlias = Annotated[str, StringConstraints(max_length=2000)]


@router.get(
    "/tables/{table}/health",
    responses=responses(*COMMON, *OPENING, *SNAPSHOT, UnknownColumn, InvalidTableChange),
)
def get_health(
    table: Table,
    service: ServiceState,
    moment: PointInTime,
    files: Annotated[
        int,
        Query(ge=0, le=1000, description="How many files to list per recommendation, costliest first."),
    ] = 0,
    partitions: Annotated[
        int, Query(ge=0, le=10_000, description="How many partitions to report on, costliest first.")
    ] = 0,
    file: Annotated[
        list[_Path] | None,
        Query(
            max_length=16,
            description=(
                "Live files, by their paths in the log, to look up in storage in addition to a sample: those that could "
                "not be read. Repeatable."
            ),
        ),
    ] = None,
    column: Annotated[
        list[Column] | None,
        Query(
            max_length=32,
            description=(
                "Also report how much files overlap in this column or struct field; repeatable. Clustering columns "
                "are always included."
            ),
        ),
    ] = None,
) -> HealthResponse:
    """Return deleted rows, small files, deletion vector files and recommendations.

    They come from the log. Of the newest version a sample of live files is also looked up in storage; if one of them is
    missing or damaged, or if the last `…/check` found errors, the score is 0, and only a check is recommended.
    """
    return health_answer(
        service.loader,
        service.health,
        table,
        service.overwrite_watch.overwritten(table.location),
        version=moment.version,
        timestamp=moment.timestamp,
        files=files,
        partitions=partitions,
        failed=file or (),
        columns=column or (),
    )


@router.get("/tables/{table}/health/samples", responses=responses(*COMMON, *OPENING))
def list_health_samples(
    table: Table,
    service: ServiceState,
    since: Annotated[
        str | None,
        Query(
            max_length=64,
            description=("Only samples at or after this time, in ISO 8601; UTC if it has no time zone."),
        ),
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=100_000, description="How many samples to return, newest first.")
    ] = 1000,
) -> HealthSamplesResponse:
    """Return the table's health after each version, as recorded at the time. The log is not read."""
    start = None if since is None else moment_of("since", since)
    samples = service.health.store.series(table.record.id, start, limit)
    return HealthSamplesResponse(table=table.name, samples=list(samples))


@router.get("/health", responses=responses(*COMMON))
def list_health(
    service: ServiceState,
    access: Caller,
    order_by: Annotated[
        HealthOrder,
        Query(
            alias="order-by",
            description=("Sort order: the lowest score first, or the highest value of another measure."),
        ),
    ] = "score",
    min_deleted_ratio: Annotated[
        float | None,
        Query(
            alias="min-deleted-ratio",
            ge=0,
            le=1,
            allow_inf_nan=False,
            description="Only tables with at least this share of their rows known to be deleted.",
        ),
    ] = None,
    search: Annotated[
        str | None,
        Query(max_length=128, description="Only tables whose names contain this text, ignoring case."),
    ] = None,
    namespace: Annotated[
        str | None,
        Query(
            max_length=128,
            description="Only tables of this namespace: the part of a name before its last dot; empty for names without one.",
        ),
    ] = None,
    page_size: Annotated[int, Query(alias="page-size", ge=1, le=1000)] = 100,
    token: Annotated[str, Query(alias="page-token", max_length=LONGEST_TOKEN)] = "",
) -> HealthListResponse:
    """List the registered tables, those that need most maintenance first, as of their newest commits."""
    order = f"health by {order_by}"
    store, catalog, start = (
        service.health.store,
        service.tables.catalog,
        place_of(token, order, float, str, str) if token else None,
    )
    filters: dict[str, Any] = {
        "min_deleted_ratio": min_deleted_ratio,
        "search": search,
        "namespace": namespace,
    }
    page = access.page(
        lambda after, limit: store.page(catalog, order_by, after=after, limit=limit, **filters),
        lambda one: (one.sort_key, one.name, one.id),
        lambda one: access.sees(one.id, one.name),
        start,
        page_size,
    )
    visible = access.sees if access.is_restricted else None
    count, left = store.num_listed(catalog, order_by, after=start, visible=visible, **filters)
    more = len(page) < left
    return HealthListResponse(
        tables=[
            TableHealth(id=one.id, name=one.name, location=one.location, sample=one.sample) for one in page
        ],
        num_tables=count,
        num_before=count - left,
        next_page_token=page_token(order, page[-1].sort_key, page[-1].name, page[-1].id) if more else None,
    )
