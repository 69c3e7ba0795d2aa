"""Measurement: untimed runs first, then contenders in turn; reports medians."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.provenance import this_run

__all__ = ["Figure", "load", "memory", "repeated", "save", "say", "timed"]

_FEWEST_RUNS = 3


@dataclass
class Figure:
    """The runs of one job by one contender.

    Attributes:
        seconds: one entry per measured run.
        written: bytes written per measured run, if the job writes.
        files: live files of the table, if a job runs on tables of several sizes.
        resident: memory of the contender's process after the job, in bytes.
        peak: its peak memory so far.
        elapsed: seconds from the first request to the last response of concurrent clients.
        tried: number of their requests; ``seconds`` has the successful ones.
        samples: samples of memory in bytes.
        run: the run that measured it; see ``provenance.this_run``.
    """

    job: str
    contender: str
    seconds: list[float] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    files: int | None = None
    resident: int | None = None
    peak: int | None = None
    elapsed: float | None = None
    tried: int | None = None
    samples: list[int] = field(default_factory=list)
    run: str = ""

    @property
    def rate(self) -> float | None:
        """Successful requests per second of all clients."""
        return len(self.seconds) / self.elapsed if self.elapsed else None

    @property
    def median(self) -> float:
        """The median of the runs, in seconds."""
        return statistics.median(self.seconds)

    def percentile(self, percent: int) -> float:
        """The ``percent``-th percentile of the runs, in seconds."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

    @property
    def bytes(self) -> int | None:
        """The median number of bytes written."""
        return int(statistics.median(self.written)) if self.written else None

    @property
    def spread(self) -> str:
        """The fastest and the slowest run."""
        return f"{min(self.seconds):.2f}-{max(self.seconds):.2f}"


def say(message: str) -> None:
    """Print with the time and flush, so that a long run can be followed."""
    print(time.strftime("%H:%M:%S"), message, flush=True)


def timed(job: Callable[[], object]) -> float:
    """Run ``job`` once; return its seconds."""
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def repeated(job: Callable[[int], object], *, untimed: int, runs: int, limit: float) -> list[float]:
    """Run ``job`` with a different number each time; return the seconds of each measured run.

    Args:
        job: what to measure.
        untimed: number of untimed runs.
        runs: number of measured runs.
        limit: seconds after which no untimed run begins, and no measured one after the third.
    """
    started = time.perf_counter()
    for number in range(untimed):
        job(number)
        if time.perf_counter() - started > limit:
            break
    started = time.perf_counter()
    seconds: list[float] = []
    while len(seconds) < runs:
        if len(seconds) >= _FEWEST_RUNS and time.perf_counter() - started > limit:
            break
        seconds.append(timed(partial(job, untimed + len(seconds))))
    return seconds


def memory(process: int) -> tuple[int, int]:
    """Return the resident and the peak memory of a process in bytes (Linux only)."""
    found = {}
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(value.split()[0]) * 1024
    return found["VmRSS"], found["VmHWM"]


def save(path: Path, figures: Sequence[Figure]) -> None:
    """Save figures of this run, so that a part can be measured again without the rest."""
    for figure in figures:
        figure.run = this_run()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


def load(path: Path) -> list[Figure]:
    """Return the saved figures."""
    return [Figure(**entry) for entry in json.loads(path.read_text())] if path.exists() else []
