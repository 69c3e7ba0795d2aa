"""Commits by the number of workers: ``python -m benchmarks.workers --postgresql URL [--seconds N] [--out FILE]``.

The loads of :mod:`benchmarks.commits`, on one table and on many, against services with one and several workers.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.commit_load import Measured
from benchmarks.commits import CLIENTS, TABLES, CommitBench
from benchmarks.dml_report import replaced
from benchmarks.measure import Figure
from benchmarks.provenance import section_head

_ROWS = 1_000_000
_HOW = f"""\
Commits a second by the number of workers of `delvec serve --workers N`.

- **Store**: SQLite on local disk, or a PostgreSQL server on the same machine that also syncs its commits.
- **Clients**: {CLIENTS}, which delete one row at a time whose index they have, without a pause.
- **Machine.** Service, clients and PostgreSQL share the cores named below, so more workers help only until those are busy.
- **Runs.** The loads alternate. The rate is the median of the runs; the latencies are those of the middle run (of two, the faster).

Run it with `make bench PART=workers POSTGRESQL=URL`."""


@dataclass(frozen=True)
class _Job:
    """One load: how many workers, on how many tables, with which store."""

    workers: int
    tables: int
    on_postgresql: bool = True


JOBS: Sequence[_Job] = tuple(
    job
    for tables in (TABLES, 1)
    for job in (
        _Job(1, tables, on_postgresql=False),
        _Job(2, tables, on_postgresql=False),
        _Job(1, tables),
        _Job(2, tables),
        _Job(4, tables),
    )
)


def main() -> None:
    """Measure, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgresql", required=True, help="URL of an empty database")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--runs", type=int, default=3, help="of each load")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks.md"))
    arguments = parser.parse_args()
    found: dict[_Job, list[Figure]] = {}
    for _ in range(arguments.runs):
        for job in JOBS:
            url = arguments.postgresql if job.on_postgresql else None
            measured = _measured(job, url, arguments.seconds)
            figure = Figure(
                "", "", measured.latencies, elapsed=measured.elapsed, tried=measured.answers.total()
            )
            found.setdefault(job, []).append(figure)
            print(job, f"{figure.rate:.1f}/s", dict(measured.answers), flush=True)
    lines = section_head("## Commits by workers", _HOW)
    lines += [
        "| tables | store | workers | a second | runs | p50 | p99 |",
        "|---:|---|---:|---:|---|---:|---:|",
    ]
    for job, figures in found.items():
        figures.sort(key=lambda figure: figure.rate or 0)
        rates = [figure.rate or 0 for figure in figures]
        middle = figures[len(figures) // 2]
        store = "PostgreSQL" if job.on_postgresql else "SQLite"
        cells = [
            str(job.tables),
            store,
            str(job.workers),
            f"{median(rates):.0f}",
            f"{rates[0]:.0f}-{rates[-1]:.0f}",
        ]
        cells += [f"{1000 * seconds:.0f} ms" for seconds in (middle.median, middle.percentile(99))]
        lines.append(f"| {' | '.join(cells)} |")
    arguments.out.write_text(replaced(arguments.out.read_text(), lines))


def _measured(job: _Job, database: str | None, seconds: float) -> Measured:
    with (
        tempfile.TemporaryDirectory(prefix="delvec-bench-") as scratch,
        CommitBench(Path(scratch) / "bench", workers=job.workers, database_url=database) as bench,
    ):
        targets = [bench.table(f"t{number}", rows=_ROWS // job.tables) for number in range(job.tables)]
        return bench.load(targets, seconds)


if __name__ == "__main__":
    main()
