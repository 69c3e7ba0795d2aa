"""The report's section about planning on large tables: goals, cost curves as a table, and the method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.large import CLIENTS, DELVEC
from benchmarks.measure import Figure
from benchmarks.provenance import measured_in, unwrapped

__all__ = ["PLOT", "reading"]

PLOT = "images/planning.svg"
_MIB = 2**20
_NAMES = {
    "first": "first plan, nothing cached",
    "restart": "first plan after a restart, from readiness, store filled",
    "selective": "warm plan of 3 files",
    "partition": "warm plan of one partition, as Arrow",
    "commit": "first plan after an external commit",
    "concurrent": f"warm plan of 3 files, {CLIENTS} clients at once",
}
_HOW = f"""\
How long it takes to plan a scan of a large table: to find the files that a query has to read.

- **Contenders.** Each runs in its own process and reads the same log from local disk, which the operating system has cached.
  Each checks for new commits in every plan, and no query is repeated.
- **Delvec** is `delvec serve` with default settings and an SQLite store, called over HTTP by the Python client. A measurement
  ends when the client has the files as an Arrow table.
- **deltalake** loads the `DeltaTable`; a warm plan is `update_incremental()` and
  `file_uris(file_pruning_predicate=...)`.
- **delta-spark** builds a DataFrame with a filter and asks the JVM for its `inputFiles`. `snapshotPartitions` and shuffle
  partitions are set to the number of cores, and the session has planned five queries on another table before.
- **DuckDB delta** is the extension of DuckDB 1.5.5, the newest version that offers it as a package. It lists files only while it
  scans, so it also reads three files of one row each.
- **Nothing cached**: the service has just started with an empty store; the time includes registering the table.
- **Warm**: after untimed runs of the same job. Delvec has 20 (for partitions 5), the others 5 or 1.
- **{CLIENTS} clients at once**: processes on the same cores as the service, each sending requests without a pause.
- **Memory** is that of the process, for delta-spark of the JVM (heap limit 6 GiB): "resident" after the warm jobs, "peak" over
  its lifetime.
- **Table**: 11 statistics columns, 29 partitions, a checkpoint as delta-spark writes it by default (statistics as JSON and as
  columns, files in no particular order), and 20 commits after it.

Run it with `make bench PART=reading`; `python -m benchmarks.large_table` creates the table, and `make bench` measures all parts."""


@dataclass(frozen=True)
class Goal:
    """A goal for a table of a million files.

    Attributes:
        of: returns seconds or bytes from a contender's figures by job.
        limit: the maximum.
    """

    name: str
    of: Callable[[dict[str, Figure]], float | None]
    limit: float
    is_memory: bool = False

    def text(self, value: float | None) -> str:
        """Return seconds or bytes as text."""
        if value is None:
            return ""
        return f"{value / _MIB:,.0f} MiB" if self.is_memory else _seconds(value)


def _median(job: str) -> Callable[[dict[str, Figure]], float | None]:
    return lambda by_job: by_job[job].median if job in by_job else None


def _late(job: str) -> Callable[[dict[str, Figure]], float | None]:
    # With few runs, the 99th percentile is just the slowest.
    return lambda by_job: (
        by_job[job].percentile(99) if job in by_job and len(by_job[job].seconds) >= 100 else None
    )


def _after_commit(by_job: dict[str, Figure]) -> float | None:
    return by_job["commit"].median - by_job["selective"].median if "commit" in by_job else None


_GOALS = (
    Goal(_NAMES["first"], _median("first"), 2.0),
    Goal(_NAMES["restart"], _median("restart"), 0.3),
    Goal(_NAMES["selective"] + ", median", _median("selective"), 0.020),
    Goal(_NAMES["selective"] + ", 99th percentile", _late("selective"), 0.1),
    Goal(_NAMES["concurrent"] + ", 99th percentile", _late("concurrent"), 0.06),
    Goal(_NAMES["partition"], _median("partition"), 0.15),
    Goal(_NAMES["commit"] + ", more than a warm one", _after_commit, 0.005),
    Goal("resident memory once loaded", lambda by: by["memory"].resident, 500 * _MIB, is_memory=True),
    Goal("peak memory", lambda by: by["memory"].peak, 600 * _MIB, is_memory=True),
)


def _seconds(value: float) -> str:
    if abs(value) >= 1:
        return f"{value:.2f} s"
    return f"{value * 1000:.0f} ms" if abs(value) >= 0.1 else f"{value * 1000:.1f} ms"


def reading(figures: Sequence[Figure]) -> list[str]:
    """Return the section's lines; empty without measurements."""
    if not figures:
        return []
    sizes = sorted({figure.files for figure in figures if figure.files is not None})
    contenders = list(dict.fromkeys(figure.contender for figure in figures))
    by = {(figure.files, figure.contender, figure.job): figure for figure in figures}
    lines = ["", "## Planning on large tables", "", *unwrapped(_HOW), ""]
    lines += [measured_in(figure.run for figure in figures), ""]
    lines += [f"A table of {sizes[-1]:,} files:", ""]
    lines += ["| | goal | " + " | ".join(contenders) + " |", "|---|---:|" + "---:|" * len(contenders)]
    for goal in _GOALS:
        values = [
            goal.of(
                {job: found for (files, name, job), found in by.items() if (files, name) == (sizes[-1], each)}
            )
            for each in contenders
        ]
        met = "" if values[0] is None else ("met" if values[0] <= goal.limit else "not met")
        cells = " | ".join(goal.text(value) for value in values)
        lines.append(f"| {goal.name} | {goal.text(goal.limit)} ({met}) | {cells} |")
    lines += ["", *_restarted(by, sizes[-1]), "", f"![Cost by the number of files]({PLOT})", ""]
    lines += [
        "By the number of files; the median, then the fastest and the slowest run, then the number of runs:",
        "",
    ]
    lines += ["| job | contender | " + " | ".join(f"{files:,}" for files in sizes) + " |"]
    lines += ["|---|---|" + "---:|" * len(sizes)]
    for job, name in _NAMES.items():
        lines += _row(name, [[by.get((files, each, job)) for files in sizes] for each in contenders], _runs)
    lines += _row(
        "memory: resident, peak",
        [[by.get((files, each, "memory")) for files in sizes] for each in contenders],
        _memory,
    )
    return lines


def _restarted(by: dict[tuple[int | None, str, str], Figure], files: int) -> list[str]:
    figure = by.get((files, DELVEC, "memory, restarted"))
    if figure is None or figure.resident is None or figure.peak is None:
        return []
    resident, peak = figure.resident / _MIB, figure.peak / _MIB
    text = f"After a restart and one selective plan, the service has {resident:,.0f} MiB resident, {peak:,.0f} MiB at most."
    return [text]


def _row(name: str, found: list[list[Figure | None]], text: Callable[[Figure], str]) -> list[str]:
    rows = []
    for figures in found:
        present = [figure for figure in figures if figure is not None]
        if present:
            cells = " | ".join("" if figure is None else text(figure) for figure in figures)
            rows.append(f"| {name} | {present[0].contender} | {cells} |")
    return rows


def _runs(figure: Figure) -> str:
    low, high = _seconds(min(figure.seconds)), _seconds(max(figure.seconds))
    if len(figure.seconds) == 1:
        return f"{_seconds(figure.median)} (1)"
    return f"{_seconds(figure.median)}, {low} to {high} ({len(figure.seconds)})"


def _memory(figure: Figure) -> str:
    resident, peak = (figure.resident or 0) / _MIB, (figure.peak or 0) / _MIB
    return f"{resident:,.0f} MiB, {peak:,.0f} MiB"
