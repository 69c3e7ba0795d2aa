"""Questions about a table, prepared before the measurement, so that a reader's process needs no imports for them."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

__all__ = ["Questions"]

SELECTIVE_FILES = 3


@dataclass(frozen=True)
class Questions:
    """Numbered questions about one table; each number is a different question.

    Attributes:
        files: live files.
        version: the newest version before any of ``commits``.
        selective: predicates that three files can satisfy.
        partitions: predicates that select a partition, and the number of its files.
        commits: log entries of another writer, and their paths in the log, in order.
    """

    location: str
    files: int
    version: int
    selective: list[str]
    partitions: list[tuple[str, int]]
    commits: list[tuple[str, str]]

    def select(self, number: int) -> str:
        """Return a predicate that three files can satisfy."""
        return self.selective[number % len(self.selective)]

    def partition(self, number: int) -> tuple[str, int]:
        """Return a predicate that selects a partition, and the number of its files."""
        predicate, files = self.partitions[number % len(self.partitions)]
        return predicate, files

    def commit(self, number: int) -> int:
        """Add the next commit to the log, as another writer would; return its version."""
        prepared, place = self.commits[number]
        os.link(prepared, place)
        return self.version + 1 + number

    def forget_commits(self) -> None:
        """Remove the commits from the log."""
        for _, place in self.commits:
            Path(place).unlink(missing_ok=True)

    def save(self, path: Path) -> None:
        """Save the questions to a file."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load questions from a file."""
        return cls(**json.loads(path.read_text()))


def check(found: int, expected: int, contender: str, predicate: str) -> None:
    """Abort the measurement if a reader found the wrong files."""
    if found != expected:
        raise SystemExit(f"{contender} found {found} files for {predicate}, there are {expected}")
