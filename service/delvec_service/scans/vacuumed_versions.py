"""Old versions whose files VACUUM has deleted: which VACUUM it was, and the oldest version that can still be read.

Files of the newest version are live, and their loss is damage. The files that only older versions need are deleted on
purpose, so nobody should look for a backup of them.

Tested in `tests/integration/client/test_vacuumed_versions.py`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from delvec_kernel.actions.actions import CommitInfo, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.errors import (
    CorruptTable,
    DeletionVectorNotFound,
    DelvecError,
    MissingDataFile,
)
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.time_travel import iso
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable

__all__ = ["VacuumedVersion", "check_planned", "naming_vacuum", "vacuumed_version"]

_START: Final = "VACUUM START"
_MOST_COMPARED: Final = 1024
_MOST_LOOKED_UP: Final = 32
_MOST_COMMITS: Final = 10_000
_LONGEST_NAME: Final = 100


@dataclass(frozen=True)
class _Vacuum:
    """A VACUUM START of the log; times in milliseconds since the epoch."""

    version: int
    time: int
    retention: int
    who: str

    @property
    def text(self) -> str:
        """Which VACUUM it was, when, and who ran it."""
        by = f", by {self.who}" if self.who else ""
        return f"the VACUUM of version {self.version} ({iso(self.time)}{by})"


@dataclass(frozen=True)
class VacuumedVersion:
    """A version whose files VACUUM has deleted.

    Attributes:
        file: one of them, as in the log.
        oldest: the oldest version that can be read.
        vacuum: which VACUUM it was; None if the log does not name one.
    """

    file: str
    oldest: int
    vacuum: _Vacuum | None

    @property
    def reason(self) -> str:
        """What happened, and which version to use instead."""
        who = "a VACUUM that the log does not name" if self.vacuum is None else self.vacuum.text
        return (
            f"{who} has deleted files that it needs, such as '{self.file}'. The oldest version that can be read is "
            f"{self.oldest}."
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The same for programs, as an error's details."""
        facts: dict[str, Any] = {"file": self.file, "oldest_readable_version": self.oldest}
        if self.vacuum is not None:
            facts |= {
                "vacuum_version": self.vacuum.version,
                "vacuum_timestamp": iso(self.vacuum.time),
                "vacuum_user": self.vacuum.who,
            }
        return facts


def check_planned(
    table: OpenTable, loader: SnapshotLoader, snapshot: Snapshot, paths: pa.ChunkedArray
) -> None:
    """Look up a sample of the files of an old version that have been removed since.

    Args:
        table: the table.
        loader: reads snapshots.
        snapshot: the version; nothing is looked up for the newest.
        paths: of its files that are to be read, as in the log.

    Raises:
        MissingDataFile: VACUUM has deleted one; names the VACUUM, and the oldest version that can be read.
    """
    if not len(paths):
        return
    latest = loader.load(table.objects, table.name, checkpoints=False)
    if snapshot.version >= latest.version:
        return
    sample = paths.take(pa.array(_spread(len(paths), _MOST_COMPARED))).to_pylist()
    live = latest.live.find_all(sample)
    removed = [path for path in sample if path not in live]
    for at in _spread(len(removed), _MOST_LOOKED_UP):
        if _is_gone(table.objects, removed[at]):
            found = vacuumed_version(table, loader, snapshot.version, removed[at])
            if found is not None:
                raise _unreadable(table, snapshot, found)


@contextmanager
def naming_vacuum(table: OpenTable, loader: SnapshotLoader, snapshot: Snapshot) -> Iterator[None]:
    """Name the VACUUM in the error of a version whose deletion vectors it has deleted.

    Raises:
        MissingDataFile: instead of DeletionVectorNotFound.
    """
    try:
        yield
    except DeletionVectorNotFound as error:
        found = vacuumed_version(table, loader, snapshot.version, str(error.details.get("file")))
        if found is None:
            raise
        raise _unreadable(table, snapshot, found) from error


