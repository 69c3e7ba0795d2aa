"""VACUUM: the plan, the commits around it, and the deletes.

The log shows what is referred to, so the order is: plan, VACUUM START, then for each batch of files a check of the
versions since the plan, and the deletes. The next VACUUM continues one that was interrupted.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec_contract.maintenance import VacuumRequest
from delvec_errors import ConcurrentWrite, DelvecError, VacuumIncomplete
from delvec_errors.texts import counted
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.log.log_segment import commit_name
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_maintenance.vacuum.candidates import unreferenced
from delvec_maintenance.vacuum.references import References
from delvec_service.commits.commit import Commits, Committed
from delvec_service.logs import logger
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.clones import CloneStore
from delvec_service.store.deletion_locks import DeletionLocks, FileLease
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.new_table import ENGINE_INFO
from delvec_service.vacuum.clone_files import CloneReferences
from delvec_service.vacuum.quarantine import NewQuarantine
from delvec_service.vacuum.vacuum_plan import VacuumPlan, keep_tombstones, make_plan, write_reach
from delvec_storage.roots import Roots
from delvec_storage.trees import Deletion, delete_files, remove_empty_directories

__all__ = ["VacuumResult", "vacuum"]

_BATCH_FILES: Final = 1000
"""The maximum of one S3 delete request."""
_AT_ONCE: Final = 8
_ATTEMPTS: Final = 20
_MAX_NAMED: Final = 100
_SKEW_MS: Final = 60_000
"""Some stores have a clock resolution of a whole second."""


@dataclass(frozen=True)
class VacuumResult:
    """What was deleted, or would be deleted.

    Attributes:
        deleted: whether anything was deleted.
        files: paths of files.
        size_in_bytes: the size in bytes of the files.
        directories: paths of empty directories.
        start_version: the version of VACUUM START, None if there was nothing to delete.
        end_version: the version of VACUUM END.
        quarantine: the quarantine that the files are in, if they were not deleted.
    """

    plan: VacuumPlan
    deleted: bool
    files: Sequence[str]
    size_in_bytes: int
    directories: Sequence[str]
    start_version: int | None = None
    end_version: int | None = None
    quarantine: str | None = None


def vacuum(
    table: OpenTable,
    loader: SnapshotLoader,
    ledger: Ledger,
    clone_store: CloneStore,
    roots: Roots,
    commits: Commits,
    locks: DeletionLocks,
    request: VacuumRequest,
    *,
    user_name: str | None = None,
    shows: Callable[[str], bool] = lambda _location: True,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> VacuumResult:
    """Delete what nothing refers to.

    Args:
        table: the table.
        loader: reads snapshots.
        ledger: knows running transactions.
        clone_store: knows the shallow clones.
        roots: all roots of all owners: shallow clones may be in any of them.
        commits: commits.
        locks: keep RESTOREs from bringing back the files that are being deleted.
        request: the kind of VACUUM, and what to keep.
        user_name: the user name of the principal, for the table's history; None if nobody signed in.
        shows: whether errors may name a clone at a location.
        clock: returns milliseconds since the epoch.

    Raises:
        VacuumIncomplete: not all files could be deleted; the message says which were.
        DelvecError: as for :func:`~delvec_service.vacuum.vacuum_plan.make_plan` and :meth:`Commits.commit`; nothing was
            deleted.
    """
    conflict: Conflict | None = None
    for _ in range(_ATTEMPTS):
        now = clock()
        clones = CloneReferences(table, roots, loader, clone_store, now, shows)
        plan = make_plan(table, loader, ledger, clones, request, now)
        vacuum_result = VacuumResult(
            plan, False, plan.files["path"].to_pylist(), plan.size_in_bytes, plan.directories
        )
        if request.dry_run:
            return _with_elsewhere(vacuum_result, plan.elsewhere)
        if not plan.files.num_rows and not plan.directories:
            break
        run = _Run(table, loader, commits, locks, clones, plan, now, request.quarantine, user_name)
        start_version = run.start()
        if not isinstance(start_version, Conflict):
            vacuum_result = run.execute(start_version)
            break
        conflict = (
            start_version  # the table's properties or columns have changed, and with them what may be deleted
        )
    else:
        assert conflict is not None  # noqa: S101 - the loop ran
        raise conflict.error(table.name)
    if plan.elsewhere:
        vacuum_result = _delete_elsewhere(table, vacuum_result)
    if plan.reaches is not None and not request.keep_versions:
        write_reach(table, plan.reaches)
    return vacuum_result


def _delete_elsewhere(table: OpenTable, vacuum_result: VacuumResult) -> VacuumResult:
    """Delete superseded Iceberg files outside the table; no Delta log refers to them.

    Raises:
        VacuumIncomplete: storage did not delete all of them.
    """
    plan, deleted_files = vacuum_result.plan, {}
    for url, files in plan.elsewhere.items():
        paths = files["path"].to_pylist()
        outcome = delete_files(url, paths, plan.before, is_allowed=table.roots.allows)
        if outcome.error is not None:
            raise VacuumIncomplete(
                f"VACUUM of table '{table.name}' could not delete {len(outcome.failed)} superseded files of its "
                f"Iceberg metadata at '{url}': {outcome.error.message} Nothing refers to them. Remove the cause and "
                "run VACUUM again.",
                table=table.name,
                version=vacuum_result.end_version or plan.version,
                deleted=len(vacuum_result.files) + len(outcome.deleted),
                remaining=len(outcome.failed),
                failed=[f"{url}/{path}" for path in outcome.failed[:_MAX_NAMED]],
                cause=outcome.error.type,
            ) from outcome.error
        deleted_files[url] = files.filter(
            pc.is_in(files["path"], value_set=pa.array(outcome.deleted, pa.string()))
        )
    vacuum_result = _with_elsewhere(vacuum_result, deleted_files)
    return replace(
        vacuum_result,
        deleted=vacuum_result.deleted or any(files.num_rows for files in deleted_files.values()),
    )


def _with_elsewhere(done: VacuumResult, elsewhere: Mapping[str, pa.Table]) -> VacuumResult:
    """Return a result that includes files outside the table, by URL."""
    paths = [f"{url}/{path}" for url, files in elsewhere.items() for path in files["path"].to_pylist()]
    size = sum(pc.sum(files["size"], min_count=0).as_py() or 0 for files in elsewhere.values())
    return replace(done, files=[*done.files, *paths], size_in_bytes=done.size_in_bytes + size)


@dataclass
class _Run:
    """A VACUUM that deletes."""

    table: OpenTable
    loader: SnapshotLoader
    commits: Commits
    locks: DeletionLocks
    clones: CloneReferences
    plan: VacuumPlan
    now: int
    moves: bool
    user_name: str | None = None
    quarantine: NewQuarantine | None = None
    deleted: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    error: DelvecError | None = None

    def start(self) -> int | Conflict:
        """Commit VACUUM START; return its version."""
        plan, retention = self.plan, self.plan.retention
        parameters = {
            "retentionCheckEnabled": str(retention.is_enforced).lower(),
            "defaultRetentionMillis": str(retention.configured),
        }
        if retention.specified is not None:
            parameters["specifiedRetentionMillis"] = str(retention.specified)
        number = plan.files.num_rows + len(plan.directories)
        metrics = {"numFilesToDelete": number, "sizeOfDataToDelete": plan.size_in_bytes}
        return self._commit("VACUUM START", plan.version, parameters, metrics)

    def execute(self, start_version: int) -> VacuumResult:
        """Delete the files, after VACUUM START."""
        plan = self.plan
        try:
            if self.moves and plan.files.num_rows:
                self.quarantine = NewQuarantine.create(
                    self.table, start_version, plan.files.num_rows, plan.size_in_bytes
                )
            self._delete(self._storage_clock(start_version))
        except DelvecError as error:
            self.error = error
        if self.error is not None:
            with suppress(DelvecError):
                self._end("FAILED", {})
            raise self._incomplete(self.error, start_version) from self.error
        directories = remove_empty_directories(
            self.table.location, plan.directories, is_allowed=self.table.roots.allows
        )
        metrics = {
            "numDeletedFiles": len(self.deleted) + len(directories),
            "numVacuumedDirectories": plan.num_directories,
        }
        end_version = None
        try:
            end_version = self._end("COMPLETED", metrics)
        except DelvecError as error:
            # The files are gone whether or not the log says so.
            logger.warning("VACUUM END not committed", table=self.table.name, error=error.message)
        name = None if self.quarantine is None else self.quarantine.id
        return VacuumResult(
            plan, True, self.deleted, self._size(), directories, start_version, end_version, name
        )

    def _end(self, status: str, metrics: Mapping[str, int]) -> int:
        """Commit VACUUM END, whatever was committed since VACUUM START; return its version."""
        end_version: int | Conflict | None = None
        for _ in range(_ATTEMPTS):
            latest = self.loader.load(self.table.objects, self.table.name, checkpoints=False)
            end_version = self._commit("VACUUM END", latest.version, {"status": status}, metrics)
            if isinstance(end_version, int):
                return end_version
        assert isinstance(end_version, Conflict)  # noqa: S101 - the loop ran
        raise end_version.error(self.table.name)

    def _commit(
        self, operation: str, read_version: int, parameters: Mapping[str, str], metrics: Mapping[str, int]
    ) -> int | Conflict:
        changes = Changes(
            operation,
            read_version,
            str(uuid.uuid4()),
            ENGINE_INFO,
            parameters=parameters,
            metrics=metrics,
            makes_version=True,
            user_name=self.user_name,
        )
        result = self.commits.commit(self.table, changes)
        if isinstance(result, Conflict):
            return result
        assert isinstance(result, Committed)  # noqa: S101 - it makes a version
        return result.version

    def _storage_clock(self, start_version: int) -> int:
        """Return the storage's time if this service's clock is ahead of it, else this service's."""
        found = self.table.objects.head(f"_delta_log/{commit_name(start_version)}")
        return self.now if found is None else min(self.now, found.last_modified_ms)

    def _delete(self, now: int) -> None:
        """Delete the files, batch by batch, until storage fails."""
        before = self.plan.retention.written_before(now)
        files = self.plan.files.filter(pc.less(self.plan.files["modified"], before))
        newer, seen_version = References(self.table.location), self.plan.version
        if self.now - now > _SKEW_MS:
            # To a clock that is ahead, removed files seem older than they are.
            snapshot = self.loader.load(self.table.objects, self.table.name)
            keep_tombstones(self.table, snapshot, self.plan.retention, now, newer)
        delete: Callable[[Sequence[str]], Deletion]
        if self.quarantine is not None:
            delete = partial(self.quarantine.move, before=before)
        else:
            is_allowed = self.table.roots.allows
            delete = partial(delete_files, self.table.location, before=before, is_allowed=is_allowed)
        with ThreadPoolExecutor(_AT_ONCE, "delvec-vacuum") as pool:
            for start in range(0, files.num_rows, _BATCH_FILES * _AT_ONCE):
                with self.locks.deleting(self.table.location) as lease:
                    seen_version = self._follow(seen_version, newer)
                    paths = files["path"].slice(start, _BATCH_FILES * _AT_ONCE).combine_chunks()
                    doomed = unreferenced(paths, newer).to_pylist()
                    batches = [doomed[at : at + _BATCH_FILES] for at in range(0, len(doomed), _BATCH_FILES)]
                    for done in pool.map(partial(_held, lease, delete), batches):
                        self.deleted += done.deleted
                        self.failed += done.failed
                        self.error = self.error or done.error
                if self.error is not None:
                    return

    def _follow(self, seen_version: int, newer: References) -> int:
        """Keep what commits since a version, and new clones, refer to; return the newest version."""
        table = self.table
        self.clones.keep(newer)
        snapshot = self.loader.load(table.objects, table.name, checkpoints=False)
        if snapshot.version < seen_version:
            raise ConcurrentWrite(
                f"Table '{table.name}' was at version {seen_version} and is now at version {snapshot.version}: it was "
                "replaced by another table. Its files were not deleted.",
                table=table.name,
            )
        if snapshot.version > seen_version:
            check_writable(snapshot.protocol, snapshot.metadata, table.name, writes_rows=False)
            for commit in self.loader.commits(
                table.objects, table.name, range(seen_version + 1, snapshot.version + 1)
            ):
                newer.add_actions(commit.actions)
        return snapshot.version

    def _size(self) -> int:
        files = self.plan.files
        if len(self.deleted) < files.num_rows:
            files = files.filter(pc.is_in(files["path"], value_set=pa.array(self.deleted, pa.string())))
        return pc.sum(files["size"], min_count=0).as_py() or 0

    def _incomplete(self, error: DelvecError, start_version: int) -> VacuumIncomplete:
        total, num_deleted = self.plan.files.num_rows, len(self.deleted)
        verb = "deleted" if self.quarantine is None else f"moved into quarantine {self.quarantine.id}"
        return VacuumIncomplete(
            f"VACUUM of table '{self.table.name}' {verb} {num_deleted} of {counted(total, 'file')} and stopped: {error.message} "
            f"Nothing refers to the remaining {counted(total - num_deleted, 'file')}. Remove the cause and run VACUUM again.",
            table=self.table.name,
            version=start_version,
            deleted=num_deleted,
            deleted_bytes=self._size(),
            remaining=total - num_deleted,
            failed=self.failed[:_MAX_NAMED],
            cause=error.type,
            quarantine=None if self.quarantine is None else self.quarantine.id,
        )


def _held(lease: FileLease, delete: Callable[[Sequence[str]], Deletion], paths: Sequence[str]) -> Deletion:
    """Delete files while no RESTORE can bring them back."""
    lease.check()
    return delete(paths)
