"""What a service does for a log after its commits, in the background: checksums, checkpoints, clean-up, Iceberg.

No answer waits for any of it, and none fails for it: what does not work is logged, and the next commit is the next
chance. Under load work is coalesced: of a table only what is newest when its turn comes is done, and turns are rare.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from delvec_kernel.errors import DelvecError
from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.log.version_checksum import VersionChecksum, checksum_name
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.iceberg.conversion import IcebergConversion, asked_formats
from delvec_service.logs import logger
from delvec_service.maintenance.checkpoints import CheckpointResult, Checkpoints
from delvec_service.maintenance.health_watch import HealthWatch
from delvec_service.maintenance.log_cleanup import CleanUpResult, clean_up
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.open_table import OpenTable

__all__ = ["LogUpkeep"]

_REST_SECONDS: Final = 1.0
_SHARE: Final = 0.05
_SAMPLES_SHARE: Final = 0.02
_CONVERSIONS_SHARE: Final = 0.25
_SETTLED_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.1


@dataclass
class _Work:
    """What waits for one table.

    Attributes:
        commits: transaction ids by version.
        since: when it began to wait, by the monotonic clock.
    """

    table: OpenTable
    commits: dict[int, str] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)


class _Worker:
    """One thread, and the tables that wait for it, each once.

    A table rests after each turn, so that what is done for it takes little from the commits that go on; one that did
    not have a turn of late has it at once.

    Args:
        name: of the thread.
        task: what to do for a table.
        rest: seconds that a table rests, at least.
        share: of the time, that may go to one table.
    """

    def __init__(
        self, name: str, task: Callable[[_Work], None], *, rest: float = _REST_SECONDS, share: float = _SHARE
    ) -> None:
        self._name, self._task = name, task
        self._rest, self._share = rest, share
        self._condition = threading.Condition()
        self._waiting: OrderedDict[str, _Work] = OrderedDict()
        self._resting: dict[str, float] = {}
        self._hurried = 0
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, work: _Work) -> None:
        """Let a table wait, if it does not do so already."""
        with self._condition:
            if self._closed:
                return
            waiting = self._waiting.setdefault(work.table.location, work)
            waiting.commits.update(work.commits)
            waiting.since = min(waiting.since, work.since)
            if self._thread is None:
                # A process that is killed may lose this work: nothing depends on it.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._condition.notify_all()

    @property
    def backlog(self) -> int:
        """How many tables wait."""
        return len(self._waiting)

    def wait(self, seconds: float) -> bool:
        """Wait until there is nothing to do, which is done now; False if there still is."""
        with self._condition:
            self._hurried += 1
            self._condition.notify_all()
            try:
                return self._condition.wait_for(lambda: not (self._waiting or self._busy), seconds)
            finally:
                self._hurried -= 1

    def close(self) -> None:
        """Take no more work, and let the thread end after what it is doing."""
        with self._condition:
            self._closed = True
            self._waiting.clear()
            self._condition.notify_all()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            began = time.monotonic()
            try:
                with work.table.observer.upkeep(self._name.removeprefix("delvec-"), work.table.name):
                    self._task(work)
            except DelvecError as error:
                logger.warning(
                    "log upkeep failed",
                    table=work.table.name,
                    task=self._name,
                    type=error.type,
                    error=error.message,
                )
            except Exception:  # noqa: BLE001 - the thread has other tables to look after
                logger.exception("log upkeep failed", table=work.table.name, task=self._name)
            ended = time.monotonic()
            rest = max(self._rest, (ended - began) / self._share)
            with self._condition:
                self._busy = False
                self._resting[work.table.location] = ended + rest
                self._condition.notify_all()

    def _next(self) -> _Work | None:
        """Wait for the turn of a table, and begin it; None once this is closed."""
        with self._condition:
            while not self._closed:
                now = time.monotonic()
                self._resting = {name: until for name, until in self._resting.items() if until > now}
                for location in self._waiting:
                    if self._hurried or location not in self._resting:
                        self._busy = True
                        return self._waiting.pop(location)
                rests = [self._resting[location] - now for location in self._waiting]
                self._condition.wait(min(rests, default=None))
            return None


class LogUpkeep:
    """Keeps the logs of tables in order after commits to them.

    Args:
        loader: reads snapshots.
        checkpoints: writes checkpoints.
        health: keeps samples of tables.
        iceberg: converts tables that ask for it, by the property ``delvec.iceberg.formatVersions``.
        alone: tells whether no other replica does the same just now, see :meth:`Database.alone`; by default none does.
        enabled: whether to do anything; replicas need not all do it.
    """

    def __init__(
        self,
        loader: SnapshotLoader,
        checkpoints: Checkpoints,
        health: HealthWatch | None = None,
        iceberg: IcebergConversion | None = None,
        *,
        alone: Callable[[str], AbstractContextManager[bool]] = lambda _: nullcontext(True),
        enabled: bool = True,
    ) -> None:
        self._loader = loader
        self._health = health
        self._checkpoints = checkpoints
        self._alone = alone
        self._enabled = enabled
        # A checkpoint, or a sample, takes as long as its table is large; checksums must not wait for it.
        self._checksums = _Worker("delvec-checksums", self._checksum)
        self._keepers = _Worker("delvec-checkpoints", self._keep)
        self._samples = _Worker("delvec-health", self._sample, share=_SAMPLES_SHARE)
        self._iceberg = iceberg
        self._conversions = _Worker("delvec-iceberg", self._convert, share=_CONVERSIONS_SHARE)

    def backlog(self) -> Mapping[str, int]:
        """Return how many tables wait for each task."""
        return {
            "checksums": self._checksums.backlog,
            "checkpoints": self._keepers.backlog,
            "health": self._samples.backlog,
            "iceberg": self._conversions.backlog,
        }

    def committed(self, table: OpenTable, version: int, transaction_id: str) -> None:
        """Take note of a commit; returns at once."""
        if self._enabled:
            self._checksums.add(_Work(table, {version: transaction_id}))

    def checkpoint(
        self, table: OpenTable, *, cleaning: bool = False, dry_run: bool = False
    ) -> tuple[CheckpointResult | None, CleanUpResult | None]:
        """Write a checkpoint now, and clean up the log if asked to.

        Args:
            table: the table.
            cleaning: whether to clean up.
            dry_run: write and delete nothing: say what would be deleted as the log is now.

        Raises:
            UnsupportedTable: or a subclass: the table has features that Delvec does not know.
            CorruptTable: or a subclass: the log cannot be read, or a property means nothing.
            ConcurrentWrite: the table was replaced by another one meanwhile.
            StorageError: storage did not answer.
        """
        written = None if dry_run else self._checkpoints.write(table)
        cleaned = None
        if cleaning or dry_run:
            now = None if written is None else self._storage_time(table, written)
            cleaned = clean_up(table, self._loader, now=now, dry_run=dry_run)
        return written, cleaned

    def wait(self, seconds: float) -> bool:
        """Wait until everything is done that commits so far ask for; False if it is not."""
        # Checksums first: they make work for the others.
        return all(
            one.wait(seconds) for one in (self._checksums, self._samples, self._keepers, self._conversions)
        )

    def close(self, seconds: float = 30.0) -> None:
        """Finish what there is to do, within a time, and stop."""
        self.wait(seconds)
        self._checksums.close()
        self._samples.close()
        self._keepers.close()
        self._conversions.close()

    def _checksum(self, work: _Work) -> None:
        """Write the checksum of the newest version, if it is one of ours; look whether a checkpoint is due."""
        table = work.table
        snapshot = self._loader.load(table.objects, table.name)
        if snapshot.version in work.commits:
            checksum = VersionChecksum.of(snapshot, work.commits[snapshot.version])
            path = f"_delta_log/{checksum_name(snapshot.version)}"
            table.objects.put_if_absent(path, checksum.serialize(), directories=False)
        if _checkpoint_due(snapshot):
            self._keepers.add(_Work(table))
        if self._health is not None:
            self._samples.add(_Work(table))
        if self._iceberg is not None and asked_formats(snapshot.configuration):
            self._conversions.add(_Work(table))

    def _convert(self, work: _Work) -> None:
        """Convert the newest version to Iceberg, in the format versions that the table asks for."""
        snapshot = self._loader.load(work.table.objects, work.table.name)
        for format_version in asked_formats(snapshot.configuration):
            if self._iceberg is not None:
                self._iceberg.convert(work.table, format_version=format_version)

    def _sample(self, work: _Work) -> None:
        """Keep a sample of the newest version that is known."""
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
            return  # another replica was, with an older version
        if not self._loader.is_settled(table.location) and time.monotonic() - work.since < _SETTLED_SECONDS:
            # A checkpoint would make what was read of a foreign commit final, and that may not be complete yet.
            time.sleep(_PAUSE_SECONDS)
            self._keepers.add(work)
            return
        with self._alone(f"checkpoint of {table.record.id}") as ours:
            if ours:  # else another replica is at it, and takes its time
                self._write_checkpoint(table)

    def _write_checkpoint(self, table: OpenTable) -> None:
        written = self._checkpoints.write(table)
        if written.written:
            logger.info("checkpoint written", table=table.name, version=written.version, form=written.form)
            cleaned = clean_up(table, self._loader, now=self._storage_time(table, written))
            if cleaned.deleted:
                logger.info("log cleaned up", table=table.name, files=len(cleaned.deleted))

    def _storage_time(self, table: OpenTable, written: CheckpointResult) -> int | None:
        """Return what storage takes the time for, where it was written to just now."""
        found = table.objects.head("_delta_log/_last_checkpoint") if written.written else None
        return None if found is None else found.last_modified_ms


def _checkpoint_due(snapshot: Snapshot) -> bool:
    """Return whether the newest checkpoint is as many versions back as the table wants them apart."""
    policy = LogPolicy.of(snapshot.configuration, snapshot.protocol)
    since = 0 if snapshot.checkpoint_version is None else snapshot.checkpoint_version
    return snapshot.version - since >= policy.checkpoint_interval
