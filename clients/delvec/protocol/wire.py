"""The bodies of HTTP requests and answers.

Envelope fields are kebab-case; Delta actions, descriptors and metrics keep Delta's own spelling.
These are wire shapes, not the domain: the service turns them into its own actions.
"""

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, EncodedBytes, EncoderProtocol, Field, model_validator
from pydantic_core import PydanticCustomError

__all__ = [
    "AddFile",
    "AllocateRequest",
    "AllocateResponse",
    "AllocatedDeletionVector",
    "BeginRequest",
    "BeginResponse",
    "CheckpointRequest",
    "CheckpointResponse",
    "CommitRequest",
    "CommitResponse",
    "ConfigResponse",
    "DeletionVectorDescriptor",
    "DetailResponse",
    "ErrorBody",
    "ErrorEnvelope",
    "HealthResponse",
    "HistoryEntry",
    "HistoryResponse",
    "LogCleanUp",
    "PlanFile",
    "PlanRequest",
    "PlanResponse",
    "Recommendation",
    "RemoveFile",
    "RowDelete",
    "SnapshotResponse",
    "TableRequest",
    "TableResource",
    "TablesResponse",
]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class _StrictBase64(EncoderProtocol):
    """Base64 in one line; pydantic's own type drops what is not of the alphabet, which makes junk other bytes."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise PydanticCustomError(
                "base64_decode", "Base64 decoding error: '{error}'", {"error": str(error)}
            ) from error

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return base64.b64encode(value)

    @classmethod
    def get_json_format(cls) -> Literal["base64"]:
        return "base64"


_Base64 = Annotated[bytes, EncodedBytes(encoder=_StrictBase64)]


class _Envelope(BaseModel):
    """Delvec's own shapes: kebab-case, unknown fields refused so that a misspelt field is not ignored."""

    model_config = ConfigDict(alias_generator=_kebab, populate_by_name=True, extra="forbid")


class _Answer(BaseModel):
    """Answers tolerate fields that a newer service adds."""

    model_config = ConfigDict(alias_generator=_kebab, populate_by_name=True, extra="ignore")


class _Delta(BaseModel):
    """Shapes of the Delta protocol, in Delta's camelCase."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore")


# --- errors ---------------------------------------------------------------------------------------------


class ErrorBody(_Answer):
    """What went wrong, where, and whether to try again."""

    message: str = Field(description="One sentence: what happened, where, what to do.")
    type: str = Field(description="The exception's name, Delta's own where Delta has one.")
    code: str = Field(description="A stable code for programs.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    details: dict[str, Any] = Field(default_factory=dict, description="Facts: table, version, file, ...")


class ErrorEnvelope(_Answer):
    """The one shape of every error answer."""

    error: ErrorBody


# --- Delta's own shapes ---------------------------------------------------------------------------------


class DeletionVectorDescriptor(_Delta):
    """Where a deletion vector is (PROTOCOL.md, "Deletion Vector Descriptor Schema")."""

    storage_type: Literal["u", "p", "i"] = Field(alias="storageType")
    path_or_inline_dv: str = Field(alias="pathOrInlineDv")
    offset: int | None = None
    size_in_bytes: int = Field(alias="sizeInBytes", ge=0)
    cardinality: int = Field(ge=0)


class AddFile(_Delta):
    """A data file that an engine wrote (PROTOCOL.md, "Add File and Remove File")."""

    path: str = Field(description="Relative to the table's location, URL-encoded.")
    partition_values: dict[str, str | None] = Field(alias="partitionValues", default_factory=dict)
    size: int = Field(ge=0, description="Bytes.")
    modification_time: int = Field(alias="modificationTime", description="Milliseconds since the epoch.")
    stats: str | None = Field(default=None, description="Statistics as a JSON document.")
    tags: dict[str, str | None] | None = None


class RemoveFile(_Delta):
    """A whole file that the commit removes, with whatever deletion vector it has by then."""

    path: str


# --- tables ---------------------------------------------------------------------------------------------


class TableRequest(_Envelope):
    """Register the table at a location; with a schema, create it there first."""

    location: str | None = Field(default=None, description="A path, or a URL: file, s3, gs, az, memory.")
    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_.\-]{0,127}$",
        description="How URLs call the table; by default the last part of the location.",
    )
    table_schema: dict[str, Any] | None = Field(
        default=None, alias="schema", description="Delta's schema JSON; given means: create a new table."
    )
    partition_columns: list[str] = Field(default_factory=list)
    properties: dict[str, str] = Field(
        default_factory=dict, description="Table properties, delta.* among them."
    )
    description: str | None = None

    @model_validator(mode="after")
    def _locatable(self) -> "TableRequest":
        if self.location is None and self.name is None:
            raise ValueError("give a location, a name, or both")
        if self.table_schema is None and (self.partition_columns or self.properties or self.description):
            raise ValueError(
                "partition-columns, properties and description belong to creating: give a schema"
            )
        return self


class TableResource(_Answer):
    """A registered table."""

    id: str
    name: str
    location: str = Field(description="Canonical URL without a trailing slash.")
    created_at: str
    version: int | None = Field(default=None, description="Set where the request created the table.")


class TablesResponse(_Answer):
    """A page of registered tables."""

    tables: list[TableResource]
    next_page_token: str | None = None


class SnapshotResponse(_Answer):
    """What the table is at one version."""

    table_id: str
    name: str
    location: str
    version: int
    timestamp: int = Field(description="Milliseconds since the epoch.")
    table_schema: dict[str, Any] = Field(alias="schema")
    partition_columns: list[str]
    configuration: dict[str, str]
    protocol: dict[str, Any]
    metadata_id: str
    num_files: int
    size_in_bytes: int
    num_deletion_vectors: int
    num_deleted_rows: int
    app_transactions: dict[str, int] = Field(default_factory=dict)
    domain_metadata: dict[str, str] = Field(default_factory=dict)


class DetailResponse(_Answer):
    """DESCRIBE DETAIL: Delta's columns, under ``detail`` in Delta's spelling."""

    detail: dict[str, Any]


class HistoryEntry(_Delta):
    """One version: Delta's history columns."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")

    version: int
    timestamp: int
    operation: str | None = None


