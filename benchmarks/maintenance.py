"""OPTIMIZE, Z-order, PURGE, DV compaction and VACUUM compared with deltalake and delta-spark: ``python -m benchmarks.maintenance``.

Prints a table. Each run has its own process and copy of the table. CPU seconds and memory are those of the process and
its children, including Spark, Python and libraries. Starting Spark is not measured; loading code is.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import delvec
from benchmarks.contenders import spark_session
from benchmarks.maintenance_tables import SOURCES, TARGET, write_old_files
from benchmarks.process_tree import ProcessTree
from benchmarks.provenance import machine, measured_in, this_run

_FILTERS = 50
_DUCKDB, _SPARK, _DELTALAKE, _DELTA_SPARK = "Delvec on DuckDB", "Delvec on Spark", "deltalake", "delta-spark"
_REWRITING = "Delvec on DuckDB, rewrite='always'"
_ON_SPARK = (_SPARK, _DELTA_SPARK)
_FAR = 200
"""Hours of retention: above the age of the tables, below that of the files to VACUUM."""


@dataclass(frozen=True)
class Job:
    """A job to measure.

    Attributes:
        source: the table, of :data:`~benchmarks.maintenance_tables.SOURCES`.
        contenders: names of the contenders.
        old_files: number of unreferenced files.
        twice: whether to run it twice, and measure the second run.
    """

    source: str
    contenders: tuple[str, ...]
    old_files: int = 0
    twice: bool = False


JOBS = {
    "compact": Job("small files", (_DUCKDB, _DELTALAKE, _SPARK, _DELTA_SPARK)),
    "compact large": Job("large row groups", (_DUCKDB, _REWRITING, _DELTALAKE)),
    "z-order": Job("small files", (_DUCKDB, _DELTALAKE)),
    "z-order again": Job("small files", (_DUCKDB, _DELTALAKE), twice=True),
    "purge": Job("deleted rows", (_DUCKDB, _SPARK, _DELTA_SPARK)),
    "deletion vectors": Job("small vectors", (_DUCKDB,)),
    "vacuum plan": Job("many files", (_DUCKDB, _DELTALAKE), old_files=100_000),
    "vacuum deletes": Job("one file", (_DUCKDB, _DELTALAKE), old_files=50_000),
}

Call = Callable[[], Any]


def _delvec_calls(location: Path, spark: Any, rewrite: Literal["auto", "always"]) -> dict[str, Call]:
    table = delvec.connect().table(location, engine=spark or "duckdb")
    return {
        "compact": lambda: table.optimize(target_size=1 << 30),
        "compact large": lambda: table.optimize(target_size=1 << 30, rewrite=rewrite),
        "z-order": lambda: table.optimize.z_order(["a", "c"]),
        "purge": table.optimize.purge,
        "deletion vectors": table.optimize.deletion_vectors,
        "vacuum plan": lambda: table.vacuum(_FAR, True),
        "vacuum deletes": lambda: table.vacuum(_FAR),
    }


def _deltalake_calls(location: Path) -> dict[str, Call]:
    import deltalake

    table = deltalake.DeltaTable(str(location))
    return {
        "compact": lambda: table.optimize.compact(target_size=1 << 30),
        "compact large": lambda: table.optimize.compact(target_size=1 << 30),
        "z-order": lambda: table.optimize.z_order(["a", "c"], target_size=TARGET),
        "vacuum plan": lambda: table.vacuum(_FAR, dry_run=True, full=True),
        "vacuum deletes": lambda: table.vacuum(_FAR, dry_run=False, full=True),
    }


def _delta_spark_calls(location: Path, spark: Any) -> dict[str, Call]:
    return {
        "compact": lambda: spark.sql(f"OPTIMIZE delta.`{location}`").collect(),
        "purge": lambda: spark.sql(f"REORG TABLE delta.`{location}` APPLY (PURGE)").collect(),
    }


class _Peak:
    """Measures the peak memory of this process and its children."""

    def __enter__(self) -> Self:
        self._ended, self.bytes = threading.Event(), 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        tree = ProcessTree(os.getpid())
        while True:
            self.bytes = max(self.bytes, tree.resident())
            if self._ended.wait(0.02):
                return


def measure(contender: str, job: str, location: Path, scale: float) -> dict[str, float]:
    """Run a job in this process; return the measured figures."""
    wanted = JOBS[job]
    spark = None
    if contender in _ON_SPARK:
        jars, scratch = Path(os.environ["DELVEC_TEST_JARS"]), location.parent / "spark"
        spark = spark_session(jars, scratch, os.cpu_count() or 1)
        spark.range(1000).repartition(2).count()
    if contender == _DELTALAKE:
        calls = _deltalake_calls(location)
    elif contender == _DELTA_SPARK:
        calls = _delta_spark_calls(location, spark)
    else:
        calls = _delvec_calls(location, spark, "always" if contender == _REWRITING else "auto")
    if wanted.twice:
        calls[job.removesuffix(" again")]()
    if wanted.old_files:
        write_old_files(location, max(1, int(wanted.old_files * scale)))
    found = _gain_before(contender, job, location)
    tree = ProcessTree(os.getpid())
    with _Peak() as peak:
        cpu, wall = tree.cpu(), time.perf_counter()
        calls[job.removesuffix(" again")]()
        found |= {"wall": time.perf_counter() - wall, "cpu": tree.cpu() - cpu}
    found["memory"] = float(peak.bytes)
    if job == "z-order":
        found["read"] = _files_read(location)
    if "predicted" in found:
        found["gained"] = found["size"] - delvec.connect().table(location).detail()["sizeInBytes"]
    if job == "deletion vectors":
        found |= _vector_scan(location, "after")
    if spark is not None:
        spark.stop()
    return found


def _gain_before(contender: str, job: str, location: Path) -> dict[str, float]:
    """Return Delvec's prediction before the job."""
    if contender != _DUCKDB:
        return {}
    table = delvec.connect().table(location)
    if job == "deletion vectors":
        return _vector_scan(location, "before")
    if job not in {"compact", "purge"}:
        return {}
    planned = (
        table.optimize.purge(dry_run=True)
        if job == "purge"
        else table.optimize(target_size=1 << 30, dry_run=True)
    )
    return {"predicted": float(planned.gain_bytes), "size": float(table.detail()["sizeInBytes"])}


