"""``delvec token``, ``grant``, ``revoke``, ``grants`` and ``audit``: authentication, permissions and the audit log."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, TypeAlias, cast

import typer

from delvec.access import AccessControl
from delvec.cli.options import session
from delvec.cli.output import print_json, print_table, say
from delvec.http.embedded import service_of_database
from delvec_contract.access import AuditOutcome, Role

__all__ = ["app", "audit", "grant", "grants", "revoke"]

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke bearer tokens of a service.")

_UNITS: Final = {"h": 1 / 24, "d": 1, "w": 7, "y": 365}

_DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Database of the service, for its operators; defaults to DELVEC_DATABASE_URL. With --url or DELVEC_URL, "
        "the command calls that service instead, which needs an admin's token.",
        show_default=False,
    ),
]
_Table: TypeAlias = Annotated[str | None, typer.Option(help="Table name or id.")]
_Pattern: TypeAlias = Annotated[
    str | None, typer.Option(help="Tables whose names match a pattern: 'sales.*'.")
]
_Namespace: TypeAlias = Annotated[str | None, typer.Option(help="Tables of this namespace: NAMESPACE.table.")]
_All: TypeAlias = Annotated[bool, typer.Option("--all", help="All tables and the service itself.")]


@app.command("create")
def create_token(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Token name; cannot be reused.")],
    principal: Annotated[
        str | None, typer.Option(help="Principal that grants refer to; defaults to the token's name.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            help="Lifetime (12h, 90d, 4w, 1y) or expiry date (2027-01-01). Does not expire by default."
        ),
    ] = None,
    database_url: _DatabaseUrl = None,
) -> None:
    """Create a bearer token and print it, once: the service keeps only a hash.

    [bold]delvec token create etl-2026 --principal etl --expires 90d[/bold]

    Once a service has a token or a grant, it requires authentication.
    """
    time = None if expires is None else _time("--expires", expires)
    with _access(context, database_url) as access:
        made = access.create_token(name, principal=principal, expires=time)
    if session(context).as_json:
        print_json(made)
        return
    print(made["token"])
    say(f"token '{name}' of principal '{made['principal']}' is not stored; save it now")


@app.command("list")
def list_tokens(context: typer.Context, database_url: _DatabaseUrl = None) -> None:
    """List the bearer tokens, including expired and revoked ones."""
    with _access(context, database_url) as access:
        tokens = access.tokens()
    if session(context).as_json:
        print_json(tokens)
        return
    columns = ("name", "principal", "state", "expires-at", "created-at", "created-by")
    print_table(["token", *columns[1:]], [tuple(one[column] for column in columns) for one in tokens])


@app.command("revoke")
def revoke_token(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Token name.")],
    database_url: _DatabaseUrl = None,
) -> None:
    """Revoke a bearer token. Running services reject it within two seconds."""
    with _access(context, database_url) as access:
        access.revoke_token(name)
    say(f"token '{name}' revoked")


def grant(
    context: typer.Context,
    role: Annotated[str, typer.Argument(help="reader, writer, maintainer or admin.")],
    grantee: Annotated[
        str, typer.Argument(help="A principal (etl), a subject (oidc:1234) or a group (group:analysts).")
    ],
    table: _Table = None,
    pattern: _Pattern = None,
    namespace: _Namespace = None,
    all_tables: _All = False,
    database_url: _DatabaseUrl = None,
) -> None:
    """Grant a role on a table, a name pattern, a namespace or everything.

    [bold]delvec grant writer etl --namespace sales[/bold]

    [bold]delvec grant reader group:analysts --pattern 'sales.*'[/bold]
    """
    with _access(context, database_url) as access:
        new_grant = access.grant(
            cast(Role, role),
            grantee,
            table=table,
            pattern=pattern,
            namespace=namespace,
            all_tables=all_tables,
        )
    if session(context).as_json:
        print_json(new_grant)
    else:
        say(f"granted '{grantee}' the role {role} on {_on(new_grant)}")


def revoke(
    context: typer.Context,
    grantee: Annotated[str, typer.Argument(help="Principal, subject or group that has the role.")],
    table: _Table = None,
    pattern: _Pattern = None,
    namespace: _Namespace = None,
    all_tables: _All = False,
    database_url: _DatabaseUrl = None,
) -> None:
    """Revoke a role.

    [bold]delvec revoke etl --namespace sales[/bold]
    """
    with _access(context, database_url) as access:
        access.revoke(grantee, table=table, pattern=pattern, namespace=namespace, all_tables=all_tables)
    say(f"revoked the role of '{grantee}'")


def grants(
    context: typer.Context,
    grantee: Annotated[
        str | None, typer.Argument(help="Only grants to this principal, subject or group.")
    ] = None,
    database_url: _DatabaseUrl = None,
) -> None:
    """List the granted roles."""
    with _access(context, database_url) as access:
        role_grants = access.grants(grantee)
    if session(context).as_json:
        print_json(role_grants)
        return
    print_table(
        ["grantee", "role", "on", "granted-at", "granted-by"],
        [
            (one["grantee"], one["role"], _on(one), one["granted-at"], one["granted-by"])
            for one in role_grants
        ],
    )


def audit(
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(help="Only entries of this table, by name or id; its maintainers can list them, too."),
    ] = None,
    principal: Annotated[str | None, typer.Option(help="Only entries of this principal.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only this outcome: done, denied, refused, failed or unknown.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only entries since a date (2027-01-01) or of the last 12h, 90d, 4w, 1y."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Maximum number of entries, newest first.")
    ] = 100,
    database_url: _DatabaseUrl = None,
) -> None:
    """List changes and denied attempts, newest first.

    [bold]delvec audit sales.orders --since 7d[/bold]

    [bold]delvec audit --outcome denied[/bold]
    """
    time = None if since is None else _time("--since", since)
    with _access(context, database_url) as access:
        audit_entries = access.audit(
            table=table,
            principal=principal,
            outcome=cast(AuditOutcome | None, outcome),
            since=time,
            limit=limit,
        )
    if session(context).as_json:
        print_json(audit_entries)
        return
    columns = ("answered-at", "principal", "operation", "table", "version", "outcome", "error-code", "change")
    print_table(list(columns), [tuple(one[column] for column in columns) for one in audit_entries])


def _on(grant: dict[str, Any]) -> str:
    if grant["scope"] == "all":
        return "everything"
    return f"{grant['scope']} {grant['table'] or grant['target']}"


@contextmanager
def _access(context: typer.Context, database_url: str | None) -> Iterator[AccessControl]:
    """Connect to the service that the options name, or open its database."""
    now = session(context)
    if database_url is None and (now.url or os.environ.get("DELVEC_URL")):
        with now.connect() as lake:
            yield lake.access
        return
    service = service_of_database(database_url)
    try:
        yield AccessControl(service)
    finally:
        service.close()


def _time(option: str, text: str) -> datetime | timedelta:
    """Parse a date or a duration."""
    if found := re.fullmatch(r"([0-9]{1,6})([hdwy])", text.strip()):
        return timedelta(days=int(found[1]) * _UNITS[found[2]])
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option} {text!r} is neither a duration (90d, 12h) nor a date (2027-01-01)"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
