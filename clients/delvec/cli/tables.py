"""Commands that create, register, rename and list tables.

Tested in `tests/integration/client/cli/test_cli.py`.
"""

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import pyarrow as pa
import typer

from delvec.cli.options import ShellSession, Table, session
from delvec.cli.output import moment, print_json, print_table, say
from delvec.table import DeltaTable
from delvec_commands.transaction import Metrics
from delvec_errors import InvalidSchema
from delvec_errors.texts import counted
from delvec_parquet.parquet_file import open_parquet

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
    "undrop",
]

Properties: TypeAlias = Annotated[
    list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="A table property; repeatable.")
]
NewName: TypeAlias = Annotated[
    str | None, typer.Option(help="Table name; defaults to the last part of the location.")
]
_Table: TypeAlias = Annotated[str, typer.Argument(metavar="TABLE", help="Table name or location.")]
_IF_NOT_EXISTS: Final = "Do nothing if the table already exists."


def create(
    context: typer.Context,
    name_or_location: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="Location, or a name in the warehouse: orders, sales.orders."),
    ],
    schema: Annotated[
        str | None, typer.Option(help="Columns as Spark DDL: 'id long NOT NULL, name string'.")
    ] = None,
    like: Annotated[Path | None, typer.Option(help="A Parquet file to take the columns from.")] = None,
    partition_by: Annotated[str | None, typer.Option(help="Partition columns, separated by commas.")] = None,
    properties: Properties = None,
    description: Annotated[str | None, typer.Option(help="Description of the table.")] = None,
    name: NewName = None,
    *,
    cluster_by: Annotated[str | None, typer.Option(help="Clustering columns, separated by commas.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing table; its rows are removed.")
    ] = False,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help=_IF_NOT_EXISTS)] = False,
    managed: Annotated[
        bool, typer.Option("--managed", help="Let the catalog manage the table's commits.")
    ] = False,
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
            managed=managed,
        )
        made = {"id": table.id, "name": table.name, "location": table.location, "version": table.version()}
    if now.as_json:
        print_json(made)
    else:
        say(f"{'table' if if_not_exists else 'created table'} '{table.name}' at {table.location}")


