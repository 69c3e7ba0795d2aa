"""``delvec policy`` and ``delvec maintain``: maintenance policies, and running them.

Tested in `tests/integration/client/test_maintenance.py`.
"""

import json
import signal
import threading
from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from types import FrameType
from typing import Annotated, Any, Final, cast, get_args

import typer

from delvec.cli.options import session
from delvec.cli.output import print_json, print_table, say, size_of
from delvec.connection import Connection
from delvec_commands.maintenance import MaintenanceResult
from delvec_errors import DelvecError
from delvec_maintenance.policies import PolicyType

__all__ = ["app", "maintain"]

app = typer.Typer(no_args_is_help=True, help="Set, list and drop maintenance policies.")

_KINDS: Final = get_args(PolicyType)
_TYPES: Final = f"{', '.join(_KINDS[:-1])} or {_KINDS[-1]}"


@app.command("set")
def set_policy(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Policy name; replaces an existing policy of that name.")],
    policy_type: Annotated[str, typer.Option("--type", help=f"{_TYPES}; the prefix 'system.' is optional.")],
    config: Annotated[
        str,
        typer.Option(help="JSON object of thresholds, quiet_hours, max_bytes_per_run, min_interval_hours."),
    ] = "{}",
    table: Annotated[str | None, typer.Option(help="Apply the policy only to this table.")] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="Apply the policy only to tables whose names match a pattern: 'sales.*'."),
    ] = None,
    disable: Annotated[
        bool, typer.Option("--disable", help="Turn this type of maintenance off for these tables.")
    ] = False,
) -> None:
    """Set a maintenance policy; without --table or --pattern it applies to all tables.

    [bold]delvec policy set nightly --type data-compaction --config '{"quiet_hours": ["08:00-20:00"]}'[/bold]

    [bold]delvec policy set keep-orders --type vacuum --table orders --disable[/bold]
    """
    try:
        policy_config = json.loads(config)
    except ValueError as error:
        raise typer.BadParameter(f"--config is not JSON: {error}") from None
    if not isinstance(policy_config, dict):
        raise typer.BadParameter("--config must be a JSON object")
    kind = policy_type if policy_type.startswith("system.") else f"system.{policy_type}"
    if kind not in _KINDS:
        near = get_close_matches(
            kind.removeprefix("system."), [each.removeprefix("system.") for each in _KINDS]
        )
        hint = f"did you mean {' or '.join(sorted(near))}?" if near else f"it can be {_TYPES}"
        raise typer.BadParameter(f"there is no policy type '{policy_type}'; {hint}")
    now = session(context)
    with now.connect() as lake:
        found = lake.maintenance.set_policy(
            name, cast(PolicyType, kind), policy_config, enable=not disable, table=table, pattern=pattern
        )
    if now.as_json:
        print_json(found)
    else:
        say(f"policy '{name}' set")


@app.command("list")
def list_policies(
    context: typer.Context,
    table: Annotated[str | None, typer.Option(help="Only policies that apply to this table.")] = None,
) -> None:
    """List the maintenance policies.

    [bold]delvec policy list --table orders[/bold]
    """
    now = session(context)
    with now.connect() as lake:
        policies = lake.maintenance.policies(table)
        is_named = not now.as_json and any(entry["table-id"] for entry in policies)
        names = {each.id: each.name for each in lake.tables()} if is_named else {}
    if now.as_json:
        print_json(policies)
        return
    print_table(
        ["policy", "type", "tables", "enabled", "config"],
        [
            (
                entry["name"],
                entry["type"],
                names.get(entry["table-id"], entry["table-id"]) or entry["pattern"] or "all",
                entry["content"]["enable"],
                entry["content"]["config"],
            )
            for entry in policies
        ],
    )


@app.command("drop")
def drop_policy(context: typer.Context, name: Annotated[str, typer.Argument(help="Policy name.")]) -> None:
    """Delete a maintenance policy."""
    with session(context).connect() as lake:
        lake.maintenance.drop_policy(name)
    say(f"policy '{name}' dropped")


