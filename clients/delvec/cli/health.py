"""``delvec health``: what is wrong with tables, what to do about it, and what that gains.

Tested in `tests/integration/client/cli/test_health_command.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from delvec.cli.options import session
from delvec.cli.output import number, print_json, print_pairs, print_table, printable, show, size_of, span_of
from delvec_contract.health import HealthResponse, HealthSample
from delvec_contract.health_metrics import metrics_of
from delvec_maintenance.health.advice import Step, needs, steps
from delvec_maintenance.health.health_findings import SCORE_BANDS

__all__ = ["health"]

_COLUMNS: Final = ("score", "deleted-ratio", "small-files", "num-files", "size-in-bytes", "gain-bytes")
_OVER_TIME: Final = ("version", "score", "deleted-ratio", "small-files", "num-files", "size-in-bytes")
_METRICS: Final = {
    field.replace("_", "-"): metric
    for shape in (HealthResponse, HealthSample)
    for field, metric in metrics_of(shape).items()
}


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


def _health_of_all(
    context: typer.Context, order_by: str, min_deleted_ratio: float | None, limit: int | None
) -> None:
    now = session(context)
    with now.connect() as lake:
        health_entries = lake.health(order_by, min_deleted_ratio=min_deleted_ratio, limit=limit)
    if now.as_json:
        print_json(health_entries)
        return
    labels = [_METRICS[name].label for name in _COLUMNS]
    print_table(
        ["Table", *labels, "Needs"],
        [
            (
                entry["name"],
                *(_measured(name, sample.get(name)) for name in _COLUMNS),
                (needs(sample["actions"]) or "nothing") if sample else "no commit or health request yet",
            )
            for entry in health_entries
            for sample in [entry["sample"] or {}]
        ],
        right=labels,
    )


def _health_over_time(context: typer.Context, table: str, since: str, limit: int | None) -> None:
    now = session(context)
    with now.table(table) as source:
        health_samples = source.health_samples(since, limit=limit or 1000)
    if now.as_json:
        print_json(health_samples)
        return
    labels = [_METRICS[name].label for name in _OVER_TIME]
    print_table(
        ["Time (UTC)", *labels],
        [
            (
                f"{entry['sampled-at']:%Y-%m-%d %H:%M:%S}",
                *(_measured(name, entry[name]) for name in _OVER_TIME),
            )
            for entry in health_samples
        ],
        right=labels,
    )


def _health_of(context: typer.Context, table: str, files: int, partitions: int, columns: list[str]) -> None:
    now = session(context)
    with now.table(table) as source:
        state = source.health(files=files, partitions=partitions, columns=columns)
    if now.as_json:
        print_json(state)
        return
    plan, score = steps(state["recommendations"]), state["score"]
    band = next(name for name, least in SCORE_BANDS if score >= least)
    print(f"{state['table']} is {band}: {score:.4g} of 100 points in version {number(state['version'])}.")
    if not plan:
        print("Nothing to do.")
    for place, step in enumerate(plan, 1):
        _print_step(place, step)
    for entry in state["overwritten-commits"]:
        by = entry["by-engine"] or "another writer"
        print(
            printable(f"Version {number(entry['version'])} was replaced by {by}: the commit has no effect.")
        )
    print()
    print_pairs(_numbers(state))
    _print_partitions(state["partitions"])
    for entry in state["overlaps"]:
        _print_overlap(entry)


def _print_step(place: int, step: Step) -> None:
    """Print what is wrong, what to do, and what that gains."""
    lines = [finding["reason"] for finding in step.findings]
    lines.append(f"{step.main['expected-gain']}{step.note and f' {step.note}'}")
    cost = step.main["cost-bytes"]
    facts = [f"about {step.score_after:.0f} points afterwards"]
    facts += [f"gains {size_of(step.gain_bytes)}"] if step.gain_bytes else []
    facts += [f"{_of(step.gain_files, 'file')} fewer"] if step.gain_files else []
    facts += [] if cost is None else [f"reads and writes {size_of(cost)}"]
    lines += ["; ".join(facts), step.main["command"]]
    lines += [
        f"  {file['path']}: {size_of(file['size-in-bytes'])}, {file['points']:.2f} points"
        for finding in step.findings
        for file in finding["files"]
    ]
    print(f"\n{place}. {step.title}")
    for line in lines:
        print(f"   {printable(line)}")


def _numbers(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the numbers of a table's health under the labels that the console has for them."""
    numbers = {
        metric.label: _measured(name, state[name])
        for field, metric in metrics_of(HealthResponse).items()
        for name in [field.replace("_", "-")]
    }
    numbers["Age of the checkpoint"] = span_of(state["checkpoint-age-seconds"]) or "none"
    for label, name in (
        ("Files by size", "file-size-histogram"),
        ("Files by deleted share", "deleted-ratio-histogram"),
    ):
        numbers[label] = ", ".join(f"{bin_}: {number(count)}" for bin_, count in state[name].items())
    if commits := state["commits"]:
        numbers["Commits"] = (
            f"{number(commits['committed'])}, {number(commits['rebased'])} of them rebased; "
            f"{_of(commits['conflicts'], 'conflict')}"
        )
    for entry in state["iceberg"]:
        shown = entry["delta-version"]
        behind = f"{_of(entry['lag-versions'], 'version')} and {span_of(entry['lag-seconds']) or 'an unknown time'} behind"
        numbers[f"Iceberg format version {entry['format-version']}"] = (
            f"{'not published yet' if shown is None else f'version {number(shown)}'}, {behind}"
        )
    return numbers


def _print_partitions(partitions: Sequence[Mapping[str, Any]]) -> None:
    if not partitions:
        return
    print()
    labels = ["Files", "Small files", "Size", "Deleted rows", "Deleted bytes", "Points"]
    print_table(
        ["Partition", *labels],
        [
            (
                ", ".join(
                    f"{name}={'NULL' if value is None else value}"
                    for name, value in one["partition-values"].items()
                ),
                number(one["num-files"]),
                number(one["small-files"]),
                size_of(one["size-in-bytes"]),
                number(one["num-deleted-rows"]),
                size_of(one["deleted-bytes"]),
                f"{one['points']:.2f}",
            )
            for one in partitions
        ],
        right=labels,
    )


def _print_overlap(column: Mapping[str, Any]) -> None:
    average, num_unbounded = column["average-depth"], column["unbounded-files"]
    opened = (
        "is in no file's statistics"
        if average is None
        else f"opens {average:.1f} files on average, {number(column['max-depth'])} at most"
    )
    print()
    show(f"A lookup by {column['column']} {opened}; {_of(num_unbounded, 'file')} without bounds.")
    for file in column["files"]:
        print(
            printable(
                f"  {file['path']}: {file['depth']:g} file{'' if file['depth'] == 1 else 's'}, {size_of(file['size-in-bytes'])}"
            )
        )


def _measured(name: str, value: float | None) -> str:
    """Return a number with its unit."""
    if value is None:
        return "-"
    match _METRICS[name].unit:
        case "bytes":
            return size_of(value)
        case "percent":
            return f"{value * 100:.1f} %"
        case "seconds":
            return f"{value:,.1f} s"
    return f"{value:,.4g}" if isinstance(value, float) else number(value)


def _of(count: int, noun: str) -> str:
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"
