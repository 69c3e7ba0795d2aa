"""The command that reads the change data feed."""

from pathlib import Path
from typing import Annotated

import typer

from delvec.cli import files
from delvec.cli.output import print_json, rows_of, say
from delvec.cli.rows import show
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
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many rows.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write a file instead: .parquet, .csv, .arrow, .json or .jsonl.")
    ] = None,
) -> None:
    """Print the rows that versions inserted, deleted and updated, or write them to a file.

    [bold]delvec changes people --start-version 3[/bold]

    [bold]delvec changes people --start-version 3 --where "_change_type = 'delete'" --out deleted.parquet[/bold]
    """
    now = session(context)
    write = files.writer(out) if out is not None else None
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
    found = files.head(rows.to_reader(), limit)
    if write is not None:
        count = write(found)
        if now.as_json:
            print_json({"rows": count, "out": str(out)})
        else:
            say(f"wrote {rows_of(count)} to {out}")
    elif now.as_json:
        files.print_rows(found)
    else:
        show(found, limit)