class HistoryResponse(_Answer):
    """Newest first."""

    history: list[HistoryEntry]


# --- reading --------------------------------------------------------------------------------------------


class PlanRequest(_Envelope):
    """Which files a scan has to read."""

    version: int | None = Field(default=None, ge=0)
    timestamp: str | None = Field(default=None, description="ISO 8601; without a zone it is UTC.")
    predicate: str | None = Field(
        default=None, description="A Boolean SQL expression; parsed, never executed."
    )
    columns: list[str] | None = None
    stats: bool = Field(default=False, description="Return each file's statistics.")
    inline_deletion_vectors: bool = Field(default=True, description="Return small bitmaps with the plan.")
    page_size: int = Field(default=1000, ge=1, le=100_000, description="Files per page of a JSON answer.")
    page_token: str | None = None

    @model_validator(mode="after")
    def _one_point_in_time(self) -> "PlanRequest":
        if self.version is not None and self.timestamp is not None:
            raise ValueError("give a version or a timestamp, not both")
        return self


class PlanFile(_Delta):
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
    deleted_rows: _Base64 | None = Field(
        default=None,
        alias="deletedRows",
        description="The bitmap in the portable 64-bit roaring format, where it was small enough to inline.",
    )
    stats: str | None = None


class PlanResponse(_Answer):
    """The scan of one version.

    As an Arrow stream, all but ``files`` is in the schema's metadata under the key ``delvec`` as JSON.
    """

    table_id: str
    name: str
    location: str
    version: int
    table_schema: dict[str, Any] = Field(alias="schema")
    partition_columns: list[str]
    configuration: dict[str, str]
    files: list[PlanFile] = Field(default_factory=list)
    num_files: int = Field(description="Files to read, over all pages.")
    num_files_total: int = Field(description="Live files of the version.")
    next_page_token: str | None = None


# --- writing --------------------------------------------------------------------------------------------


class BeginRequest(_Envelope):
    """Open a transaction before data files are written, so that the ledger knows of them."""

    operation: str = Field(max_length=64, description="Delta's operation name: WRITE, DELETE, ...")


class BeginResponse(SnapshotResponse):
    """What a writer has to know; data files carry the transaction id in their names."""

    transaction_id: str
    deletion_vectors_enabled: bool


class AllocateRequest(_Envelope):
    """Reserve descriptors for deletion vectors that the engine will write itself."""

    transaction_id: str | None = None
    sizes: list[Annotated[int, Field(ge=1, lt=2**31)]] = Field(
        min_length=1,
        max_length=100_000,
        description="Serialized size of each bitmap, in order (sizeInBytes).",
    )


