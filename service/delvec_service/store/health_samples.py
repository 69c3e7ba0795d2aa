"""Health of tables after their versions, and outcomes of commits to them, in SQL.

It may be lost without harm: a sample is recorded again with the next commit, or when somebody requests a table's
health.

Tested in `tests/integration/contract/test_health_sample_store.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import and_, case, delete, func, inspect, literal, or_, select
from sqlalchemy.orm import Session

from delvec_contract.health import HealthSample
from delvec_contract.health_metrics import HealthOrder
from delvec_maintenance.health.health_findings import SCORE_BANDS, score_band
from delvec_service.store.commit_record import (
    CommitConflict,
    add_conflicts,
    add_interval,
    added,
    conflict_event,
)
from delvec_service.store.database import Database, insert_into
from delvec_service.store.event_store import Event, EventStore, event_id
from delvec_service.store.models import CommitCountsRow, HealthSampleRow, TableRow

__all__ = [
    "CommitCounts",
    "HealthSampleStore",
    "ObservedTable",
    "SampledTable",
    "name_patterns",
    "superfluous",
]

_THINNED_EVERY: Final = 32
_SPACING: Final = (
    (timedelta(days=366), None),
    (timedelta(days=31), timedelta(days=1)),
    (timedelta(days=1), timedelta(hours=1)),
)
"""From each age on, the interval between samples; None if none are kept."""
_LONGEST_ID: Final = 64
_MAX_INTEGER: Final = 2**63 - 1
_KEY: Final = ["table_id", "version"]
_UNKNOWN: Final = -1.0e300
"""The sort key of a table without a sample, or without a value for the sort column: after all others."""


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """Outcomes of commits since ``since``; None if nothing has been counted yet."""

    commits: int = 0
    rebased: int = 0
    conflicts: int = 0
    rows_saved: int = 0
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class SampledTable:
    """A registered table and its newest sample, if any."""

    id: str
    name: str
    location: str
    sample: HealthSample | None
    sort_key: float


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """A registered table, its newest sample, and the outcomes of commits to it."""

    name: str
    sample: HealthSample
    counts: CommitCounts


_COLUMNS: Final = {
    name: column.name
    for name in HealthSample.model_fields
    for column in [inspect(HealthSampleRow).columns[name]]
}
"""The columns of the fields of a sample."""


class HealthSampleStore:
    """Health samples and counts of commits; safe to share between threads.

    Args:
        database: where they are stored.
        events: records changes of health, and conflicts, as events.
    """

    def __init__(self, database: Database, events: EventStore | None = None) -> None:
        self._database = database
        self._events = events or EventStore(database, is_enabled=False)

    def record(self, table_id: str, metadata_id: str, sample: HealthSample) -> None:
        """Store a sample, and delete old ones and those of an earlier table at the same location.

        Args:
            table_id: the table.
            metadata_id: the id of the table's metadata at the time: a different one means another table, created in its place.
            sample: its state.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = HealthSampleRow
        values = {column: _storable(getattr(sample, name)) for name, column in _COLUMNS.items()}
        values |= {"table_id": table_id, "metadata_id": metadata_id[:_LONGEST_ID]}
        with self._database.write() as session:
            gone = delete(row).where(row.table_id == table_id, row.metadata_id != values["metadata_id"])
            session.execute(gone)
            before = session.execute(
                select(row.version, row.score, row.actions)
                .where(row.table_id == table_id)
                .order_by(row.version.desc())
                .limit(1)
            ).first()
            statement = insert_into(session, row).values(**values)
            changed = {name: statement.excluded[name] for name in values.keys() - _KEY}
            session.execute(statement.on_conflict_do_update(index_elements=_KEY, set_=changed))
            if sample.version % _THINNED_EVERY == 0:
                _thin(session, table_id, sample.sampled_at)
            if before is not None:
                self._events.add(session, _health_events(table_id, sample, *before))

    def mark_damaged(self, table_id: str) -> None:
        """Say in a table's newest sample that it is damaged: nobody can take another one. None is made up if there is none.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = HealthSampleRow
        query = select(row.metadata_id, *_columns()).where(row.table_id == table_id)
        with self._database.read() as session:
            found = session.execute(query.order_by(row.version.desc()).limit(1)).first()
        if found is not None:
            metadata_id, *values = found
            damaged = {"score": 0.0, "actions": ["CHECK"], "sampled_at": datetime.now(UTC)}
            self.record(table_id, metadata_id, _sample(values).model_copy(update=damaged))

    def count(self, table_id: str, outcomes: CommitCounts, conflicts: Sequence[CommitConflict] = ()) -> None:
        """Add to a table's commit counts, and store its conflicts.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = CommitCountsRow
        counted = {
            name: getattr(outcomes, name) for name in ("commits", "rebased", "conflicts", "rows_saved")
        }
        since = outcomes.since or datetime.now(UTC)
        with self._database.write() as session:
            statement = insert_into(session, row).values(table_id=table_id, since=since, **counted)
            sums = {name: added(getattr(row, name), statement.excluded[name]) for name in counted}
            session.execute(statement.on_conflict_do_update(index_elements=["table_id"], set_=sums))
            add_interval(session, table_id, since, counted)
            if conflicts:
                add_conflicts(session, table_id, conflicts)
                self._events.add(session, [conflict_event(table_id, one) for one in conflicts])

    def counts(self, table_id: str) -> CommitCounts:
        """Return the outcomes of a table's commits.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        with self._database.read() as session:
            row = session.get(CommitCountsRow, table_id)
        if row is None:
            return CommitCounts()
        return CommitCounts(row.commits, row.rebased, row.conflicts, row.rows_saved, row.since)

    def series(self, table_id: str, since: datetime | None, limit: int) -> Sequence[HealthSample]:
        """Return samples of a table, newest first.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = HealthSampleRow
        query = select(*_columns()).where(row.table_id == table_id)
        if since is not None:
            query = query.where(row.sampled_at >= since)
        with self._database.read() as session:
            found = session.execute(query.order_by(row.version.desc()).limit(limit))
            return [_sample(values) for values in found]

    def page(
        self,
        catalog: str,
        order_by: HealthOrder,
        *,
        after: tuple[float, str, str] | None = None,
        min_deleted_ratio: float | None = None,
        search: str | None = None,
        namespace: str | None = None,
        limit: int = 100,
    ) -> Sequence[SampledTable]:
        """Return registered tables with their newest samples, worst first, then by name; tables without a sample last.

        Args:
            catalog: the catalog of the names.
            order_by: the lowest score first, or the highest value of any other column.
            after: sort key, name and id of the last table on the previous page.
            search: only tables whose names contain it, ignoring case.
            namespace: only tables whose names are this, a dot, and a last part; empty for names without a dot.
            min_deleted_ratio: only tables with at least this share of rows known to be deleted.
            limit: the maximum number of tables.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        key, name = _sort_key(order_by), func.coalesce(TableRow.name, TableRow.folder_name)
        query = _listed(
            select(TableRow.id, name, TableRow.location, key, *_columns()),
            catalog,
            min_deleted_ratio,
            search,
            namespace,
        )
        if after is not None:
            query = query.where(_follows(key, after))
        with self._database.read() as session:
            rows = session.execute(query.order_by(key.desc(), name, TableRow.id).limit(limit))
            return [
                SampledTable(
                    id_,
                    called,
                    location,
                    None if values[0] is None else _sample(values),
                    float(sort_key),
                )
                for id_, called, location, sort_key, *values in rows
            ]

    def num_listed(
        self,
        catalog: str,
        order_by: HealthOrder,
        *,
        after: tuple[float, str, str] | None = None,
        min_deleted_ratio: float | None = None,
        search: str | None = None,
        namespace: str | None = None,
        visible: Callable[[str, str], bool] | None = None,
    ) -> tuple[int, int]:
        """Return how many tables :meth:`page` lists on all pages, and how many of them after that place.

        ``visible`` decides by id and name whether a table counts; the rest as for :meth:`page`.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        follows = case((literal(True) if after is None else _follows(_sort_key(order_by), after), 1), else_=0)
        filters = (catalog, min_deleted_ratio, search, namespace)
        with self._database.read() as session:
            if visible is None:
                total, left = session.execute(
                    _listed(select(func.count(), func.sum(follows)), *filters)
                ).one()
                return total, left or 0
            name = func.coalesce(TableRow.name, TableRow.folder_name)
            rows = session.execute(_listed(select(TableRow.id, name, follows), *filters))
            lefts = [left for id_, called, left in rows if visible(id_, called)]
            return len(lefts), sum(lefts)

    def observed(self, catalog: str, patterns: Sequence[str], limit: int) -> Sequence[ObservedTable]:
        """Return the tables with a sample whose names match one of some patterns, by name.

        Args:
            catalog: the catalog of the names.
            patterns: names; ``*`` stands for any characters.
            limit: the maximum number of tables.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row, counts, name = (
            HealthSampleRow,
            CommitCountsRow,
            func.coalesce(TableRow.name, TableRow.folder_name),
        )
        query = (
            select(name, counts.commits, counts.rebased, counts.conflicts, counts.rows_saved, *_columns())
            .select_from(TableRow)
            .join(row, and_(row.table_id == TableRow.id, row.version == _newest()))
            .outerjoin(counts, counts.table_id == TableRow.id)
            .where(TableRow.catalog == catalog, or_(*name_patterns(name, patterns)))
            .order_by(name, TableRow.id)
            .limit(limit)
        )
        with self._database.read() as session:
            return [
                ObservedTable(
                    name_,
                    _sample(values),
                    CommitCounts(committed or 0, rebased or 0, conflicts or 0, saved or 0),
                )
                for name_, committed, rebased, conflicts, saved, *values in session.execute(query)
            ]

    def bands(self, catalog: str) -> Mapping[str, int]:
        """Return how many tables are ``good`` (a score of 80 or more), ``fair`` (50), ``poor``, and ``unknown``.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = HealthSampleRow
        band = case(*((row.score >= least, name) for name, least in SCORE_BANDS), else_="unknown")
        query = (
            select(band, func.count())
            .select_from(TableRow)
            .outerjoin(row, and_(row.table_id == TableRow.id, row.version == _newest()))
            .where(TableRow.catalog == catalog)
            .group_by(band)
        )
        with self._database.read() as session:
            found = {one: number for one, number in session.execute(query)}  # noqa: C416 - rows are no pairs
        return {name: found.get(name, 0) for name in (*(name for name, _ in SCORE_BANDS), "unknown")}


