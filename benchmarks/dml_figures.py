"""Results about row changes, kept between runs."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.dml_worker import Runs
from benchmarks.provenance import this_run

__all__ = ["DmlFigure", "Figures"]


@dataclass
class DmlFigure:
    """The runs of one job by one contender.

    Attributes:
        job: title.
        layout: of the table, or another description of the input.
        contender: its name.
        seconds: of each measured run.
        objects: objects written to storage per run.
        written: their bytes.
        peak: bytes of memory.
        batches: batches of a stream.
        failure: why there is no result.
        run: the run that measured it; see ``provenance.this_run``.
    """

    job: str
    layout: str
    contender: str
    seconds: list[float] = field(default_factory=list)
    objects: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    peak: int = 0
    batches: int | None = None
    failure: str | None = None
    run: str = ""

    @classmethod
    def of(cls, job: str, layout: str, contender: str, runs: Runs) -> "DmlFigure":
        """Build a figure from measured runs."""
        return cls(
            job,
            layout,
            contender,
            runs.seconds,
            [objects for objects, _ in runs.puts],
            [written for _, written in runs.puts],
            runs.peak,
            runs.batches,
        )

    @property
    def median(self) -> float | None:
        """The median of the runs, in seconds."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def puts(self) -> int | None:
        """The median number of objects."""
        return round(statistics.median(self.objects)) if self.objects else None

    @property
    def bytes(self) -> int | None:
        """The median number of bytes."""
        return round(statistics.median(self.written)) if self.written else None


class Figures:
    """Figures in a file, which is updated with each new figure.

    Args:
        path: the file; an entry is kept until it is measured again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        found = json.loads(path.read_text()) if path.exists() else []
        self._by = {_key(each): each for each in (DmlFigure(**entry) for entry in found)}

    def put(self, figure: DmlFigure) -> None:
        """Store a figure of this run, replacing an earlier one of the same job, table and contender."""
        figure.run = this_run()
        self._by.pop(_key(figure), None)
        self._by[_key(figure)] = figure
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps([asdict(each) for each in self._by.values()], indent=1))

    def all(self) -> Sequence[DmlFigure]:
        """Return all figures."""
        return list(self._by.values())

    def get(self, job: str, layout: str, contender: str) -> DmlFigure | None:
        """Return a figure, or None if it was not measured."""
        found = self._by.get((job, layout, contender))
        return found if found is not None and found.seconds else None

    def pairs(self) -> Iterable[tuple[str, str]]:
        """Return pairs of job and layout, in the order of their first appearance."""
        return dict.fromkeys((each.job, each.layout) for each in self._by.values())


def _key(figure: DmlFigure) -> tuple[str, str, str]:
    return figure.job, figure.layout, figure.contender
