"""Bearer tokens, grants of roles, credentials for data files, and who did what.

Tested in `tests/integration/service/auth/test_request_access.py` and `tests/integration/service/auth/test_audit.py`.
"""

from datetime import UTC, datetime

from delvec_contract.access import (
    AccessResponse,
    AuditEntry,
    AuditResponse,
    CreatedToken,
    CredentialsResponse,
    GrantRequest,
    GrantScope,
    GrantsResponse,
    RoleGrant,
    StorageCredential,
    TokenRequest,
    TokenResource,
    TokensResponse,
)
from delvec_contract.parameters import (
    AccessParameters,
    AuditParameters,
    CredentialsParameters,
    GrantParameters,
    GrantsParameters,
)
from delvec_errors import BadRequest, TableNotFound
from delvec_service.auth.request_access import Access
from delvec_service.logs import bind_log_context
from delvec_service.operations.call import Call
from delvec_service.snapshots.time_travel import since_of
from delvec_service.store.audit_store import AuditRecord
from delvec_service.store.grants import GrantRecord, TokenRecord


def get_access(call: Call[AccessParameters]) -> AccessResponse:
    """Return the principal that the token belongs to, and the grants that apply to it."""
    access, table = call.access, call.request.table
    principal, role = access.principal, None
    if table is not None:
        record = call.service.tables.find(table, access)
        access.require(record, "reader", table)
        role = access.rights.on_table(record.id, record.name)
    return AccessResponse(
        principal=None if principal is None else principal.name,
        groups=[] if principal is None else list(principal.groups),
        grants=[_grant(one) for one in access.rights.grants],
        is_restricted=access.is_restricted,
        role=role,
    )


def create_token(call: Call[TokenRequest]) -> CreatedToken:
    """Create a bearer token.

    Only this answer contains the token: the service stores a hash. If the service accepted requests without a token
    so far, it requires one from now on.
    """
    request = call.request
    bind_log_context(change=f"token {request.name} of {request.principal or request.name}")
    made, secret = call.service.directory.create(
        request.name, request.principal, request.expires_at, call.access.name
    )
    return CreatedToken(**_token(made).model_dump(), token=secret)


def list_tokens(call: Call[None]) -> TokensResponse:
    """List the bearer tokens by name, without their secrets; expired and revoked ones are included."""
    return TokensResponse(tokens=[_token(one) for one in call.service.directory.store.tokens()])


def revoke_token(call: Call[None]) -> TokenResource:
    """Revoke a bearer token. It stops working at once here, and within two seconds on other replicas."""
    bind_log_context(change=f"token {call.path['token']}")
    return _token(call.service.directory.revoke_token(call.path["token"]))


def grant_role(call: Call[GrantRequest]) -> RoleGrant:
    """Grant a role on a table, a name pattern, a namespace or everything.

    It replaces the grantee's previous role there.
    """
    request = call.request
    bind_log_context(change=f"{request.role} on {_described(request)} for {request.grantee}")
    scope, target, table = _scope(call)
    made = GrantRecord(
        request.grantee, request.role, scope, target, datetime.now(UTC), call.access.name, table
    )
    call.service.directory.grant(made)
    return _grant(made)


def list_grants(call: Call[GrantsParameters]) -> GrantsResponse:
    """List the grants by grantee. A caller sees only grants on what it administers."""
    listed = call.service.directory.grants()
    call.access.is_decided = True
    return GrantsResponse(
        grants=[
            _grant(one)
            for one in listed
            if call.request.grantee in (None, one.grantee) and _administers(call.access, one)
        ]
    )


def revoke_role(call: Call[GrantParameters]) -> None:
    """Revoke a role where it was granted."""
    request = call.request
    if (
        sum(each is not None for each in (request.table, request.pattern, request.namespace))
        + request.all_tables
        != 1
    ):
        raise BadRequest("Give exactly one of table, pattern, namespace and all-tables.")
    bind_log_context(change=f"no role on {_described(request)} for {request.grantee}")
    scope, target, _ = _scope(call)
    call.service.directory.revoke(
        GrantRecord(request.grantee, "admin", scope, target, datetime.now(UTC), call.access.name)
    )


