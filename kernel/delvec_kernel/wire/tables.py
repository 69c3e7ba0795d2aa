"""Tables, snapshots, detail and history."""

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, model_validator

from delvec_kernel.wire.shapes import (
    Answer,
    Columns,
    Delta,
    Envelope,
    FilePath,
    JsonObject,
    Long,
    Properties,
    Text,
    Timestamp,
)

__all__ = [
    "TABLE_NAME",
    "CloneRequest",
    "CloneResponse",
    "ConvertRequest",
    "ConvertResponse",
    "DetailResponse",
    "HistoryEntry",
    "HistoryMember",
    "HistoryResponse",
    "RenameRequest",
    "SnapshotResponse",
    "TableRequest",
    "TableResource",
    "TablesResponse",
]

TABLE_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_\-]*(\.[A-Za-z0-9_][A-Za-z0-9_\-]*)*$"
"""Names, with namespaces before the last part: ``orders``, ``sales.orders``."""

_Name: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        pattern=TABLE_NAME,
        description="How URLs and SQL call the table, with namespaces before it: orders, sales.orders.",
    ),
]


class TableRequest(Envelope):
    """Register the table at a location; with a schema, create it there first."""

    location: FilePath | None = Field(default=None, description="A path, or a URL: file, s3, gs, az, memory.")
    name: _Name | None = Field(
        default=None,
        description="The table's name, which no other may have; without one it is called by the last part of its "
        "location, as long as no other table is.",
    )
    table_schema: JsonObject | None = Field(
        default=None, alias="schema", description="Delta's schema JSON; given means: create a new table."
    )
    partition_columns: Columns = Field(default_factory=list)
    properties: Properties = Field(default_factory=dict, description="Table properties, delta.* among them.")
    description: Text | None = None
    cluster_by: Columns = Field(
        default_factory=list, max_length=1000, description="Columns by which files are to be clustered."
    )

    @model_validator(mode="after")
    def _locatable(self) -> "TableRequest":
        if self.location is None and self.name is None:
            raise ValueError("give a location, a name, or both")
        if self.table_schema is None and (
            self.partition_columns or self.properties or self.description or self.cluster_by
        ):
            raise ValueError(
                "partition-columns, properties, description and cluster-by belong to creating: give a schema"
            )
        return self


class RenameRequest(Envelope):
    """Give a registered table a name."""

    name: _Name


class TableResource(Answer):
    """A registered table."""

    id: str
    name: str = Field(description="That it was given, or else the last part of its location.")
    location: str = Field(description="Canonical URL without a trailing slash.")
    created_at: str
    version: int | None = Field(default=None, description="Set where the request created the table.")


class CloneRequest(Envelope):
    """Where a clone of the table goes, and what it is."""

    location: FilePath | None = Field(
        default=None, description="Of the clone: a path, or a URL: file, s3, gs, az, memory."
    )
    name: _Name | None = Field(
        default=None,
        description="Of the clone; without a location it goes into the warehouse's folder of that name.",
    )
    shallow: bool = Field(
        default=False,
        description="Refer to the table's files instead of copying them.",
    )
    version: Long | None = Field(
        default=None, description="Which version of the table; the newest by default."
    )
    timestamp: Timestamp | None = Field(
        default=None,
        description="Instead: the newest that was committed by a time; ISO 8601, UTC without a zone.",
    )
    replace: bool = Field(
        default=False,
        description="A table that is there becomes the clone, in one version; its history stays.",
    )
    if_not_exists: bool = Field(default=False, description="A table that is there stays as it is.")
    properties: Properties = Field(
        default_factory=dict, description="Of the clone, beside those of the table or in their place."
    )
    engine_info: str | None = Field(default=None, max_length=256)

    @model_validator(mode="after")
    def _consistent(self) -> "CloneRequest":
        if self.location is None and self.name is None:
            raise ValueError("give a location, a name, or both")
        if self.version is not None and self.timestamp is not None:
            raise ValueError("give a version or a timestamp, not both")
        if self.replace and self.if_not_exists:
            raise ValueError("replace and if-not-exists exclude each other")
        return self


class CloneResponse(Answer):
    """The clone."""

    result: Literal["created", "replaced", "exists"]
    table: TableResource = Field(description="The clone.")
    version: int | None = Field(description="Of the clone; absent where nothing was done.")
    source_version: int | None = Field(
        description="Of the table that was cloned; absent where nothing was done."
    )
    operation_metrics: dict[str, int]


class ConvertRequest(Envelope):
    """Which Parquet files become a table, where they are."""

    location: FilePath = Field(
        description="Of the table, and of the directory whose files it gets: a path, or a URL: file, s3, gs, az."
    )
    name: _Name | None = Field(
        default=None, description="Of the table; without one it is called by the last part of its location."
    )
    source_format: Literal["parquet", "iceberg"] = Field(
        default="parquet", description="What is there: Parquet files, or an Iceberg table."
    )
    source: FilePath | None = Field(
        default=None,
        description="Of an Iceberg table: its directory, or one of its metadata files; without it the location.",
    )
    partition_schema: JsonObject | None = Field(
        default=None,
        description="Delta's schema JSON of the partition columns, in the order of the directories; without it there are none.",
    )
    collect_statistics: bool = Field(
        default=True,
        description="Take statistics from the footers of the files, or from an Iceberg table's manifests.",
    )
    properties: Properties = Field(default_factory=dict, description="Table properties, delta.* among them.")
    description: Text | None = None
    engine_info: str | None = Field(default=None, max_length=256)


class ConvertResponse(Answer):
    """The table."""

    result: Literal["converted", "exists"]
    table: TableResource
    version: int | None = Field(description="Of the table; absent where it was one already.")
    operation_metrics: dict[str, int]


class TablesResponse(Answer):
    """A page of registered tables."""

    tables: list[TableResource]
    next_page_token: str | None = None


class SnapshotResponse(Answer):
    """What the table is at one version."""

    table_id: str
    name: str
    location: str
    version: int
    read_mark: str | None = Field(
        default=None, description="To be sent with a commit that rests on this version; means nothing else."
    )
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
    num_rows: int | None = Field(
        default=None, description="Live rows; null where the statistics of a file do not say how many it has."
    )
    app_transactions: dict[str, int] = Field(default_factory=dict)
    domain_metadata: dict[str, str] = Field(default_factory=dict)


class DetailResponse(Answer):
    """DESCRIBE DETAIL: Delta's columns, under ``detail`` in Delta's spelling."""

    detail: dict[str, Any]


class HistoryMember(Delta):
    """One of several transactions that share a version."""

    key: str = Field(description="Its transaction id, the Idempotency-Key of its request.")
    read_version: int = Field(alias="readVersion")
    predicate: str | None = None
    metrics: dict[str, int] = Field(
        description="Those of its own answer; operationMetrics are the version's."
    )


class HistoryEntry(Delta):
    """One version: Delta's history columns, and the transactions in it where Delvec committed several together."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")

    version: int
    timestamp: int
    operation: str | None = None
    members: list[HistoryMember] | None = None


class HistoryResponse(Answer):
    """Newest first."""

    history: list[HistoryEntry]