def _sort_key(order_by: HealthOrder) -> Any:
    column = _column(order_by.replace("-", "_"))
    # As floating point: exact up to 2**53.
    return func.coalesce((-column if order_by == "score" else column) * 1.0, _UNKNOWN)


def _listed(
    query: Any, catalog: str, min_deleted_ratio: float | None, search: str | None, namespace: str | None
) -> Any:
    """Return a query of registered tables and their newest samples, limited to some."""
    sample, name = HealthSampleRow, func.coalesce(TableRow.name, TableRow.folder_name)
    query = query.select_from(TableRow).outerjoin(
        sample, and_(sample.table_id == TableRow.id, sample.version == _newest())
    )
    query = query.where(TableRow.catalog == catalog)
    if min_deleted_ratio is not None:
        query = query.where(_column("deleted_ratio") >= min_deleted_ratio)
    if search:
        query = query.where(func.lower(name).contains(search.lower(), autoescape=True))
    if namespace is not None:
        prefix = f"{_like(namespace.replace('*', ''))}." if namespace else ""
        query = query.where(name.like(f"{prefix}%", escape="\\"), name.not_like(f"{prefix}%.%", escape="\\"))
    return query


def _follows(key: Any, after: tuple[float, str, str]) -> Any:
    """Return whether a table comes after a place."""
    name = func.coalesce(TableRow.name, TableRow.folder_name)
    last_key, last_name, last_id = after
    follows = or_(name > last_name, and_(name == last_name, TableRow.id > last_id))
    return or_(key < last_key, and_(key == last_key, follows))


