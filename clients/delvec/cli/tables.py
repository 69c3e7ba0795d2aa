"""Commands about which tables there are."""

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from delvec.cli.output import print_json, print_table, say
from delvec.cli.session import session
from delvec.protocol.errors import InvalidSchema

__all__ = ["create", "tables"]


def create(
    context: typer.Context,
    name_or_location: Annotated[str, typer.Argument(help="Where to create it, or a name.")],
    schema: Annotated[
        str | None, typer.Option(help="Columns and Spark's types: 'id long NOT NULL, name string'.")
    ] = None,
    like: Annotated[Path | None, typer.Option(help="A Parquet file to take the columns from.")] = None,
    partition_by: Annotated[str | None, typer.Option(help="Columns, separated by commas.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A table property; repeatable."),
    ] = None,
    description: Annotated[str | None, typer.Option(help="Free text.")] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call it; by default the location's last part.")
    ] = None,
    *,
    cluster_by: Annotated[
        str | None, typer.Option(help="Columns to cluster files by, separated by commas.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="In place of a table that is there, whose rows go.")
    ] = False,
) -> None:
    """Create an empty table, with deletion vectors enabled.

    [bold]delvec create /data/people --schema 'id long, country string' --partition-by country[/bold]

    [bold]delvec create ./events --like events.parquet --property delta.enableDeletionVectors=false[/bold]
    """
    if (schema is None) == (like is None):
        raise typer.BadParameter("give either --schema or --like")
    pairs = [entry.partition("=") for entry in properties or ()]
    for key, separator, _ in pairs:
        if not separator or not key:
            raise typer.BadParameter(f"--property takes KEY=VALUE, not {key!r}")
    now = session(context)
    with now.connect() as lake:
        table = lake.create_table(
            name_or_location,
            schema if like is None else _schema_of(like),
            partition_by=_names(partition_by),
            properties={key: value for key, _, value in pairs},
            description=description,
            name=name,
            cluster_by=_names(cluster_by),
            replace=replace,
        )
        made = {"id": table.id, "name": table.name, "location": table.location, "version": table.version()}
    if now.as_json:
        print_json(made)
    else:
        say(f"created table '{table.name}' at {table.location}")


def tables(context: typer.Context) -> None:
    """List the tables that the service knows.

    [bold]delvec tables --url http://host:8710 --json[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        found = lake.tables()
    if now.as_json:
        print_json([table.model_dump(by_alias=True, exclude_none=True) for table in found])
    else:
        print_table(
            ["name", "location", "since"], [(table.name, table.location, table.created_at) for table in found]
        )


def _schema_of(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path).remove_metadata()
    except (OSError, pa.ArrowException) as error:
        raise InvalidSchema(f"{path} is not a Parquet file that can be read: {error}") from error


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] if text else []
