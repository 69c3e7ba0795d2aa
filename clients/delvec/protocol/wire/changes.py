"""The change data feed: which rows of which files a range of versions changed."""

from typing import Any, Literal

from pydantic import Field

from delvec.protocol.wire.actions import DeletionVectorDescriptor
from delvec.protocol.wire.shapes import Answer, Base64, Columns, Envelope, Expression, Timestamp

__all__ = ["ChangedFile", "ChangesRequest", "ChangesResponse"]


class ChangesRequest(Envelope):
    """A range of versions, both ends included; a start is needed."""

    start_version: int | None = Field(default=None, ge=0, lt=2**63)
    end_version: int | None = Field(
        default=None, ge=0, lt=2**63, description="By default, and if it is newer, the newest."
    )
    start_timestamp: Timestamp | None = Field(
        default=None,
        description="ISO 8601, UTC without a zone: from the first version that was not committed before it.",
    )
    end_timestamp: Timestamp | None = Field(
        default=None, description="To the last version that was not committed after it."
    )
    columns: Columns | None = Field(
        default=None, description="To be read, of the table and the feed; only checked."
    )
    predicate: Expression | None = Field(
        default=None,
        description="SQL, may also use `_change_type`, `_commit_version` and `_commit_timestamp`. Files none of whose "
        "rows can satisfy it are left out.",
    )


class ChangedFile(Answer):
    """Rows of a file that a version changed: all but those of its deletion vector, or, if marked-only, just those."""

    commit_version: int
    commit_timestamp: int = Field(description="Milliseconds since the epoch.")
    change_type: Literal["insert", "delete"] | None = Field(
        description="Absent for change files, whose column `_change_type` says it for each row."
    )
    path: str = Field(description="As in the log: relative to the location or absolute, URL-encoded.")
    partition_values: dict[str, str | None] = Field(default_factory=dict, description="By physical name.")
    size: int = Field(description="Bytes.")
    num_records: int | None = Field(default=None, description="Physical rows; absent if unknown.")
    marked_only: bool = Field(
        description="The deletion vector, or deleted-rows, names the rows that are meant, instead of those that are not."
    )
    deletion_vector: DeletionVectorDescriptor | None = None
    deleted_rows: Base64 | None = Field(
        default=None,
        description="The rows in the portable 64-bit roaring format, where no descriptor has them.",
    )


class ChangesResponse(Answer):
    """What changed between two versions, and the schema that all of it is read with."""

    table_id: str
    name: str
    location: str
    version: int = Field(description="Whose schema it is.")
    start_version: int
    end_version: int = Field(description="Before start-version where no version is in the range.")
    table_schema: dict[str, Any] = Field(
        alias="schema", description="Without the columns of the feed, which follow them."
    )
    partition_columns: list[str]
    configuration: dict[str, str]
    files: list[ChangedFile] = Field(default_factory=list)
    num_files: int