def _health_events(
    table_id: str, sample: HealthSample, version: int, score: float, actions: str
) -> Sequence[Event]:
    """Return the event of a sample: there is one if the band of the score, or what is recommended, has changed."""
    recommended = [one for one in actions.split(",") if one]
    if sample.version < version or (score_band(sample.score), sample.actions) == (
        score_band(score),
        recommended,
    ):
        return ()
    data = {
        "version": sample.version,
        "score": sample.score,
        "actions": sample.actions,
        "previous-score": score,
        "previous-actions": recommended,
    }
    id_ = event_id("health", table_id, sample.version, sample.sampled_at)
    return [Event(id_, table_id, "delvec.health", sample.sampled_at, data)]


def _storable(value: Any) -> Any:
    """Return a value for the database; a log may claim numbers too large for a column."""
    if isinstance(value, list):
        return ",".join(value)
    return max(-_MAX_INTEGER - 1, min(value, _MAX_INTEGER)) if isinstance(value, int) else value


def _sample(values: Sequence[Any]) -> HealthSample:
    fields = dict(zip(_COLUMNS, values, strict=True))
    actions = [action for action in fields.pop("actions").split(",") if action]
    # Not validated again: a page has up to a thousand of them.
    return HealthSample.model_construct(**fields, actions=actions)


