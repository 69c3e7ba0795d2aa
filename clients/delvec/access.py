"""Permissions and the audit log of a service, for its administrators: ``lake.access``.

Tested in `tests/integration/client/cli/test_access_command.py` and
`tests/integration/service/auth/test_request_access.py`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from delvec.near_names import near_names
from delvec_commands.table_service import TableService, iso_time, listed, request
from delvec_contract import operations
from delvec_contract.access import AuditOutcome, GrantRequest, Role, TokenRequest
from delvec_errors import BadRequest

__all__ = ["AccessControl"]


class AccessControl:
    """Bearer tokens, grants and the audit log of a service: ``lake.access``. Answers are as on the wire."""

    def __init__(self, service: TableService) -> None:
        self._service = service

    def whoami(self) -> dict[str, Any]:
        """Return the principal of this connection's token, and its grants."""
        return self._service.call(operations.GET_ACCESS).model_dump(by_alias=True)

    # --- tokens -----------------------------------------------------------------------------------------

    def create_token(
        self, name: str, *, principal: str | None = None, expires: datetime | timedelta | None = None
    ) -> dict[str, Any]:
        """Create a bearer token; ``token`` of the result is the only copy.

        Args:
            name: the name of the token; cannot be reused.
            principal: principal that grants refer to; by default the token's name. To rotate a token, create a second
                one for its principal and revoke the first.
            expires: a time with a time zone, or a duration; by default never.

        Raises:
            TokenAlreadyExists: the name is or was in use.
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
        return self._service.call(operations.CREATE_TOKEN, body).model_dump(by_alias=True)

    def tokens(self) -> list[dict[str, Any]]:
        """Return all tokens by name, without their secrets."""
        found = self._service.call(operations.LIST_TOKENS).tokens
        return [one.model_dump(by_alias=True) for one in found]

    def revoke_token(self, name: str) -> None:
        """Revoke a token.

        Raises:
            TokenNotFound: it does not exist.
        """
        self._service.call(operations.REVOKE_TOKEN, token=name)

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
        """Grant a role on a table, a name pattern, a namespace or everything; replaces the grantee's role there.

        Args:
            role: ``reader``, ``writer``, ``maintainer`` or ``admin``; each includes the ones before it.
            grantee: a principal of a token: ``etl``; a subject of the identity provider: ``oidc:<sub>``; one of its
                groups: ``group:<name>``.
            table: by name or id; the grant survives a rename of the table.
            pattern: the pattern of names: ``sales.*``.
            namespace: all tables named ``<namespace>.<table>``.
            all_tables: all tables and the service itself.

        Raises:
            PermissionDenied: this connection's token is not an admin's there.
            TableNotFound: the table does not exist.
        """
        on = _on(table, pattern, namespace, all_tables=all_tables)
        body = request(GrantRequest, role=role, grantee=grantee, **on)
        with near_names(self._service):
            return self._service.call(operations.GRANT_ROLE, body).model_dump(by_alias=True)

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
            GrantNotFound: the grantee has no role there.
        """
        on = _on(table, pattern, namespace, all_tables=all_tables)
        given = {name.replace("_", "-"): value for name, value in on.items() if value}
        with near_names(self._service):
            self._service.call(operations.REVOKE_ROLE, parameters={"grantee": grantee, **given})

    def grants(self, grantee: str | None = None) -> list[dict[str, Any]]:
        """Return the grants that this connection's token may change, or those of one grantee."""
        role_grants = self._service.call(operations.LIST_GRANTS, parameters={"grantee": grantee}).grants
        return [one.model_dump(by_alias=True) for one in role_grants]

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
        """Return changes and denied attempts, newest first.

        Args:
            table: only entries of this table, by name or id; its maintainers may list them, other entries need an
                admin.
            principal: only entries of one principal.
            outcome: ``done``, ``denied``, ``refused``, ``failed`` or ``unknown``.
            since: only entries since this time: a datetime, ISO 8601 text (UTC unless it has a zone), or a duration
                before now.
            limit: maximum number of entries, newest first; None for all.

        Raises:
            PermissionDenied: this connection's token is of neither an admin nor a maintainer of the table.
            TableNotFound: the table does not exist, or the principal may not read it.
        """
        if isinstance(since, timedelta):
            since = datetime.now(UTC) - since
        with near_names(self._service):
            return listed(
                self._service,
                operations.LIST_AUDIT,
                lambda page: [one.model_dump(by_alias=True) for one in page.entries],
                {"table": table, "principal": principal, "outcome": outcome, "since": iso_time(since)},
                limit=limit,
            )


def _on(
    table: str | None, pattern: str | None, namespace: str | None, *, all_tables: bool
) -> Mapping[str, Any]:
    given = {"table": table, "pattern": pattern, "namespace": namespace}
    if sum(value is not None for value in given.values()) + all_tables != 1:
        raise BadRequest("give exactly one of table=, pattern=, namespace= and all_tables=True")
    return {**given, "all_tables": all_tables}
