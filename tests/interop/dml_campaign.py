"""``python -m tests.interop.dml_campaign --scripts 200``: random statements by several writers, checked against a model.

Each writer runs every statement on a table of its own, or the writers take turns on a shared table. After
each statement, rows, change feed and counts must match the model; at the end every writer reads all tables.
"""

import argparse
import logging
import math
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from pathlib import Path

from tests.interop import dml_run
from tests.interop.dml_run import Run, WrongError
from tests.interop.dml_writers import DeltaSpark, Delvec

import delvec

__all__ = ["Campaign", "WrongError"]

KEPT = 10
_NOT_ON_DUCKDB = "not on DuckDB"


class Campaign:
    """Runs scripts one after the other.

    Args:
        lake: a connection.
        folder: for tables.
        spark: a session with delta-spark, or None for Delvec on DuckDB alone.

    Attributes:
        counts: how often each thing was done; for a single writer, the key is a pair with its name.
    """

    def __init__(self, lake, folder, spark=None):
        self.lake, self.folder, self.spark = lake, Path(folder), spark
        self.writers = [Delvec(lake, "duckdb", "Delvec on DuckDB")]
        self.counts = Counter()
        if spark is not None:
            from delvec_engines.spark import choosing_engine, duckdb_tasks, local_execution

            # Make several tasks share even the smallest file.
            duckdb_tasks._MIN_BYTES = 1
            sessions = {}
            for way in (None, local_execution, duckdb_tasks):
                sessions[way] = spark if way is None else spark.newSession()
                for each in (local_execution, duckdb_tasks):
                    sessions[way].conf.set(each.ENABLED, str(each is way).lower())
            self.writers += [
                Delvec(lake, spark, "Delvec on Spark"),
                Delvec(lake, sessions[local_execution], "Delvec in Spark's driver"),
                Delvec(lake, sessions[duckdb_tasks], "Delvec in Spark's tasks"),
                DeltaSpark(spark),
            ]
            logger = logging.getLogger(choosing_engine.__name__)
            logger.setLevel(logging.INFO)
            # Remove the handlers of earlier campaigns in this process.
            logger.handlers = [_Counting(self.counts)]
        self._finished = deque()

    def run(self, seed, statements):
        """Run one script.

        Raises:
            WrongError: a writer or a reader disagrees with the model.
        """
        run = Run(self, seed, statements)
        try:
            run.do()
        except Exception as error:
            if isinstance(error, WrongError):
                raise
            raise WrongError(f"{traceback.format_exc()}\n{run}") from error
        self.counts["scripts"] += 1
        self._finished.append(run.folder)
        if len(self._finished) > KEPT:
            # Not immediately: the service may still be writing to the log.
            shutil.rmtree(self._finished.popleft())

    @property
    def report(self):
        """Return what was compared, in total and by writer."""
        plain = {what: count for what, count in self.counts.items() if isinstance(what, str)}
        lines = [f"{count:8,}  {what}" for what, count in sorted(plain.items())]
        lines.append(f"{'statements':>12}{'feeds':>12}{'refusals':>12}  compared, by writer")
        for writer in self.writers:
            counts = (self.counts[what, writer.name] for what in ("statements", "feeds", "refusals"))
            lines.append("".join(f"{count:12,}" for count in counts) + f"  {writer.name}")
        for kind in (dml_run.NOT_BY, _NOT_ON_DUCKDB):
            reasons = {what: count for what, count in self.counts.items() if what[0] == kind}
            lines += [f"{count:8,}  {kind} {why}" for (_, why), count in sorted(reasons.items())]
        return "\n".join(lines) + "\n"


class _Counting(logging.Handler):
    """Counts commands that DuckDB ran, and the reasons why it did not run others."""

    def __init__(self, counts):
        super().__init__()
        self._counts = counts

    def emit(self, record):
        what = record.getMessage().partition(") ")[2]
        if what.startswith("ran in the driver"):
            self._counts["commands in Spark's driver"] += 1
        elif what.startswith("ran in tasks"):
            self._counts["commands in tasks with DuckDB"] += 1
        elif not re.search(r"localExecution\.enabled is false; .*duckdbTasks\.enabled is false", what):
            self._counts[_NOT_ON_DUCKDB, re.sub(r"'.*'|\".*\"", "…", what)[:120]] += 1
            self._counts["commands not on DuckDB"] += 1


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.interop.dml_campaign", description=__doc__)
    parser.add_argument("--scripts", type=int, default=200)
    parser.add_argument("--statements", type=int, default=6, help="in each script")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the first script")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no script after so many")
    parser.add_argument("--duckdb", action="store_true", help="Delvec on DuckDB alone: quick, without Java")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--verbose", action="store_true", help="tell of each statement")
    given = parser.parse_args()
    if given.verbose:
        logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
        dml_run.log.setLevel(logging.INFO)
    folder = Path(tempfile.mkdtemp(prefix="delvec-dml-"))
    end = time.monotonic() + given.minutes * 60
    failures = 0
    spark = None
    if not given.duckdb:
        from tests.interop.delta_session import delta_session

        spark = delta_session(folder / "warehouse")
    with delvec.connect(database_url=f"sqlite:///{folder / 'records.db'}") as lake:
        campaign = Campaign(lake, folder, spark)
        for seed in range(given.seed, given.seed + given.scripts):
            if time.monotonic() > end:
                break
            try:
                campaign.run(seed, given.statements)
            except KeyboardInterrupt:
                break
            except WrongError as error:
                failures += 1
                sys.stdout.write(f"{error}\n\n")
                sys.stdout.flush()
                if not given.keep_going:
                    break
    sys.stdout.write(f"{campaign.report}{failures:8,}  failures\n")
    if not failures:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
