"""Access control: bearer tokens, and roles granted on tables, name patterns and namespaces.

Tested in `tests/integration/service/auth/test_request_access.py`.
"""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AwareDatetime, Field, model_validator

from delvec_contract.shapes import Answer, Envelope, NamePattern, in_words
from delvec_contract.tables import TABLE_NAME

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
"""Each role includes the ones before it."""
GrantScope: TypeAlias = Literal["all", "namespace", "pattern", "table"]
StorageOperation: TypeAlias = Literal["READ", "READ_WRITE"]
"""What object store credentials allow; READ_WRITE is for data files, never for the log."""
AuditOutcome: TypeAlias = Literal["done", "denied", "refused", "failed", "unknown"]
"""Done, denied, refused for another reason, failed, or answered too late or to nobody and possibly done."""

PRINCIPAL: Final = r"^[A-Za-z0-9][A-Za-z0-9_.@\-]*$"
_GRANTEE: Final = r"^[!-~]([ -~]*[!-~])?$"
_TokenName: TypeAlias = Annotated[
    str,
    Field(min_length=1, max_length=128, pattern=PRINCIPAL),
    in_words(PRINCIPAL, "it has letters, digits and _ . @ -, and starts with a letter or digit: etl-2026"),
]
_Grantee: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=256,
        pattern=_GRANTEE,
        description="The principal of a token (`etl`), a subject of the identity provider (`oidc:<sub>`), or one "
        "of its groups (`group:<name>`).",
    ),
    in_words(
        _GRANTEE,
        "it is a principal (etl), a subject (oidc:1234) or a group (group:analysts), in printable ASCII",
    ),
]


class TokenRequest(Envelope):
    """A bearer token to create."""

    name: _TokenName = Field(
        description=("The name of the token. It is never reused, not even after the token was revoked.")
    )
    principal: _TokenName | None = Field(
        default=None,
        description="The name in grants, logs and the audit log; the token's name if absent. Several tokens may "
        "share one, which lets you rotate tokens.",
    )
    expires_at: AwareDatetime | None = Field(
        default=None, description="ISO 8601 with a time zone. If absent, the token never expires."
    )


class TokenResource(Answer):
    """A bearer token, without its secret."""

    name: str = Field(description="The name of the token.")
    principal: str = Field(description="The name in grants, logs and the audit log.")
    state: Literal["active", "expired", "revoked"] = Field(description="Only active tokens are accepted.")
    created_at: str = Field(description="ISO 8601.")
    created_by: str = Field(description="The principal who created it.")
    expires_at: str | None = Field(description="ISO 8601; absent if the token never expires.")
    revoked_at: str | None = Field(description="ISO 8601.")


class CreatedToken(TokenResource):
    """A bearer token that was just created."""

    token: str = Field(
        description="The token itself. The service keeps only its hash, so this is the only time it is shown."
    )


class TokensResponse(Answer):
    """All tokens, by name."""

    tokens: list[TokenResource] = Field(description="The tokens.")


