"""How much maintenance tables need.

Tested in `tests/integration/client/test_health.py`.
"""

from typing import Any

from delvec_contract.health import HealthListResponse, HealthResponse, HealthSamplesResponse, TableHealth
from delvec_contract.parameters import HealthListParameters, HealthParameters, HealthSamplesParameters
from delvec_service.maintenance.health import health_answer
from delvec_service.operations.call import Call
from delvec_service.operations.descriptions import check_moment
from delvec_service.page_tokens import page_token, place_of
from delvec_service.snapshots.time_travel import since_of


def get_health(call: Call[HealthParameters]) -> HealthResponse:
    """Return deleted rows, small files, deletion vector files and recommendations.

    They come from the log. Of the newest version a sample of live files is also looked up in storage; if one of them is
    missing or damaged, or if the last `…/check` found errors, the score is 0, and only a check is recommended.
    """
    table, service = call.table, call.service
    check_moment(call.request)
    overwritten = service.overwrite_watch.overwritten(table.location)
    return health_answer(service.loader, service.health, table, overwritten, call.request)


def list_health_samples(call: Call[HealthSamplesParameters]) -> HealthSamplesResponse:
    """Return the table's health after each version, as recorded at the time. The log is not read."""
    table, request = call.table, call.request
    start = since_of(request.since)
    samples = call.service.health.store.series(table.record.id, start, request.limit)
    return HealthSamplesResponse(table=table.name, samples=list(samples))


def list_health(call: Call[HealthListParameters]) -> HealthListResponse:
    """List the registered tables, those that need most maintenance first, as of their newest commits."""
    access, request = call.access, call.request
    order = f"health by {request.order_by}"
    store, catalog = call.service.health.store, call.service.tables.catalog
    start = place_of(request.page_token, order, float, str, str) if request.page_token else None
    filters: dict[str, Any] = {
        "min_deleted_ratio": request.min_deleted_ratio,
        "search": request.search,
        "namespace": request.namespace,
    }
    page = access.page(
        lambda after, limit: store.page(catalog, request.order_by, after=after, limit=limit, **filters),
        lambda one: (one.sort_key, one.name, one.id),
        lambda one: access.sees(one.id, one.name),
        start,
        request.page_size,
    )
    visible = access.sees if access.is_restricted else None
    count, left = store.num_listed(catalog, request.order_by, after=start, visible=visible, **filters)
    more = len(page) < left
    return HealthListResponse(
        tables=[
            TableHealth(id=one.id, name=one.name, location=one.location, sample=one.sample) for one in page
        ],
        num_tables=count,
        num_before=count - left,
        next_page_token=page_token(order, page[-1].sort_key, page[-1].name, page[-1].id) if more else None,
    )
