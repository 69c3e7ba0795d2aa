"""Stored events as CloudEvents."""

from typing import Final, cast

from delvec_contract.events import CloudEvent, EventType
from delvec_service.store.event_store import Outbox, StoredEvent

__all__ = ["cloud_event", "cursor_of", "position_of"]


_NO_EPOCH: Final = "0" * 8


def cloud_event(outbox: Outbox, stored_event: StoredEvent) -> CloudEvent:
    """Return an event as it is sent."""
    event = stored_event.event
    return CloudEvent(
        id=event.id,
        source=f"/v1/tables/{event.table_id}",
        type=cast(EventType, event.type),
        subject=stored_event.table_name,
        time=event.occurred_at,
        sequence=cursor_of(outbox, stored_event.position),
        data=dict(event.data),
    )


def cursor_of(outbox: Outbox, position: int) -> str:
    """Return the cursor of a position; later ones sort after it."""
    return f"{outbox.epoch or _NO_EPOCH}-{position:019d}"


def position_of(outbox: Outbox, cursor: str | None) -> int:
    """Return the position of a cursor: one of another database knows nothing of this one, and is the beginning."""
    epoch, _, position = (cursor or "").partition("-")
    return min(int(position), outbox.position) if epoch == outbox.epoch else 0
