"""Commands that read, add and delete rows."""

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from delvec.cli import files
from delvec.cli.output import number, print_json, print_pairs, print_table, rows_of, say
from delvec.cli.session import Table, session
from delvec.transaction import Metrics

__all__ = ["append", "delete", "read"]

_SHOWN = 100  # rows printed for a person who did not say how many


def append(
    context: typer.Context,
    table: Table,
    file: Annotated[Path, typer.Argument(help="Rows: .parquet, .csv, .json (one object a line) or .arrow.")],
) -> None:
    """Add the rows of a file.

    [bold]delvec append people new-people.parquet[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        metrics = target.append(files.open_rows(file, target.schema()))
    _report(metrics, now.as_json, f"added {rows_of(metrics.get('numOutputRows'))}")


def read(
    context: typer.Context,
    table: Table,
    columns: Annotated[str | None, typer.Option(help="Which columns, separated by commas.")] = None,
    where: Annotated[str | None, typer.Option(help="Only rows for which this SQL condition is true.")] = None,
    version: Annotated[int | None, typer.Option(min=0, help="The table as of this version.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="The table as of this moment (ISO 8601; UTC).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many rows.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write a file instead: .parquet, .csv, .arrow, .json or .jsonl.")
    ] = None,
) -> None:
    """Print rows, or write them to a file.

    [bold]delvec read people --columns id,name --where "country = 'NZ'"[/bold]

    [bold]delvec read /data/people --version 3 --out people.parquet[/bold]
    """
    if version is not None and timestamp is not None:
        raise typer.BadParameter("give --version or --timestamp, not both")
    now = session(context)
    write = files.writer(out) if out is not None else None
    names = [name.strip() for name in columns.split(",") if name.strip()] if columns else None
    with now.table(table) as source:
        found = files.head(source.to_batches(names, where, version, timestamp), limit)
        if out is not None and write is not None:
            count = write(found)
            if now.as_json:
                print_json({"rows": count, "out": str(out)})
            else:
                say(f"wrote {rows_of(count)} to {out}")
        elif now.as_json:
            files.print_rows(found)
        else:
            _show(files.head(found, _SHOWN + 1 if limit is None else limit), limit)


def _show(found: pa.RecordBatchReader, limit: int | None) -> None:
    rows = found.read_all()
    shown = rows.slice(0, _SHOWN if limit is None else limit)
    numeric = [field.name for field in shown.schema if files.is_number(field.type)]
    print_table(
        shown.column_names,
        zip(*(column.to_pylist() for column in shown.columns), strict=True),
        right=numeric,
    )
    if shown.num_rows < rows.num_rows:
        say(f"the first {_SHOWN} rows; --limit or --out gives more")


def delete(
    context: typer.Context,
    table: Table,
    where: Annotated[
        str | None, typer.Option(help="Delete the rows for which this SQL condition is true.")
    ] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="Delete every row.")] = False,
) -> None:
    """Delete rows.

    [bold]delvec delete people --where 'age < 18'[/bold]

    [bold]delvec delete people --all[/bold]
    """
    if (where is None) == (not all_rows):
        raise typer.BadParameter("say which rows: --where CONDITION, or --all")
    now = session(context)
    with now.table(table) as target:
        metrics = target.delete(where)
    _report(metrics, now.as_json, f"deleted {rows_of(metrics.get('numDeletedRows'))}")


def _report(metrics: Metrics, as_json: bool, done: str) -> None:
    if as_json:
        print_json({"version": metrics.version, "metrics": metrics})
    elif metrics.version is None:
        say("nothing to do, nothing committed")
    else:
        print_pairs({name: number(value) for name, value in metrics.items()})
        say(f"{done} in version {metrics.version}")
