"""Keeps a sample of each table's health after commits, and counts the outcomes of commits.

Nothing waits for it and nothing fails because of it: counts stay in memory until the next sample is written.

Tested in `tests/integration/service/test_metrics.py`.
"""

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from delvec_contract.health import HealthSample
from delvec_contract.health_metrics import SampledMetrics
from delvec_errors import ServiceUnavailable
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.background_worker import BackgroundWorker
from delvec_service.logs import logger
from delvec_service.maintenance.damage_watch import DamageWatch
from delvec_service.maintenance.health_report import DEFAULT_VECTOR_FILE_SIZE, HealthReport, examine
from delvec_service.store.commit_record import CommitConflict
from delvec_service.store.health_samples import CommitCounts, HealthSampleStore
from delvec_service.store.lru_cache import LruCache

__all__ = ["HealthWatch", "rows_changed"]

_ROWS: Final = ("numDeletedRows", "numUpdatedRows", "numTargetRowsDeleted", "numTargetRowsUpdated")
_MAX_TABLES: Final = 10_000
_MAX_CONFLICTS: Final = 200
"""How many conflicts of a table to keep in memory until they are written; the newest."""
_PRINCIPALS: Final = 10_000
_SOON_SECONDS: Final = 1.0
_REST_SECONDS: Final = 5.0
_LONG: Final = 2**63 - 1


@dataclass
class _PendingOutcomes:
    """What has not been written yet for a table."""

    counts: CommitCounts
    conflicts: deque[CommitConflict] = field(default_factory=lambda: deque(maxlen=_MAX_CONFLICTS))


