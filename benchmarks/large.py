"""Planning on tables of up to a million files: a service over HTTP, compared with other readers of Delta logs.

Every contender has its own process. All read the same log from the same disk, and the operating system
has it cached; only the contender is cold. Each question is asked once, so that no answer comes from a cache.
"""

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import delvec
from benchmarks.large_table import large_table
from benchmarks.measure import Figure, load, repeated, timed
from benchmarks.peers import PEERS, install_duckdb_delta
from benchmarks.questions import SELECTIVE_FILES, Questions, check
from benchmarks.service import Service
from benchmarks.tables import clone

__all__ = ["CLIENTS", "DELVEC", "Effort", "measure_large"]

DELVEC = "Delvec"
CLIENTS = 8
Say = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """The size of the measurement.

    Attributes:
        sizes: live files of each table.
        lives: number of services started with an empty database, and again with a filled one.
        selective: requests of the warm selective plan; at least 200 for a meaningful 99th percentile.
        partitions: requests of the warm plan of one partition.
        commits: external commits.
        peer_runs: runs of a peer's job.
        peer_limit: seconds for one job of a peer.
    """

    sizes: Sequence[int] = (1_000, 10_000, 100_000, 1_000_000)
    lives: int = 2
    selective: int = 200
    partitions: int = 20
    commits: int = 10
    peer_runs: int = 5
    peer_limit: float = 6.0


QUICK = Effort((1_000, 10_000), lives=1, selective=100, partitions=10, commits=5, peer_runs=3, peer_limit=2.0)


def measure_large(tables: Path, scratch: Path, effort: Effort, say: Say) -> list[Figure]:
    """Return the figures of all sizes and contenders.

    Args:
        tables: directory that keeps generated tables between runs.
        scratch: an empty directory.
        effort: how much to measure.
        say: reports progress.
    """
    figures: list[Figure] = []
    first = _questions(tables, scratch, 1_000, "first")
    extension = tables.parent / "duckdb-delta"
    peers = [name for name in PEERS if name != "duckdb" or install_duckdb_delta(extension)]
    for files in effort.sizes:
        questions = _questions(tables, scratch, files, f"asked-{files}")
        for name in (None, *peers):
            questions.forget_commits()
            found = (
                _measure_service(questions, scratch, effort)
                if name is None
                else _measure_peer(name, questions, first, scratch, extension, effort)
            )
            for figure in found:
                say(_line(figure))
            figures += found
        shutil.rmtree(Path(questions.location))
    return figures


def _line(figure: Figure) -> str:
    head = f"{figure.files:>9,} files, {figure.contender}, {figure.job}:"
    if figure.seconds:
        middle, slow = figure.median * 1000, figure.percentile(99) * 1000
        head += f" median {middle:,.1f} ms, p99 {slow:,.1f} ms of {len(figure.seconds)}"
    if figure.resident is not None and figure.peak is not None:
        head += f" resident {figure.resident / 2**20:,.0f} MiB, peak {figure.peak / 2**20:,.0f} MiB"
    return head


def _questions(tables: Path, scratch: Path, files: int, name: str) -> Questions:
    """Return questions about a writable copy of the table."""
    made = large_table(tables / f"large-{files}-both", files)
    table = large_table(clone(made.location, scratch / name / "table"), files)
    questions = table.questions(scratch / name / "commits")
    questions.save(scratch / name / "questions.json")
    return questions


def _measure_peer(
    name: str, questions: Questions, first: Questions, scratch: Path, extension: Path, effort: Effort
) -> list[Figure]:
    out = scratch / f"{name}-{questions.files}.json"
    asked = [Path(each.location).parent / "questions.json" for each in (questions, first)]
    command = [
        sys.executable,
        "-m",
        "benchmarks.peers",
        name,
        str(asked[0]),
        str(out),
        "--first",
        str(asked[1]),
    ]
    command += ["--runs", str(effort.peer_runs), "--limit", str(effort.peer_limit)]
    environment = dict(os.environ)
    if name == "duckdb":
        environment["PYTHONPATH"] = str(extension.absolute())
    log = scratch / f"{name}.log"
    with log.open("w") as sink:
        done = subprocess.run(command, check=False, env=environment, stdout=sink, stderr=sink)
    if done.returncode != 0:
        raise SystemExit(f"{name} failed: {log.read_text()[-3000:]}")
    return load(out)


