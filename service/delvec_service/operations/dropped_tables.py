"""Managed tables that were dropped: list them, bring them back, delete their files.

Tested in `tests/integration/service/catalog/test_dropped_tables.py`.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from delvec_contract.parameters import DroppedTablesParameters
from delvec_contract.tables import (
    DeleteDroppedRequest,
    DeletedTableResponse,
    DroppedTableResource,
    DroppedTablesResponse,
    TableResource,
    UndropRequest,
)
from delvec_service.logs import bind_log_context
from delvec_service.operations.call import Call
from delvec_service.operations.tables import closed, resource
from delvec_service.page_tokens import page_token, place_of
from delvec_service.service import Service
from delvec_service.store.dropped_tables import DroppedTable, not_dropped
from delvec_service.vacuum.dropped_folders import delete_dropped

_LISTED: Final = "dropped tables by name"


def list_dropped_tables(call: Call[DroppedTablesParameters]) -> DroppedTablesResponse:
    """List the managed tables that were dropped and whose files are not deleted yet, ordered by name."""
    service, access, request = call.service, call.access, call.request
    page = access.page(
        service.tables.dropped.page,
        lambda dropped: (dropped.record.name, dropped.record.id),
        lambda dropped: access.sees(dropped.record.id, dropped.record.name),
        place_of(request.page_token, _LISTED, str, str) if request.page_token else ("", ""),
        request.page_size,
    )
    last = page[-1].record if len(page) == request.page_size else None
    return DroppedTablesResponse(
        tables=[_resource(service, dropped) for dropped in page],
        next_page_token=None if last is None else page_token(_LISTED, last.name, last.id),
    )


def undrop_table(call: Call[UndropRequest]) -> TableResource:
    """Bring a dropped table back, with its id, policies and grants."""
    dropped = _dropped(call)
    if call.request.name is not None:
        call.access.require_name(call.request.name, "maintainer")
    return resource(call.service.tables.bring_back(dropped.record, call.request.name))


def delete_dropped_table(call: Call[DeleteDroppedRequest]) -> DeletedTableResponse:
    """Delete the files of a dropped table once their retention has ended."""
    service, table = call.service, _dropped(call)
    deleted_table = delete_dropped(
        service.tables,
        service.loader,
        service.clone_store,
        table,
        datetime.now(UTC),
        retention=_retention(service) if call.request.enforce_retention else timedelta(0),
        shows=lambda location: service.tables.places.shows(location, call.access),
    )
    closed(service, table.record)
    return DeletedTableResponse(
        table=table.record.name,
        num_files=deleted_table.num_files,
        size_in_bytes=deleted_table.size_in_bytes,
        kept=deleted_table.kept[:1000],
    )


def _dropped(call: Call[UndropRequest] | Call[DeleteDroppedRequest]) -> DroppedTable:
    """Return the dropped table of the path, which only an admin of it may bring back or delete, as for DROP.

    Raises:
        TableNotFound: there is none, or none that the caller may see.
        PermissionDenied: it lacks the role.
    """
    access, name_or_id = call.access, call.path["dropped"]
    access.is_decided = True
    dropped = call.service.tables.dropped.get(name_or_id)
    record = dropped.record
    if not access.sees(record.id, record.name):
        access.was_denied = True
        raise not_dropped(name_or_id)
    bind_log_context(table=record.name, table_id=record.id, change=record.location)
    access.require(record, "admin")
    return dropped


def _retention(service: Service) -> timedelta:
    return timedelta(days=service.settings.dropped_table_days)


def _resource(service: Service, dropped: DroppedTable) -> DroppedTableResource:
    record = dropped.record
    return DroppedTableResource(
        id=record.id,
        name=record.name,
        location=record.location,
        dropped_at=dropped.dropped_at.isoformat(),
        kept_until=(dropped.dropped_at + _retention(service)).isoformat(),
        is_being_deleted=dropped.is_being_deleted,
    )
