"""``delvec iceberg``: tables of Apache Iceberg."""

from typing import Annotated

import typer

from delvec.cli.output import number, print_json, say
from delvec.cli.session import Table, session
from delvec.cli.tables import NewName, Properties, pairs, print_made

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Exchange tables with Apache Iceberg.")


@app.command("import")
def import_(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="The Iceberg table's directory, or its current metadata file.")
    ],
    location: Annotated[
        str | None,
        typer.Argument(help="Where the Delta table is to be; by default in the Iceberg table's directory."),
    ] = None,
    *,
    no_statistics: Annotated[
        bool, typer.Option("--no-statistics", help="Take no statistics from the manifests.")
    ] = False,
    properties: Properties = None,
    name: NewName = None,
) -> None:
    """Make a Delta table of an Iceberg table, without changing or copying its data files.

    [bold]delvec iceberg import ./events[/bold]

    [bold]delvec iceberg import ./events/metadata/00007-5d1c.metadata.json ./events-delta[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        table, done = lake.run_import_iceberg(
            source,
            location,
            name=name,
            collect_statistics=not no_statistics,
            properties=pairs(properties),
        )
    if now.as_json:
        print_made(table, done)
    elif done.version is None:
        say(f"{table.location} is a Delta table already")
    else:
        files, rows = number(done["numConvertedFiles"]), number(done["numDeletedRows"])
        say(f"table '{table.name}' of {files} files, {rows} rows of them deleted, at {table.location}")


@app.command("convert")
def convert(
    context: typer.Context,
    table: Table,
    format_version: Annotated[
        int,
        typer.Option(
            min=2, max=3, help="Of the Iceberg table: 2 has position delete files, 3 deletion vectors."
        ),
    ] = 2,
    squash: Annotated[
        bool, typer.Option("--squash", help="One snapshot for all new versions, instead of one for each.")
    ] = False,
    catalog: Annotated[
        str | None,
        typer.Option(
            help="A catalog of PyIceberg's configuration, or a table in it (prod.sales.orders), that is to show it, too."
        ),
    ] = None,
) -> None:
    """Publish the newest version as an Iceberg table; goes on from the last time.

    [bold]delvec iceberg convert people --format-version 3[/bold]

    [bold]delvec iceberg convert people --catalog prod.sales.people[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        done = target.to_iceberg(format_version=format_version, squash=squash, catalog=catalog)
    if now.as_json:
        print_json(done)
        return
    say(f"version {done['delta-version']} is an Iceberg table (format version {done['format-version']}):")
    print(done["metadata-location"])
    if done["catalog"]:
        say(f"shown by the catalog as {done['catalog']}")
