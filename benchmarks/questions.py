"""What is asked about a table, prepared before anything is measured: a reader's process imports nothing for it."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

__all__ = ["Questions"]

SELECTIVE_FILES = 3


@dataclass(frozen=True)
class Questions:
    """Questions about one table; asked with a number, and each number is another question.

    Attributes:
        files: live files.
        version: the newest version before any of ``commits``.
        selective: predicates that three files can satisfy.
        partitions: predicates that choose a partition, and how many files it has.
        commits: files for the log, and the places they go to, in order: what another writer commits.
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
        """Return a predicate that chooses a partition, and how many files it has."""
        predicate, files = self.partitions[number % len(self.partitions)]
        return predicate, files

    def commit(self, number: int) -> int:
        """Put the next commit into the log, as another writer does; return its version."""
        prepared, place = self.commits[number]
        os.link(prepared, place)
        return self.version + 1 + number

    def forget_commits(self) -> None:
        """Take the commits out of the log again."""
        for _, place in self.commits:
            Path(place).unlink(missing_ok=True)

    def save(self, path: Path) -> None:
        """Write them down."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return what was written down."""
        return cls(**json.loads(path.read_text()))


def check(found: int, expected: int, contender: str, predicate: str) -> None:
    """End the measurement if a reader found other files than there are."""
    if found != expected:
        raise SystemExit(f"{contender} found {found} files for {predicate}, there are {expected}")
