"""The result of the conflict check: passed, with the rebased changes, or a conflict that explains itself.

Tested in `tests/unit/kernel/transaction/test_rebase.py` and
`tests/unit/kernel/transaction/test_conflict_checker.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyroaring import BitMap64

from delvec_errors import ConcurrentModification
from delvec_kernel.actions.actions import AddFile, RemoveFile
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_kernel.transaction.winning_commit import WinningCommit

__all__ = ["MAX_ROWS_NAMED", "Conflict", "Overlap", "Passed", "Vectors"]

Vectors: TypeAlias = Callable[[AddFile | RemoveFile], BitMap64]
"""Returns the deleted rows of a file action, empty without a deletion vector. May raise CorruptDeletionVector."""

_MAX_FILES_NAMED: Final = 20
MAX_ROWS_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class Overlap:
    """Rows of one file that both commits change.

    Attributes:
        path: the path, as in the log.
        count: number of rows.
        row_indexes: the first of them.
    """

    path: str
    count: int
    row_indexes: tuple[int, ...]

    @classmethod
    def of(cls, path: str, rows: BitMap64) -> "Overlap":
        """Return the overlap of these rows."""
        first = tuple(index for index, _ in zip(rows, range(MAX_ROWS_NAMED), strict=False))
        return cls(path, len(rows), first)


@dataclass(frozen=True, slots=True)
class Passed:
    """No winner conflicts.

    Attributes:
        versions: the versions of the winners.
        changes: ours, rebased on the last winner.
        rows_already_gone: rows that we meant to remove and that winners had removed, if known.
    """

    versions: tuple[int, ...]
    changes: Changes
    rows_already_gone: int = 0


@dataclass(frozen=True, slots=True)
class Conflict:
    """A winner conflicts.

    Attributes:
        kind: Delta's exception.
        files: paths of the files that both touch, or that the winner touched.
        what: what the winner did, as the middle of a sentence.
        overlaps: rows that both change, if that is the reason.
        is_of_the_table: whether it is about protocol, metadata or an application, not about rows.
    """

    kind: type[ConcurrentModification]
    changes: Changes
    winner: WinningCommit
    files: tuple[str, ...]
    what: str
    overlaps: tuple[Overlap, ...] = ()
    is_of_the_table: bool = False

    @property
    def advice(self) -> str:
        """What the user can do, as the end of a sentence."""
        if self.is_of_the_table:
            return f"look at the table as it is now, then run the {self.changes.operation} again."
        return f"run the {self.changes.operation} again: it will read the new version."

    def error(self, table: str) -> ConcurrentModification:
        """Return the exception that reports this."""
        operation, read = self.changes.operation, self.changes.read_version
        facts: dict[str, Any] = {
            "winning-version": self.winner.version,
            "winning-operation": self.winner.operation,
            "read-version": read,
            "advice": self.advice,
            "files": list(self.files[:_MAX_FILES_NAMED]),
        }
        if self.overlaps:
            facts["overlapping-rows"] = sum(overlap.count for overlap in self.overlaps)
            facts["overlaps"] = [
                {"path": each.path, "count": each.count, "row-indexes": list(each.row_indexes)}
                for each in self.overlaps[:_MAX_FILES_NAMED]
            ]
        return self.kind(
            f"Version {self.winner.version} of table '{table}' ({self.winner.operation}) {self.what} "
            f"after this {operation} had read version {read}; {self.advice}",
            table=table,
            version=read,
            conflict=facts,
        )
