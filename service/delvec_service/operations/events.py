"""What happens to tables, page by page.

Tested in `tests/integration/service/api/test_events.py`.
"""

from typing import Final

from delvec_contract.events import EventsResponse
from delvec_contract.parameters import EventsParameters
from delvec_errors import BadRequest
from delvec_service.events.cloud_events import cloud_event, cursor_of, position_of
from delvec_service.operations.call import Call

_LATEST: Final = "latest"


def list_events(call: Call[EventsParameters]) -> EventsResponse:
    """List the events of the tables that the caller may read, in the order in which they were recorded.

    With `Accept: text/event-stream` the answer is a stream of server-sent events, which resumes at `Last-Event-ID`.
    """
    service, access, request = call.service, call.access, call.request
    store = service.events.store
    if not store.is_enabled:
        raise BadRequest(
            "This service records no events; set DELVEC_EVENT_DAYS to the days to keep them for."
        )
    table_id = None
    if request.table is not None:
        record = service.tables.find(request.table, access)
        access.require(record, "reader", request.table)
        table_id = record.id
    outbox = store.outbox()
    start = outbox.position if request.cursor == _LATEST else position_of(outbox, request.cursor)
    page = access.page(
        lambda after, size: store.page(
            service.tables.catalog,
            after,
            types=request.type or (),
            table_id=table_id,
            namespace=request.namespace,
            limit=size,
        ),
        lambda one: one.position,
        lambda one: access.sees(one.event.table_id, one.table_name),
        start,
        request.limit,
    )
    # A page that is not full is the last one.
    is_full = len(page) == request.limit
    end = page[-1].position if is_full else max(outbox.position, *(one.position for one in page), 0)
    return EventsResponse(
        events=[cloud_event(outbox, one) for one in page],
        cursor=cursor_of(outbox, end),
        complete=request.cursor is None or start >= outbox.expired,
    )
