"""Other readers of Delta logs, each in its own process: ``python -m benchmarks.peers NAME QUESTIONS OUT``."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from benchmarks.measure import Figure, memory, repeated, save, timed
from benchmarks.questions import SELECTIVE_FILES, Questions, check

__all__ = ["PEERS", "install_duckdb_delta", "main"]

DUCKDB = "1.5.5"
_WARM = 5
_RUNS = 10
_COMMITS = 5
_AFTER_COMMITS = 20
_LIMIT = 15.0


class Peer(Protocol):
    """A reader that keeps a table open."""

    name: str
    plans_only: bool

    def open(self, location: str) -> None:
        """Read the table's log."""
        ...

    def plan(self, predicate: str) -> int:
        """Read new commits, and return the number of files that may match the predicate."""
        ...

    def process(self) -> int:
        """Return the process whose memory is measured."""
        ...


class DeltaLake:
    """deltalake, with the data skipping of ``file_uris``."""

    name = "deltalake"
    plans_only = True

    def __init__(self) -> None:
        import deltalake

        self._make = deltalake.DeltaTable

    def open(self, location: str) -> None:
        self._table = self._make(location)

    def plan(self, predicate: str) -> int:
        self._table.update_incremental()
        return len(self._table.file_uris(file_pruning_predicate=predicate))

    def process(self) -> int:
        return os.getpid()


class DuckDBDelta:
    """DuckDB's delta extension. It only lists files while scanning, so it also reads one row of each file."""

    name = "DuckDB delta"
    plans_only = False

    def __init__(self) -> None:
        import duckdb
        import duckdb_extension_delta

        folder = Path(duckdb_extension_delta.__file__).parent
        self._connection = duckdb.connect()
        self._connection.execute(f"LOAD '{next(folder.rglob('*.duckdb_extension'))}'")

    def open(self, location: str) -> None:
        self._connection.execute("DETACH DATABASE IF EXISTS t")
        self._connection.execute(f"ATTACH '{location}' AS t (TYPE delta)")

    def plan(self, predicate: str) -> int:
        rows = self._connection.execute(f"SELECT count(id) FROM t WHERE {predicate}").fetchall()
        return int(rows[0][0])

    def process(self) -> int:
        return os.getpid()


class DeltaSparkLog:
    """delta-spark; the paths stay in the JVM."""

    name = "delta-spark"
    plans_only = True

    def __init__(self) -> None:
        from benchmarks.contenders import spark_session

        self._scratch = tempfile.TemporaryDirectory(prefix="delvec-bench-")
        scratch = Path(self._scratch.name)
        self._spark: Any = spark_session(Path(os.environ["DELVEC_TEST_JARS"]), scratch, os.cpu_count() or 1)

    def open(self, location: str) -> None:
        self._location = location

    def plan(self, predicate: str) -> int:
        frame = self._spark.read.format("delta").load(self._location).where(predicate)
        return len(frame._jdf.inputFiles())  # noqa: SLF001 - the public one copies each path to Python

    def process(self) -> int:
        return int(self._spark.sparkContext._gateway.proc.pid)  # noqa: SLF001 - nothing public says it


PEERS: dict[str, Callable[[], Peer]] = {"deltalake": DeltaLake, "duckdb": DuckDBDelta, "spark": DeltaSparkLog}


def install_duckdb_delta(folder: Path) -> bool:
    """Install the newest DuckDB whose delta extension is available as a package; return whether that worked."""
    if not (folder / "duckdb_extension_delta").exists():
        packages = [f"duckdb=={DUCKDB}", f"duckdb-extension-delta=={DUCKDB}"]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *packages]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    return True


def measure(peer: Peer, questions: Questions, first: Questions, runs: int, limit: float) -> list[Figure]:
    """Return the figures of one reader, after a warm-up on another table."""

    def select(number: int) -> None:
        predicate = questions.select(number)
        check(peer.plan(predicate), SELECTIVE_FILES, peer.name, predicate)

    def partition(number: int) -> None:
        predicate, files = questions.partition(number)
        check(peer.plan(predicate), files, peer.name, predicate)

    def cold() -> None:
        peer.open(questions.location)
        select(0)

    peer.open(first.location)
    for number in range(_WARM):
        peer.plan(first.select(number))
    seconds = {"first": [timed(cold)]}
    seconds["selective"] = repeated(select, untimed=_WARM, runs=runs, limit=limit)
    if peer.plans_only:
        seconds["partition"] = repeated(partition, untimed=1, runs=runs, limit=limit)
    loaded, peak = memory(peer.process())
    seconds["commit"] = []
    for number in range(min(_COMMITS, runs)):
        if sum(seconds["commit"]) > limit:
            break
        questions.commit(number)
        seconds["commit"].append(timed(lambda n=number: select(_AFTER_COMMITS + n)))
    figures = [Figure(job, peer.name, taken, files=questions.files) for job, taken in seconds.items()]
    return [*figures, Figure("memory", peer.name, files=questions.files, resident=loaded, peak=peak)]


def main() -> None:
    """Measure one reader on one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("questions", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--first", type=Path, required=True, help="questions about a small table, not measured"
    )
    parser.add_argument("--runs", type=int, default=_RUNS)
    parser.add_argument("--limit", type=float, default=_LIMIT, help="seconds for one job")
    arguments = parser.parse_args()
    questions, first = Questions.load(arguments.questions), Questions.load(arguments.first)
    peer = PEERS[arguments.peer]()
    save(arguments.out, measure(peer, questions, first, arguments.runs, arguments.limit))


if __name__ == "__main__":
    main()
