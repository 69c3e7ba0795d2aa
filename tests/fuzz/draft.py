"""A table being damaged: its files in memory, by kind."""

import re
from dataclasses import dataclass, field
from random import Random

OUTSIDE = "@OUTSIDE@"
"""Placeholder in mutated text for the folder that no table may read, whose path differs between runs."""

_KINDS = (
    ("commit", re.compile(r"_delta_log/\d{20}\.json")),
    ("checkpoint", re.compile(r"_delta_log/\d{20}\.checkpoint(\.[^/]*)?\.parquet")),
    ("manifest", re.compile(r"_delta_log/\d{20}\.checkpoint\.[^/]*\.json")),
    ("sidecar", re.compile(r"_delta_log/_sidecars/[^/]*\.parquet")),
    ("hint", re.compile(r"_delta_log/_last_checkpoint")),
    ("crc", re.compile(r"_delta_log/\d{20}\.crc")),
    ("compacted", re.compile(r"_delta_log/\d{20}\.\d{20}\.compacted\.json")),
    ("other log", re.compile(r"_delta_log/.*")),
    ("change", re.compile(r"_change_data/.*")),
    ("vector", re.compile(r".*\.bin")),
    ("data", re.compile(r".*\.parquet")),
)


def kind_of(path):
    """Return the kind of a table's file."""
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(path)), "other")


@dataclass
class Draft:
    """A table being mutated.

    Attributes:
        files: content by path relative to the table.
        other: another table's files, to take parts from.
        outside: the folder that no table may read.
        links: paths that become symbolic links to a file outside.
        folders: paths that become folders.
    """

    files: dict[str, bytes]
    other: dict[str, bytes]
    rng: Random
    outside: str
    links: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)

    def paths(self, *kinds):
        """Return the sorted paths of files of these kinds."""
        return [path for path in sorted(self.files) if kind_of(path) in kinds]

    def pick(self, *kinds):
        """Return a random one of them, or None."""
        paths = self.paths(*kinds)
        return self.rng.choice(paths) if paths else None
