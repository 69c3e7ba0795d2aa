"""``delvec token``, ``grant``, ``revoke``, ``grants`` and ``audit``: who may use a service, for what, and who did what."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, TypeAlias, cast

import typer

from delvec.access import AccessControl
from delvec.cli.output import print_json, print_table, say
from delvec.cli.session import session
from delvec.http.embedded import service_of_database
from delvec.http.service_client import ServiceClient
from delvec_kernel.wire.access import AuditOutcome, Role

__all__ = ["app", "audit", "grant", "grants", "revoke"]

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke bearer tokens of a service.")

_UNITS: Final = {"h": 1 / 24, "d": 1, "w": 7, "y": 365}

_DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The service's database, for those who run it; by default DELVEC_DATABASE_URL. With --url or DELVEC_URL "
        "the service is asked instead, with an admin's token.",
        show_default=False,
    ),
]
_Table: TypeAlias = Annotated[str | None, typer.Option(help="A table, by name or id.")]
_Pattern: TypeAlias = Annotated[str | None, typer.Option(help="Tables whose names match: 'sales.*'.")]
_Namespace: TypeAlias = Annotated[
    str | None, typer.Option(help="Tables that are called NAMESPACE.something.")
]
_All: TypeAlias = Annotated[bool, typer.Option("--all", help="All tables, and the service itself.")]


@app.command("create")
def create_token(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Of the token; never used twice.")],
    principal: Annotated[
        str | None, typer.Option(help="Whom grants name; by default the token's name.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="After how long: 12h, 90d, 4w, 1y; or when: 2027-01-01. By default never."),
    ] = None,
    database_url: _DatabaseUrl = None,
) -> None:
    """Create a bearer token and print it, once: the service keeps only a hash.

    [bold]delvec token create etl-2026 --principal etl --expires 90d[/bold]

    The first token, or grant, of a service makes it ask for one.
    """
    moment = None if expires is None else _moment("--expires", expires)
    with _access(context, database_url) as access:
        made = access.create_token(name, principal=principal, expires=moment)
    if session(context).as_json:
        print_json(made)
        return
    print(made["token"])
    say(f"this is the only copy of the token '{name}' of principal '{made['principal']}'")


@app.command("list")
def list_tokens(context: typer.Context, database_url: _DatabaseUrl = None) -> None:
    """List the bearer tokens, expired and revoked ones too."""
    with _access(context, database_url) as access:
        found = access.tokens()
    if session(context).as_json:
        print_json(found)
        return
    columns = ("name", "principal", "state", "expires-at", "created-at", "created-by")
    print_table(["token", *columns[1:]], [tuple(one[column] for column in columns) for one in found])


@app.command("revoke")
def revoke_token(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Of the token.")],
    database_url: _DatabaseUrl = None,
) -> None:
    """Let a bearer token be used no more; running services know within two seconds."""
    with _access(context, database_url) as access:
        access.revoke_token(name)
    say(f"token '{name}' is revoked")


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
    """Grant a role on a table, on a pattern of names, on a namespace or on everything.

    [bold]delvec grant writer etl --namespace sales[/bold]

    [bold]delvec grant reader group:analysts --pattern 'sales.*'[/bold]
    """
    with _access(context, database_url) as access:
        made = access.grant(
            cast(Role, role),
            grantee,
            table=table,
            pattern=pattern,
            namespace=namespace,
            all_tables=all_tables,
        )
    if session(context).as_json:
        print_json(made)
    else:
        say(f"'{grantee}' is {role} of {_on(made)}")


def revoke(
    context: typer.Context,
    grantee: Annotated[str, typer.Argument(help="Who has the role.")],
    table: _Table = None,
    pattern: _Pattern = None,
    namespace: _Namespace = None,
    all_tables: _All = False,
    database_url: _DatabaseUrl = None,
) -> None:
    """Take a role away from where it was granted.

    [bold]delvec revoke etl --namespace sales[/bold]
    """
    with _access(context, database_url) as access:
        access.revoke(grantee, table=table, pattern=pattern, namespace=namespace, all_tables=all_tables)
    say(f"'{grantee}' has no role there any more")


def grants(
    context: typer.Context,
    grantee: Annotated[str | None, typer.Argument(help="Only those of one grantee.")] = None,
    database_url: _DatabaseUrl = None,
) -> None:
    """List who may what."""
    with _access(context, database_url) as access:
        found = access.grants(grantee)
    if session(context).as_json:
        print_json(found)
        return
    print_table(
        ["grantee", "role", "on", "granted-at", "granted-by"],
        [(one["grantee"], one["role"], _on(one), one["granted-at"], one["granted-by"]) for one in found],
    )


def audit(
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(help="Only what concerns this table, by name or id; its maintainers may ask."),
    ] = None,
    principal: Annotated[str | None, typer.Option(help="Only what one principal did.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="done, denied, refused, failed or unknown; by default all.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only the last 12h, 90d, 4w, 1y; or from a time on: 2027-01-01.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Only the newest so many.")] = 100,
    database_url: _DatabaseUrl = None,
) -> None:
    """List who changed what, and who was not allowed to, the newest first.

    [bold]delvec audit sales.orders --since 7d[/bold]

    [bold]delvec audit --outcome denied[/bold]
    """
    moment = None if since is None else _moment("--since", since)
    with _access(context, database_url) as access:
        found = access.audit(
            table=table,
            principal=principal,
            outcome=cast(AuditOutcome | None, outcome),
            since=moment,
            limit=limit,
        )
    if session(context).as_json:
        print_json(found)
        return
    columns = ("answered-at", "principal", "operation", "table", "version", "outcome", "error-code", "change")
    print_table(list(columns), [tuple(one[column] for column in columns) for one in found])


def _on(grant: dict[str, Any]) -> str:
    if grant["scope"] == "all":
        return "everything"
    return f"{grant['scope']} {grant['table'] or grant['target']}"


@contextmanager
def _access(context: typer.Context, database_url: str | None) -> Iterator[AccessControl]:
    """Ask the service that the options name, or its database."""
    now = session(context)
    if database_url is None and (now.url or os.environ.get("DELVEC_URL")):
        with now.connect() as lake:
            yield lake.access
        return
    client = ServiceClient("http://database", timeout=None, transport=service_of_database(database_url))
    try:
        yield AccessControl(client)
    finally:
        client.close()


def _moment(option: str, text: str) -> datetime | timedelta:
    """Return when, or how long, as it was typed."""
    if found := re.fullmatch(r"([0-9]{1,6})([hdwy])", text.strip()):
        return timedelta(days=int(found[1]) * _UNITS[found[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option} {text!r} is neither a time (90d, 12h) nor a date (2027-01-01)"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
