"""Concurrent commits: success rate, throughput and latency.

Delvec is a service in its own process, on local disk, with every commit synced. For "ready" rows, clients know
the row indexes in advance; with "DuckDB", each client finds its row first.
"""

import multiprocessing
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import delvec
from benchmarks.commit_load import Load, Measured, Target, run_load
from benchmarks.commit_tables import FIRST_FILE, enable_vectors, live_paths, new_files
from benchmarks.large_table import large_table
from benchmarks.measure import Figure
from benchmarks.service import Service
from benchmarks.tables import clone, many_files

__all__ = ["DELVEC", "PEER", "QUICK_COMMITS", "CommitBench", "CommitEffort", "measure_commits"]

DELVEC = "Delvec"
PEER = "delta-spark with DVs"
CLIENTS = 8
TURNS = 5
TABLES = 64
ROWS = 1_000_000
_UNTIMED = 3.0
_MAX_PER_SECOND = 1000
_SPARK_WARM = 10
_SAMPLE_SECONDS = 10.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class CommitEffort:
    """The size of the measurement.

    Attributes:
        seconds: duration of each load.
        sizes: live files of the tables for latency.
        runs: commits per table.
        minutes: duration of the memory measurement.
    """

    seconds: float = 20.0
    sizes: Sequence[int] = (1_000, 10_000, 100_000, 1_000_000)
    runs: int = 200
    minutes: float = 10.0


QUICK_COMMITS = CommitEffort(4.0, (1_000, 10_000), 50, 0.5)


def measure_commits(spark: Any, tables: Path, scratch: Path, effort: CommitEffort, say: Say) -> list[Figure]:
    """Return the figures of all jobs.

    Args:
        spark: a session with delta-spark.
        tables: directory that keeps generated tables between runs.
        scratch: an empty directory.
        effort: how much to measure.
        say: reports progress.
    """
    figures: list[Figure] = []

    def keep(found: Figure) -> None:
        say(_line(found))
        figures.append(found)

    for measure in (_ready_rows, _many_tables, _appends, _found_rows, _one_file):
        with CommitBench(scratch / measure.__name__.strip("_")) as bench:
            for figure in measure(bench, effort):
                keep(figure)
    for figure in _on_spark(spark, scratch / "spark", effort):
        keep(figure)
    for files in effort.sizes:
        for figure in _latency(tables, scratch / f"latency-{files}", files, effort):
            keep(figure)
    with CommitBench(scratch / "memory") as bench:
        keep(_memory(bench, effort))
    return figures


def _line(figure: Figure) -> str:
    head = (
        f"{figure.job}, {figure.contender}:"
        if figure.files is None
        else f"{figure.job}, {figure.files:,} files:"
    )
    if figure.elapsed:
        head += f" {len(figure.seconds)} of {figure.tried} in {figure.elapsed:.1f} s, {figure.rate:.1f}/s"
    if figure.seconds:
        head += f", p50 {figure.median * 1000:.1f} ms, p99 {figure.percentile(99) * 1000:.1f} ms"
    if figure.samples:
        head += " memory " + ", ".join(f"{sample >> 20}" for sample in figure.samples) + " MiB"
    return head


class CommitBench:
    """A service and its tables. A context manager.

    Args:
        folder: directory of tables and database; removed at the end.
        service: further arguments of the service.
    """

    def __init__(self, folder: Path, **service: Any) -> None:
        self.folder = folder
        self._how = service

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        self.service = Service(self.folder, self.folder / "store.db", **self._how).__enter__()
        self.lake = delvec.connect(self.service.url)
        return self

    def __exit__(self, *error: object) -> None:
        self.lake.close()
        self.service.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    def table(self, name: str, *, rows: int = ROWS, properties: Mapping[str, str] | None = None) -> Target:
        """Make a table of one file."""
        many_files(self.folder / name, 1, rows=rows, properties=properties)
        return self.registered(name, [FIRST_FILE], rows)

    def registered(self, name: str, paths: Sequence[str], rows: int, size: int | None = None) -> Target:
        """Register an existing table."""
        table = self.lake.table(str(self.folder / name))
        return Target(table.id, table.version(), paths, rows, size)

    def load(self, targets: Sequence[Target], seconds: float, **more: Any) -> Measured:
        """Run a load after an untimed warm-up."""
        clients = more.pop("clients", CLIENTS)
        warm = run_load(Load(self.service.url, targets, clients, min(_UNTIMED, seconds), **more))
        return run_load(Load(self.service.url, targets, clients, seconds, first=warm.done, **more))


