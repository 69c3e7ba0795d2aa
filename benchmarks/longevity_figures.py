"""Results about a table that lives, kept between runs: a figure for each contender, with its rounds."""

import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.dml_goals import Goal
from benchmarks.dml_tables import Put
from benchmarks.provenance import this_run

__all__ = ["Life", "Lives", "Round", "Seconds", "goals", "total"]

BY_POLICIES = ("Delvec on DuckDB, with policies", "Delvec on Spark, with policies")
PEERS = ("delta-spark, auto-compaction", "deltalake, compact()")
_DEGRADATION = 0.05
Seconds = Mapping[str, Sequence[float]]
"""The runs of each query."""


def total(seconds: Seconds) -> float:
    """Return the sum of the medians of all queries."""
    return sum(statistics.median(runs) for runs in seconds.values())


@dataclass
class Round:
    """What a contender did in one round; the first one, number 0, has only queries.

    Attributes:
        queries: the runs of each query, after the refresh and the maintenance.
        refresh: seconds by command.
        upkeep: seconds of maintenance.
        did: what the maintenance did.
        put: objects and bytes that the refresh wrote.
        upkeep_put: those that the maintenance wrote.
        state: number of rows and a sum of their hashes, as text.
    """

    queries: dict[str, list[float]] = field(default_factory=dict)
    refresh: dict[str, float] = field(default_factory=dict)
    upkeep: float = 0.0
    did: list[str] = field(default_factory=list)
    put: Put = (0, 0)
    upkeep_put: Put = (0, 0)
    state: str = ""


@dataclass
class Life:
    """All rounds of one contender.

    Attributes:
        contender: its name.
        rounds: from round 0.
        aged: the runs of the queries on the table after all rounds.
        fresh: those on a copy of the table of round 0, run in turns with ``aged``.
        operations: number of versions by operation.
        files: live files at the end.
        size: their bytes.
        peak: bytes of memory.
        failure: why there are no more rounds.
        run: the run that measured it; see ``provenance.this_run``.
    """

    contender: str
    rounds: list[Round] = field(default_factory=list)
    aged: dict[str, list[float]] = field(default_factory=dict)
    fresh: dict[str, list[float]] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    files: int = 0
    size: int = 0
    peak: int = 0
    failure: str | None = None
    run: str = ""

    @property
    def degradation(self) -> float | None:
        """By how much the queries are slower than on the table of round 0; None if this was not measured."""
        return total(self.aged) / total(self.fresh) - 1 if self.aged and self.fresh else None

    @property
    def rate(self) -> float | None:
        """LST-Bench's degradation rate: the mean change from one round to the next."""
        seconds = [total(each.queries) for each in self.rounds if each.queries]
        changes = [after / before - 1 for before, after in itertools.pairwise(seconds)]
        return statistics.mean(changes) if changes else None

    @property
    def written(self) -> int:
        """Bytes written by refreshes and maintenance."""
        return sum(each.put[1] + each.upkeep_put[1] for each in self.rounds)

    @property
    def objects(self) -> int:
        """Objects written by refreshes and maintenance."""
        return sum(each.put[0] + each.upkeep_put[0] for each in self.rounds)


class Lives:
    """The figures of all contenders, in a file.

    Args:
        path: the file; a contender's entry is kept until it is measured again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by: dict[str, Life] = {}
        for entry in json.loads(path.read_text()) if path.exists() else []:
            rounds = [Round(**each) for each in entry.pop("rounds")]
            self._by[entry["contender"]] = Life(rounds=rounds, **entry)

    def begin(self, contender: str) -> Life:
        """Return an empty figure of this run, replacing an earlier one of the contender."""
        self._by[contender] = Life(contender, run=this_run())
        return self._by[contender]

    def save(self) -> None:
        """Write all figures."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps([asdict(each) for each in self._by.values()], indent=1))

    def get(self, contender: str) -> Life | None:
        """Return a contender's figure, or None if it was not measured."""
        return self._by.get(contender)


def goals(lives: Lives, rounds: int) -> Iterator[Goal]:
    """Yield the goals, for tables after as many rounds."""
    for name in BY_POLICIES:
        text = f"{name}: queries at most {_DEGRADATION:.0%} slower after {rounds} rounds"
        life = lives.get(name)
        slower = life.degradation if life and len(life.rounds) > rounds else None
        if slower is None:
            yield Goal(text, None, "")
        else:
            yield Goal(text, [] if slower <= _DEGRADATION else [name], f"{slower:+.1%}")
    for name in BY_POLICIES:
        for peer in PEERS:
            yield _writes_less(lives.get(name), lives.get(peer), f"{name}: writes less than {peer}", rounds)


def _writes_less(ours: Life | None, theirs: Life | None, text: str, rounds: int) -> Goal:
    if not ours or not theirs or min(len(ours.rounds), len(theirs.rounds)) <= rounds:
        return Goal(text, None, "")
    bytes_of_both = f"{ours.written / 2**20:,.0f} MiB against {theirs.written / 2**20:,.0f} MiB"
    return Goal(text, [] if ours.written < theirs.written else [bytes_of_both], bytes_of_both)
