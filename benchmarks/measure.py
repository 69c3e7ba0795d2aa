"""How figures are taken: untimed runs first, contenders in turn, the median of what is left."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.provenance import this_run

__all__ = ["Figure", "load", "memory", "repeated", "save", "timed"]

_FEWEST_RUNS = 3


@dataclass
class Figure:
    """The runs of one job by one contender.

    Attributes:
        seconds: one entry per measured run.
        written: bytes written per measured run, where the job writes.
        files: live files of the table, where a job is done on tables of several sizes.
        resident: memory of the contender's process after the job, in bytes.
        peak: the most that it has been so far.
        elapsed: seconds from the first request to the last answer, where several clients ask at once.
        tried: requests that were made then; ``seconds`` has those that succeeded.
        samples: memory from time to time, in bytes.
        run: in which the figure was measured; see ``provenance.this_run``.
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
        """Successes a second of all clients together."""
        return len(self.seconds) / self.elapsed if self.elapsed else None

    @property
    def median(self) -> float:
        """The middle run, in seconds."""
        return statistics.median(self.seconds)

    def percentile(self, percent: int) -> float:
        """The run that ``percent`` of the runs are not slower than, in seconds."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

    @property
    def bytes(self) -> int | None:
        """The middle number of bytes written."""
        return int(statistics.median(self.written)) if self.written else None

    @property
    def spread(self) -> str:
        """The fastest and the slowest run."""
        return f"{min(self.seconds):.2f}-{max(self.seconds):.2f}"


def timed(job: Callable[[], object]) -> float:
    """Run ``job`` once; return its seconds."""
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def repeated(job: Callable[[int], object], *, untimed: int, runs: int, limit: float) -> list[float]:
    """Run ``job`` with a number that is new each time; return the seconds of each measured run.

    Args:
        job: what to measure.
        untimed: runs before the first that counts.
        runs: runs to measure.
        limit: seconds after which no further run begins, if there are three already, and no further untimed one.
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
    """Return the bytes of memory that a process has resident now, and the most it ever had (Linux only)."""
    found = {}
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(value.split()[0]) * 1024
    return found["VmRSS"], found["VmHWM"]


def save(path: Path, figures: Sequence[Figure]) -> None:
    """Keep figures of this run, so that a part can be measured again without the rest."""
    for figure in figures:
        figure.run = this_run()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


def load(path: Path) -> list[Figure]:
    """Return the figures that were kept."""
    return [Figure(**entry) for entry in json.loads(path.read_text())] if path.exists() else []
