"""Events of tables, as CloudEvents 1.0 in JSON.

Tested in `tests/integration/service/api/test_events.py`.
"""

from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import Field

from delvec_contract.shapes import Answer

__all__ = ["CloudEvent", "EventType", "EventsResponse"]

EventType: TypeAlias = Literal["delvec.commit", "delvec.conflict", "delvec.maintenance", "delvec.health"]


class CloudEvent(Answer):
    """Something that happened to a table."""

    specversion: Literal["1.0"] = Field(default="1.0", description="The version of CloudEvents.")
    id: str = Field(description="The same whenever this event is sent.")
    source: str = Field(description="The table: `/v1/tables/<id>`.")
    type: EventType = Field(description="What happened.")
    subject: str = Field(description="The table's name.")
    time: datetime = Field(description="When it happened.")
    sequence: str = Field(
        description="Where the event stands among all events: later ones have greater values. Can be sent as `cursor`."
    )
    datacontenttype: Literal["application/json"] = Field(
        default="application/json", description="The format of `data`."
    )
    data: dict[str, Any] = Field(
        description="Of a commit: the columns of its history. Of a conflict: its record. Of maintenance: the run. Of "
        "health: `version`, `score`, `actions`, and the same before."
    )


class EventsResponse(Answer):
    """Events in the order in which they were recorded."""

    events: list[CloudEvent] = Field(description="The oldest first.")
    cursor: str = Field(description="Send it to get the events that follow these.")
    complete: bool = Field(description="False if events after the cursor that was sent have expired.")
