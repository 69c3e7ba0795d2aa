"""The files that versions added, in order, from a position on: what a stream of a table reads."""

from typing import Literal

from pydantic import Field, model_validator

from delvec.protocol.wire.plans import PlanFile
from delvec.protocol.wire.shapes import (
    Answer,
    Columns,
    Envelope,
    Identifier,
    JsonObject,
    Long,
    Properties,
    Timestamp,
)

__all__ = ["AdditionsRequest", "AdditionsResponse", "ReadSchema", "StreamPosition"]


class StreamPosition(Envelope):
    """The next file to read."""

    version: int = Field(ge=0, lt=2**63)
    index: int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="Of the file, among those that the version added; if snapshot, among all that were live in it, by "
        "modification time and path.",
    )
    snapshot: bool = Field(
        default=False, description="Whether the whole version is read, and not what it added."
    )


class ReadSchema(Envelope):
    """The schema that rows are read with, and what belongs to it; as the snapshot of that version says it."""

    version: int = Field(ge=0, lt=2**63)
    table_schema: JsonObject = Field(alias="schema")
    partition_columns: Columns = Field(default_factory=list)
    configuration: Properties = Field(default_factory=dict)


class AdditionsRequest(Envelope):
    """From where to where, and how much.

    Without a start it begins with the whole newest version, or as ``starting-version`` or ``starting-timestamp`` say.
    """

    start: StreamPosition | None = None
    starting_version: Long | Literal["latest"] | None = Field(
        default=None, description="The first version to read; `latest`: what comes after the newest."
    )
    starting_timestamp: Timestamp | None = Field(
        default=None,
        description="ISO 8601, UTC without a zone: from the first version that was not committed before it.",
    )
    end: StreamPosition | None = Field(
        default=None, description="Where it ends, for what was asked before; then limits do not count."
    )
    last_version: int | None = Field(
        default=None, ge=0, lt=2**63, description="Act as if this were the newest version."
    )
    max_files: Long | None = Field(default=None, description="Without a limit, all that there is.")
    max_bytes: Long | None = Field(
        default=None, description="More files are taken while less than this was taken."
    )
    ignore_deletes: bool = Field(default=False, description="Pass versions that only take rows away.")
    skip_change_commits: bool = Field(
        default=False, description="Pass versions that take away or change rows."
    )
    change_feed: bool = Field(
        default=False,
        description="Versions are taken whole, and their files are those of …/changes, which lists them.",
    )
    pass_lost_versions: bool = Field(
        default=False,
        description="Where the log was cleaned up after the start, begin with the oldest version that it has. A version "
        "that is to be read whole is not passed.",
    )
    read_with: ReadSchema | None = Field(
        default=None, description="Refuse what cannot be read with it. Without it nothing is checked."
    )
    check_start: bool = Field(
        default=False, description="Whether the schema of the version where it starts is checked too."
    )
    metadata_id: Identifier | None = Field(
        default=None, description="Refuse another table at the same location."
    )
    list_files: bool = Field(
        default=True, description="Whether the files are listed, or only the end is told."
    )

    @model_validator(mode="after")
    def _one_start(self) -> "AdditionsRequest":
        given = (self.start, self.starting_version, self.starting_timestamp)
        if sum(each is not None for each in given) > 1:
            raise ValueError("give one of start, starting-version and starting-timestamp")
        return self


class AdditionsResponse(Answer):
    """Files in the order of their positions, and where the next ones are."""

    table_id: str
    name: str
    location: str
    version: int = Field(description="The newest that was looked at.")
    start: StreamPosition
    end: StreamPosition
    snapshot_timestamp: int | None = Field(
        default=None, description="Of the version that is read whole; milliseconds since the epoch."
    )
    files: list[PlanFile] = Field(default_factory=list)
    num_files: int = Field(description="Files listed.")
    num_found: int = Field(description="Files between start and end, listed or not.")
