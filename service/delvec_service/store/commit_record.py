"""The record of commits to tables, in SQL: each conflict, and the number of commits per hour.

It is written with the counts of :mod:`~delvec_service.store.health_samples` in one transaction, and stays small: see
:func:`superfluous` and :data:`_DAYS_FROM`. It may be lost without harm.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import and_, case, delete, func, select
from sqlalchemy.orm import Session

from delvec_contract.conflicts import CommitInterval
from delvec_service.store.database import Database, insert_into, visible_rows
from delvec_service.store.event_store import Event, event_id
from delvec_service.store.models import CommitConflictRow, CommitIntervalRow, TableRow

__all__ = [
    "CommitConflict",
    "CommitRecordStore",
    "add_conflicts",
    "add_interval",
    "added",
    "conflict_event",
    "id_prefix",
    "superfluous",
]

_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_DAYS_FROM: Final = timedelta(days=31)
"""From this age on, intervals are days instead of hours."""
_RETENTION: Final = timedelta(days=366)
_SLOTS: Final = ((timedelta(days=31), _DAY), (timedelta(days=1), _HOUR))
_MAX_CONFLICTS: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONG: Final = 2**63 - 1
_COUNTED: Final = ("commits", "rebased", "conflicts", "rows_saved")


@dataclass(frozen=True, slots=True)
class CommitConflict:
    """A lost race; fields as in :class:`~delvec_service.store.models.CommitConflictRow`, texts cut to its columns."""

    found_at: datetime
    type: str
    operation: str
    read_version: int
    transaction_id: str
    winning_version: int
    winning_operation: str
    num_files: int
    reason: str
    files: tuple[str, ...] = ()
    overlapping_rows: int | None = None
    principal: str | None = None
    winning_engine: str | None = None
    winning_transaction_id: str | None = None
    winning_principal: str | None = None
    id: str = field(default="")

    def __post_init__(self) -> None:
        """Derive its id from its time, so that writing it twice adds nothing."""
        if not self.id:
            object.__setattr__(self, "id", id_prefix(self.found_at) + secrets.token_hex(8))


_FIELDS: Final = tuple(each.name for each in fields(CommitConflict))


class CommitRecordStore:
    """Reads the record; safe to share between threads. All methods raise ServiceUnavailable without a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def conflicts(self, table_id: str, since: datetime | None, limit: int) -> Sequence[CommitConflict]:
        """Return conflicts of a table, newest first."""
        row = CommitConflictRow
        query = select(*(getattr(row, name) for name in _FIELDS)).where(row.table_id == table_id)
        if since is not None:
            query = query.where(row.found_at >= since)
        with self._database.read() as session:
            rows = session.execute(query.order_by(row.id.desc()).limit(limit))
            return [CommitConflict(**_conflict_fields(values)) for values in rows]

    def all_conflicts(
        self, catalog: str, since: datetime, limit: int, visible: Callable[[str, str], bool] | None
    ) -> Sequence[tuple[str, str, CommitConflict]]:
        """Return conflicts of all registered tables of a catalog since a time, newest first: table id, name, conflict.

        ``visible`` decides by id and name whether to show the conflicts of a table.
        """
        row, name = CommitConflictRow, func.coalesce(TableRow.name, TableRow.folder_name)
        columns = [getattr(row, field) for field in _FIELDS]
        # By id, which begins with the time: that is a range of each table's primary key.
        query = (
            select(TableRow.id, name, *columns)
            .select_from(TableRow)
            .join(row, and_(row.table_id == TableRow.id, row.id >= id_prefix(since)))
            .where(TableRow.catalog == catalog)
            .order_by(row.id.desc())
        )
        with self._database.read() as session:
            return [
                (table_id, table, CommitConflict(**_conflict_fields(values)))
                for table_id, table, *values in visible_rows(session, query, limit, visible)
            ]

    def intervals(self, table_id: str, since: datetime | None) -> Sequence[CommitInterval]:
        """Return the intervals of a table with commits, newest first."""
        row = CommitIntervalRow
        query = select(row.since, row.seconds, *(getattr(row, name) for name in _COUNTED))
        query = query.where(row.table_id == table_id)
        if since is not None:
            query = query.where(row.since >= since)
        with self._database.read() as session:
            return [
                CommitInterval(
                    since=start,
                    seconds=seconds,
                    committed=committed,
                    rebased=rebased,
                    conflicts=lost,
                    rows_saved=saved,
                )
                for start, seconds, committed, rebased, lost, saved in session.execute(
                    query.order_by(row.since.desc())
                )
            ]


