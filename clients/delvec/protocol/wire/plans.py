"""Which files a scan has to read."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from delvec.protocol.wire.actions import DeletionVectorDescriptor
from delvec.protocol.wire.shapes import Answer, Base64, Columns, Delta, Envelope, Expression, Long, Timestamp

__all__ = [
    "PlanFile",
    "PlanRequest",
    "PlanResponse",
]


class PlanRequest(Envelope):
    """Which files a scan has to read."""

    version: Long | None = None
    timestamp: Timestamp | None = Field(default=None, description="ISO 8601; without a zone it is UTC.")
    predicate: Expression | None = Field(
        default=None, description="A Boolean SQL expression; parsed, never executed."
    )
    columns: Columns | None = None
    stats: bool = Field(default=False, description="Return each file's statistics.")
    row_ids: bool = Field(
        default=False,
        description="Return, of a table with row tracking, what tells the ids of each file's rows.",
    )
    inline_deletion_vectors: bool = Field(default=True, description="Return small bitmaps with the plan.")
    page_size: int = Field(default=1000, ge=1, le=100_000, description="Files per page of a JSON answer.")
    page_token: Annotated[str, Field(max_length=64)] | None = None

    @model_validator(mode="after")
    def _one_point_in_time(self) -> "PlanRequest":
        if self.version is not None and self.timestamp is not None:
            raise ValueError("give a version or a timestamp, not both")
        return self


class PlanFile(Delta):
    """A file to read. As Arrow the same fields are columns, in this order."""

    path: str = Field(description="As in the log: relative to the location or absolute, URL-encoded.")
    partition_values: dict[str, str | None] = Field(alias="partitionValues")
    size: int
    modification_time: int = Field(alias="modificationTime")
    num_records: int | None = Field(alias="numRecords", description="Physical rows, deleted ones included.")
    matches_all: bool = Field(
        alias="matchesAll", description="Partition values alone show that every row satisfies the predicate."
    )
    deletion_vector: DeletionVectorDescriptor | None = Field(default=None, alias="deletionVector")
    deleted_rows: Base64 | None = Field(
        default=None,
        alias="deletedRows",
        description="The bitmap in the portable 64-bit roaring format, where it was small enough to inline.",
    )
    stats: str | None = None
    base_row_id: int | None = Field(
        default=None,
        alias="baseRowId",
        description="With row-ids, as is the next: the id of the file's first row; that of the others follow. A row that has "
        "one in the file's own column keeps that.",
    )
    default_row_commit_version: int | None = Field(default=None, alias="defaultRowCommitVersion")


class PlanResponse(Answer):
    """The scan of one version.

    As an Arrow stream, all but ``files`` is in the schema's metadata under the key ``delvec`` as JSON.
    """

    table_id: str
    name: str
    location: str
    version: int
    read_mark: str | None = Field(
        default=None, description="To be sent with a commit that rests on this version; means nothing else."
    )
    table_schema: dict[str, Any] = Field(alias="schema")
    partition_columns: list[str]
    configuration: dict[str, str]
    files: list[PlanFile] = Field(default_factory=list)
    num_files: int = Field(description="Files to read, over all pages.")
    num_files_total: int = Field(description="Live files of the version.")
    next_page_token: str | None = None
