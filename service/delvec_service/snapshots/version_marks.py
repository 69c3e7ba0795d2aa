"""Marks of versions that were read: they distinguish a commit from one that replaced it.

A mark contains the size and time of the commit's file, and the object store's identifier of its content, because
times there are often whole seconds. It is returned with a plan and comes back with the commit based on it.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Final

from delvec_errors import CommitOverwritten
from delvec_kernel.log.log_segment import ListedFile, commit_name
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.lru_cache import LruCache
from delvec_service.store.open_table import OpenTable

__all__ = ["VersionMarks", "is_same", "read_mark"]

_MAX_MARKS: Final = 1000


def read_mark(loader: SnapshotLoader, snapshot: Snapshot) -> str | None:
    """Return the mark of a version that ``loader`` returned; None if its commit is gone, or it is no longer cached."""
    file = loader.file_of(snapshot)
    return None if file is None or file.name != commit_name(snapshot.version) else _mark(file)


def is_same(one: str, other: str) -> bool:
    """Whether two marks may belong to the same file; information that only one of them has is ignored."""
    parts, others = one.split("-"), other.split("-")
    return all(mine == theirs for mine, theirs in zip(parts, others, strict=False))


class VersionMarks:
    """Compares marks with logs. Safe to share between threads.

    Args:
        loader: its snapshots are dropped if a version was replaced.
    """

    def __init__(self, loader: SnapshotLoader) -> None:
        self._loader = loader
        self._forgotten: LruCache[tuple[str, int, str], bool] = LruCache(_MAX_MARKS)

    def now(self, table: OpenTable, snapshot: Snapshot, versions: Collection[int]) -> Mapping[int, str]:
        """Return the current marks of versions whose commits exist.

        Args:
            table: the table.
            snapshot: the newest version, just loaded: its own mark needs no access to storage.
            versions: that version or older ones.

        Raises:
            StorageError: storage did not answer.
        """
        marks: dict[int, str] = {}
        newest = read_mark(self._loader, snapshot)
        if newest is not None:
            marks[snapshot.version] = newest
        # Detecting a replaced commit drops the table's snapshot at that moment; its mark is then looked up, too.
        missing = sorted({version for version in versions if version <= snapshot.version} - marks.keys())
        files = LogReader(table.objects, table.name).commit_files(missing)
        return marks | {version: _mark(file) for version, file in files.items()}

    def replaced(self, table: OpenTable, version: int, mark: str) -> CommitOverwritten:
        """Return the error for a version that is not the one that was read; ``mark`` is its current mark."""
        key = (table.location, version, mark)
        if not self._forgotten.get(key):
            # Versions after it may have been loaded by way of the one that is gone.
            self._loader.forget(table.location)
            self._forgotten.put(key, value=True)
        return CommitOverwritten(
            f"Version {version} of table '{table.name}' has changed since it was read: another commit has replaced "
            "it, from a writer that does not create versions atomically, or from a backup. Nothing was committed. "
            "Run the command again, and do not let such writers run at the same time as Delvec.",
            table=table.name,
            version=version,
            replaced="read-version",
            conflict={
                "winning-version": version,
                "advice": "run the command again: it will read the current version.",
            },
        )


def _mark(file: ListedFile) -> str:
    mark = f"{file.size:x}-{file.last_modified_ms:x}"
    # A file remembered by the database has no tag. Tags may have any length and characters.
    return mark if file.e_tag is None else f"{mark}-{hashlib.sha256(file.e_tag.encode()).hexdigest()[:16]}"