def _figure(job: str, measured: Measured, **more: Any) -> Figure:
    failed = measured.answers.total() - len(measured.latencies)
    if failed:
        raise SystemExit(f"{job}: {failed} requests failed: {dict(measured.answers)}")
    tried = measured.answers.total()
    return Figure(job, DELVEC, measured.latencies, elapsed=measured.elapsed, tried=tried, **more)


def _ready_rows(bench: CommitBench, effort: CommitEffort) -> list[Figure]:
    grouped = bench.load([bench.table("grouped")], effort.seconds)
    alone = bench.load([bench.table("alone", properties={"delvec.groupCommit": "false"})], effort.seconds)
    return [_figure("ready rows", grouped), _figure("ready rows, no groups", alone)]


def _many_tables(bench: CommitBench, effort: CommitEffort) -> list[Figure]:
    targets = [bench.table(f"t{number}", rows=10_000) for number in range(TABLES)]
    return [_figure("ready rows, many tables", bench.load(targets, effort.seconds))]


def _appends(bench: CommitBench, effort: CommitEffort) -> list[Figure]:
    figures = []
    for job, name, properties in (
        ("appends", "grouped", {}),
        ("appends, no groups", "alone", {"delvec.groupCommit": "false"}),
    ):
        many_files(bench.folder / name, 1, properties=properties)
        new = new_files(bench.folder / name, int((effort.seconds + _UNTIMED) * _MAX_PER_SECOND))
        target = bench.registered(name, new.paths, new.rows, new.size)
        figures.append(_figure(job, bench.load([target], effort.seconds)))
    return figures


# --- clients that find their rows --------------------------------------------------------------------


def _found_rows(bench: CommitBench, effort: CommitEffort) -> list[Figure]:
    bench.table("people")
    measured = _deleting(bench, "people", effort.seconds, 10**9)
    return [_figure("rows found by DuckDB", measured)]


def _one_file(bench: CommitBench, _effort: CommitEffort) -> list[Figure]:
    bench.table("people")
    measured = _deleting(bench, "people", 3600.0, TURNS)
    tried = measured.answers.total()
    return [Figure("five rows each", DELVEC, measured.latencies, elapsed=measured.elapsed, tried=tried)]


def _deleting(bench: CommitBench, name: str, seconds: float, turns: int) -> Measured:
    """Delete rows by id, with the Python client on DuckDB in several processes."""
    spawn = multiprocessing.get_context("spawn")
    barrier, answers = spawn.Barrier(CLIENTS), spawn.SimpleQueue()
    location = str(bench.folder / name)
    processes = [
        spawn.Process(
            target=_deleter, args=(bench.service.url, location, number, seconds, turns, barrier, answers)
        )
        for number in range(CLIENTS)
    ]
    for process in processes:
        process.start()
    measured, spans = Measured(), []
    for latencies, failed, started, ended in [answers.get() for _ in processes]:
        measured.latencies += latencies
        measured.answers.update({"committed": len(latencies), "failed": failed})
        spans.append((started, ended))
    for process in processes:
        process.join()
    measured.elapsed = max(end for _, end in spans) - min(start for start, _ in spans)
    return measured


def _deleter(
    url: str, location: str, number: int, seconds: float, turns: int, barrier: Any, answers: Any
) -> None:
    latencies: list[float] = []
    failed = 0
    started = ended = time.monotonic()
    try:
        with delvec.connect(url) as lake:
            table = lake.table(location)
            for turn in range(2):
                table.delete(f"id = {ROWS - 1 - number - CLIENTS * turn}")
            barrier.wait(120)
            started = time.monotonic()
            for turn in range(turns):
                began = time.monotonic()
                if began - started > seconds:
                    break
                try:
                    table.delete(f"id = {number + CLIENTS * turn}", retries=0)
                    ended = time.monotonic()
                    latencies.append(ended - began)
                except delvec.ConcurrentModification:
                    failed += 1
    finally:
        answers.put((latencies, failed, started, ended))


