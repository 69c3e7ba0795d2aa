"""Commands that read and change rows.

Tested in `tests/integration/client/cli/test_cli.py`.
"""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from delvec.cli import row_output
from delvec.cli.options import Table, session
from delvec.cli.output import number, print_json, print_pairs, rows_of, say
from delvec.cli.row_output import Destination, Format, Limit, Out
from delvec_commands.dml.retry import DEFAULT_RETRIES
from delvec_commands.dml.touched_files import DryRun
from delvec_commands.transaction import Metrics
from delvec_kernel.schema.column_paths import backticked

__all__ = ["append", "changes", "delete", "merge", "overwrite", "read", "report", "update"]


def changes(
    context: typer.Context,
    table: Table,
    *,
    start_version: Annotated[int | None, typer.Option(min=0, help="First version.")] = None,
    end_version: Annotated[
        int | None, typer.Option(min=0, help="Last version; by default the newest.")
    ] = None,
    start_timestamp: Annotated[
        str | None,
        typer.Option(
            help="From the first version at or after this time (ISO 8601; UTC unless a zone is given)."
        ),
    ] = None,
    end_timestamp: Annotated[
        str | None,
        typer.Option(
            help="To the last version at or before this time (ISO 8601; UTC unless a zone is given)."
        ),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to return, separated by commas.")] = None,
    where: Annotated[
        str | None,
        typer.Option(help="Only rows that match this SQL condition; - reads it from standard input."),
    ] = None,
    limit: Limit = None,
    out: Out = None,
    format: Format = None,  # noqa: A002 - what the option is called
) -> None:
    """Print the rows that a range of versions inserted, updated or deleted, or write them to a file.

    [bold]delvec changes people --start-version 3[/bold]

    [bold]delvec changes people --start-version 3 --where "_change_type = 'delete'" --out deleted.parquet[/bold]
    """
    now = session(context)
    destination = Destination(out, limit, format, as_json=now.as_json)
    names = [name.strip() for name in columns.split(",") if name.strip()] if columns else None
    with now.table(table) as source:
        rows = source.changes(
            start_version,
            end_version,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            columns=names,
            predicate=_condition(where),
        )
    destination.take(rows.to_reader())


_File = Annotated[
    Path, typer.Argument(help="File of rows: .parquet, .csv, .json or .arrow; - reads standard input.")
]
_MergeSchema = Annotated[
    bool, typer.Option("--merge-schema", help="Add the file's new columns to the table.")
]
_UserMetadata = Annotated[str | None, typer.Option(help="Text to record in the table's history.")]


def append(
    context: typer.Context,
    table: Table,
    file: _File,
    merge_schema: _MergeSchema = False,
    user_metadata: _UserMetadata = None,
) -> None:
    """Append the rows of a file.

    [bold]delvec append people new-people.parquet[/bold]
    """
    now = session(context)
    with now.table(table, doing="adding rows") as target:
        rows = row_output.open_rows(file, target.schema())
        metrics = target.append(rows, merge_schema=merge_schema, user_metadata=user_metadata)
    report(metrics, now.as_json, f"added {rows_of(metrics.get('numOutputRows'))}")


def overwrite(
    context: typer.Context,
    table: Table,
    file: _File,
    *,
    where: Annotated[
        str | None,
        typer.Option(help="Replace only rows that match this SQL condition; new rows must match it, too."),
    ] = None,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Replace only the partitions that have new rows.")
    ] = False,
    merge_schema: _MergeSchema = False,
    overwrite_schema: Annotated[
        bool, typer.Option("--overwrite-schema", help="Replace the table's schema with the file's.")
    ] = False,
    partition_by: Annotated[
        str | None,
        typer.Option(help="With --overwrite-schema: the new partition columns, separated by commas."),
    ] = None,
    user_metadata: _UserMetadata = None,
) -> None:
    """Replace all rows, or some of them, with the rows of a file.

    [bold]delvec overwrite people people.parquet[/bold]

    [bold]delvec overwrite people nz.parquet --where "country = 'NZ'"[/bold]
    """
    now = session(context)
    if where == "-" and str(file) == "-":
        raise typer.BadParameter("standard input can be the rows or the condition, not both")
    condition = _condition(where)
    partitions = None
    if partition_by is not None:
        partitions = [name.strip() for name in partition_by.split(",") if name.strip()]
    with now.table(table, doing="replacing rows") as target:
        rows = row_output.open_rows(file, pa.schema([]) if overwrite_schema else target.schema())
        metrics = target.overwrite(
            rows,
            replace_where=condition,
            partition_overwrite="dynamic" if dynamic else "static",
            merge_schema=merge_schema,
            overwrite_schema=overwrite_schema,
            partition_by=partitions,
            user_metadata=user_metadata,
        )
    report(metrics, now.as_json, f"wrote {rows_of(metrics.get('numOutputRows'))}")


