"""A file that we remove, or remove rows of, on its way through the winners."""

from dataclasses import dataclass

from pyroaring import BitMap64

from delvec.protocol import statistics
from delvec.protocol.errors import CorruptLog, CorruptTable
from delvec_service.delta.actions import AddFile, RemoveFile

__all__ = ["Target", "live_rows", "num_records"]


@dataclass
class Target:
    """Rows of a file that are ours to remove.

    Attributes:
        path: as it is to be sent on.
        rows: row indexes that we want to remove; None for all that were live when we read the file.
        first: the file action that says which rows were gone when we read the file; None while no winner has
            touched it, and it is what it was.
        base: those rows, where they had to be looked at.
        last: the file as the last winner left it.
        is_live: whether the table still has the file.
    """

    path: str
    rows: BitMap64 | None
    first: AddFile | RemoveFile | None = None
    base: BitMap64 | None = None
    last: AddFile | RemoveFile | None = None
    is_live: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether all rows are ours."""
        return self.rows is None


def live_rows(file: AddFile | RemoveFile) -> int | None:
    """Return the live rows of a file, None where the log does not tell."""
    physical = num_records(file)
    gone = file.deletion_vector.cardinality if file.deletion_vector else 0
    return None if physical is None else physical - gone


def num_records(file: AddFile | RemoveFile) -> int | None:
    """Return the physical rows of a file, None where the log does not tell."""
    try:
        return None if file.stats is None else statistics.num_records(file.stats)
    except (CorruptLog, CorruptTable):
        return None
