"""The command that runs one SQL statement."""

import sys
from typing import Annotated

import pyarrow as pa
import typer

from delvec.alterations import Altered
from delvec.cli import alter, rows
from delvec.cli.options import session
from delvec.cli.output import working
from delvec.cli.row_output import Destination, Format, Limit, Out
from delvec_commands.transaction import Metrics

__all__ = ["sql"]


def sql(
    context: typer.Context,
    statement: Annotated[
        str,
        typer.Argument(
            help="SELECT, INSERT, UPDATE, DELETE, MERGE, ALTER TABLE, OPTIMIZE, VACUUM, RESTORE, DESCRIBE, ...; - "
            "reads it from standard input."
        ),
    ],
    dialect: Annotated[str, typer.Option(help="SQL dialect: spark or duckdb.")] = "spark",
    limit: Limit = None,
    out: Out = None,
    format: Format = None,  # noqa: A002 - what the option is called
) -> None:
    """Run one SQL statement. Refer to a table by name, or as delta.`/path`.

    [bold]delvec sql "UPDATE people SET age = age + 1 WHERE id = 3"[/bold]

    [bold]delvec sql "SELECT country, count(*) FROM people VERSION AS OF 7 GROUP BY country"[/bold]
    """
    now = session(context)
    statement = sys.stdin.read() if statement == "-" else statement
    destination = Destination(out, limit, format, as_json=now.as_json)
    with now.connect() as lake, working("running the statement", lake.progress, as_json=now.as_json):
        statement_result = lake.sql(statement, dialect=dialect)
    if isinstance(statement_result, Metrics):
        rows.report(statement_result, now.as_json, "done")
        return
    if isinstance(statement_result, Altered):
        alter.report(statement_result, now.as_json, "the table")
        return
    assert isinstance(statement_result, pa.Table)  # noqa: S101 - DuckDB is the shell's engine
    destination.take(statement_result.to_reader())
