"""Runs a contender in a worker process, and measures its memory from outside."""

import contextlib
import multiprocessing
import os
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from benchmarks.dml_contenders import Contender, make
from benchmarks.dml_tables import Bin, listing, listing_once_settled, put_since
from benchmarks.measure import timed
from benchmarks.process_tree import ProcessTree
from benchmarks.tables import clone

__all__ = ["Failed", "Order", "Runs", "Worker", "measured"]

_WATCH = 0.1
_done = Bin()
_PATIENCE = 60.0


class Failed(Exception):
    """A contender cannot do a job; has the text of its error."""


@dataclass
class Runs:
    """The results of the measured runs of a job.

    Attributes:
        seconds: of each.
        puts: objects and bytes written to storage by the last run.
        table: the table after the last run.
        peak: peak memory of all the contender's processes during the job, in bytes.
        batches: batches of a stream.
    """

    seconds: list[float] = field(default_factory=list)
    puts: list[tuple[int, int]] = field(default_factory=list)
    table: Path | None = None
    peak: int = 0
    batches: int | None = None


class Worker:
    """The process of one contender. A context manager.

    Args:
        name: of the contender.
        scratch: its own directory.
        maker: makes the contender of this name, in the process.
    """

    def __init__(self, name: str, scratch: Path, maker: Callable[[str, Path], Contender] = make) -> None:
        self.name = name
        scratch.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(maker, name, scratch, theirs), daemon=False)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(_PATIENCE)

    def call(self, work: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
        """Run ``work(contender, scratch, *arguments)`` in the worker; return its result and the peak memory.

        Raises:
            Failed: it raised an error, or the process exited.
        """
        processes = ProcessTree(self._process.pid or 0)
        peak = processes.resident()
        try:
            self._pipe.send((work, arguments))
            while not self._pipe.poll(_WATCH):
                peak = max(peak, processes.resident())
            done, result = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise Failed(f"{self.name}: its process ended") from error
        if not done:
            raise Failed(f"{self.name}: {result}")
        return result, peak


def _serve(maker: Callable[[str, Path], Contender], name: str, scratch: Path, pipe: Any) -> None:
    os.environ["XDG_STATE_HOME"] = str(scratch)
    # Executors use this Python, not the first one on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    contender = maker(name, scratch)
    try:
        while (asked := pipe.recv()) is not None:
            work, arguments = asked
            try:
                pipe.send((True, work(contender, scratch, *arguments)))
            except Exception as error:  # noqa: BLE001 - the next job may work
                pipe.send((False, f"{type(error).__name__}: {str(error)[:400]}"))
    finally:
        contender.close()


@dataclass(frozen=True)
class Order:
    """A job for a contender, and the number of runs.

    Attributes:
        method: method of the contender.
        template: the table; each run gets a copy.
        argument: argument of the method.
        warm_template: the table of untimed runs.
        warm_argument: the argument of untimed runs.
        prepare: a condition; matching rows of each copy are updated first, which is not measured.
        untimed: number of untimed runs.
        runs: number of measured runs.
        limit: seconds after which no further run begins, for untimed and measured runs each; at least one is measured.
    """

    method: str
    template: Path
    argument: Any
    warm_template: Path
    warm_argument: Any
    prepare: str | None
    untimed: int
    runs: int
    limit: float


def measured(contender: Contender, scratch: Path, order: Order) -> Runs:
    """Run the job; runs in the worker. The table of the last run is kept."""
    contender.settle()
    method = getattr(contender, order.method)
    found = Runs()
    started = time.perf_counter()
    for _ in range(order.untimed):
        table = _copy(contender, scratch, order.warm_template, order.prepare)
        method(table, order.warm_argument)
        _done.put(table)
        if time.perf_counter() - started > order.limit:
            break
    started = time.perf_counter()
    while len(found.seconds) < order.runs and (
        not found.seconds or time.perf_counter() - started < order.limit
    ):
        if found.table is not None:
            _done.put(found.table)
        found.table = _copy(contender, scratch, order.template, order.prepare)
        before = listing(found.table)
        found.seconds.append(timed(partial(method, found.table, order.argument)))
    # Release memory for the other contenders while this one waits.
    contender.settle()
    if found.table is not None:
        # Only the last run, including background writes: all runs write the same.
        found.puts.append(put_since(before, listing_once_settled(found.table)))
    return found


def _copy(contender: Contender, scratch: Path, template: Path, prepare: str | None) -> Path:
    # Use each path only once, because contenders cache by path.
    table = clone(template, scratch / f"table-{uuid.uuid4()}")
    contender.touch(table)
    if prepare is not None:
        contender.update(table, prepare)
    return table