class AllocatedDeletionVector(_Answer):
    """Where to write one deletion vector: ``offset`` bytes into ``file``."""

    storage_type: Literal["u"] = "u"
    path_or_inline_dv: str
    offset: int
    size_in_bytes: int
    file: str = Field(description="Relative to the table's location.")


class AllocateResponse(_Answer):
    """In the order of the request; several may share a file."""

    transaction_id: str
    deletion_vectors: list[AllocatedDeletionVector]


class RowDelete(_Envelope):
    """Rows of one live file that are gone."""

    path: str
    rows: _Base64 = Field(
        description="Physical row indexes in the portable 64-bit roaring format; "
        "rows that the file's deletion vector already holds are ignored."
    )


class CommitRequest(_Envelope):
    """One transaction: what was read, and what changes."""

    read_version: int = Field(ge=0)
    transaction_id: str | None = Field(default=None, description="From begin; a new one where absent.")
    operation: str = Field(max_length=64, description="Delta's operation name: WRITE, DELETE, ...")
    operation_parameters: dict[str, str] = Field(default_factory=dict)
    operation_metrics: dict[str, int] = Field(
        default_factory=dict,
        description="Timings and counts that only the engine knows; the rest is computed.",
    )
    predicate: str | None = Field(default=None, description="The condition whose matching rows were changed.")
    adds: list[AddFile] = Field(default_factory=list)
    removes: list[RemoveFile] = Field(default_factory=list)
    row_deletes: list[RowDelete] = Field(default_factory=list)
    user_metadata: str | None = None
    engine_info: str | None = Field(default=None, max_length=256)


class CommitResponse(_Answer):
    """A commit that took effect. A conflict is an error answer with status 409."""

    result: Literal["committed", "rebased", "nothing-to-do"]
    version: int | None = Field(description="Absent where there was nothing to do.")
    read_version: int
    transaction_id: str
    winners_passed: list[int] = Field(default_factory=list)
    operation_metrics: dict[str, int]


# --- health and configuration ---------------------------------------------------------------------------


class Recommendation(_Answer):
    """A maintenance action and what it would gain."""

    action: Literal["OPTIMIZE", "PURGE", "CHECKPOINT", "VACUUM"]
    reason: str
    expected_gain: str


class HealthResponse(_Answer):
    """How much care a table needs."""

    table: str
    version: int
    num_files: int
    size_in_bytes: int
    num_physical_rows: int | None = Field(description="Absent where some file has no statistics.")
    num_deleted_rows: int
    deleted_ratio: float | None
    num_files_with_deletion_vectors: int
    num_deletion_vector_files: int
    live_deletion_vector_bytes: int
    small_files: int = Field(description="Files under 16 MiB.")
    median_file_size: int | None
    commits_since_checkpoint: int
    deleted_ratio_histogram: dict[str, int]
    recommendations: list[Recommendation]


class CheckpointRequest(_Envelope):
    """What to do beside the checkpoint."""

    clean_up: bool = Field(default=False, description="Delete what delta.logRetentionDuration need not keep.")
    dry_run: bool = Field(default=False, description="Only list what a clean-up would delete now.")


class LogCleanUp(_Answer):
    """What a clean-up deleted, or would delete."""

    deleted: list[str] = Field(description="Paths relative to the table, in the order of deletion.")
    oldest_version: int | None = Field(description="The oldest that can be read after it, where commits go.")
    kept_because: str | None = Field(description="Why nothing was to go.")


class CheckpointResponse(_Answer):
    """The checkpoint of the newest version."""

    table: str
    result: Literal["written", "exists", "dry-run"]
    version: int | None = Field(description="Absent in a dry run.")
    form: Literal["classic", "v2"] | None = Field(description="Absent in a dry run.")
    num_files: int | None = Field(description="Live files in it; absent in a dry run.")
    num_actions: int | None = Field(description="Absent where it exists already.")
    size_in_bytes: int | None = Field(description="Sidecars included; absent where it exists already.")
    num_sidecars: int | None = Field(description="Absent where it exists already.")
    clean_up: LogCleanUp | None = Field(description="Absent where none was asked for.")


class ConfigResponse(_Answer):
    """What this service is and can do."""

    version: str
    endpoints: list[str]
    max_request_bytes: int
    arrow_media_type: str
