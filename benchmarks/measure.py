"""How figures are taken: untimed runs first, contenders in turn, the median of what is left."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Figure", "timed"]


@dataclass
class Figure:
    """The runs of one job by one contender.

    Attributes:
        seconds: one entry per measured run.
        written: bytes written per measured run, where the job writes.
    """

    job: str
    contender: str
    seconds: list[float] = field(default_factory=list)
    written: list[int] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The middle run, in seconds."""
        return statistics.median(self.seconds)

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
