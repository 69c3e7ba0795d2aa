"""The rows that each version adds to a stream, and the limits of a micro-batch.

A position is the next file to read. The order of a version's files never changes, so that two positions
always have the same files between them.

Tested in `tests/integration/service/scans/test_additions.py`.
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
        version: the version of the table.
        index: the index of the file among those that the version added or, if ``snapshot``, among all live files.
        snapshot: whether the position is in a full snapshot of the version, not in its changes.
    """

    version: int
    index: int = 0
    snapshot: bool = False

    @property
    def after_version(self) -> "Position":
        """Return the start of the next version."""
        return Position(self.version + 1)


@dataclass(frozen=True)
class CommittedRows:
    """The effect of a version on rows.

    Attributes:
        added: files with new rows, in commit order.
        lost: a file that lost rows, or None.
        only_lost: whether rows were deleted, and none added or updated.
    """

    added: Sequence[AddFile]
    lost: str | None
    only_lost: bool


def committed_rows(actions: Sequence[Action], location: str) -> CommittedRows:
    """Return the effect of a commit to the table at ``location``; files that were only rearranged do not count.

    A file whose deletion vector grew adds no rows, except in a RESTORE or a CLONE, which may bring other rows back.

    Raises:
        LocationNotAllowed: a path leads out of the table.
        CorruptLog: a path is invalid.
    """
    removes: Mapping[str, RemoveFile] = {
        locations.canonical_log_path(action.path, location): action
        for action in actions
        if isinstance(action, RemoveFile) and action.data_change
    }
    infos = [action for action in actions if isinstance(action, CommitInfo)]
    restores = any((info.operation or "").upper() in ("RESTORE", "CLONE") for info in infos)
    adds = []
    for action in actions:
        if isinstance(action, AddFile) and action.data_change:
            before = removes.get(locations.canonical_log_path(action.path, location))
            if restores or before is None or not _only_deletes(before, action):
                adds.append(action)
    lost = next((action.path for action in removes.values()), None)
    return CommittedRows(adds, lost, only_lost=lost is not None and not adds)


def _only_deletes(before: RemoveFile, after: AddFile) -> bool:
    """Whether the file's new deletion vector contains its old one."""
    old, new = before.deletion_vector, after.deletion_vector
    if new is None:
        return False
    return old is None or new.cardinality > old.cardinality


@dataclass
class StepLimits:
    """Limits of one micro-batch: always the first file, then more files until a limit is reached.

    Attributes:
        files: None for no limit.
        nbytes: None for no limit.
    """

    files: int | None = None
    nbytes: int | None = None

    @property
    def reached(self) -> bool:
        """Whether a limit has been reached."""
        return (self.files is not None and self.files <= 0) or (self.nbytes is not None and self.nbytes <= 0)

    def room_for(self, sizes: npt.NDArray[np.int64]) -> int:
        """Return how many of the next files, with these sizes in bytes, fit."""
        count = len(sizes) if self.files is None else min(len(sizes), max(0, self.files))
        if self.nbytes is not None:
            before = np.cumsum(sizes[:count]) - sizes[:count]
            count = int(np.count_nonzero(before < self.nbytes))
        return count

    def spend(self, files: int, nbytes: int) -> None:
        """Count what was read; a version that must not be split may exceed the limits."""
        self.files = None if self.files is None else self.files - files
        self.nbytes = None if self.nbytes is None else self.nbytes - nbytes


def schema_fit(read: Metadata, read_version: int, other: Metadata, version: int) -> SchemaFit:
    """Return whether rows written under ``other`` fit a stream that reads with ``read``.

    ``fits``: readable. ``added``: a later version has columns that the stream lacks. ``changed``: a later
    version renamed, dropped or retyped columns. ``gone``: an earlier version had other columns.

    Args:
        read: metadata that the stream reads with.
        read_version: its version.
        other: metadata in effect at ``version``.
        version: the version of ``other``.

    Raises:
        InvalidSchema: a schema cannot be parsed.
    """
    readable = is_readable_with(read, read_version, other, version)
    if version <= read_version:
        return "fits" if readable else "gone"
    if not readable:
        return "changed"
    return "fits" if is_readable_with(read, version, other, version) else "added"
