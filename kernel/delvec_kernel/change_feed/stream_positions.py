"""What a stream of added rows takes from each version, and how far one step of it goes.

A position is the next file to read. Files of a version have an order that never changes, so that the same two positions
always have the same files between them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from delvec_kernel import locations
from delvec_kernel.actions.actions import Action, AddFile, CommitInfo, Metadata, RemoveFile
from delvec_kernel.change_feed.feed_schema import is_readable_with

__all__ = ["CommittedRows", "Position", "SchemaFit", "StepLimits", "committed_rows", "schema_fit"]

SchemaFit: TypeAlias = Literal["fits", "added", "changed", "gone"]


@dataclass(frozen=True)
class Position:
    """The next file to read.

    Attributes:
        version: of the table.
        index: of the file: among those that the version added, or, where ``snapshot``, among all that were live in it.
        snapshot: whether the whole version is read, and not what it changed.
    """

    version: int
    index: int = 0
    snapshot: bool = False

    @property
    def after_version(self) -> "Position":
        """Where the next version begins."""
        return Position(self.version + 1)


@dataclass(frozen=True)
class CommittedRows:
    """What a version did to rows.

    Attributes:
        added: files whose rows are new, in the order of the commit.
        lost: a file that lost rows, None where no row was taken away.
        only_lost: whether rows were taken away, and none added or changed.
    """

    added: Sequence[AddFile]
    lost: str | None
    only_lost: bool


def committed_rows(actions: Sequence[Action], location: str) -> CommittedRows:
    """Return what a commit to the table at ``location`` did; files that were only arranged another way do not count.

    A file that is given again with more of its rows deleted adds no row, but by a RESTORE or a CLONE: there others may be back.

    Raises:
        LocationNotAllowed: a path leads out of the table.
        CorruptLog: one is not a path.
    """
    removed: Mapping[str, RemoveFile] = {
        locations.canonical_log_path(action.path, location): action
        for action in actions
        if isinstance(action, RemoveFile) and action.data_change
    }
    infos = [action for action in actions if isinstance(action, CommitInfo)]
    restores = any((info.operation or "").upper() in ("RESTORE", "CLONE") for info in infos)
    added = []
    for action in actions:
        if isinstance(action, AddFile) and action.data_change:
            before = removed.get(locations.canonical_log_path(action.path, location))
            if restores or before is None or not _only_deletes(before, action):
                added.append(action)
    lost = next((action.path for action in removed.values()), None)
    return CommittedRows(added, lost, only_lost=lost is not None and not added)


def _only_deletes(before: RemoveFile, after: AddFile) -> bool:
    """Return whether a file has more deleted rows than it had."""
    old, new = before.deletion_vector, after.deletion_vector
    if new is None:
        return False
    return old is None or new.cardinality > old.cardinality


@dataclass
class StepLimits:
    """How much one step may take: the first file always, then more while less than that was taken.

    Attributes:
        files: None for any number.
        nbytes: None for any number.
    """

    files: int | None = None
    nbytes: int | None = None

    @property
    def reached(self) -> bool:
        """Whether nothing more is to be taken."""
        return (self.files is not None and self.files <= 0) or (self.nbytes is not None and self.nbytes <= 0)

    def room_for(self, sizes: npt.NDArray[np.int64]) -> int:
        """Return how many of the next files, with these sizes in bytes, there is room for."""
        count = len(sizes) if self.files is None else min(len(sizes), max(0, self.files))
        if self.nbytes is not None:
            before = np.cumsum(sizes[:count]) - sizes[:count]
            count = int(np.count_nonzero(before < self.nbytes))
        return count

    def spend(self, files: int, nbytes: int) -> None:
        """Take note of what was taken; a version that must not be split may be more than there was room for."""
        self.files = None if self.files is None else self.files - files
        self.nbytes = None if self.nbytes is None else self.nbytes - nbytes


def schema_fit(read: Metadata, read_version: int, other: Metadata, version: int) -> SchemaFit:
    """Return how rows written under ``other`` go with a stream whose columns are those of ``read``.

    ``fits``: they can be read. ``added``: later versions have columns that the stream lacks. ``changed``: in later
    versions, columns were renamed, dropped, or got another type. ``gone``: earlier versions had other columns.

    Args:
        read: what is read with.
        read_version: its version.
        other: what was in force in some version.
        version: that version.

    Raises:
        InvalidSchema: a schema cannot be read.
    """
    readable = is_readable_with(read, read_version, other, version)
    if version <= read_version:
        return "fits" if readable else "gone"
    if not readable:
        return "changed"
    return "fits" if is_readable_with(read, version, other, version) else "added"
