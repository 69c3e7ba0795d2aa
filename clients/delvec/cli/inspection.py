"""Commands that inspect a table without reading its rows.

Tested in `tests/integration/client/cli/test_cli.py`.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from delvec.cli.options import Table, session
from delvec.cli.output import (
    instant,
    number,
    print_json,
    print_pairs,
    print_table,
    say,
    show,
    size_of,
    span_of,
)
from delvec_commands.display import type_text

__all__ = ["conflicts", "detail", "events", "history", "tasks"]

_WATCH_SECONDS: Final = 2.0
_EMPTY_VALUES = (None, "", "0", 0, "[]", "{}", "null", "false")


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
        described = source.described()
    table_detail, schema = described.detail, described.table_schema
    if now.as_json:
        print_json({**table_detail, "schema": schema})
        return
    for field in ("createdAt", "lastModified"):
        if isinstance(table_detail.get(field), int):
            table_detail[field] = f"{instant(table_detail[field])} UTC"
    print_pairs({name: _listed(value) for name, value in table_detail.items()})
    print()
    print_table(
        ["column", "type", "nullable", "comment"],
        [
            (each["name"], type_text(each["type"]), each["nullable"], each["metadata"].get("comment"))
            for each in schema["fields"]
        ],
    )


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
            show(
                f"{event['time']:%Y-%m-%d %H:%M:%S}  {name:<11}  {event['subject']}  {_happened(event['data'])}"
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
    if not conflict_report["conflicts"]:
        say("no conflicts")
    else:
        _print_conflicts(conflict_report["conflicts"])
    totals = {
        name: sum(each[name] for each in conflict_report["intervals"])
        for name in ("committed", "rebased", "rows-saved", "conflicts")
    }
    print_pairs({name.replace("-", " "): number(total) for name, total in totals.items()})


def _print_conflicts(conflicts: Sequence[Mapping[str, Any]]) -> None:
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
            for one in conflicts
        ],
        right=["read version", "files", "rows"],
    )


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


def _given(values: dict[str, Any] | None) -> dict[str, Any]:
    """Return the parameters or metrics that say something."""
    return {name: value for name, value in (values or {}).items() if value not in _EMPTY_VALUES}


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
