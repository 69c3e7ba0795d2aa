"""Results of a commit: expected outcomes, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from delvec_kernel.transaction.conflict_checker import Conflict

__all__ = ["AlreadyApplied", "CommitResult", "Committed", "NothingToDo", "Rebased"]


@dataclass(frozen=True)
class Committed:
    """The commit is a version of the table.

    ``winners_passed`` are the commits between it and the version that was read. ``replayed``: an earlier request with
    the same key made it.
    """

    version: int
    read_version: int
    transaction_id: str
    metrics: Mapping[str, int]
    winners_passed: tuple[int, ...] = ()
    replayed: bool = False


@dataclass(frozen=True)
class Rebased(Committed):
    """The commit was applied to a newer version than the one it read."""


@dataclass(frozen=True)
class NothingToDo:
    """No row or file changes, so no new version is created."""

    read_version: int
    transaction_id: str
    metrics: Mapping[str, int]


@dataclass(frozen=True)
class AlreadyApplied:
    """The table already has this application transaction or a later one."""

    read_version: int
    transaction_id: str


CommitResult: TypeAlias = Committed | Rebased | NothingToDo | AlreadyApplied | Conflict
