"""``/v1/audit``: who changed what, and which requests were denied.

Tested in `tests/integration/service/auth/test_audit.py`.
"""

from typing import Annotated

from fastapi import Query

from delvec_contract.access import AuditEntry, AuditOutcome, AuditResponse
from delvec_errors import AmbiguousTable, PermissionDenied, TableNotFound
from delvec_service.api.dependencies import Caller, ServiceState
from delvec_service.api.problems import COMMON, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.auth.request_access import Access
from delvec_service.service import Service
from delvec_service.snapshots.time_travel import moment_of
from delvec_service.store.audit import AuditRecord

__all__ = ["router"]

router = resource_router("access", Route)


@router.get("/audit", responses=responses(*COMMON, PermissionDenied, TableNotFound, AmbiguousTable))
def list_audit(
    service: ServiceState,
    access: Caller,
    table: Annotated[
        str | None, Query(max_length=200, description="Only entries about this table, by name or id.")
    ] = None,
    principal: Annotated[
        str | None, Query(max_length=256, description="Only entries of this principal.")
    ] = None,
    outcome: Annotated[AuditOutcome | None, Query(description="Only requests with this outcome.")] = None,
    since: Annotated[
        str | None,
        Query(
            max_length=64,
            description=("Only entries at or after this time, in ISO 8601; UTC if it has no time zone."),
        ),
    ] = None,
    page_size: Annotated[int, Query(alias="page-size", ge=1, le=1000)] = 100,
    page_token: Annotated[str, Query(alias="page-token", max_length=32, pattern="^([0-9a-f]{30})?$")] = "",
) -> AuditResponse:
    """List who changed what, and which requests were denied, newest first.

    Maintainers see the entries of their tables; admins of everything see all entries.
    """
    about = _about(access, service, table)
    start = None if since is None else moment_of("since", since)
    service.audit.flush()  # Written first, so that callers see their own changes.
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
    """Return the id of the table in question.

    Maintainers of only that table get the entries recorded under its id: its name may have belonged to another table
    before.
    """
    if table is None:
        access.require_all("admin", "the audit log (pass table= for one table's entries)")
        return {}
    try:
        record = service.tables.find(table, access)
    except TableNotFound:
        if not access.covers("all", "", "admin"):
            raise
        return {
            "table_name": table,
            "table_id": table,
        }  # The table was removed from the registry, or never existed.
    access.require(record, "maintainer", table)
    about = {"table_id": record.id}
    return about if access.is_restricted else {**about, "table_name": record.name}


def _entry(audit_record: AuditRecord) -> AuditEntry:
    return AuditEntry(
        id=audit_record.id,
        answered_at=audit_record.answered_at.isoformat(),
        principal=audit_record.principal,
        request_id=audit_record.request_id,
        operation=audit_record.operation,
        table=audit_record.table_name,
        table_id=audit_record.table_id,
        change=audit_record.change,
        transaction_id=audit_record.transaction_id,
        version=audit_record.version,
        outcome=audit_record.outcome,
        status=audit_record.status,
        error_code=audit_record.error_code,
    )
