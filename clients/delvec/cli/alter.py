"""``delvec alter``: commands that alter a table."""

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import typer

from delvec.alterations import Alterations, Altered
from delvec.cli.options import Table, session
from delvec.cli.output import print_json, say

__all__ = ["app", "report"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Alter a table's columns, properties, constraints or protocol. Each command is one commit.",
)

_Column: TypeAlias = Annotated[
    str, typer.Argument(metavar="COLUMN", help="A column or nested field: address.city, tags.element.")
]
_Feature: TypeAlias = Annotated[str, typer.Argument(help="The feature's name in the Delta protocol.")]
_First: TypeAlias = Annotated[bool, typer.Option("--first", help="Place the column first.")]
_After: TypeAlias = Annotated[str | None, typer.Option(help="Place the column after this one.")]
_IfExists: TypeAlias = Annotated[bool, typer.Option("--if-exists", help="Do not fail if it does not exist.")]


def _run(context: typer.Context, table: str, change: Callable[[Alterations], Altered | None]) -> None:
    now = session(context)
    with now.table(table) as target:
        alteration = change(target.alter)
        name = target.name
    assert alteration is not None  # noqa: S101 - None is for blocks only
    report(alteration, now.as_json, f"table '{name}'")


def report(alteration: Altered, as_json: bool, table: str) -> None:
    """Report a change of ``table``, whose text continues a sentence."""
    if as_json:
        print_json({"version": alteration.version, "operation": alteration.operation})
    elif alteration.version is None and alteration.operation is not None:
        say(f"{alteration.operation}: done")
    elif alteration.version is None:
        say(f"nothing committed: {table} already has this setting")
    else:
        say(f"{alteration.operation} in version {alteration.version} of {table}")


@app.command("add-columns")
def add_columns(
    context: typer.Context,
    table: Table,
    columns: Annotated[str, typer.Argument(help="Columns as Spark DDL: 'age int, born date'.")],
    first: _First = False,
    after: _After = None,
    into: Annotated[str | None, typer.Option(help="Add them as fields of this struct.")] = None,
) -> None:
    """Add columns; they are NULL in existing rows.

    [bold]delvec alter add-columns people 'age int, born date' --after name[/bold]
    """
    _run(context, table, lambda alter: alter.add_columns(columns, first=first, after=after, into=into))


@app.command("rename-column")
def rename_column(
    context: typer.Context,
    table: Table,
    column: _Column,
    to: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
) -> None:
    """Rename a column; needs delta.columnMapping.mode=name.

    [bold]delvec alter rename-column people name 'full name'[/bold]
    """
    _run(context, table, lambda alter: alter.rename_column(column, to))


@app.command("drop-columns")
def drop_columns(
    context: typer.Context,
    table: Table,
    columns: Annotated[list[str], typer.Argument(metavar="COLUMN...", help="Columns to drop.")],
    if_exists: _IfExists = False,
) -> None:
    """Drop columns; needs delta.columnMapping.mode=name.

    [bold]delvec alter drop-columns people age address.city[/bold]
    """
    _run(context, table, lambda alter: alter.drop_columns(columns, if_exists=if_exists))


@app.command("change-type")
def change_type(
    context: typer.Context,
    table: Table,
    column: _Column,
    to: Annotated[str, typer.Argument(metavar="TYPE", help="The wider type: bigint.")],
) -> None:
    """Widen the type of a column; needs delta.enableTypeWidening=true.

    [bold]delvec alter change-type people age bigint[/bold]
    """
    _run(context, table, lambda alter: alter.change_type(column, to))


@app.command("not-null")
def not_null(
    context: typer.Context,
    table: Table,
    column: _Column,
    drop: Annotated[bool, typer.Option("--drop", help="Allow NULL again.")] = False,
) -> None:
    """Set a column NOT NULL; existing rows are checked first.

    [bold]delvec alter not-null people name[/bold]
    """
    _run(
        context,
        table,
        lambda alter: alter.drop_not_null(column) if drop else alter.set_not_null(column),
    )


@app.command("move-column")
def move_column(
    context: typer.Context, table: Table, column: _Column, first: _First = False, after: _After = None
) -> None:
    """Change the position of a column.

    [bold]delvec alter move-column people born --after name[/bold]
    """
    if first == (after is not None):
        raise typer.BadParameter("give the position: --first or --after COLUMN")
    _run(context, table, lambda alter: alter.move_column(column, first=first, after=after))


@app.command("comment")
def comment(
    context: typer.Context,
    table: Table,
    text: Annotated[str, typer.Argument(help="The comment; an empty text removes it.")],
    column: Annotated[str | None, typer.Option(help="Comment on this column instead of the table.")] = None,
) -> None:
    """Comment on a table or a column.

    [bold]delvec alter comment people 'in full' --column name[/bold]
    """
    _run(
        context,
        table,
        lambda alter: (
            alter.comment(text or None) if column is None else alter.comment_column(column, text or None)
        ),
    )


