"""The command that reads the change data feed."""

from typing import Annotated

import typer

from delvec.cli.destination import Destination, Limit, Out
from delvec.cli.session import Table, session

__all__ = ["changes"]


def changes(
    context: typer.Context,
    table: Table,
    *,
    start_version: Annotated[int | None, typer.Option(min=0, help="The first version.")] = None,
    end_version: Annotated[
        int | None, typer.Option(min=0, help="The last one; by default the newest.")
    ] = None,
    start_timestamp: Annotated[
        str | None, typer.Option(help="From the first version not before this moment (ISO 8601; UTC).")
    ] = None,
    end_timestamp: Annotated[
        str | None, typer.Option(help="To the last version not after this moment (ISO 8601; UTC).")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Which columns, separated by commas.")] = None,
    where: Annotated[str | None, typer.Option(help="Only rows for which this SQL condition is true.")] = None,
    limit: Limit = None,
    out: Out = None,
) -> None:
    """Print the rows that versions inserted, deleted and updated, or write them to a file.

    [bold]delvec changes people --start-version 3[/bold]

    [bold]delvec changes people --start-version 3 --where "_change_type = 'delete'" --out deleted.parquet[/bold]
    """
    now = session(context)
    destination = Destination(out, limit, as_json=now.as_json)
    names = [name.strip() for name in columns.split(",") if name.strip()] if columns else None
    with now.table(table) as source:
        rows = source.changes(
            start_version,
            end_version,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            columns=names,
            predicate=where,
        )
    destination.take(rows.to_reader())
