"""The command that runs one statement of SQL."""

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from delvec.cli import files, rows
from delvec.cli.output import print_json, rows_of, say
from delvec.cli.session import session
from delvec.transaction import Metrics

__all__ = ["sql"]


def sql(
    context: typer.Context,
    statement: Annotated[
        str, typer.Argument(help="SELECT, DELETE, UPDATE, MERGE, INSERT, DESCRIBE or SHOW TABLES.")
    ],
    dialect: Annotated[str, typer.Option(help="How it is written: spark or duckdb.")] = "spark",
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many rows.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write a file instead: .parquet, .csv, .arrow, .json or .jsonl.")
    ] = None,
) -> None:
    """Run one SQL statement; a table is its name, or delta.`/path`.

    [bold]delvec sql "UPDATE people SET age = age + 1 WHERE id = 3"[/bold]

    [bold]delvec sql "SELECT country, count(*) FROM people VERSION AS OF 7 GROUP BY country"[/bold]
    """
    now = session(context)
    write = files.writer(out) if out is not None else None
    with now.connect() as lake:
        done = lake.sql(statement, dialect=dialect)
    if isinstance(done, Metrics):
        rows.report(done, now.as_json, "done")
        return
    assert isinstance(done, pa.Table)  # noqa: S101 - DuckDB is the shell's engine
    found = files.head(done.to_reader(), limit)
    if out is not None and write is not None:
        count = write(found)
        if now.as_json:
            print_json({"rows": count, "out": str(out)})
        else:
            say(f"wrote {rows_of(count)} to {out}")
    elif now.as_json:
        files.print_rows(found)
    else:
        rows.show(found, limit)
