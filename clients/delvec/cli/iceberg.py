"""``delvec iceberg``: import from and publish to Apache Iceberg.

Tested in `tests/integration/client/test_iceberg.py` and `tests/integration/client/test_iceberg_import.py`.
"""

from typing import Annotated

import typer

from delvec.cli.options import Table, session
from delvec.cli.output import print_json, say
from delvec.cli.tables import NewName, Properties, pairs, print_made
from delvec_errors.texts import counted

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Import tables from Apache Iceberg, and publish tables to it.")


@app.command("import")
def import_(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="The Iceberg table's directory, or its current metadata file.")
    ],
    location: Annotated[
        str | None,
        typer.Argument(help="Location of the Delta table; by default the Iceberg table's directory."),
    ] = None,
    *,
    no_statistics: Annotated[
        bool, typer.Option("--no-statistics", help="Do not take statistics from the manifests.")
    ] = False,
    properties: Properties = None,
    name: NewName = None,
) -> None:
    """Make an Iceberg table a Delta table, without copying or changing its data files.

    [bold]delvec iceberg import ./events[/bold]

    [bold]delvec iceberg import ./events/metadata/00007-5d1c.metadata.json ./events-delta[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        table, metrics = lake.run_import_iceberg(
            source,
            location,
            name=name,
            collect_statistics=not no_statistics,
            properties=pairs(properties),
        )
    if now.as_json:
        print_made(table, metrics)
    elif metrics.version is None:
        say(f"nothing done: {table.location} is already a Delta table")
    else:
        files = counted(metrics["numConvertedFiles"], "file")
        rows = counted(metrics["numDeletedRows"], "deleted row")
        say(f"imported {files} with {rows}: table '{table.name}' at {table.location}")


@app.command("convert")
def convert(
    context: typer.Context,
    table: Table,
    format_version: Annotated[
        int,
        typer.Option(
            min=2,
            max=3,
            help="Iceberg format version: 2 uses position delete files, 3 uses deletion vectors.",
        ),
    ] = 2,
    squash: Annotated[
        bool,
        typer.Option("--squash", help="Write one snapshot for all new versions instead of one per version."),
    ] = False,
    catalog: Annotated[
        str | None,
        typer.Option(
            help="Also register the table in a catalog of PyIceberg's configuration (prod), optionally under a name "
            "(prod.sales.orders)."
        ),
    ] = None,
) -> None:
    """Publish the newest version as an Iceberg table; later runs add only what changed.

    [bold]delvec iceberg convert people --format-version 3[/bold]

    [bold]delvec iceberg convert people --catalog prod.sales.people[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        iceberg_metadata = target.to_iceberg(format_version=format_version, squash=squash, catalog=catalog)
    if now.as_json:
        print_json(iceberg_metadata)
        return
    say(
        f"published version {iceberg_metadata['delta-version']} as an Iceberg table (format version {iceberg_metadata['format-version']}):"
    )
    print(iceberg_metadata["metadata-location"])
    if iceberg_metadata["catalog"]:
        say(f"registered in the catalog as {iceberg_metadata['catalog']}")
    if iceberg_metadata["warning"]:
        say(f"warning: {iceberg_metadata['warning']}")
