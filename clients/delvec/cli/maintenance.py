"""Commands that look after a table."""

from functools import partial
from typing import Annotated, Any

import typer

from delvec.cli.output import number, print_json, print_table, say
from delvec.cli.session import Table, session
from delvec.dml.optimize import PlannedCompaction

__all__ = ["check", "checkpoint", "downgrade", "generate", "optimize", "repair", "restore"]


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


def check(
    context: typer.Context,
    table: Table,
    data_files: Annotated[
        bool, typer.Option("--data-files/--no-data-files", help="Also look up each live data file.")
    ] = True,
    iceberg: Annotated[
        bool, typer.Option("--iceberg", help="Also check the published Iceberg metadata against Delta.")
    ] = False,
) -> None:
    """Check the log version by version, and the live files in storage; exit code 1 where an error is found.

    [bold]delvec check people[/bold]

    [bold]delvec check people --iceberg[/bold]

    [bold]delvec check s3://bucket/people --no-data-files[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        found = target.check(data_files=data_files, iceberg=iceberg)
    if now.as_json:
        print_json(found)
    else:
        if found["findings"]:
            print_table(
                ["severity", "invariant", "version", "file", "what is wrong"],
                [
                    [entry[name] for name in ("severity", "invariant", "version", "file", "message")]
                    for entry in found["findings"]
                ],
                right=["version"],
            )
        for orphan in found["orphans"]:
            print(
                f"orphan: {orphan['path']} ({orphan['size-in-bytes']} bytes, transaction {orphan['state']})"
            )
        looked = ("num-commits", "num-data-files", "num-deletion-vectors")
        commits, files, vectors = (number(found[name]) for name in looked)
        say(f"looked at {commits} commits, {files} data files, {vectors} deletion vectors")
        for one in found["iceberg"]:
            files, deletes = number(one["num-data-files"]), number(one["num-delete-files"])
            say(
                f"looked at Iceberg format version {one['format-version']}, which shows version "
                f"{one.get('delta-version')}: {files} data files, {deletes} with deletes"
            )
        if iceberg and not found["iceberg"]:
            say("no Iceberg metadata is published: delvec iceberg convert makes it")
        say(
            f"{number(found['num-errors'])} errors, {number(found['num-warnings'])} warnings, "
            f"{number(found['num-orphans'])} orphans"
        )
    if found["num-errors"]:
        raise typer.Exit(1)


def optimize(
    context: typer.Context,
    table: Table,
    *,
    where: Annotated[
        str | None, typer.Option(help="Only partitions for which this SQL condition is true.")
    ] = None,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Write every file again that has a deletion vector, and no others."),
    ] = False,
    min_deleted_ratio: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="With --purge: only files of which a larger share is deleted."),
    ] = None,
    deletion_vectors: Annotated[
        bool,
        typer.Option(
            "--deletion-vectors",
            help="Write deletion vectors of many small files into few, and no data file.",
        ),
    ] = False,
    zorder_by: Annotated[
        list[str] | None,
        typer.Option(help="Sort rows so that filters by this column skip files; may be given several times."),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Of a clustered table, sort all files, whatever they were clustered by."),
    ] = False,
    target_size: Annotated[
        int | None,
        typer.Option(min=1, help="Bytes of new files; by default delta.targetFileSize, else 256 MiB."),
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help="Write at most so many bytes of files again.")
    ] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(
            min=1, help="Hold rows of so many bytes at most, and spill others to disk; 128 MiB or more."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list which files would be written together, and why.")
    ] = False,
    user_metadata: Annotated[str | None, typer.Option(help="Text for the table's history.")] = None,
) -> None:
    """Write small files together, and files of which many rows are deleted; the rows stay the same.

    [bold]delvec optimize people[/bold]

    [bold]delvec optimize people --where "country = 'NZ'" --dry-run[/bold]

    [bold]delvec optimize people --purge --min-deleted-ratio 0.05[/bold]

    [bold]delvec optimize people --zorder-by country --zorder-by born[/bold]

    A table that is clustered (CLUSTER BY) is sorted by its own columns.
    """
    if sum((purge, full, bool(zorder_by), deletion_vectors)) > 1:
        raise typer.BadParameter("give one of --purge, --full, --zorder-by and --deletion-vectors")
    if deletion_vectors:
        _compact_vectors(context, table, where, dry_run=dry_run, user_metadata=user_metadata)
        return
    if min_deleted_ratio is not None and not purge:
        raise typer.BadParameter("--min-deleted-ratio goes with --purge")
    now = session(context)
    options: dict[str, Any] = {} if min_deleted_ratio is None else {"min_deleted_ratio": min_deleted_ratio}
    ready: list[float] = []

    def progress(done: int, total: int) -> None:
        ready[:] = [done / total if total else 1.0]

    with now.table(table, doing="writing files again", ready=lambda: ready[0] if ready else None) as target:
        run = target.optimize.purge if purge else partial(target.optimize, full=full)
        if zorder_by:
            run = partial(target.optimize.z_order, zorder_by)
        done = run(
            where,
            target_size=target_size,
            dry_run=dry_run,
            max_bytes=max_bytes,
            max_memory=max_memory,
            progress=progress,
            user_metadata=user_metadata,
            **options,
        )
    if now.as_json:
        found = {**done, "version": done.version}
        if isinstance(done, PlannedCompaction):
            found["bins"] = [list(paths) for paths in done.bins]
            found["reasons"] = list(done.reasons)
            found["gain-bytes"], found["new-files"] = done.gain_bytes, done.num_new_files
        print_json(found)
        return
    if isinstance(done, PlannedCompaction):
        print(done)
        return
    if done.version is None:
        say("no file is worth writing again")
        return
    removed, added = number(done["numRemovedFiles"]), number(done["numAddedFiles"])
    say(f"{removed} files became {added}, {number(done['numBatches'])} commits, version {done.version}")


def _compact_vectors(
    context: typer.Context, table: str, where: str | None, *, dry_run: bool, user_metadata: str | None
) -> None:
    if where is not None:
        raise typer.BadParameter("--deletion-vectors is about the whole table; leave out --where")
    now = session(context)
    with now.table(table) as found:
        done = found.optimize.deletion_vectors(dry_run=dry_run, user_metadata=user_metadata)
    if now.as_json:
        print_json(done)
        return
    if not done["num-deletion-vectors"]:
        say("no deletion vector is worth writing again")
        return
    moved = (
        f"{number(done['num-deletion-vectors'])} deletion vectors from {number(done['num-vector-files'])} files into "
        f"{number(done['new-vector-files'])}"
    )
    say(f"dry run: {moved}" if dry_run else f"{moved}, version {done['version']}")


def compute_statistics(
    context: typer.Context,
    table: Table,
    *,
    where: Annotated[
        str | None, typer.Option("--where", help="Only these partitions: a condition in Spark's SQL.")
    ] = None,
    all_files: Annotated[
        bool, typer.Option("--all-files", help="Not only files with wide bounds or missing statistics.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the files that need it.")] = False,
    user_metadata: Annotated[
        str | None, typer.Option("--user-metadata", help="Text for the table's history.")
    ] = None,
) -> None:
    """Make bounds of files tight again that deletes have left wide, and fill in missing statistics.

    [bold]delvec compute-statistics people[/bold]
    """
    now = session(context)
    with now.table(table, doing="reading files") as found:
        done = found.compute_statistics(
            where, all_files=all_files, dry_run=dry_run, user_metadata=user_metadata
        )
    if now.as_json:
        print_json({**done, "version": done.version})
        return
    updated = number(done["numUpdatedFiles"])
    if dry_run:
        say(f"dry run: {updated} of {number(done['numConsideredFiles'])} files")
    else:
        say(
            "no file needs it"
            if done.version is None
            else f"statistics of {updated} files, version {done.version}"
        )


def downgrade(
    context: typer.Context,
    table: Table,
    *,
    truncate_history: Annotated[
        bool,
        typer.Option(
            "--truncate-history", help="Then also let go of older versions, once they have expired."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the steps.")] = False,
) -> None:
    """Make the table readable by those that do not know deletion vectors, step by step.

    [bold]delvec downgrade people --dry-run[/bold]

    Call it again to go on after an interruption, or when older versions have expired.
    """
    now = session(context)
    with now.table(table, doing="writing files again") as found:
        done = found.downgrade(
            truncate_history=truncate_history,
            dry_run=dry_run,
            progress=None if now.as_json or dry_run else lambda step: say(str(step)),
        )
    if now.as_json:
        print_json(
            {
                "complete": done.is_complete,
                "dry-run": dry_run,
                "steps": [
                    {
                        "name": step.name,
                        "effect": step.effect,
                        "version": step.version,
                        "waits-for": step.waits_for,
                    }
                    for step in done.steps
                ],
            }
        )
    elif dry_run or not done.steps:
        print(done)


def restore(
    context: typer.Context,
    table: Table,
    version: Annotated[int | None, typer.Option(min=0, help="The version to restore.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="Instead: the version of this time; ISO 8601, UTC without a zone.")
    ] = None,
    ignore_missing_files: Annotated[
        bool,
        typer.Option(
            "--ignore-missing-files", help="Also where files of it are gone; reading the table fails then."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check, say what would be restored, and commit nothing.")
    ] = False,
) -> None:
    """Make the table what it was at an earlier version; its history stays.

    [bold]delvec restore people --version 3[/bold]

    [bold]delvec restore people --timestamp 2026-01-31T08:00:00Z --dry-run[/bold]
    """
    target = version if timestamp is None else timestamp
    if target is None or (version is not None and timestamp is not None):
        raise typer.BadParameter("say which version: --version NUMBER, or --timestamp TIME")
    now = session(context)
    with now.table(table) as found:
        done = found.restore(target, ignore_missing_files=ignore_missing_files, dry_run=dry_run)
        name = found.name
    if now.as_json:
        print_json({"version": done.version, "metrics": dict(done)})
        return
    if not done:
        say(f"that is the newest version of table '{name}', nothing committed")
        return
    moved = f"{number(done['numRestoredFiles'])} files restored, {number(done['numRemovedFiles'])} removed"
    say(f"dry run: {moved}" if dry_run else f"RESTORE in version {done.version} of table '{name}': {moved}")


def repair(
    context: typer.Context,
    table: Table,
    drop_missing_files: Annotated[
        bool,
        typer.Option(
            "--drop-missing-files",
            help="Take data files that are gone out of the table. Their rows are lost.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and why, and commit nothing.")
    ] = False,
) -> None:
    """Put right what a check finds and has one right answer; exit code 1 where an error is left.

    [bold]delvec repair people --dry-run[/bold]

    [bold]delvec repair people --drop-missing-files[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        done = target.repair(drop_missing_files=drop_missing_files, dry_run=dry_run)
        name = target.name
    if now.as_json:
        print_json(done)
    else:
        if done["repaired"]:
            print_table(
                ["invariant", "version", "file", "repair", "why that is right"],
                [
                    [entry[column] for column in ("invariant", "version", "file", "repair", "reason")]
                    for entry in done["repaired"]
                ],
                right=["version"],
            )
        if done["unrepaired"]:
            print_table(
                ["severity", "invariant", "version", "file", "left because"],
                [
                    [entry[column] for column in ("severity", "invariant", "version", "file", "reason")]
                    for entry in done["unrepaired"]
                ],
                right=["version"],
            )
        counts = f"{number(done['num-repaired'])} findings repaired, {number(done['num-unrepaired'])} left"
        if done["version"] is not None:
            say(f"FSCK REPAIR in version {done['version']} of table '{name}': {counts}")
        else:
            say(f"dry run: {counts}" if dry_run else f"nothing to repair in table '{name}': {counts}")
    if any(entry["severity"] == "error" for entry in done["unrepaired"]):
        raise typer.Exit(1)


def generate(
    context: typer.Context,
    table: Table,
    mode: Annotated[str, typer.Argument(help="What to generate.")] = "symlink_format_manifest",
) -> None:
    """Write manifests that list the data files, for readers that know no Delta log, such as Hive, Athena or Presto.

    [bold]delvec generate people[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        done = target.generate(mode)
    if now.as_json:
        print_json(done)
        return
    say(
        f"{number(done['num-manifests'])} manifests of {number(done['num-files'])} files (version {done['version']}) in "
        f"{done['path']}"
    )
