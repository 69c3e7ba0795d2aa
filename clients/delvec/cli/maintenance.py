"""Commands that maintain a table.

Tested in `tests/integration/client/cli/test_checkpoint_command.py` and `tests/integration/client/cli/test_cli.py`.
"""

import time
from typing import Annotated

import typer

from delvec.cli.options import Table, session
from delvec.cli.output import number, print_json, print_table, say, show, size_of, span_of
from delvec_commands.dml.optimize_options import OptimizeOptions
from delvec_commands.dml.optimize_run import PlannedCompaction
from delvec_contract.commands import Rewrite
from delvec_errors.texts import counted

__all__ = ["check", "checkpoint", "downgrade", "generate", "optimize", "repair", "restore"]


def checkpoint(
    context: typer.Context,
    table: Table,
    clean_up: Annotated[
        bool,
        typer.Option("--clean-up", help="Also delete log files older than delta.logRetentionDuration."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what a clean-up would delete.")
    ] = False,
) -> None:
    """Write a checkpoint of the newest version, so that readers can skip the log before it.

    [bold]delvec checkpoint people[/bold]

    [bold]delvec checkpoint people --clean-up --dry-run[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        checkpoint_result = target.checkpoint(clean_up=clean_up, dry_run=dry_run)
    if now.as_json:
        print_json(checkpoint_result)
        return
    if checkpoint_result["result"] == "written":
        say(
            f"wrote a {checkpoint_result['form']} checkpoint of version {checkpoint_result['version']}: {counted(checkpoint_result['num-files'], 'file')}"
        )
    elif checkpoint_result["result"] == "exists":
        say(f"nothing written: version {checkpoint_result['version']} already has a checkpoint")
    clean_up_result = checkpoint_result.get("clean-up")
    if clean_up_result is None:
        return
    for path in clean_up_result["deleted"]:
        show(path)
    verb = "would be deleted" if dry_run else "deleted"
    if clean_up_result.get("kept-because"):
        say(f"nothing {verb}: {clean_up_result['kept-because']}")
    else:
        say(f"{counted(len(clean_up_result['deleted']), 'file')} {verb}")


def check(
    context: typer.Context,
    table: Table,
    data_files: Annotated[
        bool, typer.Option("--data-files/--no-data-files", help="Also check that each live data file exists.")
    ] = True,
    iceberg: Annotated[
        bool, typer.Option("--iceberg", help="Also check the published Iceberg metadata against Delta.")
    ] = False,
) -> None:
    """Check every version of the log and the live files in storage; exit with 1 if there are errors.

    [bold]delvec check people[/bold]

    [bold]delvec check people --iceberg[/bold]

    [bold]delvec check s3://bucket/people --no-data-files[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        check_result = target.check(data_files=data_files, iceberg=iceberg)
    if now.as_json:
        print_json(check_result)
    else:
        if check_result["findings"]:
            print_table(
                ["severity", "invariant", "version", "file", "message"],
                [
                    [entry[name] for name in ("severity", "invariant", "version", "file", "message")]
                    for entry in check_result["findings"]
                ],
                right=["version"],
            )
        for orphan in check_result["orphans"]:
            show(
                f"orphan: {orphan['path']} ({size_of(orphan['size-in-bytes'])}, transaction {orphan['state']})"
            )
        looked = {
            "num-commits": "commit",
            "num-data-files": "data file",
            "num-deletion-vectors": "deletion vector",
        }
        say("checked " + ", ".join(counted(check_result[name], noun) for name, noun in looked.items()))
        for one in check_result["iceberg"]:
            files, deletes = counted(one["num-data-files"], "data file"), number(one["num-delete-files"])
            say(
                f"checked Iceberg format version {one['format-version']} of Delta version {one.get('delta-version')}: "
                f"{files}, {deletes} with deletes"
            )
        if iceberg and not check_result["iceberg"]:
            say("no Iceberg metadata is published; delvec iceberg convert publishes it")
        say(
            f"{number(check_result['num-errors'])} errors, {number(check_result['num-warnings'])} warnings, "
            f"{number(check_result['num-orphans'])} orphans"
        )
    if check_result["num-errors"]:
        raise typer.Exit(1)


class _RewriteProgressBar:
    """What the bar of OPTIMIZE shows."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._done = self._size = 0
        self._is_known = False

    def tell(self, done: int, size: int) -> None:
        """Note the bytes done, and the total."""
        self._done, self._size, self._is_known = done, size, True

    def share(self) -> float | None:
        """Return how much is done, from 0 to 1; None if that is not known yet."""
        if not self._is_known:
            return None
        return self._done / self._size if self._size else 1.0

    def words(self) -> str:
        """Return the bytes done, the rate and the time left."""
        if not self._done:
            return ""
        rate = self._done / (time.monotonic() - self._began)
        left = span_of((self._size - self._done) / rate)
        return f"{size_of(self._done)} of {size_of(self._size)}, {size_of(rate)}/s, about {left} left"


def optimize(
    context: typer.Context,
    table: Table,
    *,
    where: Annotated[str | None, typer.Option(help="Only partitions that match this SQL condition.")] = None,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Rewrite every file with a deletion vector, and no others."),
    ] = False,
    min_deleted_ratio: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="With --purge: only files with a larger share of deleted rows."),
    ] = None,
    deletion_vectors: Annotated[
        bool,
        typer.Option(
            "--deletion-vectors",
            help="Compact small deletion vector files; rewrites no data file.",
        ),
    ] = False,
    zorder_by: Annotated[
        list[str] | None,
        typer.Option(help="Z-order rows by this column, so that filters on it skip files; repeatable."),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Recluster all files of a clustered table, whatever they were clustered by."
        ),
    ] = False,
    target_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Size of new files in bytes; defaults to delta.targetFileSize, else 256 MiB."
        ),
    ] = None,
    max_bytes: Annotated[int | None, typer.Option(min=1, help="Maximum bytes of files to rewrite.")] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum bytes of rows held in memory, at least 128 MiB; the rest spills to disk."
        ),
    ] = None,
    rewrite: Annotated[
        Rewrite,
        typer.Option(
            help="Whether to decode and encode rows: only where readers gain (auto), always, or never, which only copies row groups."
        ),
    ] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the files that would be rewritten, and why.")
    ] = False,
    user_metadata: Annotated[str | None, typer.Option(help="Text to record in the table's history.")] = None,
) -> None:
    """Compact small files and files with many deleted rows. The table's rows do not change.

    [bold]delvec optimize people[/bold]

    [bold]delvec optimize people --where "country = 'NZ'" --dry-run[/bold]

    [bold]delvec optimize people --purge --min-deleted-ratio 0.05[/bold]

    [bold]delvec optimize people --zorder-by country --zorder-by born[/bold]

    A clustered table (CLUSTER BY) is sorted by its clustering columns.
    """
    if sum((purge, full, bool(zorder_by), deletion_vectors)) > 1:
        raise typer.BadParameter("give only one of --purge, --full, --zorder-by and --deletion-vectors")
    if deletion_vectors:
        _compact_vectors(context, table, where, dry_run=dry_run, user_metadata=user_metadata)
        return
    if min_deleted_ratio is not None and not purge:
        raise typer.BadParameter("--min-deleted-ratio needs --purge")
    if rewrite != "auto" and (purge or full or zorder_by):
        raise typer.BadParameter(
            "--rewrite cannot be combined with --purge, --zorder-by or --full, which rewrite all rows"
        )
    now = session(context)
    so_far = _RewriteProgressBar()
    options = OptimizeOptions(
        where,
        purge=purge,
        min_deleted_ratio=min_deleted_ratio or 0.0,
        zorder_by=zorder_by or (),
        full=full,
        target_size=target_size,
        max_bytes=max_bytes,
        max_memory=max_memory,
        rewrite=rewrite,
        dry_run=dry_run,
        user_metadata=user_metadata,
        progress=so_far.tell,
    )
    with now.table(table, doing="rewriting files", ready=so_far.share, detail=so_far.words) as target:
        metrics = target.optimize.run(options)
    if now.as_json:
        optimize_result = {**metrics, "version": metrics.version}
        if isinstance(metrics, PlannedCompaction):
            optimize_result["bins"] = [list(paths) for paths in metrics.bins]
            optimize_result["reasons"] = list(metrics.reasons)
            optimize_result["gain-bytes"], optimize_result["new-files"] = (
                metrics.gain_bytes,
                metrics.num_new_files,
            )
        print_json(optimize_result)
        return
    if isinstance(metrics, PlannedCompaction):
        print(metrics)
        return
    if metrics.version is None:
        say("nothing committed: no files need to be rewritten")
        return
    removed, added = counted(metrics["numRemovedFiles"], "file"), number(metrics["numAddedFiles"])
    say(
        f"rewrote {removed} as {added} in {counted(metrics['numBatches'], 'commit')}; now at version {metrics.version}"
    )


def _compact_vectors(
    context: typer.Context, table: str, where: str | None, *, dry_run: bool, user_metadata: str | None
) -> None:
    if where is not None:
        raise typer.BadParameter("--deletion-vectors compacts the whole table; leave out --where")
    now = session(context)
    with now.table(table) as target:
        compaction_result = target.optimize.deletion_vectors(dry_run=dry_run, user_metadata=user_metadata)
    if now.as_json:
        print_json(compaction_result)
        return
    if not compaction_result["num-deletion-vectors"]:
        say("nothing committed: no deletion vectors need to be compacted")
        return
    moved = (
        f"{counted(compaction_result['num-deletion-vectors'], 'deletion vector')} from "
        f"{counted(compaction_result['num-vector-files'], 'file')} to "
        f"{number(compaction_result['new-vector-files'])}"
    )
    say(f"dry run: {moved}" if dry_run else f"{moved}, version {compaction_result['version']}")


def compute_statistics(
    context: typer.Context,
    table: Table,
    *,
    where: Annotated[
        str | None, typer.Option("--where", help="Only partitions that match this SQL condition.")
    ] = None,
    all_files: Annotated[
        bool,
        typer.Option("--all-files", help="All files, not only those with wide bounds or missing statistics."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the files that need new statistics.")
    ] = False,
    user_metadata: Annotated[
        str | None, typer.Option("--user-metadata", help="Text to record in the table's history.")
    ] = None,
) -> None:
    """Fill in missing file statistics, and tighten bounds that deletes have left wide.

    [bold]delvec compute-statistics people[/bold]
    """
    now = session(context)
    with now.table(table, doing="reading files") as target:
        metrics = target.compute_statistics(
            where, all_files=all_files, dry_run=dry_run, user_metadata=user_metadata
        )
    if now.as_json:
        print_json({**metrics, "version": metrics.version})
        return
    if dry_run:
        say(
            f"dry run: would update the statistics of {number(metrics['numUpdatedFiles'])} of {counted(metrics['numConsideredFiles'], 'file')}"
        )
    else:
        say(
            "nothing committed: no files need new statistics"
            if metrics.version is None
            else f"updated the statistics of {counted(metrics['numUpdatedFiles'], 'file')} in version {metrics.version}"
        )


def downgrade(
    context: typer.Context,
    table: Table,
    *,
    truncate_history: Annotated[
        bool,
        typer.Option("--truncate-history", help="Also delete older versions, once they have expired."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the steps.")] = False,
) -> None:
    """Make the table readable by clients without deletion vector support, step by step.

    [bold]delvec downgrade people --dry-run[/bold]

    Run it again to resume after an interruption, or once older versions have expired.
    """
    now = session(context)
    with now.table(table, doing="rewriting files") as target:
        downgrade_result = target.downgrade(
            truncate_history=truncate_history,
            dry_run=dry_run,
            progress=None if now.as_json or dry_run else lambda step: say(str(step)),
        )
    if now.as_json:
        print_json(
            {
                "complete": downgrade_result.is_complete,
                "dry-run": dry_run,
                "steps": [
                    {
                        "name": step.name,
                        "effect": step.effect,
                        "version": step.version,
                        "waits-for": step.waits_for,
                    }
                    for step in downgrade_result.steps
                ],
            }
        )
    elif dry_run or not downgrade_result.steps:
        print(downgrade_result)


def restore(
    context: typer.Context,
    table: Table,
    version: Annotated[int | None, typer.Option(min=0, help="The version to restore.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            help="Instead of a version: the table at this time (ISO 8601; UTC unless a zone is given)."
        ),
    ] = None,
    ignore_missing_files: Annotated[
        bool,
        typer.Option(
            "--ignore-missing-files",
            help="Restore even if files of that version are missing; reads of them will fail.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check and report what would be restored.")
    ] = False,
) -> None:
    """Restore the table to an earlier version. Its history is kept.

    [bold]delvec restore people --version 3[/bold]

    [bold]delvec restore people --timestamp 2026-01-31T08:00:00Z --dry-run[/bold]
    """
    target = version if timestamp is None else timestamp
    if target is None or (version is not None and timestamp is not None):
        raise typer.BadParameter("give the version to restore: --version NUMBER or --timestamp TIME")
    now = session(context)
    with now.table(table) as delta_table:
        metrics = delta_table.restore(target, ignore_missing_files=ignore_missing_files, dry_run=dry_run)
        name = delta_table.name
    if now.as_json:
        print_json({"version": metrics.version, "metrics": dict(metrics)})
        return
    if not metrics:
        say(f"nothing committed: table '{name}' is already at that version")
        return
    moved = f"{counted(metrics['numRestoredFiles'], 'file')} restored, {number(metrics['numRemovedFiles'])} removed"
    say(f"dry run: {moved}" if dry_run else f"restored table '{name}' in version {metrics.version}: {moved}")


def repair(
    context: typer.Context,
    table: Table,
    drop_missing_files: Annotated[
        bool,
        typer.Option(
            "--drop-missing-files",
            help="Remove missing data files from the table. Their rows are lost.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would be repaired, and why.")
    ] = False,
) -> None:
    """Repair the findings of `delvec check` that have one safe fix; exit with 1 if errors remain.

    [bold]delvec repair people --dry-run[/bold]

    [bold]delvec repair people --drop-missing-files[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        repair_result = target.repair(drop_missing_files=drop_missing_files, dry_run=dry_run)
        name = target.name
    if now.as_json:
        print_json(repair_result)
    else:
        if repair_result["repaired"]:
            print_table(
                ["invariant", "version", "file", "repair", "reason"],
                [
                    [entry[column] for column in ("invariant", "version", "file", "repair", "reason")]
                    for entry in repair_result["repaired"]
                ],
                right=["version"],
            )
        if repair_result["unrepaired"]:
            print_table(
                ["severity", "invariant", "version", "file", "left because"],
                [
                    [entry[column] for column in ("severity", "invariant", "version", "file", "reason")]
                    for entry in repair_result["unrepaired"]
                ],
                right=["version"],
            )
        counts = f"{number(repair_result['num-repaired'])} findings repaired, {number(repair_result['num-unrepaired'])} left"
        if repair_result["version"] is not None:
            say(f"FSCK REPAIR in version {repair_result['version']} of table '{name}': {counts}")
        else:
            say(f"dry run: {counts}" if dry_run else f"nothing to repair in table '{name}': {counts}")
    if any(entry["severity"] == "error" for entry in repair_result["unrepaired"]):
        raise typer.Exit(1)


def generate(
    context: typer.Context,
    table: Table,
    mode: Annotated[
        str, typer.Argument(help="What to generate: symlink_format_manifest.")
    ] = "symlink_format_manifest",
) -> None:
    """Write manifests of the data files for engines that cannot read the Delta log, such as Hive, Athena or Presto.

    [bold]delvec generate people[/bold]
    """
    now = session(context)
    with now.table(table) as target:
        generate_result = target.generate(mode)
    if now.as_json:
        print_json(generate_result)
        return
    say(
        f"wrote {counted(generate_result['num-manifests'], 'manifest')} of {counted(generate_result['num-files'], 'file')} (version "
        f"{generate_result['version']}) to {generate_result['path']}"
    )