def _measure_service(questions: Questions, scratch: Path, effort: Effort) -> list[Figure]:
    figures: dict[str, Figure] = {}

    def figure(job: str) -> Figure:
        return figures.setdefault(job, Figure(job, DELVEC, files=questions.files))

    roots = Path(questions.location).parent
    for life in range(effort.lives):
        store = scratch / f"store-{questions.files}-{life}.db"
        with Service(roots, store) as service, delvec.connect(service.url) as lake:
            figure("first").seconds.append(timed(lambda lake=lake, life=life: _open(lake, questions, life)))
            last = life == effort.lives - 1
            if last:
                _measure_warm(service, lake, questions, effort, figure)
            service.wait_for_store()
    for life in range(effort.lives):
        with Service(roots, store) as service, delvec.connect(service.url) as lake:
            figure("restart").seconds.append(timed(lambda lake=lake, life=life: _open(lake, questions, life)))
            time.sleep(1)
            figure("memory, restarted").resident, figure("memory, restarted").peak = service.memory()
    return list(figures.values())


def _open(lake: delvec.Connection, questions: Questions, number: int) -> None:
    """Plan as a new client does: look up the table, then plan."""
    _select(lake.table(questions.location), questions, 400 + number)


def _select(table: delvec.DeltaTable, questions: Questions, number: int) -> int:
    predicate = questions.select(number)
    scan, _ = table.plan(predicate=predicate)
    check(len(scan), SELECTIVE_FILES, DELVEC, predicate)
    return scan.version


def _measure_warm(
    service: Service,
    lake: delvec.Connection,
    questions: Questions,
    effort: Effort,
    figure: Callable[[str], Figure],
) -> None:
    table = lake.table(questions.location)

    def partition(number: int) -> None:
        predicate, files = questions.partition(number)
        check(len(table.plan(predicate=predicate)[0]), files, DELVEC, predicate)

    def select(number: int) -> None:
        _select(table, questions, number)

    figure("selective").seconds = repeated(select, untimed=20, runs=effort.selective, limit=60)
    figure("partition").seconds = repeated(partition, untimed=5, runs=effort.partitions, limit=30)
    time.sleep(1)
    figure("memory").resident, _ = service.memory()
    for number in range(effort.commits):
        version = questions.commit(number)
        started = time.perf_counter()
        seen = _select(table, questions, number)
        figure("commit").seconds.append(time.perf_counter() - started)
        check(seen, version, DELVEC, "the newest version")
    figure("concurrent").seconds = _concurrently(service.url, questions, effort.selective)
    _, figure("memory").peak = service.memory()


def _concurrently(url: str, questions: Questions, requests: int) -> list[float]:
    """Return the seconds of each request, sent in a loop by CLIENTS processes."""
    spawn = multiprocessing.get_context("spawn")
    barrier, answers = spawn.Barrier(CLIENTS), spawn.SimpleQueue()
    each = -(-requests // CLIENTS)
    processes = [
        spawn.Process(target=_client, args=(url, questions, number * each, each, barrier, answers))
        for number in range(CLIENTS)
    ]
    for process in processes:
        process.start()
    seconds = [second for _ in processes for second in answers.get()]
    for process in processes:
        process.join()
    if len(seconds) != CLIENTS * each:
        raise SystemExit("a client of the concurrent requests failed")
    return seconds


def _client(url: str, questions: Questions, first: int, count: int, barrier: Any, answers: Any) -> None:
    seconds: list[float] = []
    try:
        with delvec.connect(url) as lake:
            table = lake.table(questions.location)
            for number in range(3):
                _select(table, questions, number)
            barrier.wait(120)
            seconds += (timed(lambda n=n: _select(table, questions, n)) for n in range(first, first + count))
    finally:
        answers.put(seconds)