def maintain(
    context: typer.Context,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]...", help="Tables to maintain; by default all registered tables."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would be done now, and why.")
    ] = False,
    loop: Annotated[bool, typer.Option("--loop", help="Run rounds until interrupted.")] = False,
    every: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=1, help="With --loop: seconds between the end of one round and the next."
        ),
    ] = 300.0,
    history: Annotated[
        bool,
        typer.Option("--history", help="Only list past runs, with predicted and measured gain."),
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="With --history: maximum number of runs, newest first.")
    ] = 100,
) -> None:
    """Run the maintenance that policies ask for: compaction, PURGE, deletion vector compaction, checkpoints, VACUUM.

    [bold]delvec maintain --dry-run[/bold]

    [bold]delvec maintain --loop --every 600[/bold]

    [bold]delvec maintain --history orders[/bold]
    """
    if loop and (dry_run or history):
        raise typer.BadParameter("--loop cannot be combined with --dry-run or --history")
    now = session(context)
    with now.connect() as lake:
        if history:
            _history(lake, tables, limit, as_json=now.as_json)
            return
        if loop:
            _loop(lake, tables, every, as_json=now.as_json)
            return
        maintenance_results = lake.maintenance.run(tables or None, dry_run=dry_run)
    _report(maintenance_results, as_json=now.as_json)
    if any(one.state == "failed" for one in maintenance_results):
        raise typer.Exit(1)


def _loop(lake: Connection, tables: Sequence[str] | None, every: float, *, as_json: bool) -> None:
    """Run rounds until a signal arrives; each prints what it did."""
    ended = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if ended.is_set():
            raise KeyboardInterrupt  # the second time at once
        ended.set()

    before = {kind: signal.signal(kind, stop) for kind in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not ended.is_set():
            try:
                maintenance_results = lake.maintenance.run(tables or None)
                _report(
                    [one for one in maintenance_results if one.state != "not-due"],
                    as_json=as_json,
                    quiet=True,
                )
            except DelvecError as error:
                say(f"delvec: {error.message}")
            except Exception as error:  # noqa: BLE001 - the next round may go well
                say(f"delvec: {type(error).__name__}: {error}")
            ended.wait(every)
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _report(maintenance_results: Sequence[MaintenanceResult], *, as_json: bool, quiet: bool = False) -> None:
    if quiet and not maintenance_results:
        return
    if as_json:
        print_json([_wire(one) for one in maintenance_results])
        return
    if not maintenance_results:
        say("no policy applies to these tables")
        return
    print_table(
        ["table", "policy", "state", "gain predicted", "measured", "reason"],
        [
            (
                one.table,
                one.policy,
                one.state,
                size_of(one.predicted_gain_bytes),
                size_of(one.measured_gain_bytes),
                one.reason,
            )
            for one in maintenance_results
        ],
        right=["gain predicted", "measured"],
    )


def _wire(maintenance_result: MaintenanceResult) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in asdict(maintenance_result).items()}


def _history(lake: Connection, tables: Sequence[str] | None, limit: int, *, as_json: bool) -> None:
    runs: list[dict[str, Any]] = []
    chosen: Sequence[str | None] = tables or [None]
    for table in chosen:
        runs += lake.maintenance.runs(table, limit=limit)
    if as_json:
        print_json(runs)
        return
    print_table(
        ["started (UTC)", "table", "policy", "state", "gain predicted", "measured", "reason"],
        [
            (
                f"{run['started-at']:%Y-%m-%d %H:%M:%S}",
                run["table"],
                run["policy"],
                run["state"],
                size_of(run["predicted-gain-bytes"]),
                size_of(run["measured-gain-bytes"]),
                run["error"] or run["reason"],
            )
            for run in runs
        ],
        right=["gain predicted", "measured"],
    )
