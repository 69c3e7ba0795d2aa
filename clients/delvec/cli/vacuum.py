"""``delvec vacuum`` and ``delvec quarantine``: deleting unneeded files, in one step or two, and undoing it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from delvec.cli.options import Table, session
from delvec.cli.output import number, print_json, print_table, say, show, size_of
from delvec_commands.vacuum import VacuumPlan
from delvec_errors.texts import counted

__all__ = ["app", "vacuum"]

app = typer.Typer(no_args_is_help=True, help="List, undo and purge the quarantines of VACUUM.")

_Quarantine = Annotated[str, typer.Argument(help="Quarantine name, as `delvec quarantine list` shows it.")]


def vacuum(
    context: typer.Context,
    table: Table,
    *,
    retain: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS",
            min=0,
            help="Retention of removed files; defaults to delta.deletedFileRetentionDuration.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    lite: Annotated[
        bool,
        typer.Option("--lite", help="Find removed files in the log, without listing the table's directory."),
    ] = False,
    no_retention_check: Annotated[
        bool,
        typer.Option(
            "--no-retention-check",
            help="Accept a shorter retention than the table's, and delete files younger than 24 hours. Only safe if "
            "nothing else writes.",
        ),
    ] = False,
    keep_version: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=0, help="Version to keep readable; repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of paths to list.")] = 1000,
    plan_to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Delete nothing; write the files that would be deleted to a plan for approval.",
        ),
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Delete the files of a plan, except those needed by now.",
        ),
    ] = None,
    quarantine: Annotated[
        bool,
        typer.Option(
            "--quarantine", help="Move the files to a quarantine in the table's directory; can be undone."
        ),
    ] = False,
) -> None:
    """Delete files that no retained version and no commit in progress needs.

    [bold]delvec vacuum people --dry-run[/bold]

    [bold]delvec vacuum people --retain 240 --keep-version 12[/bold]

    [bold]delvec vacuum people --plan-to plan.jsonl[/bold] and, once approved, [bold]--apply plan.jsonl[/bold]
    """
    options: dict[str, Any] = {
        "enforce_retention_duration": not no_retention_check,
        "keep_versions": keep_version,
        "mode": "lite" if lite else "full",
    }
    now = session(context)
    if plan_to is not None:
        if apply is not None or quarantine:
            raise typer.BadParameter(
                "--plan-to cannot be combined with --apply or --quarantine; give these when you apply the plan"
            )
        with now.table(table) as target:
            plan = target.plan_vacuum(retain, **options)
        plan.save(plan_to)
        if now.as_json:
            print_json({"plan": str(plan_to), "version": plan.version, "num-files": len(plan.files)})
        else:
            say(f"wrote a plan to delete {counted(len(plan.files), 'file')} to {plan_to}")
        return
    if apply is not None and (retain is not None or no_retention_check or keep_version or lite):
        raise typer.BadParameter(
            "--apply takes retention and versions from the plan; leave out --retain, --no-retention-check, "
            "--keep-version and --lite"
        )
    approved = None if apply is None else VacuumPlan.load(apply)
    with now.table(table) as target:
        vacuum_result = target.vacuum(
            retain, dry_run, limit=limit, plan=approved, quarantine=quarantine, **options
        )
    if now.as_json:
        print_json(vacuum_result)
        return
    for path in vacuum_result["files"] if dry_run else ():
        show(path)
    verb = "would be deleted" if dry_run else "quarantined" if vacuum_result.get("quarantine") else "deleted"
    directories = vacuum_result["num-empty-directories"]
    also = (
        f" and {number(directories)} empty {'directory' if directories == 1 else 'directories'}"
        if directories
        else ""
    )
    say(
        f"{counted(vacuum_result['num-files'], 'file')} ({size_of(vacuum_result['size-in-bytes'])}){also} {verb}"
    )
    if vacuum_result.get("quarantine"):
        say(f"to undo: delvec quarantine undo {table} {vacuum_result['quarantine']}")


@app.command("list")
def list_quarantines(context: typer.Context, table: Table) -> None:
    """List the quarantines of VACUUM, newest first.

    [bold]delvec quarantine list people[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        quarantines = target.quarantines()
    if now.as_json:
        print_json(quarantines)
        return
    rows = [
        [
            one["id"],
            str(one["version"]),
            number(one["num-files"]),
            size_of(one["size-in-bytes"]),
            one["state"],
        ]
        for one in quarantines
    ]
    print_table(["quarantine", "version", "files", "size", "state"], rows, right=["version", "files", "size"])


@app.command("undo")
def undo(context: typer.Context, table: Table, quarantine: _Quarantine) -> None:
    """Move the files of a quarantine back; exits with 1 if another file has taken a path.

    [bold]delvec quarantine undo people 20260131T020000Z-5c1b9bb2[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        undo_result = target.undo_vacuum(quarantine)
    if now.as_json:
        print_json(undo_result)
    else:
        say(
            f"moved {counted(undo_result['num-files'], 'file')} ({size_of(undo_result['size-in-bytes'])}) back"
        )
        for path in undo_result["kept"]:
            show(f"kept in quarantine, since another file has its path: {path}")
    if undo_result["kept"]:
        raise typer.Exit(1)


@app.command("purge")
def purge(
    context: typer.Context,
    table: Table,
    quarantine: Annotated[
        str | None, typer.Argument(help="Quarantine name; by default all that are old enough.")
    ] = None,
    older_than: Annotated[
        float,
        typer.Option(metavar="HOURS", min=0, help="Without a name: purge only quarantines older than this."),
    ] = 168,
) -> None:
    """Permanently delete quarantined files.

    [bold]delvec quarantine purge people --older-than 720[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        purge_result = target.purge_quarantine(quarantine, older_than_hours=older_than)
    if now.as_json:
        print_json(purge_result)
        return
    files, size = (sum(one[name] for one in purge_result) for name in ("num-files", "size-in-bytes"))
    say(f"purged {counted(len(purge_result), 'quarantine')} with {counted(files, 'file')} ({size_of(size)})")
