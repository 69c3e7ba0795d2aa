"""Commands about which tables there are."""

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from delvec.cli.output import number, print_json, print_table, say
from delvec.cli.session import Table, session
from delvec.table import DeltaTable
from delvec.transaction import Metrics
from delvec_kernel.errors import InvalidSchema

__all__ = [
    "NewName",
    "Properties",
    "clone",
    "convert",
    "create",
    "drop",
    "pairs",
    "print_made",
    "register",
    "rename",
    "tables",
]

Properties: TypeAlias = Annotated[
    list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="A table property; repeatable.")
]
NewName: TypeAlias = Annotated[
    str | None, typer.Option(help="What to call it; by default the location's last part.")
]
_Table: TypeAlias = Annotated[str, typer.Argument(metavar="TABLE", help="Its name or its location.")]
_IF_NOT_EXISTS: Final = "Do nothing where the table is there already."


def create(
    context: typer.Context,
    name_or_location: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="Where to create it, or a name: orders, sales.orders in the warehouse."
        ),
    ],
    schema: Annotated[
        str | None, typer.Option(help="Columns and Spark's types: 'id long NOT NULL, name string'.")
    ] = None,
    like: Annotated[Path | None, typer.Option(help="A Parquet file to take the columns from.")] = None,
    partition_by: Annotated[str | None, typer.Option(help="Columns, separated by commas.")] = None,
    properties: Properties = None,
    description: Annotated[str | None, typer.Option(help="Free text.")] = None,
    name: NewName = None,
    *,
    cluster_by: Annotated[
        str | None, typer.Option(help="Columns to cluster files by, separated by commas.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a table that is there; its rows go.")
    ] = False,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help=_IF_NOT_EXISTS)] = False,
) -> None:
    """Create an empty table, with deletion vectors enabled.

    [bold]delvec create /data/people --schema 'id long, country string' --partition-by country[/bold]

    [bold]delvec create ./events --like events.parquet --property delta.enableDeletionVectors=false[/bold]
    """
    if (schema is None) == (like is None):
        raise typer.BadParameter("give either --schema or --like")
    if replace and if_not_exists:
        raise typer.BadParameter("give --replace or --if-not-exists, not both")
    now = session(context)
    with now.connect() as lake:
        table = lake.create_table(
            name_or_location,
            schema if like is None else _schema_of(like),
            partition_by=_names(partition_by),
            properties=pairs(properties),
            description=description,
            name=name,
            cluster_by=_names(cluster_by),
            replace=replace,
            if_not_exists=if_not_exists,
        )
        made = {"id": table.id, "name": table.name, "location": table.location, "version": table.version()}
    if now.as_json:
        print_json(made)
    else:
        say(f"{'table' if if_not_exists else 'created table'} '{table.name}' at {table.location}")


def clone(
    context: typer.Context,
    table: Table,
    target: Annotated[
        str, typer.Argument(help="Where the clone goes: a location, or a name in the warehouse.")
    ],
    *,
    shallow: Annotated[
        bool, typer.Option("--shallow", help="Refer to the table's files, instead of copying them.")
    ] = False,
    version: Annotated[int | None, typer.Option(min=0, help="Which version; the newest by default.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="Instead: the version of this time; ISO 8601, UTC without a zone.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="A table that is there becomes the clone; its history stays.")
    ] = False,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help=_IF_NOT_EXISTS)] = False,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A table property of the clone; repeatable."),
    ] = None,
    name: NewName = None,
) -> None:
    """Make another table what a table is at some version, deletion vectors included.

    [bold]delvec clone people /backup/people --version 12[/bold]

    [bold]delvec clone people ./experiment --shallow[/bold]
    """
    if replace and if_not_exists:
        raise typer.BadParameter("give --replace or --if-not-exists, not both")
    if version is not None and timestamp is not None:
        raise typer.BadParameter("give --version or --timestamp, not both")
    now = session(context)
    with now.table(table) as source:
        made, done = source.run_clone(
            target,
            shallow=shallow,
            version=version,
            timestamp=timestamp,
            replace=replace,
            if_not_exists=if_not_exists,
            properties=pairs(properties),
            name=name,
        )
    if now.as_json:
        print_made(made, done)
    elif done.version is None:
        say(f"table '{made.name}' at {made.location} is there already, nothing done")
    else:
        kind, files = "shallow" if shallow else "deep", number(done["sourceNumOfFiles"])
        say(f"{kind} clone of '{source.name}' with {files} files: table '{made.name}' at {made.location}")