class Grant(Envelope):
    """The scope of a role: a table, a pattern, a namespace or everything."""

    table: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description=(
            "A table, by name or id; the grant follows the table when it is renamed, and ends when it is "
            "forgotten."
        ),
    )
    pattern: NamePattern | None = Field(
        default=None, description="Names of tables: `sales.*`; `*` is any text and `?` one character."
    )
    namespace: (
        Annotated[
            str,
            Field(min_length=1, max_length=128, pattern=TABLE_NAME),
            in_words(
                TABLE_NAME,
                "a namespace has letters, digits, _ and -, starts with a letter or _, and has no wildcards: sales, "
                "sales.eu",
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="All tables whose name is `<namespace>.<something>`.",
    )
    all_tables: bool = Field(default=False, description="All tables, and the service itself.")

    @model_validator(mode="after")
    def _one(self) -> "Grant":
        given = sum(value is not None for value in (self.table, self.pattern, self.namespace))
        if given + self.all_tables != 1:
            raise ValueError("give exactly one of table, pattern, namespace and all-tables")
        return self


class GrantRequest(Grant):
    """A role to grant; it replaces the grantee's current role in that scope."""

    grantee: _Grantee
    role: Role = Field(description="The role that is granted; each role includes the ones before it.")


class RoleGrant(Answer):
    """A role that a principal or a group has on some tables."""

    grantee: str = Field(description="Who has the role.")
    role: Role = Field(description="The role that is granted.")
    scope: GrantScope = Field(description="The kind of thing that the role is granted on.")
    target: str = Field(description="The namespace, the pattern, or the id of the table; empty for all.")
    table: str | None = Field(default=None, description="The table's name, if the scope is a table.")
    granted_at: str = Field(description="ISO 8601.")
    granted_by: str = Field(description="The principal who granted it.")


class GrantsResponse(Answer):
    """Grants, by grantee."""

    grants: list[RoleGrant] = Field(description="The grants.")


class AccessResponse(Answer):
    """Who the token belongs to, and what it may do."""

    principal: str | None = Field(description="Absent if the service does not require tokens.")
    groups: list[str] = Field(description="The principal's groups, as the identity provider names them.")
    grants: list[RoleGrant] = Field(description="The grants that apply to the principal and its groups.")
    is_restricted: bool = Field(description="False if everything is allowed.")
    role: Role | None = Field(
        default=None,
        description="The highest role on the table in the request; null if the request has none.",
    )


class AuditEntry(Answer):
    """A request that changed something, or was denied."""

    id: str = Field(description="The id of the entry; later entries sort after it.")
    answered_at: str = Field(description="ISO 8601.")
    principal: str | None = Field(
        description=(
            "Who sent the request: `anonymous` if the service does not require tokens; absent if the token "
            "belongs to nobody."
        )
    )
    request_id: str = Field(description="The same as in the log and in the response's `X-Request-Id`.")
    operation: str = Field(
        description="The operationId of the request in `/openapi.json`: `commit`, `grant_role`."
    )
    table: str | None = Field(description="The table's name at that time, or the name in the request.")
    table_id: str | None = Field(description="The service's id of the table, if there was one.")
    change: str | None = Field(
        description="What was changed: a commit's operation, a grant, the name of a token, a policy or another table."
    )
    transaction_id: str | None = Field(description="The transaction id of a commit.")
    version: int | None = Field(description="The version of the table that the change created, if any.")
    outcome: AuditOutcome = Field(
        description="`done`; `denied`: not allowed; `refused`: not done for another reason, such as a conflict; "
        "`failed`; `unknown`: the answer came too late or reached nobody, so it may have been done."
    )
    status: int = Field(description="The status of the HTTP response; 0 if nobody waited for it.")
    error_code: str | None = Field(description="The code of the error in the response.")


class AuditResponse(Answer):
    """A page of the audit log."""

    entries: list[AuditEntry] = Field(description="The entries, newest first.")
    next_page_token: str | None = Field(
        default=None, description="Send it to get older entries; absent on the last page."
    )


class StorageCredential(Answer):
    """Temporary credentials for the files below one location."""

    prefix: str = Field(description="The URL prefix of the files.")
    operation: StorageOperation = Field(description="What they are for.")
    expiration_time_ms: int = Field(description="Milliseconds since the epoch.")
    config: dict[str, str] = Field(
        repr=False,
        description="The credentials, with the names of Iceberg REST: `s3.access-key-id`, `s3.secret-access-key`, "
        "`s3.session-token`, `s3.session-token-expires-at-ms`; and, if set in the service, "
        "`client.region` and `s3.endpoint`.",
    )


class CredentialsResponse(Answer):
    """Credentials for the files of a table."""

    storage_credentials: list[StorageCredential] = Field(
        description="One entry for each URL prefix of files; currently only the table's location."
    )
