"""The change data feed of one version, from its change data files or its file actions (PROTOCOL.md, "Change Data Files").

Tested in `tests/integration/engines/test_changes.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from delvec_kernel import locations
from delvec_kernel.actions.actions import Action, AddFile, Cdc, CommitInfo, RemoveFile, first_of
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor

__all__ = ["ChangeType", "FileChanges", "changes_in"]

ChangeType: TypeAlias = Literal["insert", "delete"]

_MERGE_ROW_METRICS: Final = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Changed rows of one file in a version: all rows, restricted by deletion vectors.

    Attributes:
        change_type: the change type of the rows; None for a change data file, where each row has its own.
        partition_values: serialized, by physical name; None if unknown.
        size: bytes; None if unknown.
        stats: JSON text.
        without: rows to leave out.
        only: rows to include, if not all.
        less: rows to leave out of ``only``.
    """

    change_type: ChangeType | None
    path: str
    partition_values: Mapping[str, str | None] | None
    size: int | None
    stats: str | None = None
    without: Descriptor | None = None
    only: Descriptor | None = None
    less: Descriptor | None = None


def changes_in(actions: Sequence[Action], location: str) -> Iterator[FileChanges]:
    """Yield the changes of a version of the table at ``location``; none if it only rearranged rows.

    Raises:
        CorruptLog: a path is invalid.
        LocationNotAllowed: a relative path leads out of the table.
    """
    files = [action for action in actions if isinstance(action, Cdc)]
    if files:
        for file in files:
            locations.canonical_log_path(file.path, location)  # raises if it leads out of the table
            yield FileChanges(None, file.path, file.partition_values, file.size)
        return
    if _changed_nothing(first_of(CommitInfo, actions)):
        return
    adds = {
        locations.canonical_log_path(action.path, location): action
        for action in actions
        if isinstance(action, AddFile) and action.data_change
    }
    removes = {
        locations.canonical_log_path(action.path, location): action
        for action in actions
        if isinstance(action, RemoveFile) and action.data_change
    }
    for key, add in adds.items():
        if key in removes:
            yield from _deletion_vector_changes(removes[key], add)
        else:
            yield _file("insert", add, without=add.deletion_vector)
    for key, remove in removes.items():
        if key not in adds:
            yield _file("delete", remove, without=remove.deletion_vector)


def _changed_nothing(info: CommitInfo | None) -> bool:
    """Whether a MERGE's metrics say that it only copied rows."""
    if info is None or info.operation != "MERGE" or not info.operation_metrics:
        return False
    return all(str(info.operation_metrics.get(name)) == "0" for name in _MERGE_ROW_METRICS)


def _deletion_vector_changes(remove: RemoveFile, add: AddFile) -> Iterator[FileChanges]:
    """Yield the effect of replacing a deletion vector; a RESTORE may bring rows back."""
    before, after = remove.deletion_vector, add.deletion_vector
    if after is not None:
        # Tight bounds cover only the rows that were live at the time.
        size, values = add.size, add.partition_values
        yield FileChanges("delete", add.path, values, size, remove.stats, only=after, less=before)
    if before is not None:
        yield _file("insert", add, only=before, less=after)


def _file(
    change_type: ChangeType,
    file: AddFile | RemoveFile,
    *,
    without: Descriptor | None = None,
    only: Descriptor | None = None,
    less: Descriptor | None = None,
) -> FileChanges:
    values, size, stats = file.partition_values, file.size, file.stats
    return FileChanges(change_type, file.path, values, size, stats, without, only, less)