def _unreadable(table: OpenTable, snapshot: Snapshot, found: VacuumedVersion) -> MissingDataFile:
    return MissingDataFile(
        f"Version {snapshot.version} of table '{table.name}' cannot be read: {found.reason}",
        **{"table": table.name, "version": snapshot.version, **found.facts},
    )


def vacuumed_version(
    table: OpenTable, loader: SnapshotLoader, version: int, path: str
) -> VacuumedVersion | None:
    """Return why an old version lacks a file; None if it is not because of a VACUUM.

    Args:
        table: the table.
        loader: reads snapshots.
        version: the version that needs the file.
        path: of the data file, as in the log, that is missing, or whose deletion vector is.
    """
    latest = loader.load(table.objects, table.name, checkpoints=False)
    oldest: int | None = None
    vacuums: list[_Vacuum] = []
    try:
        for number, info, removes in _backwards(table, latest.version, version):
            if info is not None and info.operation == _START:
                vacuums.append(_vacuum(number, info))
            own = _gone(table.objects, latest, [each for each in removes if each.path == path])
            if oldest is None and (own or _gone(table.objects, latest, removes)):
                oldest = number
            if own and oldest is not None:
                removed = min(each.deletion_timestamp or 0 for each in own)
                # Later ones did not find the file anymore, earlier ones kept it.
                due = [each for each in reversed(vacuums) if each.time - each.retention >= removed]
                return VacuumedVersion(path, oldest, next(iter(due or vacuums), None))
    except CorruptTable:
        pass  # a damaged log has errors of its own
    return None


def _backwards(
    table: OpenTable, newest: int, version: int
) -> Iterator[tuple[int, CommitInfo | None, list[RemoveFile]]]:
    """Yield what the commits after a version did, newest first."""
    versions = range(newest, max(version, newest - _MOST_COMMITS), -1)
    commits = LogReader(table.objects, table.name).each(versions)
    for number, commit in zip(versions, commits, strict=True):
        infos = (action for action in commit.actions if isinstance(action, CommitInfo))
        removes = [action for action in commit.actions if isinstance(action, RemoveFile)]
        yield number, next(infos, None), removes


def _vacuum(version: int, info: CommitInfo) -> _Vacuum:
    given = info.operation_parameters or {}
    retention = str(given.get("specifiedRetentionMillis") or given.get("defaultRetentionMillis") or "0")
    who = next(
        filter(None, (info.extra.get(name) for name in ("userName", "userId"))), info.engine_info or ""
    )
    return _Vacuum(
        version,
        info.in_commit_timestamp or info.timestamp or 0,
        int(retention) if retention.isdecimal() and len(retention) < 19 else 0,  # noqa: PLR2004 - fits 64 bits
        " ".join(str(who).split())[:_LONGEST_NAME],
    )


def _gone(objects: ObjectStore, latest: Snapshot, removes: Sequence[RemoveFile]) -> list[RemoveFile]:
    """Return those of a sample whose data file, or whose deletion vector, is not in storage."""
    sample = [removes[at] for at in _spread(len(removes), _MOST_LOOKED_UP)]
    live = latest.live.find_all(each.path for each in sample)
    return [
        each
        for each in sample
        if (each.path not in live and _is_gone(objects, each.path))
        or _is_vector_gone(objects, each.deletion_vector)
    ]


def _is_vector_gone(objects: ObjectStore, vector: Descriptor | None) -> bool:
    path = None if vector is None else vector.absolute_path(objects.location)
    return path is not None and _is_gone(objects, path)


def _is_gone(objects: ObjectStore, path: str) -> bool:
    try:
        return objects.head(path) is None
    except DelvecError:
        return False  # it may not be looked up, or storage does not answer: that is no news of the file


def _spread(count: int, most: int) -> list[int]:
    """Return at most ``most`` places of ``count``, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int)).tolist() if count else []