def vend_credentials(call: Call[CredentialsParameters]) -> CredentialsResponse:
    """Issue short-lived object store credentials for the files of this table only.

    Commits still go through the service: no credentials allow writing to the log.
    """
    table, operation = call.table, call.request.operation
    bind_log_context(change=operation)
    if operation == "READ_WRITE":
        call.access.require(table.record, "writer")
    call.service.tables.places.check_table(table.record, call.access)
    credentials = call.service.credentials.vend(table.location, operation, call.access.name)
    return CredentialsResponse(
        storage_credentials=[
            StorageCredential(
                prefix=f"{table.location}/",
                operation=operation,
                expiration_time_ms=int(credentials.expires_at.timestamp() * 1000),
                config=dict(credentials.config),
            )
        ]
    )


def list_audit(call: Call[AuditParameters]) -> AuditResponse:
    """List who changed what, and which requests were denied, newest first.

    Maintainers see the entries of their tables; admins of everything see all entries.
    """
    request, audit = call.request, call.service.audit
    about = _about(call)
    since = since_of(request.since)
    audit.flush()  # Written first, so that callers see their own changes.
    page = audit.store.page(
        **about,
        principal=request.principal,
        outcome=request.outcome,
        since=since,
        before=request.page_token or None,
        limit=request.page_size,
    )
    return AuditResponse(
        entries=[_entry(one) for one in page],
        next_page_token=page[-1].id if len(page) == request.page_size else None,
    )


def _described(request: GrantRequest | GrantParameters) -> str:
    return request.table or request.pattern or request.namespace or "everything"


def _scope(call: Call[GrantRequest] | Call[GrantParameters]) -> tuple[GrantScope, str, str | None]:
    """Return the scope and target of a grant, and the table's name. Only their admins may ask."""
    access, request = call.access, call.request
    if request.table is not None:
        bind_log_context(table=request.table)
        record = call.service.tables.find(request.table, access)
        bind_log_context(table=record.name, table_id=record.id)
        access.require(record, "admin", request.table)
        return "table", record.id, record.name
    scope: GrantScope = (
        "all" if request.all_tables else "namespace" if request.namespace is not None else "pattern"
    )
    target = request.namespace or request.pattern or ""
    access.require_scope(scope, target, "admin")
    return scope, target, None


def _administers(access: Access, grant: GrantRecord) -> bool:
    if grant.scope != "table":
        return access.covers(grant.scope, grant.target, "admin")
    return access.rights.on_table(grant.target, grant.table or "") == "admin"


def _grant(grant_record: GrantRecord) -> RoleGrant:
    return RoleGrant(
        grantee=grant_record.grantee,
        role=grant_record.role,
        scope=grant_record.scope,
        target=grant_record.target,
        table=grant_record.table,
        granted_at=grant_record.granted_at.isoformat(),
        granted_by=grant_record.granted_by,
    )


def _token(token_record: TokenRecord) -> TokenResource:
    expired = token_record.expires_at is not None and token_record.expires_at <= datetime.now(UTC)
    return TokenResource(
        name=token_record.name,
        principal=token_record.principal,
        state="revoked" if token_record.revoked_at is not None else "expired" if expired else "active",
        created_at=token_record.created_at.isoformat(),
        created_by=token_record.created_by,
        expires_at=None if token_record.expires_at is None else token_record.expires_at.isoformat(),
        revoked_at=None if token_record.revoked_at is None else token_record.revoked_at.isoformat(),
    )


def _about(call: Call[AuditParameters]) -> dict[str, str]:
    """Return the id of the table in question.

    Maintainers of only that table get the entries recorded under its id: its name may have belonged to another table
    before.
    """
    access, table = call.access, call.request.table
    if table is None:
        access.require_all("admin", "the audit log (pass table= for one table's entries)")
        return {}
    try:
        record = call.service.tables.find(table, access)
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
