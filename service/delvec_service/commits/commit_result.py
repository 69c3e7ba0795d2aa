"""What comes of a commit: expected outcomes, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from delvec_kernel.transaction.conflict_checker import Conflict

__all__ = ["AlreadyApplied", "CommitResult", "Committed", "NothingToDo", "Rebased"]


@dataclass(frozen=True)
class Committed:
    """The commit is a version of the table; ``winners_passed`` came between it and the version that was read.

    ``replayed``: by an earlier request with the same key.
    """

    version: int
    read_version: int
    transaction_id: str
    metrics: Mapping[str, int]
    winners_passed: tuple[int, ...] = ()
    replayed: bool = False


@dataclass(frozen=True)
class Rebased(Committed):
    """The commit took effect on a newer version than the one that it read."""


@dataclass(frozen=True)
class NothingToDo:
    """No row and no file changes, so there is no new version."""

    read_version: int
    transaction_id: str
    metrics: Mapping[str, int]


@dataclass(frozen=True)
class AlreadyApplied:
    """The table has the application's transaction, or a later one; ``applied`` is how far it has got."""

    read_version: int
    transaction_id: str
    applied: int


CommitResult: TypeAlias = Committed | Rebased | NothingToDo | AlreadyApplied | Conflict
