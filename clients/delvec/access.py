"""Who may what, and who did what: ``lake.access``, for the administrators of a service."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from delvec.http.service_client import ServiceClient, answer, listed, request
from delvec_kernel.errors import BadRequest
from delvec_kernel.wire import (
    AccessResponse,
    AuditResponse,
    CreatedToken,
    GrantRequest,
    GrantsResponse,
    RoleGrant,
    TokenRequest,
    TokensResponse,
)
from delvec_kernel.wire.access import AuditOutcome, Role

__all__ = ["AccessControl"]


class AccessControl:
    """Bearer tokens, grants and the audit log of a service: ``lake.access``. Answers are as on the wire."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service

    def whoami(self) -> dict[str, Any]:
        """Return the principal of this connection's token, and the grants that hold for it."""
        return answer(AccessResponse, self._service.get("/v1/access")).model_dump(by_alias=True)

    # --- tokens -----------------------------------------------------------------------------------------

    def create_token(
        self, name: str, *, principal: str | None = None, expires: datetime | timedelta | None = None
    ) -> dict[str, Any]:
        """Make a bearer token; ``token`` of the answer is the only copy of it.

        Args:
            name: of the token, never used twice.
            principal: whom grants name; by default the token's name. To rotate a token, make a second one for its
                principal and revoke the first.
            expires: when, with a time zone, or after how long; by default never.

        Raises:
            TokenAlreadyExists: there is, or was, one of that name.
            PermissionDenied: this connection's token is not an admin's.
        """
        if isinstance(expires, timedelta):
            try:
                expires = datetime.now(UTC) + expires
            except OverflowError as error:
                raise BadRequest(
                    f"a token cannot live for {expires}: leave expires out for a token that does not expire"
                ) from error
        body = request(TokenRequest, name=name, principal=principal, expires_at=expires)
        return answer(CreatedToken, self._service.post("/v1/tokens", body)).model_dump(by_alias=True)

    def tokens(self) -> list[dict[str, Any]]:
        """Return all tokens by name, without what is secret of them."""
        found = answer(TokensResponse, self._service.get("/v1/tokens")).tokens
        return [one.model_dump(by_alias=True) for one in found]

    def revoke_token(self, name: str) -> None:
        """Let a token be used no more.

        Raises:
            TokenNotFound: it does not exist.
        """
        self._service.delete(f"/v1/tokens/{quote(name, safe='')}")

    # --- grants -----------------------------------------------------------------------------------------

    def grant(
        self,
        role: Role,
        grantee: str,
        *,
        table: str | None = None,
        pattern: str | None = None,
        namespace: str | None = None,
        all_tables: bool = False,
    ) -> dict[str, Any]:
        """Grant a role on one of a table, a pattern, a namespace, and everything; it replaces the one there.

        Args:
            role: ``reader``, ``writer``, ``maintainer`` or ``admin``; each may what those before it may.
            grantee: a principal of a token: ``etl``; a subject of the identity provider: ``oidc:<sub>``; one of its groups:
                ``group:<name>``.
            table: by name or id; the grant stays with the table when it is renamed.
            pattern: of names: ``sales.*``.
            namespace: all tables that are called ``<namespace>.<something>``.
            all_tables: all tables, and the service itself.

        Raises:
            PermissionDenied: this connection's token is not an admin's there.
            TableNotFound: there is no such table.
        """
        on = _on(table, pattern, namespace, all_tables=all_tables)
        body = request(GrantRequest, role=role, grantee=grantee, **on)
        return answer(RoleGrant, self._service.post("/v1/grants", body)).model_dump(by_alias=True)

    def revoke(
        self,
        grantee: str,
        *,
        table: str | None = None,
        pattern: str | None = None,
        namespace: str | None = None,
        all_tables: bool = False,
    ) -> None:
        """Revoke a role.

        Raises:
            GrantNotFound: there is none of the grantee there.
        """
        on = _on(table, pattern, namespace, all_tables=all_tables)
        given = {name.replace("_", "-"): value for name, value in on.items() if value}
        self._service.delete("/v1/grants", {"grantee": grantee, **given})

    def grants(self, grantee: str | None = None) -> list[dict[str, Any]]:
        """Return the grants that this connection's token may change, or those of one grantee."""
        found = answer(GrantsResponse, self._service.get("/v1/grants", {"grantee": grantee})).grants
        return [one.model_dump(by_alias=True) for one in found]

    # --- the audit log ----------------------------------------------------------------------------------

    def audit(
        self,
        *,
        table: str | None = None,
        principal: str | None = None,
        outcome: AuditOutcome | None = None,
        since: datetime | timedelta | str | None = None,
        limit: int | None = 100,
    ) -> list[dict[str, Any]]:
        """Return who changed what, and who was not allowed to, the newest first.

        Args:
            table: only entries about it, by name or id; its maintainers may ask for them, all others are for admins.
            principal: only entries of one principal.
            outcome: ``done``, ``denied``, ``refused``, ``failed`` or ``unknown``.
            since: only entries from then on: a time, or ISO 8601 (without a zone it is UTC), or how long ago.
            limit: only the newest so many; None for all.

        Raises:
            PermissionDenied: this connection's token is neither an admin's nor that of a maintainer of the table.
            TableNotFound: there is no such table, or none that the principal may read.
        """
        if isinstance(since, timedelta):
            since = datetime.now(UTC) - since
        return listed(
            self._service,
            "/v1/audit",
            AuditResponse,
            lambda page: [one.model_dump(by_alias=True) for one in page.entries],
            {
                "table": table,
                "principal": principal,
                "outcome": outcome,
                "since": since.isoformat() if isinstance(since, datetime) else since,
            },
            limit=limit,
        )


def _on(
    table: str | None, pattern: str | None, namespace: str | None, *, all_tables: bool
) -> Mapping[str, Any]:
    given = {"table": table, "pattern": pattern, "namespace": namespace}
    if sum(value is not None for value in given.values()) + all_tables != 1:
        raise BadRequest("give exactly one of table=, pattern=, namespace= and all_tables=True")
    return {**given, "all_tables": all_tables}
