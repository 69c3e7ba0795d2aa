"""File changes of commits, as needed for an Iceberg snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from delvec_kernel.actions.actions import AddFile, RemoveFile
from delvec_kernel.locations import canonical_log_path
from delvec_kernel.snapshot.replay import Commit

__all__ = ["FileChanges", "Operation", "file_changes"]

Operation: TypeAlias = Literal["append", "delete", "overwrite", "replace"]


@dataclass(frozen=True)
class FileChanges:
    """The net changes of one or more commits, by canonical path.

    Attributes:
        added: data files that were not live before.
        removed: data files that are no longer live.
        vectors: data files that stay, with a changed or removed deletion vector.
        renumbered: data files that stay, with other row ids.
        rewrites: whether no commit changed the table's rows.
    """

    added: dict[str, AddFile]
    removed: frozenset[str]
    vectors: dict[str, AddFile]
    renumbered: frozenset[str]
    rewrites: bool

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.vectors)

    @property
    def operation(self) -> Operation:
        """The snapshot operation for these changes."""
        if self.rewrites and self.added and self.removed and not self.vectors:
            return "replace"
        if not (self.removed or self.vectors):
            return "append"
        return "overwrite" if self.added else "delete"


@dataclass
class _File:
    before: RemoveFile | None
    after: AddFile | None


def file_changes(commits: Sequence[Commit], location: str) -> FileChanges:
    """Return the net changes of consecutive commits.

    Args:
        commits: in order.
        location: the table's canonical location.

    Raises:
        LocationNotAllowed: a path leads out of the table.
        InvalidLocation: an absolute path has an unknown scheme.
        CorruptLog: a path is invalid.
    """
    files: dict[str, _File] = {}
    rewrites = True
    for commit in commits:
        removes, adds = {}, {}
        for action in commit.actions:
            if isinstance(action, AddFile):
                adds[canonical_log_path(action.path, location)] = action
            elif isinstance(action, RemoveFile):
                removes[canonical_log_path(action.path, location)] = action
            else:
                continue
            rewrites = rewrites and not action.data_change
        for key in {**removes, **adds}:  # not a set, whose order differs between processes
            found = files.setdefault(key, _File(removes.get(key), None))
            found.after = adds.get(key)
    stay = {key: (one.before, one.after) for key, one in files.items() if one.before and one.after}
    return FileChanges(
        added={key: one.after for key, one in files.items() if one.before is None and one.after is not None},
        removed=frozenset(key for key, one in files.items() if one.before is not None and one.after is None),
        vectors={
            key: after
            for key, (before, after) in stay.items()
            if after and before and not _same(before, after)
        },
        renumbered=frozenset(
            key
            for key, (before, after) in stay.items()
            if before and after and before.base_row_id != after.base_row_id
        ),
        rewrites=rewrites,
    )


def _same(before: RemoveFile, after: AddFile) -> bool:
    old, new = before.deletion_vector, after.deletion_vector
    return (None if old is None else old.unique_id) == (None if new is None else new.unique_id)
