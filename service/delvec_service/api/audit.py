"""``/v1/audit``: who changed what, and who was not allowed to."""

from typing import Annotated

from fastapi import Query

from delvec_kernel.errors import AmbiguousTable, PermissionDenied, TableNotFound
from delvec_kernel.wire import AuditEntry, AuditResponse
from delvec_kernel.wire.access import AuditOutcome
from delvec_service.api.dependencies import Caller, Service, ServiceState
from delvec_service.api.problems import COMMON, responses
from delvec_service.api.resource import Resource
from delvec_service.api.routes import Route
from delvec_service.auth.access import Access
from delvec_service.snapshots.time_travel import moment_of
from delvec_service.store.audit import AuditRecord
from delvec_service.store.registry import not_found

__all__ = ["router"]

router = Resource(tags=["access"], route_class=Route)


@router.get("/audit", responses=responses(*COMMON, PermissionDenied, TableNotFound, AmbiguousTable))
def list_audit(
    service: ServiceState,
    access: Caller,
    table: Annotated[
        str | None, Query(max_length=200, description="Only entries about this table, by name or id.")
    ] = None,
    principal: Annotated[
        str | None, Query(max_length=256, description="Only entries of one principal.")
    ] = None,
    outcome: Annotated[AuditOutcome | None, Query(description="Only requests that ended so.")] = None,
    since: Annotated[
        str | None,
        Query(max_length=64, description="Only entries from then on: ISO 8601; without a zone it is UTC."),
    ] = None,
    page_size: Annotated[int, Query(alias="page-size", ge=1, le=1000)] = 100,
    page_token: Annotated[str, Query(alias="page-token", max_length=32, pattern="^[0-9a-f]*$")] = "",
) -> AuditResponse:
    """List who changed what, and who was not allowed to, the newest first: of a table, or of everything for admins of it."""
    about = _about(access, service, table)
    start = None if since is None else moment_of("since", since)
    service.audit.flush()  # who changes something, and asks then, finds it
    page = service.audit.store.page(
        **about,
        principal=principal,
        outcome=outcome,
        since=start,
        before=page_token or None,
        limit=page_size,
    )
    return AuditResponse(
        entries=[_entry(one) for one in page],
        next_page_token=page[-1].id if len(page) == page_size else None,
    )


def _about(access: Access, service: Service, table: str | None) -> dict[str, str]:
    """Return which table is meant: those who maintain no more than it get what is noted under its id alone.

    A name may have been another table's before.
    """
    if table is None:
        access.require_all("admin", "the audit log (name a table for its own entries)")
        return {}
    try:
        record = service.tables.find(table)
    except TableNotFound:
        if not access.covers("all", "", "admin"):
            raise
        return {"table_name": table, "table_id": table}  # it is gone, or never was
    except AmbiguousTable:
        if not access.covers("all", "", "reader"):
            raise not_found(table) from None  # the other names the places of all of them
        raise
    access.require(record, "maintainer", table)
    about = {"table_id": record.id}
    return about if access.is_restricted else {**about, "table_name": record.name}


def _entry(found: AuditRecord) -> AuditEntry:
    return AuditEntry(
        id=found.id,
        answered_at=found.answered_at.isoformat(),
        principal=found.principal,
        request_id=found.request_id,
        operation=found.operation,
        table=found.table_name,
        table_id=found.table_id,
        change=found.change,
        transaction_id=found.transaction_id,
        version=found.version,
        outcome=found.outcome,
        status=found.status,
        error_code=found.error_code,
    )