@app.command("set")
def set_properties(
    context: typer.Context,
    table: Table,
    properties: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Table properties.")],
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Accept delta.* properties that Delvec does not know.")
    ] = False,
) -> None:
    """Set table properties; table features that they need are added to the protocol.

    [bold]delvec alter set people delta.enableDeletionVectors=true team=red[/bold]
    """
    pairs = [entry.partition("=") for entry in properties]
    for key, separator, _ in pairs:
        if not separator or not key:
            raise typer.BadParameter(f"a property must be KEY=VALUE, not {key!r}")
    property_values: dict[str, Any] = {key: value for key, _, value in pairs}
    _run(context, table, lambda alter: alter.set_properties(property_values, allow_unknown=allow_unknown))


@app.command("unset")
def unset_properties(
    context: typer.Context,
    table: Table,
    names: Annotated[list[str], typer.Argument(metavar="KEY...", help="Table properties.")],
    if_exists: _IfExists = False,
) -> None:
    """Unset table properties.

    [bold]delvec alter unset people team[/bold]
    """
    _run(context, table, lambda alter: alter.unset_properties(names, if_exists=if_exists))


@app.command("add-constraint")
def add_constraint(
    context: typer.Context,
    table: Table,
    name: Annotated[str, typer.Argument(help="The constraint's name.")],
    expression: Annotated[str, typer.Argument(help="SQL condition that must be true for every row.")],
) -> None:
    """Add a CHECK constraint; existing rows are checked first.

    [bold]delvec alter add-constraint people grown 'age >= 18'[/bold]
    """
    _run(context, table, lambda alter: alter.add_constraint(name, expression))


@app.command("drop-constraint")
def drop_constraint(
    context: typer.Context,
    table: Table,
    name: Annotated[str, typer.Argument(help="The constraint's name.")],
    if_exists: _IfExists = False,
) -> None:
    """Drop a CHECK constraint.

    [bold]delvec alter drop-constraint people grown[/bold]
    """
    _run(context, table, lambda alter: alter.drop_constraint(name, if_exists=if_exists))


@app.command("default")
def default_of_column(
    context: typer.Context,
    table: Table,
    column: _Column,
    expression: Annotated[
        str | None,
        typer.Argument(help="The default, as a Spark SQL expression; omit it to drop the default."),
    ] = None,
) -> None:
    """Set or drop the default of a column.

    [bold]delvec alter default people country "'NZ'"[/bold]
    """
    _run(
        context,
        table,
        lambda alter: (
            alter.drop_default(column) if expression is None else alter.set_default(column, expression)
        ),
    )


@app.command("sync-identity")
def sync_identity(context: typer.Context, table: Table, column: _Column) -> None:
    """Continue an identity column after the highest value in the table.

    [bold]delvec alter sync-identity people id[/bold]
    """
    _run(context, table, lambda alter: alter.sync_identity(column))


@app.command("add-feature")
def add_feature(
    context: typer.Context,
    table: Table,
    feature: _Feature,
) -> None:
    """Add a table feature to the protocol.

    [bold]delvec alter add-feature people timestampNtz[/bold]
    """
    _run(context, table, lambda alter: alter.add_feature(feature))


@app.command("drop-feature")
def drop_feature(
    context: typer.Context,
    table: Table,
    feature: _Feature,
    truncate_history: Annotated[
        bool, typer.Option("--truncate-history", help="Delete older versions; only for checkpointProtection.")
    ] = False,
) -> None:
    """Drop a table feature from the protocol.

    [bold]delvec alter drop-feature people deletionVectors[/bold]
    """
    _run(context, table, lambda alter: alter.drop_feature(feature, truncate_history=truncate_history))


@app.command("upgrade-protocol")
def upgrade_protocol(
    context: typer.Context,
    table: Table,
    reader: Annotated[int, typer.Argument(metavar="READER", help="Minimum reader version.")],
    writer: Annotated[int, typer.Argument(metavar="WRITER", help="Minimum writer version.")],
) -> None:
    """Upgrade the protocol to a reader and a writer version.

    [bold]delvec alter upgrade-protocol people 2 5[/bold]
    """
    _run(context, table, lambda alter: alter.upgrade_protocol(reader, writer))


@app.command("cluster-by")
def cluster_by(
    context: typer.Context,
    table: Table,
    columns: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COLUMN...]", help="Clustering columns; omit them to turn clustering off."),
    ] = None,
) -> None:
    """Set the clustering columns.

    [bold]delvec alter cluster-by people country born[/bold]
    """
    _run(context, table, lambda alter: alter.cluster_by(columns or []))
