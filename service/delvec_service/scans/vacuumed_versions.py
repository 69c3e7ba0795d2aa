"""Old versions whose files VACUUM has deleted: which VACUUM it was, and the oldest version that can still be read.

Files of the newest version are live, and their loss is damage. The files that only older versions need are deleted on
purpose, so nobody should look for a backup of them.

Tested in `tests/integration/client/test_vacuumed_versions.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from delvec_errors import CorruptTable, DeletionVectorNotFound, DelvecError, MissingDataFile
from delvec_kernel.actions.actions import Action, CommitInfo, RemoveFile
from delvec_kernel.change_feed.version_changes import FileChanges, changes_in
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_maintenance.checks.findings import Finding
from delvec_service.maintenance.live_file_check import check_files
from delvec_service.scans.changed_files import ChangedRows
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.snapshots.time_travel import iso
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable

__all__ = [
    "Use",
    "VacuumedVersion",
    "check_changes",
    "check_complete",
    "check_planned",
    "is_vacuum",
    "naming_vacuum",
    "vacuumed_version",
]

_START: Final = "VACUUM START"
_MAX_COMPARED: Final = 1024
_MAX_LOOKED_UP: Final = 32
_MAX_COMMITS: Final = 10_000
_LONGEST_NAME: Final = 100
_MAX_LISTED: Final = 100


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
class Use:
    """What all files of a version are needed for.

    Attributes:
        command: such as ``Clone``.
        participle: such as ``cloned``.
        error: raised if files are missing.
        listed: what the error's details say of a file.
    """

    command: str
    participle: str
    error: type[CorruptTable]
    listed: Callable[[Finding], Any]


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
        return (
            f"{self.who} has deleted files that it needs, such as '{self.file}'. The oldest version that can be read is "
            f"{self.oldest}."
        )

    @property
    def who(self) -> str:
        """Which VACUUM it was, when, and who ran it."""
        return "a VACUUM that the log does not name" if self.vacuum is None else self.vacuum.text

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
        paths: the paths of its files that are to be read, as in the log.

    Raises:
        MissingDataFile: VACUUM has deleted one; names the VACUUM, and the oldest version that can be read.
    """
    if not len(paths):
        return
    latest = loader.load(table.objects, table.name, checkpoints=False)
    if snapshot.version >= latest.version:
        return
    sample = paths.take(pa.array(_spread(len(paths), _MAX_COMPARED))).to_pylist()
    live = latest.live.find_all(sample)
    removed = [path for path in sample if path not in live]
    for at in _spread(len(removed), _MAX_LOOKED_UP):
        if _is_gone(table.objects, removed[at]):
            found = vacuumed_version(table, loader, snapshot.version, removed[at])
            if found is not None:
                raise _unreadable(table, snapshot, found)


def check_changes(table: OpenTable, latest: Snapshot, changed_rows: Sequence[ChangedRows]) -> None:
    """Look up a sample of the files of a change feed that are not live anymore.

    Args:
        table: the table.
        latest: the newest version.
        changed_rows: the files of the feed, by version.

    Raises:
        MissingDataFile: VACUUM has deleted one; names the VACUUM, and the oldest version whose changes can be read.
    """
    gone = _gone_changes(table.objects, latest, [each.file for each in changed_rows])
    if not gone:
        return
    first = next(each for each in changed_rows if each.file is gone[0])
    found = _vacuumed_changes(table, latest, first)
    if found is not None:
        raise MissingDataFile(
            f"The changes of version {first.version} of table '{table.name}' cannot be read: {found.who} has deleted files "
            f"that they need, such as '{found.file}'. The oldest version whose changes can be read is {found.oldest}.",
            **{"table": table.name, "version": first.version, **found.facts},
        )


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


def check_complete(
    table: OpenTable,
    loader: SnapshotLoader,
    snapshot: Snapshot,
    use: Use,
    *,
    among: Iterable[pa.RecordBatch] | None = None,
) -> None:
    """Check that the data files and deletion vectors of a version are in storage, as the log describes them.

    Args:
        table: the table.
        loader: reads snapshots.
        snapshot: the version.
        use: what the version is needed for.
        among: the files to check, as in FILES_SCHEMA; by default all.

    Raises:
        CorruptTable: the class of ``use``: files are missing or differ; up to 100 are listed. Names the VACUUM, if one has
            deleted them.
        StorageError: storage did not answer.
    """
    check_result = check_files(
        snapshot, table.objects, table.name, table.roots.allows, data_files=True, among=among
    )
    if not check_result.findings:
        return
    vacuumed = vacuumed_version(table, loader, snapshot.version, check_result.findings[0].file or "")
    advice = f"{use.command} another version, or get the files back from a backup first."
    reason = f", because {check_result.problem} {advice}" if vacuumed is None else f": {vacuumed.reason}"
    raise use.error(
        f"Version {snapshot.version} of table '{table.name}' cannot be {use.participle}{reason}",
        **({} if vacuumed is None else vacuumed.facts),
        table=table.name,
        version=snapshot.version,
        count=len(check_result.findings),
        missing=[use.listed(finding) for finding in check_result.findings[:_MAX_LISTED]],
    )