def read(
    context: typer.Context,
    table: Table,
    *,
    columns: Annotated[str | None, typer.Option(help="Columns to return, separated by commas.")] = None,
    where: Annotated[
        str | None,
        typer.Option(help="Only rows that match this SQL condition; - reads it from standard input."),
    ] = None,
    version: Annotated[int | None, typer.Option(min=0, help="Read the table as of this version.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(help="Read the table as of this time (ISO 8601; UTC unless a zone is given)."),
    ] = None,
    limit: Limit = None,
    out: Out = None,
    format: Format = None,  # noqa: A002 - what the option is called
) -> None:
    """Print rows, or write them to a file.

    [bold]delvec read people --columns id,name --where "country = 'NZ'"[/bold]

    [bold]delvec read /data/people --version 3 --out people.parquet[/bold]
    """
    if version is not None and timestamp is not None:
        raise typer.BadParameter("give --version or --timestamp, not both")
    now = session(context)
    destination = Destination(out, limit, format, as_json=now.as_json)
    names = [name.strip() for name in columns.split(",") if name.strip()] if columns else None
    with now.table(table) as source:
        destination.take(source.to_batches(names, _condition(where), version, timestamp))


_Rows = Annotated[
    str | None,
    typer.Option(help="Only the rows that match this SQL condition; - reads it from standard input."),
]
_AllRows = Annotated[bool, typer.Option("--all", help="Every row.")]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Change nothing; report what would happen to each file.")
]
_Retries = Annotated[
    int | None,
    typer.Option(
        min=0, help=f"How often to retry after a conflict with another writer; by default {DEFAULT_RETRIES}."
    ),
]


def delete(
    context: typer.Context,
    table: Table,
    where: _Rows = None,
    all_rows: _AllRows = False,
    dry_run: _DryRun = False,
    retries: _Retries = None,
    user_metadata: _UserMetadata = None,
) -> None:
    """Delete rows.

    [bold]delvec delete people --where 'age < 18'[/bold]

    [bold]delvec delete people --all[/bold]
    """
    if (where is None) == (not all_rows):
        raise typer.BadParameter("give the rows to delete: --where CONDITION or --all")
    now = session(context)
    condition = _condition(where)
    with now.table(table, doing="deleting rows") as target:
        metrics = target.delete(condition, dry_run=dry_run, retries=retries, user_metadata=user_metadata)
    report(metrics, now.as_json, f"deleted {rows_of(metrics.get('numDeletedRows'))}")


def update(
    context: typer.Context,
    table: Table,
    assignments: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="COLUMN=VALUE",
            help="A column and its value in SQL, such as age=age+1; repeatable.",
        ),
    ],
    where: _Rows = None,
    all_rows: _AllRows = False,
    dry_run: _DryRun = False,
    retries: _Retries = None,
    user_metadata: _UserMetadata = None,
) -> None:
    """Set columns of rows.

    [bold]delvec update people --set "age = age + 1" --set "name = 'Ada'" --where 'id = 3'[/bold]
    """
    if (where is None) == (not all_rows):
        raise typer.BadParameter("give the rows to update: --where CONDITION or --all")
    values = dict(_assignment(each) for each in assignments)
    now = session(context)
    condition = _condition(where)
    with now.table(table, doing="updating rows") as target:
        metrics = target.update(
            values, condition, dry_run=dry_run, retries=retries, user_metadata=user_metadata
        )
    report(metrics, now.as_json, f"updated {rows_of(metrics.get('numUpdatedRows'))}")


def _assignment(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not (equals and column.strip() and value.strip()):
        raise typer.BadParameter(f"--set takes COLUMN=VALUE, such as age=age+1, not {text!r}")
    return column.strip(), value.strip()


def merge(
    context: typer.Context,
    table: Table,
    file: _File,
    on: Annotated[
        str,
        typer.Option(
            help="Key columns, separated by commas, or a SQL condition, such as target.id = source.id."
        ),
    ],
    *,
    update_rows: Annotated[
        bool, typer.Option("--update/--no-update", help="Update rows that the file has, too.")
    ] = True,
    insert_rows: Annotated[
        bool, typer.Option("--insert/--no-insert", help="Insert rows that only the file has.")
    ] = True,
    delete_missing: Annotated[
        bool, typer.Option("--delete-missing", help="Delete rows that the file does not have.")
    ] = False,
    merge_schema: _MergeSchema = False,
    dry_run: _DryRun = False,
    retries: _Retries = None,
    user_metadata: _UserMetadata = None,
) -> None:
    """Merge the rows of a file into the table: update those with the same key, and insert the others.

    [bold]delvec merge people changes.parquet --on id[/bold]

    [bold]delvec merge people all.csv --on "target.id = source.id AND target.day = source.day" --delete-missing[/bold]
    """
    now = session(context)
    with now.table(table, doing="merging rows") as target:
        rows = row_output.open_rows(file, target.schema())
        names = [] if "=" in on else [backticked(name.strip()) for name in on.split(",") if name.strip()]
        condition = " AND ".join(f"target.{name} = source.{name}" for name in names) or on
        builder = target.merge(rows, condition, merge_schema=merge_schema)
        if update_rows:
            builder = builder.when_matched_update_all()
        if insert_rows:
            builder = builder.when_not_matched_insert_all()
        if delete_missing:
            builder = builder.when_not_matched_by_source_delete()
        metrics = builder.execute(dry_run=dry_run, retries=retries, user_metadata=user_metadata)
    counts = [
        f"{verb} {rows_of(metrics.get(f'numTargetRows{verb.capitalize()}'))}"
        for verb in ("updated", "inserted", "deleted")
    ]
    report(metrics, now.as_json, ", ".join(counts))


def _condition(where: str | None) -> str | None:
    """Return a condition of the command line; ``-`` is one on standard input."""
    return sys.stdin.read().strip() if where == "-" else where


def report(metrics: Metrics, as_json: bool, summary: str) -> None:
    """Print what a command did, or would do to each file."""
    if isinstance(metrics, DryRun):
        if as_json:
            print_json(
                {"version": None, "metrics": metrics, "files": [asdict(file) for file in metrics.files]}
            )
        else:
            say(str(metrics))
    elif as_json:
        print_json({"version": metrics.version, "metrics": metrics})
    elif metrics.version is None:
        say("nothing committed: nothing to do")
    else:
        print_pairs({name: number(value) for name, value in metrics.items()})
        say(f"{summary} in version {metrics.version}")