def superfluous(times: Mapping[int, datetime], now: datetime) -> list[int]:
    """Return the versions whose samples to delete: all but the last per hour or day, and all very old ones.

    Args:
        times: when the samples were recorded, by version.
        now: the time.
    """
    kept_slots: set[tuple[timedelta | None, int]] = set()
    versions_to_delete = []
    for version in sorted(times, reverse=True):
        age = now - times[version]
        spacing = next((apart for old, apart in _SPACING if age >= old), timedelta(0))
        if spacing is None:
            versions_to_delete.append(version)
        elif spacing:
            slot = (spacing, int(times[version].timestamp() // spacing.total_seconds()))
            if slot in kept_slots:
                versions_to_delete.append(version)
            kept_slots.add(slot)
    return versions_to_delete


def _thin(session: Session, table_id: str, now: datetime) -> None:
    row = HealthSampleRow
    old = select(row.version, row.sampled_at).where(
        row.table_id == table_id, row.sampled_at < now - _SPACING[-1][0]
    )
    gone = superfluous({row[0]: row[1] for row in session.execute(old)}, now)
    if gone:
        session.execute(delete(row).where(row.table_id == table_id, row.version.in_(gone[:10_000])))


def _newest() -> Any:
    """Return the version of a registered table's newest sample."""
    newest = HealthSampleRow.__table__.alias("newest")
    return select(func.max(newest.c.version)).where(newest.c.table_id == TableRow.id).scalar_subquery()


def name_patterns(name: Any, patterns: Sequence[str]) -> list[Any]:
    """Return conditions on a column of names, any of which may hold; ``*`` stands for any characters."""
    exact = [one for one in patterns if "*" not in one]
    return [name.in_(exact), *(name.like(_like(one), escape="\\") for one in patterns if "*" in one)]


def _like(pattern: str) -> str:
    for special in ("\\", "%", "_"):
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%")


def _column(name: str) -> Any:
    """Return the column of a field; most are not written down in the class."""
    return getattr(HealthSampleRow, name)


def _columns() -> list[Any]:
    return [_column(name) for name in _COLUMNS]
