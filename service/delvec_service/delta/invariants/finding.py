"""A finding: one thing that should be true of a table and is not."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["INVARIANTS", "Finding", "Severity"]

Severity: TypeAlias = Literal["error", "warning"]

INVARIANTS: Final = {
    "version-gap": "Every version of the log has a commit.",
    "readable-commit": "Every commit can be read.",
    "readable-checkpoint": "The newest checkpoint, and the one that the log begins with, can be read.",
    "readable-table": "The newest version can be read.",
    "one-action-per-file": "A version adds a path at most once, and removes it at most once.",
    "remove-of-live-file": "A remove names a file that was live.",
    "remove-with-its-vector": "A remove carries the deletion vector that the file had.",
    "one-live-file-per-path": "A path that is live is added again only where the same version removes the old one.",
    "no-empty-vector": "An action has a deletion vector or none, never an empty object.",
    "vector-feature": "A table with deletion vectors lists the feature, for readers and writers.",
    "vector-needs-count": "A file with a deletion vector has numRecords in its statistics.",
    "vector-loosens-bounds": "The statistics of a file with a deletion vector say tightBounds=false.",
    "vector-within-file": "A deletion vector marks no more rows than the file has, and none beyond it.",
    "readable-vector": "Every live deletion vector is there, with the size, checksum and rows that the log says.",
    "data-file": "Every live data file is there, with the size that the log says.",
    "checkpoint-agrees": "What readers load, by checkpoint or not, is what the commits say.",
    "in-commit-timestamp": "With in-commit timestamps, each commit begins with one, later than the one before.",
    "application-version": "The version of an application (txn) rises.",
    "own-commit": "What Delvec committed lately is in the log as it was committed.",
    "row-ids": "With row tracking, each file has row ids; none is given twice, or is above the high-water mark.",
}
"""Each invariant by its code."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Where an invariant does not hold.

    Attributes:
        invariant: a key of :data:`INVARIANTS`.
        severity: ``error`` where readers can see other rows than were committed, or none; ``warning`` for what
            other writers leave behind and readers cope with.
        version: in which it was found.
        file: path as in the log, or the name of the log file.
        message: what is wrong, and what to do.
    """

    invariant: str
    severity: Severity
    version: int | None
    file: str | None
    message: str
