"""The report's section about commits: goals, rates and latencies compared with delta-spark, and the method."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.commits import CLIENTS, DELVEC, PEER, TABLES, TURNS
from benchmarks.measure import Figure
from benchmarks.provenance import measured_in, unwrapped

__all__ = ["commits"]

_MIB = 2**20
_HOW = f"""\
How many commits a second a service makes, and whether concurrent deletes in one file succeed.

- **Delvec** is `delvec serve` with default settings and an SQLite store, in a separate process on the same cores as its
  {CLIENTS} clients. Every acknowledged commit is synced to disk.
- **Clients** send the next request as soon as the previous one is answered, with that answer's version as the version read.
- **Row known**: a DELETE of one row whose index the client already has. It measures HTTP, conflict check, deletion vector and log.
- **Row found**: `DeltaTable.delete("id = ...")` in Python on the DuckDB engine. It measures plan, scan and commit.
- **Append**: adds one existing file.
- **delta-spark** ran in one session with a thread for each client, `snapshotPartitions` and shuffle partitions set to the number
  of cores, after ten untimed deletes. "Tried again" repeats a delete until it succeeds; its latency includes the failed attempts.
- **Table**: a single file of a million rows, with deletion vectors enabled. On large tables
  (`python -m benchmarks.large_table`) one client deletes a row of a different file each time, or appends.

Run it with `make bench PART=commits`."""


@dataclass(frozen=True)
class _Row:
    """A row of the report's table.

    Attributes:
        ours: Delvec's job.
        theirs: delta-spark's job; the faster of several.
        goal: minimum successful commits per second.
    """

    name: str
    ours: str
    theirs: Sequence[str] = ()
    goal: float | None = None


_ROWS = (
    _Row("row known, one table", "ready rows", goal=200),
    _Row("row known, one table, `delvec.groupCommit=false`", "ready rows, no groups", goal=40),
    _Row(f"row known, {TABLES} tables", "ready rows, many tables"),
    _Row("append, one table", "appends", goal=200),
    _Row("append, one table, `delvec.groupCommit=false`", "appends, no groups", goal=40),
    _Row(
        "row found, one table",
        "rows found by DuckDB",
        ("rows found, tried again", "rows found, one client"),
        goal=15,
    ),
)


def commits(figures: Sequence[Figure]) -> list[str]:
    """Return the section's lines; empty without measurements."""
    by = {(figure.contender, figure.job, figure.files): figure for figure in figures}
    if not by:
        return []
    lines = ["", "## Commits", "", *unwrapped(_HOW), ""]
    lines += [measured_in(figure.run for figure in figures), ""]
    lines += [f"{CLIENTS} writers each delete {TURNS} different rows of one file:", ""]
    lines += ["| contender | succeeded | of tries | seconds | slowest delete |", "|---|---:|---:|---:|---:|"]
    for job, contender in (
        ("five rows each", DELVEC),
        ("five rows each", PEER),
        ("five rows each, tried again", PEER),
    ):
        figure = by.get((contender, job, None))
        if figure is not None and figure.elapsed is not None:
            again = ", tried again" if job.endswith("again") else ""
            slowest = _milliseconds(max(figure.seconds)) if figure.seconds else ""
            lines.append(
                f"| {contender}{again} | {len(figure.seconds)} | {figure.tried} | {figure.elapsed:.2f} | {slowest} |"
            )
    lines += ["", f"Commits a second, {CLIENTS} clients:", ""]
    lines += ["| | goal | Delvec | p50, p99 | delta-spark | p50, p99 |", "|---|---:|---:|---:|---:|---:|"]
    for row in _ROWS:
        ours = by.get((DELVEC, row.ours, None))
        theirs = [found for job in row.theirs if (found := by.get((PEER, job, None))) is not None]
        best = max(theirs, key=lambda figure: figure.rate or 0, default=None)
        lines.append(f"| {row.name} | {_goal(row, ours)} | {_rate(ours)} | {_rate(best)} |")
    return [*lines, *_by_size(by), *_long(by.get((DELVEC, "ready rows, a long time", None)))]


def _goal(row: _Row, figure: Figure | None) -> str:
    if row.goal is None:
        return ""
    met = "" if figure is None else f" ({'met' if (figure.rate or 0) >= row.goal else 'not met'})"
    return f"{row.goal:.0f}{met}"


def _rate(figure: Figure | None) -> str:
    if figure is None or figure.rate is None or not figure.seconds:
        return " | "
    return f"{figure.rate:.1f} | {_milliseconds(figure.median)}, {_milliseconds(figure.percentile(99))}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"


def _by_size(by: dict[tuple[str, str, int | None], Figure]) -> list[str]:
    sizes = sorted({files for _, _, files in by if files is not None})
    if not sizes:
        return []
    lines = [
        "",
        "One client, by the number of live files; median and 99th percentile, then the median compared with that of",
    ]
    lines[-1] += f" {sizes[0]:,} files (goal: within 20 %):"
    lines += ["", "| commit | " + " | ".join(f"{files:,}" for files in sizes) + " |"]
    lines += ["|---|" + "---:|" * len(sizes)]
    for job, name in (("latency of a delete", "delete of one row"), ("latency of an append", "append")):
        cells = [_latency(by.get((DELVEC, job, files)), by.get((DELVEC, job, sizes[0]))) for files in sizes]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _latency(figure: Figure | None, first: Figure | None) -> str:
    if figure is None or first is None:
        return ""
    ratio = figure.median / first.median - 1
    return f"{_milliseconds(figure.median)}, {_milliseconds(figure.percentile(99))}, {ratio:+.0%}"


def _long(figure: Figure | None) -> list[str]:
    if figure is None or figure.elapsed is None or len(figure.samples) < 2:
        return []
    middle = len(figure.samples) // 2
    return [
        "",
        (
            f"Memory of the service under the first of these loads for {figure.elapsed / 60:.0f} minutes and "
            f"{len(figure.seconds):,} commits ({figure.rate:.0f} a second): {_mib(figure.samples[1])} after ten seconds, "
            f"{_mib(figure.samples[middle])} half-way, {_mib(figure.samples[-1])} at the end, with a peak of {_mib(figure.peak or 0)}."
        ),
    ]


def _mib(count: int) -> str:
    return f"{count / _MIB:,.0f} MiB"
