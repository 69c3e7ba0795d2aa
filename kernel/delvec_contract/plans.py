"""Scan plans: the files to read, for snapshots, the change data feed and streams.

Tested in `tests/integration/service/scans/test_plan.py`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from delvec_contract.action_bodies import DeletionVectorDescriptor
from delvec_contract.shapes import (
    Answer,
    Base64,
    Columns,
    Delta,
    Envelope,
    Expression,
    Identifier,
    JsonObject,
    Long,
    Properties,
    Timestamp,
)

__all__ = [
    "AdditionsRequest",
    "AdditionsResponse",
    "ChangedFile",
    "ChangesRequest",
    "ChangesResponse",
    "PlanFile",
    "PlanRequest",
    "PlanResponse",
    "ReadSchema",
    "StreamPosition",
]


class PlanRequest(Envelope):
    """A scan to plan."""

    version: Long | None = None
    timestamp: Timestamp | None = Field(default=None, description="ISO 8601; without a zone it is UTC.")
    predicate: Expression | None = Field(
        default=None, description="A Boolean SQL expression; parsed, never executed."
    )
    columns: Columns | None = None
    stats: bool = Field(default=False, description="Return each file's statistics.")
    row_ids: bool = Field(
        default=False,
        description="For a table with row tracking, return what gives the row ids of each file.",
    )
    clustering: bool = Field(
        default=False,
        description="Return each file's tags and clustering provider, which show how it was sorted.",
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
        description="The bitmap in the portable 64-bit Roaring format, if it was small enough to inline.",
    )
    stats: str | None = None
    base_row_id: int | None = Field(
        default=None,
        alias="baseRowId",
        description="Only with row-ids, like the next field: the id of the file's first row; the other rows' ids "
        "follow. A row that has an id in the file's own column keeps it.",
    )
    default_row_commit_version: int | None = Field(default=None, alias="defaultRowCommitVersion")
    tags: dict[str, str | None] | None = Field(
        default=None,
        description=("Only with clustering, like the next field: tags that writers set on the file."),
    )
    clustering_provider: str | None = Field(
        default=None,
        alias="clusteringProvider",
        description="The program that clustered the file by the table's clustering columns.",
    )


class PlanResponse(Answer):
    """The scan of one version.

    As an Arrow stream, all but ``files`` is in the schema's metadata under the key ``delvec`` as JSON.
    """

    table_id: str
    name: str
    location: str
    version: int
    read_mark: str | None = Field(
        default=None, description="An opaque mark to send with a commit based on this version."
    )
    table_schema: dict[str, Any] = Field(alias="schema")
    partition_columns: list[str]
    configuration: dict[str, str]
    protocol: dict[str, Any] = Field(
        description="Reader and writer versions and table features, as in the log."
    )
    files: list[PlanFile] = Field(default_factory=list)
    num_files: int = Field(description="Files to read, on all pages.")
    num_files_total: int = Field(description="Live files of the version.")
    next_page_token: str | None = None


class ChangesRequest(Envelope):
    """A range of versions, both ends included; a start is needed."""

    start_version: int | None = Field(default=None, ge=0, lt=2**63)
    end_version: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description=("The last version; by default, or if it is too high, the newest."),
    )
    start_timestamp: Timestamp | None = Field(
        default=None,
        description="Start at the first version committed at or after this time; ISO 8601, UTC without a zone.",
    )
    end_timestamp: Timestamp | None = Field(
        default=None, description="End at the last version committed at or before this time."
    )
    columns: Columns | None = Field(
        default=None,
        description=("The columns to be read, of the table and the feed; the service only checks them."),
    )
    predicate: Expression | None = Field(
        default=None,
        description="SQL, which may also use `_change_type`, `_commit_version` and `_commit_timestamp`. Files "
        "without matching rows are left out.",
    )


class ChangedFile(Answer):
    """Changed rows of a file in a version: all except those of its deletion vector or, if marked-only, only those."""

    commit_version: int
    commit_timestamp: int = Field(description="Milliseconds since the epoch.")
    change_type: Literal["insert", "delete"] | None = Field(
        description="Absent for change files, which have a column `_change_type`."
    )
    path: str = Field(description="As in the log: relative to the location or absolute, URL-encoded.")
    partition_values: dict[str, str | None] = Field(default_factory=dict, description="By physical name.")
    size: int = Field(description="Bytes.")
    num_records: int | None = Field(default=None, description="Physical rows; absent if unknown.")
    marked_only: bool = Field(
        description=(
            "Whether the deletion vector, or deleted-rows, lists the rows to return, instead of the rows "
            "to leave out."
        )
    )
    deletion_vector: DeletionVectorDescriptor | None = None
    deleted_rows: Base64 | None = Field(
        default=None,
        description="The rows in the portable 64-bit Roaring format, if there is no descriptor for them.",
    )


class ChangesResponse(Answer):
    """The changes between two versions, and the schema to read them with."""

    table_id: str
    name: str
    location: str
    version: int = Field(description="The version of the schema.")
    start_version: int
    end_version: int = Field(description="Less than start-version if no version is in the range.")
    table_schema: dict[str, Any] = Field(
        alias="schema", description="The table's columns; those of the feed follow them."
    )
    partition_columns: list[str]
    configuration: dict[str, str]
    files: list[ChangedFile] = Field(default_factory=list)
    num_files: int


class StreamPosition(Envelope):
    """The next file to read."""

    version: int = Field(ge=0, lt=2**63)
    index: int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="The file's index among those that the version added or, for a snapshot, among all its live "
        "files by modification time and path.",
    )
    snapshot: bool = Field(
        default=False, description="Whether the whole version is read, rather than only what it added."
    )


class ReadSchema(Envelope):
    """The schema to read rows with, and related settings, as in the snapshot of that version."""

    version: int = Field(ge=0, lt=2**63)
    table_schema: JsonObject = Field(alias="schema")
    partition_columns: Columns = Field(default_factory=list)
    configuration: Properties = Field(default_factory=dict)


class AdditionsRequest(Envelope):
    """A range of a stream of appended rows, and its limits.

    Without ``start``, ``starting-version`` or ``starting-timestamp`` the stream starts with a snapshot of the newest version.
    """

    start: StreamPosition | None = None
    starting_version: Long | Literal["latest"] | None = Field(
        default=None,
        description=("The first version to read; `latest`: only changes after the newest version."),
    )
    starting_timestamp: Timestamp | None = Field(
        default=None,
        description="Start at the first version committed at or after this time; ISO 8601, UTC without a zone.",
    )
    end: StreamPosition | None = Field(
        default=None, description="The end of an earlier request; limits are then ignored."
    )
    last_version: int | None = Field(
        default=None, ge=0, lt=2**63, description="Act as if this were the newest version."
    )
    max_files: Long | None = Field(default=None, description="Without a limit, everything available.")
    max_bytes: Long | None = Field(
        default=None, description="Files are added until this many bytes are reached."
    )
    ignore_deletes: bool = Field(default=False, description="Skip versions that only delete rows.")
    skip_change_commits: bool = Field(default=False, description="Skip versions that delete or change rows.")
    change_feed: bool = Field(
        default=False,
        description=(
            "Read the change data feed: versions are never split, and their files are listed by …/changes."
        ),
    )
    pass_lost_versions: bool = Field(
        default=False,
        description="If the log was cleaned up after the start, begin with its oldest version. A version that has "
        "to be read whole is never skipped.",
    )
    read_with: ReadSchema | None = Field(
        default=None,
        description=("Refuse versions that cannot be read with this schema. Without it, nothing is checked."),
    )
    check_start: bool = Field(
        default=False, description="Whether to check the schema of the starting version as well."
    )
    metadata_id: Identifier | None = Field(
        default=None, description="Refuse another table at the same location."
    )
    list_files: bool = Field(
        default=True, description="Whether to list the files, rather than only return the end."
    )

    @model_validator(mode="after")
    def _one_start(self) -> "AdditionsRequest":
        given = (self.start, self.starting_version, self.starting_timestamp)
        if sum(each is not None for each in given) > 1:
            raise ValueError("give at most one of start, starting-version and starting-timestamp")
        return self


class AdditionsResponse(Answer):
    """Files in the order of their positions, and the position of the next ones."""

    table_id: str
    name: str
    location: str
    version: int = Field(description="The newest version that was examined.")
    start: StreamPosition
    end: StreamPosition
    snapshot_timestamp: int | None = Field(
        default=None, description="The time of the version that is read whole; milliseconds since the epoch."
    )
    files: list[PlanFile] = Field(default_factory=list)
    num_files: int = Field(description="Files listed.")
    num_found: int = Field(description="Files between start and end, listed or not.")
