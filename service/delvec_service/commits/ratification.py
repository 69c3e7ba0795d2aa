"""Commits that clients of the catalog stage: read, checked, and published as the next version.

Ratifying is publishing: the staged file is created as the log entry, by put-if-absent as every commit, and only then is the
client answered. So the log knows every ratified commit, and a lost answer is found there: a version with the bytes of the
staged file is that commit.

Tested in `tests/integration/service/catalog/test_ratification.py`.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from delvec_errors import (
    CommitOutcomeUnknown,
    ConcurrentWrite,
    FileNotInStorage,
    FileSizeMismatch,
    InvalidCommit,
    UnsupportedOperation,
    VersionFromFuture,
)
from delvec_kernel.features.managed_tables import is_catalog_managed
from delvec_kernel.log.log_segment import commit_path
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics.file_statistics import num_records
from delvec_kernel.transaction import staged_commit
from delvec_kernel.transaction.commit_rules import check_rows
from delvec_kernel.transaction.staged_commit import StagedCommit
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits import fault_points, uploaded_dvs
from delvec_service.commits.commit_checks import check_files
from delvec_service.commits.commit_log import AmbiguousPutError, CommitLog
from delvec_service.commits.commit_loop import Run
from delvec_service.commits.commit_result import Committed
from delvec_service.commits.commit_validator import CommitValidator
from delvec_service.commits.dv_cache import DeletionVectorCache
from delvec_service.commits.dv_writer import files_named
from delvec_service.commits.pending_commit import PendingCommit
from delvec_service.commits.post_commit import PostCommit
from delvec_service.logs import bind_log_context, log_context
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.commit_coordinator import STAGED
from delvec_service.store.open_table import OpenTable
from delvec_service.store.own_commits import OwnCommit
from delvec_service.telemetry.observer import NO_OBSERVER, Observer

__all__ = ["Ratification", "StagedFile"]

_ATTEMPTS: Final = 5
_MAX_AGE_SECONDS: Final = 12 * 3600.0
"""Of files that a staged commit adds: a job may write for hours, and VACUUM spares files of less than a day."""


@dataclass(frozen=True)
class StagedFile:
    """What a client says about its staged commit.

    Attributes:
        timestamp: its in-commit timestamp.
        name: in ``_delta_log/_staged_commits``.
        size: in bytes.
    """

    version: int
    timestamp: int
    name: str
    size: int


class Ratification:
    """Publishes staged commits.

    Args:
        loader: reads snapshots.
        log: creates versions.
        vectors: caches those of live files, for all commits.
        validator: knows earlier transactions by their keys.
        post_commit: does what follows a commit.
        observer: notified of lost races.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        log: CommitLog,
        vectors: DeletionVectorCache,
        validator: CommitValidator,
        post_commit: PostCommit,
        *,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self._loader = loader
        self._log = log
        self._validator = validator
        self._post_commit = post_commit
        self._observer = observer
        self._vectors = vectors

    def ratify(
        self,
        table: OpenTable,
        staged_file: StagedFile,
        check_before: Callable[[Snapshot], None] = lambda _: None,
    ) -> bool:
        """Publish a staged commit; return False if it already was.

        Args:
            table: the table.
            staged_file: the file.
            check_before: raises if the version before is not what the client wants it to be.

        Raises:
            InvalidCommit: or a subclass: the file must not become this version; nothing was committed.
            ConcurrentWrite: another commit has the version.
            CommitOutcomeUnknown: storage failed, and the version may or may not exist.
            UnsupportedTable: or a subclass: Delvec could not read the table afterwards.
            StorageError: storage does not answer; nothing was committed.
        """
        fault_points.reach("begin")
        if not staged_commit.is_staged_name(staged_file.name, staged_file.version):
            raise InvalidCommit(
                f"'{staged_file.name[:200]}' is not the name of a staged commit of version {staged_file.version}; it must be "
                f"'{staged_file.version:020}.<uuid>.json'.",
                table=table.name,
                version=staged_file.version,
            )
        for _ in range(_ATTEMPTS):
            snapshot = self._loader.load(table.objects, table.name, checkpoints=False)
            _check_managed(table, snapshot)
            if staged_file.version <= snapshot.version:
                return self._settled(table, staged_file)
            if staged_file.version > snapshot.version + 1:
                raise VersionFromFuture(
                    f"The commit is to be version {staged_file.version} of table '{table.name}', whose newest version is "
                    f"{snapshot.version}; commit version {snapshot.version + 1}.",
                    table=table.name,
                    version=snapshot.version,
                )
            check_before(snapshot)
            data = _read(table, staged_file)
            fault_points.reach("after-read")
            commit = staged_commit.parse(
                data, table.name, table.location, staged_file.version, staged_file.name
            )
            bind_log_context(transaction=commit.key)
            member = self._check(table, staged_file, commit, snapshot)
            fault_points.reach("after-checks")
            if self._create(table, commit, data):
                self._published(table, commit, member, data, snapshot)
                return True
        raise _taken(table, staged_file)

    def check_first(self, table: OpenTable, before: Snapshot, first: StagedCommit) -> None:
        """Check version 0, which clients publish themselves, against an empty table.

        Raises:
            InvalidCommit: or a subclass: it is not a valid version 0.
            StorageError: storage does not answer.
        """
        self._check_storage(table, first, staged_commit.check(first, before, table.name, _now()), before)

    def _settled(self, table: OpenTable, staged_file: StagedFile) -> bool:
        """Return False if a version is this commit.

        Raises:
            ConcurrentWrite: it is another one.
            CommitOutcomeUnknown: one of the two files is gone.
        """
        try:
            published_bytes = table.objects.get(commit_path(staged_file.version))
            ours = table.objects.get(f"{STAGED}/{staged_file.name}")
        except FileNotFoundError as error:
            # Not a lost race: the client would commit again, and this may have been its commit.
            raise CommitOutcomeUnknown(
                f"Version {staged_file.version} of table '{table.name}' exists, but its log entry or the staged commit "
                f"'{staged_file.name}' is gone, so it is unknown whether it was this commit. Read the table and decide again.",
                table=table.name,
                version=staged_file.version,
            ) from error
        if published_bytes != ours:
            self._observer.conflicted(ConcurrentWrite.type)
            raise _taken(table, staged_file)
        return False

    def _check(
        self, table: OpenTable, staged_file: StagedFile, commit: StagedCommit, snapshot: Snapshot
    ) -> PendingCommit:
        changes = staged_commit.check(commit, snapshot, table.name, _now(), staged_file.timestamp)
        member = PendingCommit(changes, log_context().get("principal"))
        self._validator.find_earlier(table, [member])
        if isinstance(member.result, Committed):
            raise InvalidCommit(
                f"The staged commit '{staged_file.name}' of table '{table.name}' has the txnId {commit.key}, which version "
                f"{member.result.version} has already; nothing was committed. Give each commit an id of its own.",
                table=table.name,
                version=staged_file.version,
            )
        if member.error is not None:
            raise member.error
        self._check_storage(table, commit, changes, snapshot)
        return member

    def _check_storage(
        self, table: OpenTable, commit: StagedCommit, changes: Changes, snapshot: Snapshot
    ) -> None:
        """Check what storage has of the new files, and the rows of the new deletion vectors, as of own commits.

        Raises:
            InvalidCommit: or a subclass: a file is missing, has another size, or lies in another table.
            InvalidDeletionVector: a vector is damaged, or would bring deleted rows back.
            RowIndexOutOfRange: it has rows beyond its file.
            StorageError: storage did not answer.
        """
        # A RESTORE adds files that are as old as the version.
        restores = commit.info.operation == staged_commit.RESTORE
        check_files(table, changes, math.inf if restores else _MAX_AGE_SECONDS)
        changes = uploaded_dvs.read(
            table, changes, self._vectors, staged_commit.vectors_before(commit, snapshot)
        )
        for path, rows in changes.row_deletes.items():
            total = num_records(commit.adds[path].stats) or 0
            where = f"File '{path}' of the staged commit to table '{table.name}'"
            check_rows(rows, total, where, {"table": table.name, "version": commit.version, "file": path})

    def _create(self, table: OpenTable, commit: StagedCommit, data: bytes) -> bool:
        try:
            return self._log.create(table, commit.version, data)
        except AmbiguousPutError as error:
            raise error.outcome(table, commit.key) from error

    def _published(
        self, table: OpenTable, commit: StagedCommit, member: PendingCommit, data: bytes, before: Snapshot
    ) -> None:
        metadata = commit.metadata or before.metadata
        member.committed(commit.version, {})
        self._post_commit.run(
            Run(
                table,
                [member],
                commit.key,
                version=commit.version,
                transaction_id=commit.key,
                files=files_named(commit.adds.values()),
                own=OwnCommit(commit.version, commit.key, len(data), metadata.id),
            )
        )
        self._post_commit.observe(table, member)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _check_managed(table: OpenTable, snapshot: Snapshot) -> None:
    if not is_catalog_managed(snapshot.protocol):
        raise UnsupportedOperation(
            f"Table '{table.name}' is not managed by the catalog, so it has no staged commits. Commit to its log, or "
            "through Delvec.",
            table=table.name,
        )


def _read(table: OpenTable, staged_file: StagedFile) -> bytes:
    path = f"{STAGED}/{staged_file.name}"
    facts = {"table": table.name, "version": staged_file.version, "file": path}
    try:
        data = table.objects.get(path)
    except FileNotFoundError as error:
        raise FileNotInStorage(
            f"The staged commit '{path}' of table '{table.name}' does not exist; write it, then send the request.",
            **facts,
        ) from error
    if len(data) != staged_file.size:
        raise FileSizeMismatch(
            f"The staged commit '{path}' of table '{table.name}' has {len(data)} bytes in storage, but {staged_file.size} in "
            "the request; nothing was committed.",
            **facts,
        )
    return data


def _taken(table: OpenTable, staged_file: StagedFile) -> ConcurrentWrite:
    return ConcurrentWrite(
        f"Another commit has version {staged_file.version} of table '{table.name}'. Read the table again, check for "
        "conflicts, and commit the next version.",
        table=table.name,
        version=staged_file.version,
    )