# --- delta-spark -------------------------------------------------------------------------------------


def _on_spark(spark: Any, folder: Path, effort: CommitEffort) -> list[Figure]:
    """Measure delta-spark in one session with a thread per client: one attempt per row, and with retries."""
    folder.mkdir(parents=True)
    many_files(folder / "warm", 1, rows=ROWS)
    for row in range(_SPARK_WARM):
        _delete_on_spark(spark, folder / "warm", row)
    jobs = {
        "five rows each": (3600.0, TURNS, CLIENTS, False),
        "five rows each, tried again": (3600.0, TURNS, CLIENTS, True),
        "rows found, tried again": (effort.seconds, 10**9, CLIENTS, True),
        "rows found, one client": (effort.seconds, 10**9, 1, True),
    }
    figures = []
    for number, (job, (seconds, turns, clients, again)) in enumerate(jobs.items()):
        table = folder / f"t{number}"
        many_files(table, 1, rows=ROWS)
        _delete_on_spark(spark, table, ROWS - 1)
        figures.append(_spark_load(spark, job, table, seconds, turns, clients, again=again))
    shutil.rmtree(folder)
    return figures


def _delete_on_spark(spark: Any, table: Path, row: int) -> None:
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = {row}").collect()


def _spark_load(
    spark: Any, job: str, table: Path, seconds: float, turns: int, clients: int, *, again: bool
) -> Figure:
    barrier = threading.Barrier(clients)

    def client(number: int) -> tuple[list[float], int, float, float]:
        latencies: list[float] = []
        tried = 0
        barrier.wait(120)
        started = ended = time.monotonic()
        for turn in range(turns):
            began = time.monotonic()
            if began - started > seconds:
                break
            while True:
                tried += 1
                try:
                    _delete_on_spark(spark, table, number + clients * turn)
                    ended = time.monotonic()
                    latencies.append(ended - began)
                except Exception as error:
                    # By name: the classes are in delta-spark's Python package, which is not installed.
                    if "Concurrent" not in str(error):
                        raise
                    if again:
                        continue
                break
        return latencies, tried, started, ended

    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(client, range(clients)))
    figure = Figure(job, PEER, [second for latencies, *_ in found for second in latencies])
    figure.tried = sum(tried for _, tried, _, _ in found)
    figure.elapsed = max(ended for *_, ended in found) - min(started for _, _, started, _ in found)
    return figure


# --- large tables, and a long time -------------------------------------------------------------------


def _latency(tables: Path, folder: Path, files: int, effort: CommitEffort) -> list[Figure]:
    """Measure one client's commits to a table with many files; each deletes a row of a different file."""
    made = large_table(tables / f"large-{files}-both", files)
    with CommitBench(folder) as bench:
        table = clone(made.location, folder / "table")
        partition = enable_vectors(table, made.version)
        new = new_files(table, effort.runs * 2)
        deletes = bench.registered("table", live_paths(made, effort.runs * 2), 1)
        found = [_one_client(bench, "latency of a delete", deletes, files, effort)]
        appends = replace(
            bench.registered("table", new.paths, new.rows, new.size), partition_values=partition
        )
        found.append(_one_client(bench, "latency of an append", appends, files, effort))
    return found


def _one_client(bench: CommitBench, job: str, target: Target, files: int, effort: CommitEffort) -> Figure:
    load = Load(bench.service.url, [target], 1, 3600.0, most=effort.runs // 4)
    warm = run_load(load)
    measured = run_load(replace(load, most=effort.runs, first=warm.done))
    return _figure(job, measured, files=files)


def _memory(bench: CommitBench, effort: CommitEffort) -> Figure:
    """Measure the service's memory while a client deletes rows of one table in a loop."""
    target = bench.table("grouped", rows=10 * ROWS)
    samples: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            samples.append(bench.service.memory()[0])
            ended.wait(_SAMPLE_SECONDS)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        measured = run_load(Load(bench.service.url, [target], CLIENTS, effort.minutes * 60))
    finally:
        ended.set()
        watcher.join()
    resident, peak = bench.service.memory()
    return _figure("ready rows, a long time", measured, samples=samples, resident=resident, peak=peak)
