"""All tables of a service at once, in SQL: numbers of their newest samples, outcomes of their commits, and both over time.

Tested in `tests/integration/service/api/test_fleet.py`.
"""

import time
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import and_, func, select

from delvec_contract.fleet import FleetPoint
from delvec_service.store.database import Database
from delvec_service.store.lru_cache import LruCache
from delvec_service.store.models import CommitIntervalRow, HealthSampleRow, TableRow

__all__ = ["FleetStore", "FleetTable"]

_IDS_AT_ONCE: Final = 5000
_HOUR: Final = 3600
_MAX_POINTS: Final = 1000
_REMEMBERED_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class FleetTable:
    """A registered table with some numbers of its newest sample, which are None if there is none."""

    id: str
    name: str
    score: float | None
    actions: str | None
    sampled_at: datetime | None
    size_in_bytes: int | None
    num_files: int | None
    num_physical_rows: int | None
    num_deleted_rows: int | None
    deleted_bytes: int | None
    scan_debt_seconds: float | None


class FleetStore:
    """Reads sums over all tables; safe to share between threads. All methods raise ServiceUnavailable without a database.

    ``ids`` limits what is summed to these tables; None for all of the catalog.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._points: LruCache[Hashable, FleetPoint] = LruCache(_MAX_POINTS)

    def tables(self, catalog: str) -> Sequence[FleetTable]:
        """Return every registered table, by name."""
        sample, newest = HealthSampleRow, HealthSampleRow.__table__.alias("newest")
        version = select(func.max(newest.c.version)).where(newest.c.table_id == TableRow.id).scalar_subquery()
        name = func.coalesce(TableRow.name, TableRow.folder_name)
        query = (
            select(
                TableRow.id,
                name,
                sample.score,
                sample.actions,
                sample.sampled_at,
                *_numbers("size_in_bytes", "num_files", "num_physical_rows", "num_deleted_rows"),
                *_numbers("deleted_bytes", "scan_debt_seconds"),
            )
            .outerjoin(sample, and_(sample.table_id == TableRow.id, sample.version == version))
            .where(TableRow.catalog == catalog)
            .order_by(name, TableRow.id)
        )
        with self._database.read() as session:
            return [FleetTable(*row) for row in session.execute(query)]

    def commits_by_table(
        self, catalog: str, since: datetime, ids: Collection[str] | None
    ) -> dict[str, tuple[int, int]]:
        """Return how many commits took effect and how many conflicted since a time, by table id."""
        rows = self._commits(catalog, since, ids, CommitIntervalRow.table_id)
        return {table_id: (committed, conflicts) for table_id, committed, *_, conflicts in rows}

    def commits_by_hour(
        self, catalog: str, since: datetime, ids: Collection[str] | None
    ) -> dict[datetime, tuple[int, int, int, int]]:
        """Return commits, rebased commits, rows saved and conflicts, by the beginning of each hour that has any."""
        sums: dict[datetime, tuple[int, int, int, int]] = {}
        for at, *numbers in self._commits(catalog, since, ids, CommitIntervalRow.since):
            before = sums.get(at, (0, 0, 0, 0))
            committed, rebased, saved, conflicts = map(sum, zip(before, numbers, strict=True))
            sums[at] = (committed, rebased, saved, conflicts)
        return sums

    def _commits(
        self, catalog: str, since: datetime, ids: Collection[str] | None, by: Any
    ) -> Sequence[tuple[Any, int, int, int, int]]:
        row = CommitIntervalRow
        numbers = (func.sum(each) for each in (row.commits, row.rebased, row.rows_saved, row.conflicts))
        query = (
            select(by, *numbers)
            .select_from(TableRow)
            .join(row, and_(row.table_id == TableRow.id, row.seconds == _HOUR, row.since >= since))
            .where(TableRow.catalog == catalog)
            .group_by(by)
        )
        with self._database.read() as session:
            return [
                tuple(row)
                for part in _parts(ids)
                for row in session.execute(query if part is None else query.where(TableRow.id.in_(part)))
            ]

    def points(
        self, catalog: str, times: Sequence[datetime], ids: Collection[str] | None
    ) -> Sequence[FleetPoint]:
        """Return the sums at some times: of the newest sample of each table by then.

        A table that was registered by then but first sampled later counts with its oldest sample. Sums are remembered for ten
        minutes: what was sampled days ago hardly changes.
        """
        bucket, whose = int(time.monotonic() // _REMEMBERED_SECONDS), None if ids is None else frozenset(ids)
        points = []
        for at in times:
            key = (catalog, at, bucket, whose)
            point = self._points.get(key)
            if point is None:
                point = self._point(catalog, at, ids)
                self._points.put(key, point)
            points.append(point)
        return points

    def _point(self, catalog: str, at: datetime, ids: Collection[str] | None) -> FleetPoint:
        with self._database.read() as session:
            sums = [session.execute(_sums_at(catalog, at, part)).one() for part in _parts(ids)]
        tables, size, deleted, seconds = (
            sum(one or 0 for one in column) for column in zip(*sums, strict=True)
        )
        return FleetPoint(
            at=at,
            num_tables=tables,
            size_in_bytes=int(size),
            deleted_bytes=int(deleted),
            scan_debt_seconds=float(seconds),
        )


def _sums_at(catalog: str, at: datetime, ids: Sequence[str] | None) -> Any:
    sample, table = HealthSampleRow, HealthSampleRow.__table__.alias("at_the_time")
    versions = select(table.c.version).where(table.c.table_id == TableRow.id).limit(1)
    before = versions.where(table.c.sampled_at <= at).order_by(table.c.sampled_at.desc())
    version = func.coalesce(before.scalar_subquery(), versions.order_by(table.c.sampled_at).scalar_subquery())
    size, deleted, seconds = _numbers("size_in_bytes", "deleted_bytes", "scan_debt_seconds")
    query = (
        select(func.count(), func.sum(size), func.sum(deleted), func.sum(seconds))
        .select_from(TableRow)
        .outerjoin(sample, and_(sample.table_id == TableRow.id, sample.version == version))
        .where(TableRow.catalog == catalog, TableRow.created_at <= at)
    )
    return query if ids is None else query.where(TableRow.id.in_(ids))


def _parts(ids: Collection[str] | None) -> Iterator[Sequence[str] | None]:
    """Yield what fits into the parameters of one statement."""
    if ids is None:
        yield None
    else:
        ordered = sorted(ids)
        for start in range(0, max(len(ordered), 1), _IDS_AT_ONCE):
            yield ordered[start : start + _IDS_AT_ONCE]


def _numbers(*names: str) -> list[Any]:
    """Return columns that the class does not write down."""
    return [getattr(HealthSampleRow, name) for name in names]
