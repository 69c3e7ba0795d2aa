"""Log maintenance after commits, in the background: checksums, checkpoints, cleanup, Iceberg.

No answer waits for it, and none fails because of it: errors are logged, and the next commit is the next chance. Under
load work is coalesced: only the newest state of a table is handled when its turn comes, and turns are rare.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from delvec_errors import DelvecError
from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.log.version_checksum import VersionChecksum, checksum_name
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.background_worker import BackgroundWorker
from delvec_service.iceberg.conversion import IcebergConversion, asked_formats
from delvec_service.logs import logger
from delvec_service.maintenance.checkpoints import CheckpointResult, Checkpoints
from delvec_service.maintenance.health_watch import HealthWatch
from delvec_service.maintenance.log_cleanup import CleanUpResult, clean_up
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.open_table import OpenTable

__all__ = ["LogMaintenance"]

_REST_SECONDS: Final = 1.0
_SHARE: Final = 0.05
_SAMPLES_SHARE: Final = 0.02
_CONVERSIONS_SHARE: Final = 0.25
_OVERALL_SHARE: Final = 0.1
_SAMPLES_OVERALL_SHARE: Final = 0.03
_CONVERSIONS_OVERALL_SHARE: Final = 0.5
"""Of a processor, for all tables together: with commits to many tables, theirs alone would leave little to the commits."""
_SETTLED_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.1


@dataclass
class _Work:
    """The pending work of one table.

    Attributes:
        commits: transaction ids by version.
        since: when it was queued, by the monotonic clock.
    """

    table: OpenTable
    commits: dict[int, str] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)

    def and_then(self, later: "_Work") -> "_Work":
        """Return the pending work merged with a newer commit."""
        return _Work(self.table, self.commits | later.commits, min(self.since, later.since))


class LogMaintenance:
    """Maintains the logs of tables after commits to them.

    Args:
        loader: reads snapshots.
        checkpoints: writes checkpoints.
        health: records samples of tables.
        iceberg: converts tables with the property ``delvec.iceberg.formatVersions``.
        alone: returns whether no other replica is doing the same, see :meth:`Database.alone`; by default always.
        enabled: whether to do anything; not all replicas need to.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        checkpoints: Checkpoints,
        health: HealthWatch | None = None,
        iceberg: IcebergConversion | None = None,
        *,
        alone: Callable[[str], AbstractContextManager[bool]] = lambda _: nullcontext(True),
        is_on: bool = True,
    ) -> None:
        self._loader = loader
        self._health = health
        self._checkpoints = checkpoints
        self._alone = alone
        self._enabled = is_on
        self._iceberg = iceberg
        # Checkpoints and samples take longer the larger the table; checksums must not wait for them.
        self._checksums = self._worker("checksums", self._checksum)
        self._samples = self._worker("health", self._sample, _SAMPLES_SHARE, _SAMPLES_OVERALL_SHARE)
        self._keepers = self._worker("checkpoints", self._keep)
        self._conversions = self._worker(
            "iceberg", self._convert, _CONVERSIONS_SHARE, _CONVERSIONS_OVERALL_SHARE
        )

    def backlog(self) -> Mapping[str, int]:
        """Return how many tables are waiting for each task."""
        return {
            "checksums": self._checksums.backlog,
            "checkpoints": self._keepers.backlog,
            "health": self._samples.backlog,
            "iceberg": self._conversions.backlog,
        }

    def committed(self, table: OpenTable, version: int, transaction_id: str) -> None:
        """Record a commit. Returns at once."""
        if self._enabled:
            _add(self._checksums, _Work(table, {version: transaction_id}))

    def checkpoint(
        self, table: OpenTable, *, cleaning: bool = False, dry_run: bool = False
    ) -> tuple[CheckpointResult | None, CleanUpResult | None]:
        """Write a checkpoint now, and optionally clean up the log.

        Args:
            table: the table.
            cleaning: whether to clean up.
            dry_run: write and delete nothing; only report what would be deleted now.

        Raises:
            UnsupportedTable: or a subclass: the table has features that Delvec does not know.
            CorruptTable: or a subclass: the log cannot be read, or a property is invalid.
            ConcurrentWrite: the table was replaced by another one in the meantime.
            StorageError: storage did not answer.
        """
        written = None if dry_run else self._checkpoints.write(table)
        cleaned = None
        if cleaning or dry_run:
            now = None if written is None else self._storage_time(table, written)
            cleaned = clean_up(table, self._loader, now=now, dry_run=dry_run)
        return written, cleaned

    def wait(self, seconds: float) -> bool:
        """Wait until the work for all commits so far is done; False if it is not."""
        end = time.monotonic() + seconds
        while True:
            # Checksums first: they create work for the others.
            if not all(worker.wait(max(0.0, end - time.monotonic())) for worker in self._workers):
                return False
            if all(worker.is_idle for worker in self._workers):
                return True

    def close(self, seconds: float = 30.0, *, samples: bool = True) -> None:
        """Finish pending work within a time limit, then stop.

        Args:
            seconds: the limit.
            samples: whether to store pending samples, too.
        """
        if not samples:
            self._samples.close()
        self.wait(seconds)
        for worker in self._workers:
            worker.close(0.0)  # Work that is not done by now is abandoned.

    @property
    def _workers(self) -> Sequence[BackgroundWorker[_Work]]:
        return (self._checksums, self._samples, self._keepers, self._conversions)

    def _worker(
        self, name: str, task: Callable[[_Work], None], share: float = _SHARE, overall: float = _OVERALL_SHARE
    ) -> BackgroundWorker[_Work]:
        """Return a worker that uses a limited share of the time for each table, so that commits can continue.

        Args:
            name: the name of its thread.
            task: what it does.
            share: the share of the time, for one table.
            overall: of a processor, for all tables.
        """
        return BackgroundWorker(
            f"delvec-{name}",
            partial(self._do, name, task),
            rest=lambda taken: max(_REST_SECONDS, taken / share),
            share=overall,
        )

    def _do(self, name: str, task: Callable[[_Work], None], work: _Work) -> None:
        try:
            with work.table.observer.background_task(name, work.table.name):
                task(work)
        except DelvecError as error:
            logger.warning(
                "log maintenance failed",
                table=work.table.name,
                task=name,
                type=error.type,
                error=error.message,
            )
        except Exception:  # noqa: BLE001 - logged with the table's name, which the worker does not know
            logger.exception("log maintenance failed", table=work.table.name, task=name)

    def _checksum(self, work: _Work) -> None:
        """Write the checksum of the newest version, if it is one of ours; check whether a checkpoint is due."""
        table = work.table
        snapshot = self._loader.load(table.objects, table.name)
        if snapshot.version in work.commits:
            checksum = VersionChecksum.of(snapshot, work.commits[snapshot.version])
            path = f"_delta_log/{checksum_name(snapshot.version)}"
            table.objects.put_if_absent(path, checksum.serialize(), directories=False)
        if _checkpoint_due(snapshot):
            _add(self._keepers, _Work(table))
        if self._health is not None:
            _add(self._samples, _Work(table))
        if self._iceberg is not None and asked_formats(snapshot.configuration):
            _add(self._conversions, _Work(table))

    def _convert(self, work: _Work) -> None:
        """Convert the newest version to Iceberg, in the table's Iceberg format versions."""
        snapshot = self._loader.load(work.table.objects, work.table.name)
        for format_version in asked_formats(snapshot.configuration):
            if self._iceberg is not None:
                self._iceberg.publish(work.table, format_version=format_version)

    def _sample(self, work: _Work) -> None:
        """Store a sample of the newest known version."""
        snapshot = self._loader.known(work.table.location)
        if snapshot is not None and self._health is not None:
            with self._alone(f"sample of {work.table.record.id}") as ours:
                if ours:
                    self._health.observe(work.table.record.id, snapshot)

    def _keep(self, work: _Work) -> None:
        table = work.table
        snapshot = self._loader.load(table.objects, table.name)
        if not _checkpoint_due(snapshot):
            return  # another replica was first
        listed = LogReader(table.objects, table.name).list_recent().checkpoints
        self._loader.know_checkpoint(
            snapshot.location, max((version for version in listed if version <= snapshot.version), default=0)
        )
        if not _checkpoint_due(self._loader.load(table.objects, table.name)):
            return  # another replica was first, with an older version
        if not self._loader.is_settled(table.location) and time.monotonic() - work.since < _SETTLED_SECONDS:
            # A checkpoint would make a foreign commit final as it was read, and it may not be complete yet.
            time.sleep(_PAUSE_SECONDS)
            _add(self._keepers, work)
            return
        with self._alone(f"checkpoint of {table.record.id}") as ours:
            if ours:  # else another replica is writing one
                self._write_checkpoint(table)

    def _write_checkpoint(self, table: OpenTable) -> None:
        written = self._checkpoints.write(table)
        if written.written:
            logger.info("checkpoint written", table=table.name, version=written.version, form=written.form)
            cleaned = clean_up(table, self._loader, now=self._storage_time(table, written))
            if cleaned.deleted:
                logger.info("log cleaned up", table=table.name, files=len(cleaned.deleted))

    def _storage_time(self, table: OpenTable, written: CheckpointResult) -> int | None:
        """Return the storage's current time, from a file that was just written."""
        found = table.objects.head("_delta_log/_last_checkpoint") if written.written else None
        return None if found is None else found.last_modified_ms


def _add(worker: BackgroundWorker[_Work], work: _Work) -> None:
    worker.schedule(work.table.location, work, merge=_Work.and_then)


def _checkpoint_due(snapshot: Snapshot) -> bool:
    """Return whether the newest checkpoint is as many versions old as the table's checkpoint interval."""
    policy = LogPolicy.of(snapshot.configuration, snapshot.protocol)
    since = 0 if snapshot.checkpoint_version is None else snapshot.checkpoint_version
    return snapshot.version - since >= policy.checkpoint_interval