def _vector_scan(location: Path, when: str) -> dict[str, float]:
    """Return what a scan by a service that holds nothing takes to read all deletion vectors: files opened, and seconds.

    An object store answers one request or more for each file that is opened.
    """
    opened = []

    def watch(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and str(given[0]).endswith(".bin"):
            opened.append(given[0])

    sys.addaudithook(watch)
    table = delvec.connect().table(location)
    tree = ProcessTree(os.getpid())
    cpu, wall = tree.cpu(), time.perf_counter()
    vectors = table.plan()[0].deletion_vectors
    took = {f"scan {when}": time.perf_counter() - wall, f"scan cpu {when}": tree.cpu() - cpu}
    assert sum(map(len, vectors.values())) == len(vectors)
    return {f"opened {when}": float(len(opened)), **took}


def _files_read(location: Path) -> float:
    """Return the share of files read by 100 narrow filters over two columns."""
    table, dice = delvec.connect().table(location), random.Random(5)
    read = 0
    for _ in range(_FILTERS):
        a, c = dice.randrange(10**9), dice.randrange(1000)
        for predicate in (f"a between {a} and {a + 10**7}", f"c between {c} and {c + 10}"):
            read += len(table.plan(predicate=predicate)[0])
    return read / (2 * _FILTERS * len(table.plan()[0]))


def main() -> None:
    """Run each job with all contenders in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(JOBS), default=list(JOBS), metavar="JOB")
    parser.add_argument(
        "--contenders", nargs="+", default=[], metavar="NAME", help="by default all of each job"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the tables; 1 is what the goals are about"
    )
    parser.add_argument("--one", nargs=3, metavar=("CONTENDER", "JOB", "LOCATION"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        contender, job, location = given.one
        print(json.dumps(measure(contender, job, Path(location), given.scale)))
        return
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for job in given.only:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source"
            SOURCES[JOBS[job].source](source, given.scale)
            for contender in JOBS[job].contenders * given.runs:
                if not given.contenders or contender in given.contenders:
                    copy = Path(folder) / "copy"
                    shutil.copytree(source, copy)
                    found.setdefault((job, contender), []).append(
                        _in_a_process(contender, job, copy, given.scale)
                    )
                    shutil.rmtree(copy)
    _print(found)
    print(f"\nScale {given.scale:g}. {measured_in([this_run()])} {machine()}")


def _in_a_process(contender: str, job: str, location: Path, scale: float) -> dict[str, float]:
    order = [sys.executable, "-m", "benchmarks.maintenance", "--scale", f"{scale}"]
    order += ["--one", contender, job, str(location)]
    done = subprocess.run(order, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{job} by {contender} failed:\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _print(found: dict[tuple[str, str], list[dict[str, float]]]) -> None:
    print("| job | | CPU seconds | seconds | most memory | |\n|---|---|---|---|---|---|")
    for (job, contender), runs in found.items():
        middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        said = []
        if "read" in middle:
            said.append(f"100 filters read {middle['read']:.0%} of the files")
        if "predicted" in middle:
            said.append(f"gain predicted {middle['predicted']:,.0f} bytes, measured {middle['gained']:,.0f}")
        if "opened before" in middle:
            said += [
                f"{when}, a scan opens {middle[f'opened {when}']:,.0f} files of vectors, in {middle[f'scan {when}']:.2f} "
                f"seconds ({middle[f'scan cpu {when}']:.2f} CPU seconds)"
                for when in ("before", "after")
            ]
        print(
            f"| {job} | {contender} | {middle['cpu']:.2f} | {middle['wall']:.2f} | {middle['memory'] / 2**20:.0f} MiB "
            f"| {'; '.join(said)} |"
        )


if __name__ == "__main__":
    main()
