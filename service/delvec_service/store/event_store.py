"""The outbox: events of tables, how far each log has been recorded, and how far webhooks are, in SQL.

Commits are recorded from the log, so the outbox may be lost without losing one that the log still has.

Tested in `tests/integration/contract/test_event_store.py`.
"""

import json
import secrets
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session

from delvec_service.store.database import Database, insert_into
from delvec_service.store.models import EventCounterRow, EventMarkRow, EventRow, TableRow, WebhookRow

__all__ = ["Delivery", "Event", "EventMark", "EventStore", "Outbox", "StoredEvent", "event_id"]

_IDS: Final = uuid.UUID("0f0c6a5e-6a0b-4c0e-9d55-1f7cf0b9c6d1")
_ONLY_ID: Final = 1
_DELETED_AT_ONCE: Final = 1000


def event_id(*identity: object) -> str:
    """Return the id of an event from what identifies it."""
    return str(uuid.uuid5(_IDS, json.dumps(identity, default=str)))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a table; ``data`` is JSON, ``type`` one of ``delvec_contract.events``."""

    id: str
    table_id: str
    type: str
    occurred_at: datetime
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event, its position, and the table's name by now."""

    position: int
    event: Event
    table_name: str


@dataclass(frozen=True, slots=True)
class EventMark:
    """The newest version of a table that is recorded, and its commit's file."""

    version: int
    modified_at: int
    size: int


@dataclass(frozen=True, slots=True)
class Outbox:
    """The extent of the outbox; ``epoch`` is None, and the others 0, before the first event."""

    epoch: str | None = None
    position: int = 0
    expired: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """How far a webhook is: the last position, and failed attempts at the next."""

    position: int
    attempts: int


