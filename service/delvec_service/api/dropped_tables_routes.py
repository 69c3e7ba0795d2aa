"""``/v1/dropped-tables``: managed tables that were dropped: list them, bring them back, delete their files.

Tested in `tests/integration/service/catalog/test_dropped_tables.py`.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias

from fastapi import Path, Query

from delvec_contract.tables import (
    DeleteDroppedRequest,
    DeletedTableResponse,
    DroppedTableResource,
    DroppedTablesResponse,
    TableResource,
    UndropRequest,
)
from delvec_errors import (
    CorruptDeletionVector,
    CorruptTable,
    LocationNotAllowed,
    PermissionDenied,
    RetentionTooShort,
    TableAlreadyExists,
    TableInUse,
    TableNotFound,
    VacuumIncomplete,
)
from delvec_service.api.dependencies import Caller, ServiceState
from delvec_service.api.problems import COMMON, MUTATION, SNAPSHOT, responses
from delvec_service.api.repeats import Maintenance, Mutation
from delvec_service.api.resource import resource_router
from delvec_service.auth.request_access import Access
from delvec_service.logs import bind_log_context
from delvec_service.page_tokens import LONGEST_TOKEN, page_token, place_of
from delvec_service.registration import closed, resource
from delvec_service.service import Service
from delvec_service.store.dropped_tables import DroppedTable, not_dropped
from delvec_service.vacuum.dropped_folders import delete_dropped

__all__ = ["routers"]

_changes, _maintenance = resource_router("tables", Mutation), resource_router("tables", Maintenance)

_LISTED: Final = "dropped tables by name"
_Dropped: TypeAlias = Annotated[
    str,
    Path(max_length=200, description="A dropped table, by id, or by name: the one that was dropped last."),
]


@_changes.get("/dropped-tables", responses=responses(*COMMON))
def list_dropped_tables(
    access: Caller,
    service: ServiceState,
    page_size: Annotated[int, Query(alias="page-size", ge=1, le=1000)] = 100,
    token: Annotated[str, Query(alias="page-token", max_length=LONGEST_TOKEN)] = "",
) -> DroppedTablesResponse:
    """List the managed tables that were dropped and whose files are not deleted yet, ordered by name."""
    page = access.page(
        service.tables.dropped.page,
        lambda dropped: (dropped.record.name, dropped.record.id),
        lambda dropped: access.sees(dropped.record.id, dropped.record.name),
        place_of(token, _LISTED, str, str) if token else ("", ""),
        page_size,
    )
    last = page[-1].record if len(page) == page_size else None
    return DroppedTablesResponse(
        tables=[_resource(service, dropped) for dropped in page],
        next_page_token=None if last is None else page_token(_LISTED, last.name, last.id),
    )


@_changes.post(
    "/dropped-tables/{dropped}/undrop",
    responses=responses(
        *MUTATION, *SNAPSHOT, TableNotFound, TableAlreadyExists, PermissionDenied, LocationNotAllowed
    ),
)
def undrop_table(
    dropped: _Dropped, service: ServiceState, access: Caller, body: UndropRequest | None = None
) -> TableResource:
    """Bring a dropped table back, with its id, policies and grants."""
    found = _found(service, access, dropped)
    name = None if body is None else body.name
    if name is not None:
        access.require_name(name, "maintainer")
    return resource(service.tables.bring_back(found.record, name))


@_maintenance.post(
    "/dropped-tables/{dropped}/delete",
    responses=responses(
        *MUTATION,
        *SNAPSHOT,
        TableNotFound,
        PermissionDenied,
        LocationNotAllowed,
        RetentionTooShort,
        TableInUse,
        CorruptTable,
        CorruptDeletionVector,
        VacuumIncomplete,
    ),
)
def delete_dropped_table(
    dropped: _Dropped, service: ServiceState, access: Caller, body: DeleteDroppedRequest | None = None
) -> DeletedTableResponse:
    """Delete the files of a dropped table, when the time is over for which they are kept."""
    table = _found(service, access, dropped)
    enforces = body is None or body.enforce_retention
    deleted_table = delete_dropped(
        service.tables,
        service.loader,
        service.clone_store,
        table,
        datetime.now(UTC),
        retention=_retention(service) if enforces else timedelta(0),
        shows=lambda location: service.tables.places.shows(location, access),
    )
    closed(service, table.record)
    return DeletedTableResponse(
        table=table.record.name,
        num_files=deleted_table.num_files,
        size_in_bytes=deleted_table.size_in_bytes,
        kept=deleted_table.kept[:1000],
    )


def _found(service: Service, access: Access, name_or_id: str) -> DroppedTable:
    """Return a dropped table that the caller may bring back or delete: an admin of it, as for DROP.

    Raises:
        TableNotFound: there is none, or none that the caller may see.
        PermissionDenied: it lacks the role.
    """
    access.is_decided = True
    dropped = service.tables.dropped.get(name_or_id)
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


routers: Final = (_changes, _maintenance)
