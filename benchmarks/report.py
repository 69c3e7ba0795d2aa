"""Writes docs/benchmarks.md: figures compared with peers, and the machine."""

from collections.abc import Sequence

from benchmarks.commits_report import commits
from benchmarks.contenders import CODEC
from benchmarks.measure import Figure
from benchmarks.provenance import machine, unwrapped
from benchmarks.reading_report import reading

__all__ = ["markdown"]

PEER = "delta-spark with DVs"
_INTRODUCTION = """\
Delvec beside delta-spark, deltalake and others. Each section says what was measured, how and when, and which command measures it again. Goals that were
missed are marked **not met**. "DVs" are deletion vectors. The figures hold for this machine; nothing is extrapolated to others."""
_HOW = """\
Scans of a whole table, and plans of a table of many files. `make bench` measures this part and writes the page.

- **Contenders.** All ran in one process and one Spark session, in turn. delta-spark ran with `snapshotPartitions` and shuffle partitions set to the number
  of cores. All write Parquet with {codec}.
- **Table**: {rows:,} rows like people10m in one file, 8 columns.
- **Runs.** Each job had {warm} untimed runs first (a third for scans), then {runs} measured ones. The median is given, then the fastest and the slowest run.
  `x` is the speedup over delta-spark with DVs in the same run. A job is always measured with all its contenders, but not all jobs on one day.
- **Check.** Before scans, all contenders counted the same number of rows. Each scan decodes all columns and folds them into one hash.
- **`count over`** reads the files; **`count()`** is each contender's own, which statistics can answer."""
_TABLE = "| job | contender | seconds | runs | x | measured |"


def _of_vectors(figures: Sequence[Figure]) -> str:
    files = _vector_files(figures)
    if not files:
        return ""
    return (
        f"\n- **Files with DVs**: a table of {files} files of 1,000 rows, in which delta-spark deleted a tenth of the rows in three "
        "of ten files. Both contenders read rows with equal sums."
    )


def _vector_files(figures: Sequence[Figure]) -> str:
    return "".join({f"{figure.files:,}" for figure in figures if figure.files is not None})


def markdown(
    figures: Sequence[Figure],
    large: Sequence[Figure],
    committed: Sequence[Figure],
    earlier: str,
    *,
    rows: int,
    warm: int,
    runs: int,
) -> str:
    """Return the page.

    Args:
        figures: of scans and small plans.
        large: of large tables, in a separate section.
        committed: of commits, in a separate section.
        earlier: the previous page; results of jobs that are not in ``figures`` are kept.
        rows: rows of the table for scans.
        warm: number of untimed runs.
        runs: number of measured runs.
    """
    peers = {(figure.job, figure.run): figure.median for figure in figures if figure.contender == PEER}
    lines = [
        "# Benchmarks",
        "",
        *unwrapped(_INTRODUCTION),
        "",
        f"Machine: {machine()}.",
        *reading(large),
        *commits(committed),
        "",
        "## Scans and small plans",
        "",
        *unwrapped(_HOW.format(rows=rows, warm=warm, runs=runs, codec=CODEC) + _of_vectors(figures)),
        "",
        _TABLE,
        "|---|---|---:|---:|---:|---|",
    ]
    measured = {figure.job for figure in figures}
    before = [line for line in earlier.partition(_TABLE)[2].splitlines() if line.startswith("| ")]
    lines += [line for line in before if line[2:].partition(" |")[0] not in measured]
    for figure in figures:
        peer = peers.get((figure.job, figure.run))
        ratio = f"{peer / figure.median:.2f}" if peer else ""
        lines.append(
            f"| {figure.job} | {figure.contender} | {figure.median:.2f} | {figure.spread} | {ratio} "
            f"| {figure.run} |"
        )
    return "\n".join(lines) + "\n"
