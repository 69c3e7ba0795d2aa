"""Keeps a sample of each table's health after commits to it, and counts what became of those.

Nothing waits for it and nothing fails for it: counts are kept in memory until the next sample is written.
"""

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from delvec_kernel.errors import ServiceUnavailable
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.health.health import DEFAULT_VECTOR_FILE_SIZE, HealthReport, examine
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.background_worker import BackgroundWorker
from delvec_service.logs import logger
from delvec_service.store.commit_record import CommitConflict
from delvec_service.store.health_samples import CommitCounts, HealthSample, HealthSampleStore
from delvec_service.store.lru_cache import LruCache

__all__ = ["HealthWatch", "rows_changed"]

_ROWS: Final = ("numDeletedRows", "numUpdatedRows", "numTargetRowsDeleted", "numTargetRowsUpdated")
_MOST_TABLES: Final = 10_000
_MOST_CONFLICTS: Final = 200
"""That wait, of one table: the newest."""
_PRINCIPALS: Final = 10_000
_SOON_SECONDS: Final = 1.0
_REST_SECONDS: Final = 5.0
_LONG: Final = 2**63 - 1


@dataclass
class _Waiting:
    """What is not written down yet of a table."""

    counts: CommitCounts
    conflicts: deque[CommitConflict] = field(default_factory=lambda: deque(maxlen=_MOST_CONFLICTS))


class HealthWatch:
    """Samples and counts of all tables; safe to share between threads.

    Args:
        store: keeps them.
        vector_file_size: bytes of the files of deletion vectors that compaction makes.

    Attributes:
        store: the same, for those who read.
    """

    def __init__(self, store: HealthSampleStore, vector_file_size: int = DEFAULT_VECTOR_FILE_SIZE) -> None:
        self.store = store
        self._vector_file_size = vector_file_size
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._principals: LruCache[tuple[str, int], str] = LruCache(_PRINCIPALS)
        # After a commit the next sample writes counts down; after a conflict there may be none for long.
        self._writer = BackgroundWorker("delvec-conflicts", self._write, rest=lambda _: _REST_SECONDS)

    def committed(
        self,
        table_id: str,
        metrics: Mapping[str, int],
        *,
        rebased: bool,
        version: int | None = None,
        principal: str | None = None,
    ) -> None:
        """Count a commit that took effect; who made which version is said of conflicts with it."""
        rows = rows_changed(metrics) if rebased else 0
        if version is not None and principal is not None:
            self._principals.put((table_id, version), principal, 1)
        self._add(table_id, CommitCounts(1, int(rebased), 0, _long(rows)))

    def conflicted(self, table_id: str, conflict: CommitConflict | None = None) -> None:
        """Count a commit that did not take effect because another had, and keep what is known of it."""
        self._add(table_id, CommitCounts(conflicts=1), conflict)
        self._writer.schedule(table_id, table_id, after=_SOON_SECONDS)

    def observe(self, table_id: str, snapshot: Snapshot, report: HealthReport | None = None) -> None:
        """Keep a sample of a version; without a report, one is made, which takes as long as the table has files.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        try:
            found = report or examine(snapshot, vector_file_size=self._vector_file_size)
        except SegmentsLost:
            return  # the next commit, or the next question, reads the log again
        self.flush(table_id)
        self.store.record(table_id, _sample(snapshot, found))

    def keep(self, table_id: str, snapshot: Snapshot, report: HealthReport) -> None:
        """Keep a sample of a version for a reader, who has an answer without it: what goes wrong is only logged."""
        try:
            self.observe(table_id, snapshot, report)
        except ServiceUnavailable as error:
            logger.warning("health sample not kept", table_id=table_id, error=error.message)
        except Exception:  # noqa: BLE001 - whatever is wrong with the sample, the answer is right
            logger.exception("health sample not kept", table_id=table_id)

    def counts(self, table_id: str) -> CommitCounts:
        """Return what became of a table's commits, those that are only in memory included."""
        self.flush(table_id)
        return self.store.counts(table_id)

    def flush(self, table_id: str | None = None) -> None:
        """Write down the counts of a table, or of all.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        for one in [table_id] if table_id is not None else list(self._waiting):
            with self._lock:
                found = self._waiting.pop(one, None)
            if found is None:
                continue
            try:
                self.store.count(one, found.counts, [self._explained(one, each) for each in found.conflicts])
            except ServiceUnavailable:
                self._add(one, found.counts, *found.conflicts)
                raise

    def close(self) -> None:
        """Write down what is counted, if the database takes it."""
        self._writer.close()
        with suppress(ServiceUnavailable):
            self.flush()

    def forget(self, table_id: str) -> None:
        """Drop what is counted of a table that is registered no more, and not written down."""
        with self._lock:
            self._waiting.pop(table_id, None)

    def _write(self, table_id: str) -> None:
        with suppress(ServiceUnavailable):  # it waits for the next commit, or question
            self.flush(table_id)

    def _explained(self, table_id: str, conflict: CommitConflict) -> CommitConflict:
        """Say who won, if it is known by now."""
        return replace(conflict, winning_principal=self._principals.get((table_id, conflict.winning_version)))

    def _add(self, table_id: str, found: CommitCounts, *conflicts: CommitConflict | None) -> None:
        with self._lock:
            if len(self._waiting) >= _MOST_TABLES and table_id not in self._waiting:
                return
            waiting = self._waiting.setdefault(table_id, _Waiting(CommitCounts(since=datetime.now(UTC))))
            known = waiting.counts
            waiting.counts = replace(
                known,
                commits=known.commits + found.commits,
                rebased=known.rebased + found.rebased,
                conflicts=known.conflicts + found.conflicts,
                rows_saved=_long(known.rows_saved + found.rows_saved),
            )
            waiting.conflicts.extend(one for one in conflicts if one is not None)


def rows_changed(metrics: Mapping[str, int]) -> int:
    """Return how many rows a commit deleted or updated, by its metrics."""
    return sum(metrics.get(name, 0) for name in _ROWS)


def _sample(snapshot: Snapshot, report: HealthReport) -> HealthSample:
    # Tombstones are not read for a sample. What OPTIMIZE gains and what PURGE gains may be the same bytes.
    found = [one for one in report.findings if one.action != "VACUUM"]
    # What compaction of deletion vectors gains is storage, as of VACUUM; a scan reads no less.
    of_scans = [one for one in found if one.action != "DV COMPACTION"]
    best = max(of_scans, key=lambda one: one.gain_bytes or 0, default=None)
    return HealthSample(
        version=snapshot.version,
        metadata_id=snapshot.metadata.id,
        sampled_at=datetime.now(UTC),
        score=report.score,
        num_files=_long(report.num_files),
        size_in_bytes=_long(report.size_in_bytes),
        num_records=None if report.num_physical_rows is None else _long(report.num_physical_rows),
        num_deleted_rows=_long(report.num_deleted_rows),
        deleted_ratio=report.deleted_ratio,
        deleted_bytes=_long(report.deleted_bytes),
        num_deletion_vectors=_long(report.num_files_with_deletion_vectors),
        small_files=_long(report.small_files),
        commits_since_checkpoint=_long(report.commits_since_checkpoint),
        gain_bytes=0 if best is None else _long(best.gain_bytes or 0),
        cost_bytes=0 if best is None else _long(best.cost_bytes or 0),
        actions=",".join(dict.fromkeys(one.action for one in found)),
    )


def _long(number: int) -> int:
    """Return a number as the database can keep it: a log may claim any."""
    return max(-_LONG - 1, min(number, _LONG))