def _conflict_fields(values: Sequence[Any]) -> dict[str, Any]:
    fields = dict(zip(_FIELDS, values, strict=True))
    return {**fields, "files": tuple(json.loads(fields["files"]))}


def id_prefix(at: datetime) -> str:
    """Return the beginning of ids for a time: its microseconds since 1970, in 14 hexadecimal digits."""
    return f"{max((at - _EPOCH) // timedelta(microseconds=1), 0):014x}"


def add_conflicts(session: Session, table_id: str, conflicts: Sequence[CommitConflict]) -> None:
    """Store conflicts of a table, and delete some old ones."""
    row = CommitConflictRow
    values = [{**asdict(one), "files": json.dumps(one.files), "table_id": table_id} for one in conflicts]
    session.execute(insert_into(session, row).on_conflict_do_nothing(), values)
    kept = select(row.id, row.found_at, row.type, row.operation, row.winning_operation)
    rows = session.execute(kept.where(row.table_id == table_id).order_by(row.id.desc())).all()
    superfluous_ids = superfluous(
        [(id_, at, kind) for id_, at, *kind in rows], max(one.found_at for one in conflicts)
    )
    if superfluous_ids:
        session.execute(delete(row).where(row.table_id == table_id, row.id.in_(superfluous_ids)))


def conflict_event(table_id: str, conflict: CommitConflict) -> Event:
    """Return the event of a conflict, without principals, which only maintainers may know."""
    data = {
        name.replace("_", "-"): value
        for name, value in asdict(conflict).items()
        if value is not None and name not in ("found_at", "principal", "winning_principal")
    }
    id_ = event_id("conflict", table_id, conflict.id)
    return Event(id_, table_id, "delvec.conflict", conflict.found_at, data)


def superfluous(conflicts: Sequence[tuple[str, datetime, Any]], now: datetime) -> list[str]:
    """Return the ids of conflicts to delete: all but 1,000, and all that are older than a year.

    Of those older than a day, one of each kind per hour stays; of those older than a month, one per day.

    Args:
        conflicts: id, time and kind of each, newest first.
        now: the time.
    """
    ids_to_delete, kept_slots = [], set()
    for number, (id_, at, kind) in enumerate(conflicts):
        age = now - at
        slot = next((seconds for old, seconds in _SLOTS if age >= old), None)
        name = None if slot is None else (slot, int(at.timestamp() // slot), tuple(kind))
        if number >= _MAX_CONFLICTS or age >= _RETENTION or (name is not None and name in kept_slots):
            ids_to_delete.append(id_)
        kept_slots.add(name)
    return ids_to_delete


def add_interval(session: Session, table_id: str, at: datetime, counted: dict[str, int]) -> None:
    """Add counts to the hour of a time; hours that are long ago become days."""
    row, hour = CommitIntervalRow, _beginning(at, _HOUR)
    is_new = session.get(row, (table_id, hour, _HOUR)) is None
    _add(session, table_id, hour, _HOUR, counted)
    if is_new:
        session.execute(delete(row).where(row.table_id == table_id, row.since < at - _RETENTION))
        _make_days(session, table_id, _beginning(at - _DAYS_FROM, _DAY))


def _make_days(session: Session, table_id: str, before: datetime) -> None:
    row = CommitIntervalRow
    old = (row.table_id == table_id, row.seconds == _HOUR, row.since < before)
    days: dict[datetime, dict[str, int]] = {}
    query = select(row.since, *(getattr(row, name) for name in _COUNTED)).where(*old)
    for since, *numbers in session.execute(query):
        day = days.setdefault(_beginning(since, _DAY), dict.fromkeys(_COUNTED, 0))
        for name, number in zip(_COUNTED, numbers, strict=True):
            day[name] = min(_LONG, day[name] + number)
    for since, counted in days.items():
        _add(session, table_id, since, _DAY, counted)
    if days:
        session.execute(delete(row).where(*old))


def _add(session: Session, table_id: str, since: datetime, seconds: int, counted: dict[str, int]) -> None:
    row = CommitIntervalRow
    statement = insert_into(session, row).values(
        table_id=table_id, since=since, seconds=seconds, **{name: counted[name] for name in _COUNTED}
    )
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["table_id", "since", "seconds"],
            set_={name: added(getattr(row, name), statement.excluded[name]) for name in _COUNTED},
        )
    )


def added(known: Any, more: Any) -> Any:
    """Return the sum of two counts, at most what the column holds: otherwise SQLite returns a float, PostgreSQL fails."""
    return case((known > _LONG - more, _LONG), else_=known + more)


def _beginning(at: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(at.timestamp() // seconds * seconds, UTC)
