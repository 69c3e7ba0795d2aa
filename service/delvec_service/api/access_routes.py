"""``/v1/tokens``, ``/v1/grants`` and ``/v1/access``: bearer tokens, and what principals are allowed to do.

Tested in `tests/integration/service/auth/test_request_access.py`.
"""

from datetime import UTC, datetime
from typing import Annotated, ClassVar, Final

from fastapi import Path, Query, status

from delvec_contract.access import (
    AccessResponse,
    CreatedToken,
    GrantRequest,
    GrantScope,
    GrantsResponse,
    Role,
    RoleGrant,
    TokenRequest,
    TokenResource,
    TokensResponse,
)
from delvec_errors import (
    AmbiguousTable,
    BadRequest,
    GrantNotFound,
    PermissionDenied,
    TableNotFound,
    TokenAlreadyExists,
    TokenNotFound,
)
from delvec_service.api.dependencies import Caller, ServiceState
from delvec_service.api.lanes import Kind
from delvec_service.api.problems import COMMON, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.auth.request_access import Access
from delvec_service.logs import bind_log_context
from delvec_service.service import Service
from delvec_service.store.grants import GrantRecord, TokenRecord

__all__ = ["routers"]


class _Administration(Route):
    """Has no ``Idempotency-Key``: answers are stored under their keys, and a stored answer must not contain a token."""

    kind: ClassVar[Kind] = "changes"


_reading = resource_router("access", Route)
_administration = resource_router("access", _Administration)


@_reading.get("/access", responses=responses(*COMMON, TableNotFound, AmbiguousTable))
def get_access(
    service: ServiceState,
    access: Caller,
    table: Annotated[
        str | None,
        Query(max_length=200, description="Also return the caller's role on this table; name or id."),
    ] = None,
) -> AccessResponse:
    """Return the principal that the token belongs to, and the grants that apply to it."""
    principal, role = access.principal, None
    if table is not None:
        record = service.tables.find(table, access)
        access.require(record, "reader", table)
        role = access.rights.on_table(record.id, record.name)
    return AccessResponse(
        principal=None if principal is None else principal.name,
        groups=[] if principal is None else list(principal.groups),
        grants=[_grant(one) for one in access.rights.grants],
        is_restricted=access.is_restricted,
        role=role,
    )


@_administration.post(
    "/tokens",
    status_code=status.HTTP_201_CREATED,
    responses=responses(*COMMON, PermissionDenied, TokenAlreadyExists),
)
def create_token(body: TokenRequest, service: ServiceState, access: Caller) -> CreatedToken:
    """Create a bearer token.

    Only this answer contains the token: the service stores a hash. If the service accepted requests without a token
    so far, it requires one from now on.
    """
    bind_log_context(change=f"token {body.name} of {body.principal or body.name}")
    made, secret = service.directory.create(body.name, body.principal, body.expires_at, access.name)
    return CreatedToken(**_token(made).model_dump(), token=secret)


@_administration.get("/tokens", responses=responses(*COMMON, PermissionDenied))
def list_tokens(service: ServiceState) -> TokensResponse:
    """List the bearer tokens by name, without their secrets; expired and revoked ones are included."""
    return TokensResponse(tokens=[_token(one) for one in service.directory.store.tokens()])


@_administration.delete("/tokens/{token}", responses=responses(*COMMON, PermissionDenied, TokenNotFound))
def revoke_token(
    token: Annotated[str, Path(max_length=128, description="The token's name.")], service: ServiceState
) -> TokenResource:
    """Revoke a bearer token. It stops working at once here, and within two seconds on other replicas."""
    bind_log_context(change=f"token {token}")
    return _token(service.directory.revoke_token(token))


@_administration.post(
    "/grants", responses=responses(*COMMON, PermissionDenied, TableNotFound, AmbiguousTable)
)
def grant_role(body: GrantRequest, service: ServiceState, access: Caller) -> RoleGrant:
    """Grant a role on a table, a name pattern, a namespace or everything.

    It replaces the grantee's previous role there.
    """
    on = body.table or body.pattern or body.namespace or "everything"
    bind_log_context(change=f"{body.role} on {on} for {body.grantee}")
    scope, target, table = _scope(
        access, service, body.table, body.pattern, body.namespace, all_tables=body.all_tables
    )
    made = GrantRecord(body.grantee, body.role, scope, target, datetime.now(UTC), access.name, table)
    service.directory.grant(made)
    return _grant(made)


@_administration.get("/grants", responses=responses(*COMMON))
def list_grants(
    service: ServiceState,
    access: Caller,
    grantee: Annotated[
        str | None, Query(max_length=256, description="Only the grants of this grantee.")
    ] = None,
) -> GrantsResponse:
    """List the grants by grantee. A caller sees only grants on what it administers."""
    found = service.directory.grants()
    access.is_decided = True
    return GrantsResponse(
        grants=[_grant(one) for one in found if grantee in (None, one.grantee) and _administers(access, one)]
    )


@_administration.delete(
    "/grants",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(*COMMON, PermissionDenied, TableNotFound, AmbiguousTable, GrantNotFound),
)
def revoke_role(
    service: ServiceState,
    access: Caller,
    grantee: Annotated[str, Query(max_length=256, description="Whose role to revoke.")],
    table: Annotated[
        str | None, Query(max_length=200, description=("The table the role was granted on, by name or id."))
    ] = None,
    pattern: Annotated[
        str | None, Query(max_length=128, description=("The name pattern the role was granted on."))
    ] = None,
    namespace: Annotated[
        str | None, Query(max_length=128, description=("The namespace the role was granted on."))
    ] = None,
    all_tables: Annotated[
        bool, Query(alias="all-tables", description="The role was granted on everything.")
    ] = False,
) -> None:
    """Revoke a role where it was granted."""
    if sum(value is not None for value in (table, pattern, namespace)) + all_tables != 1:
        raise BadRequest("Give exactly one of table, pattern, namespace and all-tables.")
    bind_log_context(change=f"no role on {table or pattern or namespace or 'everything'} for {grantee}")
    scope, target, _ = _scope(access, service, table, pattern, namespace, all_tables=all_tables)
    role: Role = "admin"
    service.directory.revoke(GrantRecord(grantee, role, scope, target, datetime.now(UTC), access.name))


def _scope(
    access: Access,
    service: Service,
    table: str | None,
    pattern: str | None,
    namespace: str | None,
    *,
    all_tables: bool,
) -> tuple[GrantScope, str, str | None]:
    """Return the scope and target of a grant, and the table's name. Only their admins may ask."""
    if table is not None:
        bind_log_context(table=table)
        record = service.tables.find(table, access)
        bind_log_context(table=record.name, table_id=record.id)
        access.require(record, "admin", table)
        return "table", record.id, record.name
    scope: GrantScope = "all" if all_tables else "namespace" if namespace is not None else "pattern"
    target = namespace or pattern or ""
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


routers: Final = (_reading, _administration)
