"""Commands that look after a table and change none of its rows."""

from typing import Annotated

import typer

from delvec.cli.output import number, print_json, say
from delvec.cli.session import Table, session

__all__ = ["checkpoint"]


def checkpoint(
    context: typer.Context,
    table: Table,
    clean_up: Annotated[
        bool,
        typer.Option("--clean-up", help="Also delete what delta.logRetentionDuration need not keep."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what a clean-up would delete now.")
    ] = False,
) -> None:
    """Write a checkpoint of the newest version, so that readers need not read the log before it.

    [bold]delvec checkpoint people[/bold]

    [bold]delvec checkpoint people --clean-up --dry-run[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        found = target.checkpoint(clean_up=clean_up, dry_run=dry_run)
    if now.as_json:
        print_json(found)
        return
    if found["result"] == "written":
        say(
            f"wrote a {found['form']} checkpoint of version {found['version']}: {number(found['num-files'])} files"
        )
    elif found["result"] == "exists":
        say(f"version {found['version']} has a checkpoint already")
    cleaned = found.get("clean-up")
    if cleaned is None:
        return
    for path in cleaned["deleted"]:
        print(path)
    verb = "would be deleted" if dry_run else "deleted"
    if cleaned.get("kept-because"):
        say(f"nothing {verb}: {cleaned['kept-because']}")
    else:
        say(f"{number(len(cleaned['deleted']))} files {verb}")