class HealthWatch:
    """Samples and counts of all tables; safe to share between threads.

    Args:
        store: where they are stored.
        vector_file_size: target size of deletion vector files, in bytes.

    Attributes:
        store: the same, for readers.
        damage: what is known of errors in logs and files.
        vector_file_size: target size of deletion vector files, in bytes.
    """

    def __init__(self, store: HealthSampleStore, vector_file_size: int = DEFAULT_VECTOR_FILE_SIZE) -> None:
        self.store = store
        self.damage = DamageWatch()
        self.vector_file_size = vector_file_size
        self._lock = threading.Lock()
        self._waiting: dict[str, _PendingOutcomes] = {}
        self._principals: LruCache[tuple[str, int], str] = LruCache(_PRINCIPALS)
        # After a commit the next sample writes the counts; after a conflict there may be none for a long time.
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
        """Count a successful commit, and remember who made which version, for conflicts with it."""
        rows = rows_changed(metrics) if rebased else 0
        if version is not None and principal is not None:
            self._principals.put((table_id, version), principal)
        self._add(table_id, CommitCounts(1, int(rebased), 0, _long(rows)))

    def conflicted(self, table_id: str, conflict: CommitConflict | None = None) -> None:
        """Count a commit that lost to another one, and keep the record of the conflict."""
        self._add(table_id, CommitCounts(conflicts=1), conflict)
        self._writer.schedule(table_id, table_id, after=_SOON_SECONDS)

    def observe(self, table_id: str, snapshot: Snapshot, report: HealthReport | None = None) -> None:
        """Store a sample of a version. Without a report one is computed, which takes time proportional to the files.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        try:
            health_report = report or examine(
                snapshot,
                vector_file_size=self.vector_file_size,
                problems=self.damage.remembered(table_id, snapshot),
            )
        except SegmentsLost:
            return  # the next commit or request reads the log again
        self.flush(table_id)
        self.store.record(table_id, snapshot.metadata.id, _sample(snapshot.version, health_report))

    def keep(self, table_id: str, snapshot: Snapshot, report: HealthReport) -> None:
        """Store a sample of a version for a reader, whose answer does not depend on it: errors are only logged."""
        try:
            self.observe(table_id, snapshot, report)
        except ServiceUnavailable as error:
            logger.warning("health sample not stored", table_id=table_id, error=error.message)
        except Exception:  # noqa: BLE001 - whatever is wrong with the sample, the answer is right
            logger.exception("health sample not stored", table_id=table_id)

    def unreadable(self, table_id: str) -> None:
        """Say in the newest sample of a table whose log is damaged or gone that it is damaged: no reader can take another one."""
        try:
            self.store.mark_damaged(table_id)
        except ServiceUnavailable as error:
            logger.warning("damage not stored", table_id=table_id, error=error.message)

    def counts(self, table_id: str) -> CommitCounts:
        """Return the outcomes of a table's commits, including those that are only in memory."""
        self.flush(table_id)
        return self.store.counts(table_id)

    def flush(self, table_id: str | None = None) -> None:
        """Write the counts of a table, or of all tables, to the database.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        for one in [table_id] if table_id is not None else list(self._waiting):
            with self._lock:
                pending_outcomes = self._waiting.pop(one, None)
            if pending_outcomes is None:
                continue
            try:
                self.store.count(
                    one,
                    pending_outcomes.counts,
                    [self._explained(one, each) for each in pending_outcomes.conflicts],
                )
            except ServiceUnavailable:
                self._add(one, pending_outcomes.counts, *pending_outcomes.conflicts)
                raise

    def close(self, *, save: bool = True) -> None:
        """Stop; with ``save``, write the counts first, if the database accepts them."""
        self._writer.close()
        if not save:
            return
        with suppress(ServiceUnavailable):
            self.flush()

    def forget(self, table_id: str) -> None:
        """Discard the counts of a table that is no longer registered."""
        with self._lock:
            self._waiting.pop(table_id, None)
        self.damage.forget(table_id)

    def _write(self, table_id: str) -> None:
        with suppress(ServiceUnavailable):  # it waits for the next commit or request
            self.flush(table_id)

    def _explained(self, table_id: str, conflict: CommitConflict) -> CommitConflict:
        """Add who won, if known by now."""
        return replace(conflict, winning_principal=self._principals.get((table_id, conflict.winning_version)))

    def _add(self, table_id: str, counts: CommitCounts, *conflicts: CommitConflict | None) -> None:
        with self._lock:
            if len(self._waiting) >= _MAX_TABLES and table_id not in self._waiting:
                return
            waiting = self._waiting.setdefault(
                table_id, _PendingOutcomes(CommitCounts(since=datetime.now(UTC)))
            )
            previous_counts = waiting.counts
            waiting.counts = replace(
                previous_counts,
                commits=previous_counts.commits + counts.commits,
                rebased=previous_counts.rebased + counts.rebased,
                conflicts=previous_counts.conflicts + counts.conflicts,
                rows_saved=_long(previous_counts.rows_saved + counts.rows_saved),
            )
            waiting.conflicts.extend(one for one in conflicts if one is not None)


def rows_changed(metrics: Mapping[str, int]) -> int:
    """Return how many rows a commit deleted or updated, from its metrics."""
    return sum(metrics.get(name, 0) for name in _ROWS)


def _sample(version: int, report: HealthReport) -> HealthSample:
    # Samples do not read tombstones. The bytes that OPTIMIZE and PURGE would free may be the same.
    findings = [one for one in report.findings if one.action != "VACUUM"]
    # Compaction of deletion vectors frees storage, like VACUUM; a scan reads no less.
    of_scans = [one for one in findings if one.action != "DV COMPACTION"]
    best = max(of_scans, key=lambda one: one.gain_bytes or 0, default=None)
    return HealthSample(
        version=version,
        sampled_at=datetime.now(UTC),
        score=report.score,
        **{name: getattr(report.metrics, name) for name in SampledMetrics.model_fields},
        gain_bytes=0 if best is None else best.gain_bytes or 0,
        cost_bytes=0 if best is None else best.cost_bytes or 0,
        actions=list(dict.fromkeys(one.action for one in findings)),
    )


def _long(number: int) -> int:
    """Return a number that the database can store: a log may claim any."""
    return max(-_LONG - 1, min(number, _LONG))