def print_made(table: DeltaTable, done: Metrics) -> None:
    """Print a table that a command has made of files, and the command's metrics, as JSON."""
    found = {"id": table.id, "name": table.name, "location": table.location}
    print_json({**found, "version": done.version, "metrics": dict(done)})


def convert(
    context: typer.Context,
    location: Annotated[str, typer.Argument(help="The directory of the Parquet files: ./events, s3://...")],
    *,
    partition_by: Annotated[
        str | None,
        typer.Option(help="Columns of the directories, with their types: 'day date, country string'."),
    ] = None,
    no_statistics: Annotated[
        bool, typer.Option("--no-statistics", help="Take no statistics from the files.")
    ] = False,
    properties: Properties = None,
    name: NewName = None,
) -> None:
    """Make a table of the Parquet files of a directory, without changing them.

    [bold]delvec convert ./events --partition-by 'day date'[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        table, done = lake.run_convert(
            location,
            partition_by,
            name=name,
            collect_statistics=not no_statistics,
            properties=pairs(properties),
        )
    if now.as_json:
        print_made(table, done)
    elif done.version is None:
        say(f"{table.location} is a Delta table already")
    else:
        say(f"table '{table.name}' of {number(done['numConvertedFiles'])} files at {table.location}")


def register(
    context: typer.Context,
    location: Annotated[str, typer.Argument(help="Where the table is: ./people, /data/people, s3://...")],
    name: Annotated[
        str | None,
        typer.Argument(help="Its name: orders, sales.orders; by default the location's last part."),
    ] = None,
) -> None:
    """Give the Delta table at a location a name.

    [bold]delvec register s3://bucket/raw/orders sales.orders[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        table = lake.register(location, name)
    _report(table, as_json=now.as_json)


def rename(
    context: typer.Context,
    table: _Table,
    name: Annotated[str, typer.Argument(help="The new name, with namespaces before it if you like.")],
) -> None:
    """Give a registered table another name. Its files stay where they are.

    [bold]delvec rename orders sales.orders[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        renamed = lake.rename(table, name)
    _report(renamed, as_json=now.as_json)


def drop(context: typer.Context, table: _Table) -> None:
    """Forget a table and its name. Its files stay where they are.

    [bold]delvec drop sales.orders[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        lake.drop(table)
    if now.as_json:
        print_json({"dropped": table})
    else:
        say(f"forgot '{table}'; its files are untouched")


def _report(table: DeltaTable, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": table.id, "name": table.name, "location": table.location})
    else:
        say(f"'{table.name}' is the table at {table.location}")


def tables(
    context: typer.Context,
    namespace: Annotated[
        str | None, typer.Argument(help="Only tables that are called NAMESPACE.something.")
    ] = None,
) -> None:
    """List the tables that are registered.

    [bold]delvec tables --url http://host:8710 --json[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        found = lake.tables(namespace)
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


def pairs(properties: list[str] | None) -> dict[str, str]:
    """Return the properties that ``--property KEY=VALUE`` gave.

    Raises:
        typer.BadParameter: one has no key, or no value.
    """
    found = [entry.partition("=") for entry in properties or ()]
    for key, separator, _ in found:
        if not separator or not key:
            raise typer.BadParameter(f"--property takes KEY=VALUE, not {key!r}")
    return {key: value for key, _, value in found}