def vacuumed_version(
    table: OpenTable, loader: SnapshotLoader, version: int, path: str
) -> VacuumedVersion | None:
    """Return why an old version lacks a file; None if it is not because of a VACUUM.

    Args:
        table: the table.
        loader: reads snapshots.
        version: the version that needs the file.
        path: the path of the data file, as in the log, that is missing, or whose deletion vector is.
    """
    latest = loader.load(table.objects, table.name, checkpoints=False)
    oldest: int | None = None
    vacuums: list[_Vacuum] = []
    try:
        for number, actions in _backwards(table, latest.version, version):
            vacuums += _vacuums(number, actions)
            removes = [action for action in actions if isinstance(action, RemoveFile)]
            own = _gone(table.objects, latest, [each for each in removes if each.path == path])
            if oldest is None and (own or _gone(table.objects, latest, removes)):
                oldest = number
            if own and oldest is not None:
                removed = min(each.deletion_timestamp or 0 for each in own)
                return VacuumedVersion(path, oldest, _due(vacuums, removed))
    except CorruptTable:
        pass  # a damaged log has errors of its own
    return None


def _vacuumed_changes(
    table: OpenTable, latest: Snapshot, lost_changes: ChangedRows
) -> VacuumedVersion | None:
    """Return why a file of a feed is gone; None if it is not because of a VACUUM."""
    oldest: int | None = None
    vacuums: list[_Vacuum] = []
    # No commit removes change data files: VACUUM goes by their age.
    removal_time = lost_changes.timestamp if lost_changes.file.change_type is None else None
    path = lost_changes.file.path
    try:
        for number, actions in _backwards(table, latest.version, lost_changes.version - 1):
            vacuums += _vacuums(number, actions)
            removes = (action for action in actions if isinstance(action, RemoveFile) and action.path == path)
            removal_time = next((each.deletion_timestamp or 0 for each in removes), removal_time)
            if oldest is None and _gone_changes(
                table.objects, latest, list(changes_in(actions, table.location))
            ):
                oldest = number + 1
    except CorruptTable:
        return None  # a damaged log has errors of its own
    if removal_time is None:
        return None
    return VacuumedVersion(path, oldest or lost_changes.version + 1, _due(vacuums, removal_time))


def _gone_changes(
    objects: ObjectStore, latest: Snapshot, changes: Sequence[FileChanges]
) -> list[FileChanges]:
    """Return those of a sample whose file, or one of whose deletion vectors, is not in storage."""
    live = latest.live.find_all(dict.fromkeys(each.path for each in changes))
    # A live file may have lost the deletion vectors of older versions.
    doubtful = [each for each in changes if each.path not in live or each.only or each.without]
    sample = [doubtful[at] for at in _spread(len(doubtful), _MAX_LOOKED_UP)]
    return [
        each
        for each in sample
        if (each.path not in live and _is_gone(objects, each.path))
        or any(_is_vector_gone(objects, vector) for vector in (each.only, each.less, each.without))
    ]


def _backwards(table: OpenTable, newest: int, version: int) -> Iterator[tuple[int, Sequence[Action]]]:
    """Yield the commits after a version, newest first."""
    versions = range(newest, max(version, newest - _MAX_COMMITS), -1)
    commits = LogReader(table.objects, table.name).each(versions)
    for number, commit in zip(versions, commits, strict=True):
        yield number, commit.actions


def is_vacuum(actions: Sequence[Action]) -> bool:
    """Return whether a commit says that a VACUUM has begun."""
    return any(isinstance(action, CommitInfo) and action.operation == _START for action in actions)


def _vacuums(version: int, actions: Sequence[Action]) -> list[_Vacuum]:
    infos = (action for action in actions if isinstance(action, CommitInfo))
    return [_vacuum(version, info) for info in infos if info.operation == _START]


def _due(vacuums: Sequence[_Vacuum], unneeded: int) -> _Vacuum | None:
    """Return the VACUUM, of those given newest first, that deleted a file which was not needed from a time on."""
    # Later ones did not find the file anymore, earlier ones kept it.
    due = [each for each in reversed(vacuums) if each.time - each.retention >= unneeded]
    return next(iter(due or vacuums), None)


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
    sample = [removes[at] for at in _spread(len(removes), _MAX_LOOKED_UP)]
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
