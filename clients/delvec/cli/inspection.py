"""Commands that inspect a table without reading its rows.

Tested in `tests/integration/client/cli/test_cli.py`.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from delvec.cli.output import instant, number, print_json, print_pairs, print_table, say, size_of, span_of
from delvec.cli.session import Table, session

__all__ = ["conflicts", "detail", "events", "health", "history", "tasks"]

_WATCH_SECONDS: Final = 2.0
_NOTHING = (None, "", "0", 0, "[]", "{}", "null", "false")


def history(
    context: typer.Context,
    table: Table,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of versions, newest first.")
    ] = None,
) -> None:
    """List the table's commits, newest first.

    [bold]delvec history people --limit 10[/bold]
    """
    now = session(context)
    with now.table(table) as source:
        entries = source.history(limit)
    if now.as_json:
        print_json(entries)
        return
    if sys.stdout.isatty():
        # Six columns do not fit a terminal: the last three go into one.
        print_table(
            ["version", "time (UTC)", "operation", "details"],
            [
                (entry["version"], instant(entry["timestamp"]), _operation(entry), _details(entry))
                for entry in entries
            ],
            right=["version"],
        )
        return
    print_table(
        ["version", "time (UTC)", "operation", "parameters", "metrics", "engine"],
        [
            (
                entry["version"],
                instant(entry["timestamp"]),
                _operation(entry),
                _pairs(_given(entry.get("operationParameters"))),
                _pairs(_given(entry.get("operationMetrics"))),
                entry.get("engineInfo"),
            )
            for entry in entries
        ],
        right=["version"],
    )


def _details(entry: Mapping[str, Any]) -> str:
    given = (_given(entry.get("operationParameters")), _given(entry.get("operationMetrics")))
    return "; ".join(filter(None, (*map(_pairs, given), entry.get("engineInfo"))))


def _operation(entry: Mapping[str, Any]) -> str | None:
    members = entry.get("members")
    return f"{entry['operation']} by {len(members)} transactions" if members else entry.get("operation")


def detail(context: typer.Context, table: Table) -> None:
    """Show the table's schema, properties, protocol and size.

    [bold]delvec detail /data/people --json[/bold]
    """
    now = session(context)
    with now.table(table) as source:
        table_detail = source.detail()
    if now.as_json:
        print_json(table_detail)
        return
    for field in ("createdAt", "lastModified"):
        if isinstance(table_detail.get(field), int):
            table_detail[field] = f"{instant(table_detail[field])} UTC"
    print_pairs({name: _listed(value) for name, value in table_detail.items()})


def health(
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE]", help="Table name or location; by default all registered tables."),
    ] = None,
    *,
    files: Annotated[
        int, typer.Option(min=0, max=1000, help="Number of files to list for each recommendation.")
    ] = 0,
    partitions: Annotated[
        int, typer.Option(min=0, max=10_000, help="Number of partitions to report, costliest first.")
    ] = 0,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Also report how many files a lookup by this column opens, as for clustering columns; repeatable."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Show the health samples taken since this time (ISO 8601)."),
    ] = None,
    order_by: Annotated[
        str, typer.Option(help="Sort all tables by score, deleted-ratio, small-files, size-in-bytes, ...")
    ] = "score",
    min_deleted_ratio: Annotated[
        float | None, typer.Option(min=0, max=1, help="Only tables with at least this share of deleted rows.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of tables, or of samples (newest first).")
    ] = None,
) -> None:
    """Show what maintenance a table needs; without TABLE, list the tables that need it most.

    [bold]delvec health people --files 5 --partitions 10[/bold]

    [bold]delvec health people --since 2026-01-31[/bold]

    [bold]delvec health --order-by deleted-ratio --min-deleted-ratio 0.1[/bold]
    """
    if table is None:
        _health_of_all(context, order_by, min_deleted_ratio, limit)
    elif since is not None:
        _health_over_time(context, table, since, limit)
    else:
        _health_of(context, table, files, partitions, column or [])


def events(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="Only events of this table, by name or id.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Only events of this namespace's tables.")] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="commit, conflict, maintenance or health; can be repeated."),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="SEQUENCE", help="Only events after this one; `latest`: only new ones."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new events until interrupted.")] = False,
) -> None:
    """List what happened to tables of a service: commits, conflicts, maintenance, health. With --json one event a line.

    [bold]delvec events --follow --type commit[/bold]
    """
    now = session(context)
    full = [one if one.startswith("delvec.") else f"delvec.{one}" for one in types or ()]
    with now.connect() as lake:
        found = lake.events(table, namespace=namespace, types=full, after=after, follow=follow)
        for event in found:
            if now.as_json:
                print(json.dumps(event, default=str), flush=True)
                continue
            name = event["type"].removeprefix("delvec.")
            print(
                f"{event['time']:%Y-%m-%d %H:%M:%S}  {name:<11}  {event['subject']}  {_happened(event['data'])}",
                flush=True,
            )


def _happened(data: Mapping[str, Any]) -> str:
    """Return the gist of an event: what was done, in which version, and the result."""
    shown = {name: data.get(name) for name in ("version", "operation", "type", "state", "score", "actions")}
    metrics = data.get("operationMetrics") or {}
    return _pairs({**_given(shown), **_given(metrics)})


def conflicts(
    context: typer.Context,
    table: Table,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only conflicts since this time (ISO 8601).")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, help="Maximum number of conflicts, newest first.")
    ] = 20,
) -> None:
    """List commits to the table that lost to a concurrent commit, and the versions that won.

    [bold]delvec conflicts people --since 2026-01-31[/bold]
    """
    now = session(context)
    with now.table(table) as source:
        conflict_report = source.conflicts(since, limit=limit)
    if now.as_json:
        print_json(conflict_report)
        return
    print_table(
        ["time (UTC)", "lost", "read version", "won", "files", "rows", "type"],
        [
            (
                f"{one['found-at']:%Y-%m-%d %H:%M:%S}",
                _who(one["operation"], one["principal"]),
                one["read-version"],
                f"{one['winning-version']}: {_who(one['winning-operation'], one['winning-principal'])}",
                one["num-files"],
                _counted(one["overlapping-rows"]),
                one["type"],
            )
            for one in conflict_report["conflicts"]
        ],
        right=["read version", "files", "rows"],
    )
    totals = {
        name: sum(each[name] for each in conflict_report["intervals"])
        for name in ("committed", "rebased", "rows-saved", "conflicts")
    }
    print_pairs({name.replace("-", " "): number(total) for name, total in totals.items()})


def tasks(
    context: typer.Context,
    table: Table,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print again every two seconds until none is running.")
    ] = False,
) -> None:
    """List running OPTIMIZE and PURGE of the table, wherever they run: bytes done, rate, time left.

    [bold]delvec tasks people --watch[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        name = lake.table(table).id
        while True:
            task_entries = lake.maintenance.tasks(name)
            if now.as_json:
                print_json(task_entries)
            else:
                _print_tasks(task_entries)
            if not watch or not any(one["state"] == "running" for one in task_entries):
                return
            time.sleep(_WATCH_SECONDS)


def _print_tasks(task_entries: Sequence[Mapping[str, Any]]) -> None:
    if not task_entries:
        say(
            "no task is running, and none ended in the last day; those that take less than a second are not listed"
        )
        return
    print_table(
        ["began (UTC)", "operation", "engine", "state", "files", "bytes", "rate", "left"],
        [
            (
                f"{one['started-at']:%Y-%m-%d %H:%M:%S}",
                _who(one["operation"], one["principal"]),
                one["engine"],
                one["state"],
                f"{number(one['files-done'])} of {number(one['num-files'])}",
                f"{size_of(one['bytes-done'])} of {size_of(one['size-in-bytes'])}",
                "" if one["bytes-per-second"] is None else f"{size_of(one['bytes-per-second'])}/s",
                span_of(one["seconds-left"]),
            )
            for one in task_entries
        ],
        right=["files", "bytes", "rate", "left"],
    )


def _who(operation: str, principal: str | None) -> str:
    return operation if principal is None else f"{operation} by {principal}"


def _health_of_all(
    context: typer.Context, order_by: str, min_deleted_ratio: float | None, limit: int | None
) -> None:
    now = session(context)
    with now.connect() as lake:
        health_entries = lake.health(order_by, min_deleted_ratio=min_deleted_ratio, limit=limit)
    if now.as_json:
        print_json(health_entries)
        return
    columns = ["score", "deleted-ratio", "small-files", "num-files", "size-in-bytes", "gain-bytes"]
    print_table(
        ["table", *(name.replace("-", " ") for name in columns), "actions"],
        [
            (
                entry["name"],
                *(_counted(sample.get(name)) for name in columns),
                ", ".join(sample.get("actions", ["not sampled yet"])),
            )
            for entry in health_entries
            for sample in [entry["sample"] or {}]
        ],
        right=[name.replace("-", " ") for name in columns],
    )


def _health_over_time(context: typer.Context, table: str, since: str, limit: int | None) -> None:
    now = session(context)
    with now.table(table) as source:
        health_samples = source.health_samples(since, limit=limit or 1000)
    if now.as_json:
        print_json(health_samples)
        return
    columns = ["version", "score", "deleted-ratio", "small-files", "num-files", "size-in-bytes"]
    print_table(
        ["time (UTC)", *(name.replace("-", " ") for name in columns)],
        [
            (f"{entry['sampled-at']:%Y-%m-%d %H:%M:%S}", *(_counted(entry[name]) for name in columns))
            for entry in health_samples
        ],
        right=[name.replace("-", " ") for name in columns],
    )


def _health_of(context: typer.Context, table: str, files: int, partitions: int, columns: list[str]) -> None:
    now = session(context)
    with now.table(table) as source:
        table_health = source.health(files=files, partitions=partitions, columns=columns)
    if now.as_json:
        print_json(table_health)
        return
    advice, worst = table_health.pop("recommendations", []), table_health.pop("partitions", [])
    overlaps = table_health.pop("overlaps", [])
    converted = table_health.pop("iceberg", [])
    print_pairs({name.replace("-", " "): _counted(value) for name, value in table_health.items()})
    if worst:
        shown = [name for name in worst[0] if name != "partition-values"]
        print_table(
            ["partition", *(name.replace("-", " ") for name in shown)],
            [
                (_pairs(entry["partition-values"]), *(_counted(entry[name]) for name in shown))
                for entry in worst
            ],
            right=[name.replace("-", " ") for name in shown],
        )
    for entry in overlaps:
        print_pairs({name.replace("-", " "): _counted(entry[name]) for name in entry if name != "files"})
        for file in entry["files"]:
            print(f"  depth {file['depth']:g}: {file['path']} ({number(file['size-in-bytes'])} bytes)")
    for one in converted:
        shown = one.get("delta-version")
        print(
            f"Iceberg format version {one['format-version']}: "
            f"{'not published yet' if shown is None else f'version {number(shown)}'}, "
            f"{number(one['lag-versions'])} versions and {_seconds(one.get('lag-seconds'))} behind"
        )
    for entry in advice:
        print(f"{entry['action']}: {entry['reason']} {entry['expected-gain']}")
        print(f"  {entry['command']}")
        for file in entry["files"]:
            print(f"  {file['points']:.4f} points: {file['path']} ({number(file['size-in-bytes'])} bytes)")


def _seconds(value: int | None) -> str:
    return "an unknown time" if value is None else f"{number(value)} s"


def _given(values: dict[str, Any] | None) -> dict[str, Any]:
    """Return the parameters or metrics that say something."""
    return {name: value for name, value in (values or {}).items() if value not in _NOTHING}


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()
    )


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return _pairs(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else _counted(value)


def _counted(value: Any) -> Any:
    return number(value) if isinstance(value, int) else value