class EventStore:
    """The outbox; safe to share between threads. All methods raise ServiceUnavailable without a database.

    Args:
        database: where it is stored.
        is_enabled: whether events are recorded.
    """

    def __init__(self, database: Database, *, is_enabled: bool = True) -> None:
        self._database = database
        self.is_enabled = is_enabled

    # --- recording ----------------------------------------------------------------------------------------

    def add(self, session: Session, events: Sequence[Event]) -> None:
        """Record events at the end of a transaction: nobody else can record any until it ends."""
        if not self.is_enabled or not events:
            return
        last = self._claim(session, len(events))
        now = datetime.now(UTC)
        rows = [
            {**asdict(one), "data": json.dumps(one.data), "position": position, "recorded_at": now}
            for position, one in enumerate(events, last - len(events) + 1)
        ]
        session.execute(insert_into(session, EventRow).on_conflict_do_nothing(), rows)

    def record(
        self, table_id: str, before: EventMark | None, after: EventMark, events: Sequence[Event]
    ) -> bool:
        """Record the commits between two marks; False, and nothing is recorded, if another was faster."""
        row = EventMarkRow
        with self._database.write() as session:
            self._claim(session, 0)
            if _mark(session, table_id) != before:
                return False
            self.add(session, events)
            values = asdict(after)
            statement = insert_into(session, row).values(table_id=table_id, **values)
            session.execute(statement.on_conflict_do_update(index_elements=["table_id"], set_=values))
        return True

    def mark(self, table_id: str) -> EventMark | None:
        """Return how far the log of a table has been recorded."""
        with self._database.read() as session:
            return _mark(session, table_id)

    def expire(self, before: datetime) -> int:
        """Delete events recorded before a time; return how many."""
        row, counter, num_deleted = EventRow, EventCounterRow, 0
        while True:
            with self._database.write() as session:
                old = select(row.position).where(row.recorded_at < before).order_by(row.position)
                positions = list(session.scalars(old.limit(_DELETED_AT_ONCE)))
                if positions:
                    session.execute(update(counter).values(expired=positions[-1]))
                    session.execute(delete(row).where(row.position <= positions[-1]))
            num_deleted += len(positions)
            if len(positions) < _DELETED_AT_ONCE:
                return num_deleted

    # --- reading ------------------------------------------------------------------------------------------

    def outbox(self) -> Outbox:
        """Return the extent of the outbox."""
        row = EventCounterRow
        with self._database.connection() as connection:
            found = connection.execute(select(row.epoch, row.position, row.expired)).first()
        return Outbox() if found is None else Outbox(*found)

    def page(
        self,
        catalog: str,
        after: int,
        *,
        types: Collection[str] = (),
        table_id: str | None = None,
        namespace: str | None = None,
        limit: int = 100,
    ) -> Sequence[StoredEvent]:
        """Return events of the registered tables of a catalog, in order.

        Args:
            catalog: the catalog of the names.
            after: the position to start after.
            types: only events of these types; all if empty.
            table_id: only events of this table.
            namespace: only events of tables named ``namespace.something``.
            limit: the maximum number of events.
        """
        row, name = EventRow, func.coalesce(TableRow.name, TableRow.folder_name)
        query = select(row.position, row.id, row.table_id, row.type, row.occurred_at, row.data, name)
        query = query.join(TableRow, TableRow.id == row.table_id)
        query = query.where(TableRow.catalog == catalog, row.position > after)
        if types:
            query = query.where(row.type.in_(types))
        if table_id is not None:
            query = query.where(row.table_id == table_id)
        if namespace is not None:
            query = query.where(name.startswith(f"{namespace}.", autoescape=True))
        with self._database.read() as session:
            return [
                StoredEvent(position, Event(id_, of, type_, at, json.loads(data)), named)
                for position, id_, of, type_, at, data, named in session.execute(
                    query.order_by(row.position).limit(limit)
                )
            ]

    # --- webhooks -----------------------------------------------------------------------------------------

    def take(self, webhook: str, owner: str, seconds: float) -> Delivery | None:
        """Become the only process that delivers to a webhook; None if another does, or nothing is due.

        A new webhook begins with the next event.
        """
        row, now = WebhookRow, datetime.now(UTC)
        with self._database.write() as session:
            newest = session.scalar(select(EventCounterRow.position)) or 0
            begun = {"name": webhook, "position": newest, "attempts": 0, "due_at": now}
            session.execute(
                insert_into(session, row).values(**begun, owner="", owned_until=now).on_conflict_do_nothing()
            )
            delivery_row = session.execute(
                update(row)
                .where(
                    row.name == webhook,
                    row.due_at <= now,
                    row.position < newest,
                    or_(row.owner == owner, row.owned_until <= now),
                )
                .values(owner=owner, owned_until=now + timedelta(seconds=seconds))
                .returning(row.position, row.attempts)
            ).first()
        return None if delivery_row is None else Delivery(*delivery_row)

    def delivered(
        self, webhook: str, owner: str, delivery: Delivery, *, pause: float = 0.0, keep: float = 0.0
    ) -> bool:
        """Store how far a webhook is; False if this process is no longer the one that delivers.

        Args:
            webhook: its name.
            owner: this process.
            delivery: how far it is.
            pause: seconds until the next attempt.
            keep: seconds for which this process goes on delivering; 0 lets others.
        """
        row, now = WebhookRow, datetime.now(UTC)
        with self._database.write() as session:
            updated_row = session.execute(
                update(row)
                .where(row.name == webhook, row.owner == owner)
                .values(
                    **asdict(delivery),
                    due_at=now + timedelta(seconds=pause),
                    owned_until=now + timedelta(seconds=keep),
                )
                .returning(row.name)
            )
            return updated_row.first() is not None

    @staticmethod
    def _claim(session: Session, count: int) -> int:
        """Return the last of so many new positions, which stay the newest until the transaction ends."""
        row = EventCounterRow
        claimed = update(row).values(position=row.position + count).returning(row.position)
        position = session.execute(claimed).scalar()
        if position is None:
            first = {"id": _ONLY_ID, "epoch": secrets.token_hex(4), "position": 0, "expired": 0}
            session.execute(insert_into(session, row).values(**first).on_conflict_do_nothing())
            position = session.execute(claimed).scalar_one()
        return position


def _mark(session: Session, table_id: str) -> EventMark | None:
    row = EventMarkRow
    found = session.execute(
        select(row.version, row.modified_at, row.size).where(row.table_id == table_id)
    ).first()
    return None if found is None else EventMark(*found)
