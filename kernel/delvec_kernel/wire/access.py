"""Who may what: bearer tokens, and roles that are granted on tables, patterns of names and namespaces."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AwareDatetime, Field, model_validator

from delvec_kernel.wire.shapes import Answer, Envelope
from delvec_kernel.wire.tables import TABLE_NAME

__all__ = [
    "AccessResponse",
    "AuditEntry",
    "AuditOutcome",
    "AuditResponse",
    "CreatedToken",
    "CredentialsResponse",
    "Grant",
    "GrantRequest",
    "GrantScope",
    "GrantsResponse",
    "Role",
    "RoleGrant",
    "StorageCredential",
    "StorageOperation",
    "TokenRequest",
    "TokenResource",
    "TokensResponse",
]

Role: TypeAlias = Literal["reader", "writer", "maintainer", "admin"]
"""Each may what those before it may."""
GrantScope: TypeAlias = Literal["all", "namespace", "pattern", "table"]
StorageOperation: TypeAlias = Literal["READ", "READ_WRITE"]
"""What credentials of an object store are for; the second writes data files, and never the log."""
AuditOutcome: TypeAlias = Literal["done", "denied", "refused", "failed", "unknown"]
"""Done; not allowed; not done for another reason; failed; or answered too late, or to nobody, and maybe done."""

PRINCIPAL: Final = r"^[A-Za-z0-9][A-Za-z0-9_.@\-]*$"
_GRANTEE: Final = r"^[!-~]([ -~]*[!-~])?$"
_PATTERN: Final = r"^[A-Za-z0-9_.\-*?]+$"

_TokenName: TypeAlias = Annotated[str, Field(min_length=1, max_length=128, pattern=PRINCIPAL)]
_Grantee: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=256,
        pattern=_GRANTEE,
        description="A principal of a token: `etl`; a subject of the identity provider: `oidc:<sub>`; or one of its groups: "
        "`group:<name>`.",
    ),
]


class TokenRequest(Envelope):
    """A bearer token to be made."""

    name: _TokenName = Field(description="Of the token: never used twice, not even after it was revoked.")
    principal: _TokenName | None = Field(
        default=None,
        description="Whom grants, logs and the audit name; the token's name where absent. Several tokens may share one, "
        "which is how a token is rotated.",
    )
    expires_at: AwareDatetime | None = Field(
        default=None, description="ISO 8601 with a time zone; absent: never."
    )


class TokenResource(Answer):
    """A bearer token, without what is secret of it."""

    name: str = Field(description="Of the token.")
    principal: str = Field(description="Whom grants, logs and the audit name.")
    state: Literal["active", "expired", "revoked"] = Field(description="Only an active token is let in.")
    created_at: str = Field(description="ISO 8601.")
    created_by: str = Field(description="The principal who made it.")
    expires_at: str | None = Field(description="ISO 8601; absent: never.")
    revoked_at: str | None = Field(description="ISO 8601.")


class CreatedToken(TokenResource):
    """A bearer token that was just made."""

    token: str = Field(
        description="The token itself. The service keeps only its hash, so this is the only time it is shown."
    )


class TokensResponse(Answer):
    """All tokens, by name."""

    tokens: list[TokenResource] = Field(description="The tokens.")


class Grant(Envelope):
    """On what a role is granted: one of a table, a pattern, a namespace, and everything."""

    table: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="A table, by name or id; the grant goes with it when it is renamed, and ends when it is forgotten.",
    )
    pattern: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        pattern=_PATTERN,
        description="Names of tables: `sales.*`; `*` is any text and `?` one character.",
    )
    namespace: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        pattern=TABLE_NAME,
        description="All tables that are called `<namespace>.<something>`.",
    )
    all_tables: bool = Field(default=False, description="All tables, and the service itself.")

    @model_validator(mode="after")
    def _one(self) -> "Grant":
        given = sum(value is not None for value in (self.table, self.pattern, self.namespace))
        if given + self.all_tables != 1:
            raise ValueError("give one of table, pattern, namespace and all-tables")
        return self


class GrantRequest(Grant):
    """A role to be granted; it replaces the one that the grantee has there."""

    grantee: _Grantee
    role: Role = Field(description="What is granted; each role may what those before it may.")


class RoleGrant(Answer):
    """A role that a principal or a group has on some tables."""

    grantee: str = Field(description="Who has it.")
    role: Role = Field(description="What is granted.")
    scope: GrantScope = Field(description="What kind of thing it is granted on.")
    target: str = Field(description="The namespace, the pattern, or the id of the table; empty for all.")
    table: str | None = Field(default=None, description="The table's name, where the scope is a table.")
    granted_at: str = Field(description="ISO 8601.")
    granted_by: str = Field(description="The principal who granted it.")


class GrantsResponse(Answer):
    """Grants, by grantee."""

    grants: list[RoleGrant] = Field(description="The grants.")


class AccessResponse(Answer):
    """Who the token is, and what it may."""

    principal: str | None = Field(description="Absent where the service asks for no token.")
    groups: list[str] = Field(description="Of the principal, as the identity provider names them.")
    grants: list[RoleGrant] = Field(description="Those that hold for the principal and its groups.")
    is_restricted: bool = Field(description="False where everything is allowed.")
    role: Role | None = Field(
        default=None,
        description="The highest on the table that the request names; null where it names none.",
    )


class AuditEntry(Answer):
    """A request that changed something, or was not allowed to."""

    id: str = Field(description="Of the entry; later ones sort behind it.")
    answered_at: str = Field(description="ISO 8601.")
    principal: str | None = Field(
        description="Who asked: `anonymous` where the service asks for no token; absent where the token is nobody's."
    )
    request_id: str = Field(description="As in the log, and in the answer's `X-Request-Id`.")
    operation: str = Field(
        description="The operationId of the request in `/openapi.json`: `commit`, `grant_role`."
    )
    table: str | None = Field(description="What the table was called then, or what was asked for.")
    table_id: str | None = Field(description="The service's own id of the table, where there was one.")
    change: str | None = Field(
        description="What was changed: a commit's operation, a grant, the name of a token, a policy or another table."
    )
    transaction_id: str | None = Field(description="Of a commit.")
    version: int | None = Field(description="Of the table, where the change made one.")
    outcome: AuditOutcome = Field(
        description="`done`; `denied`: not allowed; `refused`: not done for another reason, as a conflict; `failed`; "
        "`unknown`: answered too late, or to nobody, and maybe done."
    )
    status: int = Field(description="Of the HTTP answer; 0 where nobody waited for it.")
    error_code: str | None = Field(description="As in the answer.")


class AuditResponse(Answer):
    """A page of the audit log."""

    entries: list[AuditEntry] = Field(description="The entries, the newest first.")
    next_page_token: str | None = Field(
        default=None, description="Ask for older ones with it; absent on the last page."
    )


class StorageCredential(Answer):
    """What opens the files below one location, for a while."""

    prefix: str = Field(description="URL that the files begin with.")
    operation: StorageOperation = Field(description="What they are for.")
    expiration_time_ms: int = Field(description="Milliseconds since the epoch.")
    config: dict[str, str] = Field(
        repr=False,
        description="The credentials, by the names of Iceberg REST: `s3.access-key-id`, `s3.secret-access-key`, `s3.session-token`, "
        "`s3.session-token-expires-at-ms`; and, where the service has them set, `client.region` and `s3.endpoint`.",
    )


class CredentialsResponse(Answer):
    """Credentials for the files of a table."""

    storage_credentials: list[StorageCredential] = Field(
        description="For each prefix that files begin with; today one, the table's location."
    )