def clone(
    context: typer.Context,
    table: Table,
    target: Annotated[str, typer.Argument(help="Location of the clone, or a name in the warehouse.")],
    *,
    shallow: Annotated[
        bool, typer.Option("--shallow", help="Refer to the source's files instead of copying them.")
    ] = False,
    version: Annotated[
        int | None, typer.Option(min=0, help="Version to clone; by default the newest.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            help="Instead of a version: the table at this time (ISO 8601; UTC unless a zone is given)."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Make an existing table the clone; its history is kept.")
    ] = False,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help=_IF_NOT_EXISTS)] = False,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A table property of the clone; repeatable."),
    ] = None,
    name: NewName = None,
) -> None:
    """Clone a table as of any version, deletion vectors included.

    [bold]delvec clone people /backup/people --version 12[/bold]

    [bold]delvec clone people ./experiment --shallow[/bold]
    """
    if replace and if_not_exists:
        raise typer.BadParameter("give --replace or --if-not-exists, not both")
    if version is not None and timestamp is not None:
        raise typer.BadParameter("give --version or --timestamp, not both")
    now = session(context)
    with now.table(table) as source:
        new_table, metrics = source.run_clone(
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
        print_made(new_table, metrics)
    elif metrics.version is None:
        say(f"nothing done: table '{new_table.name}' at {new_table.location} already exists")
    else:
        kind, files = "shallow" if shallow else "deep", counted(metrics["sourceNumOfFiles"], "file")
        say(f"cloned '{source.name}' ({kind}, {files}): table '{new_table.name}' at {new_table.location}")


def print_made(table: DeltaTable, done: Metrics) -> None:
    """Print a new table and the metrics of the command that made it, as JSON."""
    found = {"id": table.id, "name": table.name, "location": table.location}
    print_json({**found, "version": done.version, "metrics": dict(done)})


def convert(
    context: typer.Context,
    location: Annotated[str, typer.Argument(help="Directory of the Parquet files: ./events, s3://...")],
    *,
    partition_by: Annotated[
        str | None,
        typer.Option(
            help="Partition columns of the directory names, with their types: 'day date, country string'."
        ),
    ] = None,
    no_statistics: Annotated[
        bool, typer.Option("--no-statistics", help="Do not collect statistics from the files.")
    ] = False,
    properties: Properties = None,
    name: NewName = None,
) -> None:
    """Convert a directory of Parquet files to a Delta table in place.

    [bold]delvec convert ./events --partition-by 'day date'[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        table, metrics = lake.run_convert(
            location,
            partition_by,
            name=name,
            collect_statistics=not no_statistics,
            properties=pairs(properties),
        )
    if now.as_json:
        print_made(table, metrics)
    elif metrics.version is None:
        say(f"nothing done: {table.location} is already a Delta table")
    else:
        say(
            f"converted {counted(metrics['numConvertedFiles'], 'file')}: table '{table.name}' at {table.location}"
        )


def register(
    context: typer.Context,
    location: Annotated[str, typer.Argument(help="Location of the table: ./people, /data/people, s3://...")],
    name: Annotated[
        str | None,
        typer.Argument(help="Table name (orders, sales.orders); defaults to the last part of the location."),
    ] = None,
    *,
    managed: Annotated[
        bool, typer.Option("--managed", help="Give the table to the catalog, which manages its commits.")
    ] = False,
) -> None:
    """Register the Delta table at a location under a name.

    [bold]delvec register s3://bucket/raw/orders sales.orders[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        table = lake.register(location, name, managed=managed)
    _report(table, as_json=now.as_json)


def rename(
    context: typer.Context,
    table: _Table,
    name: Annotated[str, typer.Argument(help="The new name, optionally with namespaces: sales.orders.")],
) -> None:
    """Rename a registered table. Its files stay where they are.

    [bold]delvec rename orders sales.orders[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        renamed = lake.rename(table, name)
    _report(renamed, as_json=now.as_json)


def drop(
    context: typer.Context,
    table: _Table,
    *,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete all files in its folder, too; nothing brings them back.")
    ] = False,
) -> None:
    """Unregister a table. Its files stay where they are; `delvec undrop` brings a managed table back.

    [bold]delvec drop sales.orders[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        lake.drop(table, purge=purge)
    if now.as_json:
        print_json({"dropped": table, "purged": purge})
    else:
        say(f"unregistered '{table}'" + ("; its files are deleted" if purge else "; its files are untouched"))


def undrop(
    context: typer.Context,
    dropped: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="Name or id of the dropped table: `delvec tables --dropped`."),
    ],
    name: Annotated[
        str | None, typer.Argument(help="Its new name; by default the name that it was dropped with.")
    ] = None,
) -> None:
    """Bring back a managed table that was dropped.

    [bold]delvec undrop sales.orders[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        table = lake.undrop_table(dropped, name)
    _report(table, as_json=now.as_json)


def _report(table: DeltaTable, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": table.id, "name": table.name, "location": table.location})
    else:
        say(f"table '{table.name}' at {table.location}")


def tables(
    context: typer.Context,
    namespace: Annotated[
        str | None, typer.Argument(help="Only tables of this namespace: NAMESPACE.table.")
    ] = None,
    *,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="Instead: the dropped tables that `delvec undrop` brings back.")
    ] = False,
) -> None:
    """List the registered tables.

    [bold]delvec tables --url http://host:8710 --json[/bold]
    """
    now = session(context)
    if dropped:
        _dropped(now, namespace)
        return
    with now.connect() as lake:
        registered_tables = lake.tables(namespace)
    if now.as_json:
        print_json([table.model_dump(by_alias=True, exclude_none=True) for table in registered_tables])
    else:
        print_table(
            ["name", "location", "registered (UTC)"],
            [(table.name, table.location, moment(table.created_at)) for table in registered_tables],
        )


def _dropped(now: ShellSession, namespace: str | None) -> None:
    with now.connect() as lake:
        dropped_tables = [
            table
            for table in lake.dropped_tables()
            if namespace is None or table.name.startswith(f"{namespace}.")
        ]
    if now.as_json:
        print_json([table.model_dump(by_alias=True, exclude_none=True) for table in dropped_tables])
        return
    print_table(
        ["name", "id", "location", "dropped (UTC)", "kept until (UTC)"],
        [
            (table.name, table.id, table.location, moment(table.dropped_at), moment(table.kept_until))
            for table in dropped_tables
        ],
    )


def _schema_of(path: Path) -> pa.Schema:
    try:
        with pa.OSFile(str(path)) as file:
            return open_parquet(file, str(path)).schema_arrow.remove_metadata()
    except (OSError, pa.ArrowException) as error:
        raise InvalidSchema(f"cannot read {path} as a Parquet file: {error}") from error


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
            raise typer.BadParameter(f"--property must be KEY=VALUE, not {key!r}")
    return {key: value for key, _, value in found}
