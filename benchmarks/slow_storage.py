"""Commits on slow storage: ``python -m benchmarks.slow_storage [--seconds N] [--out FILE]``.

The log is on local disk. Before each of the two writes of a commit, the deletion vector file and the version, the
service waits as long as an object store would take; a share of the versions is refused at first, as with status 503.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.commit_load import Measured
from benchmarks.commits import CommitBench
from benchmarks.dml_report import replaced
from benchmarks.measure import Figure
from benchmarks.provenance import section_head

_ROWS = 1_000_000
_HOW = """\
Commits where each write takes as long as on an object store, which needs 10 to 100 ms.

- **Delvec** is `delvec serve` with default settings and an SQLite store on local disk, in a separate process. It waits for the delay in
  the table before each of the two writes of a commit: the deletion vector file, and the version.
- **503** is the share of versions that storage refuses at first; the service retries them.
- **Clients** are processes that delete one row at a time whose index they have, without a pause.
- **Grouped** is the default, **alone** is `delvec.groupCommit=false`.

Run it with `make bench PART=storage`."""


@dataclass(frozen=True)
class _Job:
    """One load.

    Attributes:
        delay: seconds of each write.
        clients: number of clients.
        tables: number of tables.
        refused: percent of versions that storage refuses at first.
        groups: whether commits share versions.
    """

    delay: float
    clients: int
    tables: int = 1
    refused: float = 0.0
    groups: bool = True

    def settings(self) -> dict[str, str]:
        """Return the specification of fault points."""
        wait = f"after-ledger:delay={self.delay},before-put:delay={self.delay}"
        refused = f",before-put:error%{self.refused}" if self.refused else ""
        return {"DELVEC_FAULT_POINTS": wait + refused}

    def cells(self) -> list[str]:
        """Return the job's description in the report."""
        delay = f"{1000 * self.delay:.0f} ms"
        how = "grouped" if self.groups else "alone"
        return [
            delay,
            f"{self.refused:g} %" if self.refused else "",
            str(self.clients),
            str(self.tables),
            how,
        ]


JOBS: Sequence[_Job] = (
    *(_Job(delay, clients) for delay in (0.0, 0.01, 0.03, 0.1) for clients in (1, 8, 32)),
    _Job(0.03, 1, groups=False),
    _Job(0.03, 8, groups=False),
    _Job(0.03, 8, refused=1.0),
    _Job(0.03, 8, refused=10.0),
    _Job(0.03, 32, tables=8),
    _Job(0.03, 32, tables=32),
)


def main() -> None:
    """Measure, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks.md"))
    arguments = parser.parse_args()
    lines = section_head("## Commits on slow storage", _HOW)
    lines += ["| a write takes | 503 | clients | tables | commits | a second | p50 | p99 | failed |"]
    lines += ["|---:|---:|---:|---:|---|---:|---:|---:|---:|"]
    for job in JOBS:
        found = _measured(job, arguments.seconds)
        figure = Figure("", "", found.latencies, elapsed=found.elapsed, tried=found.answers.total())
        failed = found.answers.total() - len(found.latencies)
        cells = [
            f"{figure.rate:.0f}",
            f"{1000 * figure.median:.0f} ms",
            f"{1000 * figure.percentile(99):.0f} ms",
        ]
        lines.append(f"| {' | '.join([*job.cells(), *cells, str(failed)])} |")
        print(lines[-1], dict(found.answers), flush=True)
    arguments.out.write_text(replaced(arguments.out.read_text(), lines))


def _measured(job: _Job, seconds: float) -> Measured:
    properties = {} if job.groups else {"delvec.groupCommit": "false"}
    rows = _ROWS // job.tables
    with (
        tempfile.TemporaryDirectory(prefix="delvec-bench-") as scratch,
        CommitBench(Path(scratch) / "bench", settings=job.settings()) as bench,
    ):
        targets = [
            bench.table(f"t{number}", rows=rows, properties=properties) for number in range(job.tables)
        ]
        return bench.load(targets, seconds, clients=job.clients)


if __name__ == "__main__":
    main()
