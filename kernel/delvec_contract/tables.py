"""Tables: registration, creation, clones, snapshots, details and history.

Tested in `tests/integration/service/tables/test_tables.py`.
"""

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, model_validator

from delvec_contract.action_bodies import AddFile, AppTransaction
from delvec_contract.alterations import AdvanceIdentity
from delvec_contract.shapes import (
    FILES,
    Answer,
    Columns,
    Delta,
    Envelope,
    FilePath,
    JsonObject,
    Long,
    Metrics,
    Properties,
    Text,
    Timestamp,
    TransactionId,
)

__all__ = [
    "TABLE_NAME",
    "CloneRequest",
    "CloneResponse",
    "ColumnRange",
    "ConvertRequest",
    "ConvertResponse",
    "DeleteDroppedRequest",
    "DeletedTableResponse",
    "DetailResponse",
    "DroppedTableResource",
    "DroppedTablesResponse",
    "FirstRows",
    "HistoryEntry",
    "HistoryMember",
    "HistoryResponse",
    "RenameRequest",
    "SnapshotResponse",
    "TableRequest",
    "TableResource",
    "TablesResponse",
    "UndropRequest",
]

TABLE_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_\-]*(\.[A-Za-z0-9_][A-Za-z0-9_\-]*)*$"
"""Names with optional namespaces before the last part: ``orders``, ``sales.orders``."""


def _checked_name(name: str) -> str:
    if not re.fullmatch(TABLE_NAME, name):
        raise ValueError(
            "a table's name has letters, digits, _ and -, and starts with a letter or _; namespaces come before it "
            "with a dot: my_table, sales.orders"
        )
    return name


_Name: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        json_schema_extra={"pattern": TABLE_NAME},
        description="The table's name in URLs and SQL, with namespaces before it: orders, sales.orders.",
    ),
    AfterValidator(_checked_name),  # not Field(pattern=), whose error shows people the regular expression
]


class FirstRows(Envelope):
    """The rows that a new table has from its first version on: files that an engine wrote after `POST /v1/new-tables`."""

    transaction_id: TransactionId = Field(description="From `POST /v1/new-tables`.")
    operation: str = Field(
        default="CREATE TABLE AS SELECT", max_length=64, description="Delta's operation name."
    )
    operation_parameters: Properties = Field(
        default_factory=dict, description="Those of the operation; by default those of a creation."
    )
    operation_metrics: Metrics = Field(
        default_factory=dict,
        description="Timings and counts that only the engine knows; the rest is computed.",
    )
    adds: list[AddFile] = Field(default_factory=list, max_length=FILES, fail_fast=True)
    identity_changes: list[AdvanceIdentity] = Field(
        default_factory=list,
        max_length=1000,
        fail_fast=True,
        description="The last values that identity columns have in the files.",
    )
    app_transaction: AppTransaction | None = None
    user_metadata: Text | None = None
    engine_info: str | None = Field(default=None, max_length=256)


class TableRequest(Envelope):
    """Register the table at a location; with a schema, create it there first."""

    location: FilePath | None = Field(
        default=None,
        description="A path, or a URL: file, s3, gs, az, memory. Not inside, above or at another table.",
    )
    name: _Name | None = Field(
        default=None,
        description="The table's name, which must be unique; by default the last part of its location, if no other "
        "table has that name.",
    )
    table_schema: JsonObject | None = Field(
        default=None, alias="schema", description="Delta's schema JSON. If given, a new table is created."
    )
    partition_columns: Columns = Field(default_factory=list)
    properties: Properties = Field(default_factory=dict, description="Table properties, including delta.*.")
    description: Text | None = None
    cluster_by: Columns = Field(default_factory=list, max_length=1000, description="Clustering columns.")
    managed: StrictBool = Field(
        default=False,
        description="Whether the catalog is to manage the table's commits. A new table without a location gets a folder "
        "that no earlier table had; an existing one gets the table feature `catalogManaged`.",
    )
    first_rows: FirstRows | None = Field(
        default=None, description="The rows of a new table, which are in its first version."
    )

    @model_validator(mode="after")
    def _locatable(self) -> "TableRequest":
        if self.location is None and self.name is None:
            raise ValueError("give a location, a name, or both")
        if self.table_schema is None and (
            self.partition_columns
            or self.properties
            or self.description
            or self.cluster_by
            or self.first_rows is not None
        ):
            raise ValueError(
                "partition-columns, properties, description, cluster-by and first-rows are only for new tables; give a "
                "schema"
            )
        return self


class RenameRequest(Envelope):
    """Give a registered table a name."""

    name: _Name


class TableResource(Answer):
    """A registered table."""

    id: str
    name: str = Field(description="The given name, or else the last part of its location.")
    location: str = Field(description="Canonical URL without a trailing slash.")
    created_at: str
    version: int | None = Field(default=None, description="Set if the request created the table.")


class DroppedTableResource(Answer):
    """A managed table that was dropped."""

    id: str
    name: str = Field(description="What it was called; several dropped tables can have one name.")
    location: str
    dropped_at: str = Field(description="When it was dropped, in ISO 8601.")
    kept_until: str = Field(description="When its files may be deleted, in ISO 8601.")
    is_being_deleted: bool = Field(
        description="Whether the deletion of its files has begun, after which nothing brings it back."
    )


class DroppedTablesResponse(Answer):
    """A page of dropped tables."""

    tables: list[DroppedTableResource]
    next_page_token: str | None = None


class UndropRequest(Envelope):
    """Bring a dropped table back."""

    name: _Name | None = Field(default=None, description="Its new name; by default what it was called.")


class DeleteDroppedRequest(Envelope):
    """Delete the files of a dropped table."""

    enforce_retention: StrictBool = Field(
        default=True, description="Refuse if their retention has not ended yet."
    )


class DeletedTableResponse(Answer):
    """The deleted files of a dropped table."""

    table: str
    num_files: int = Field(description="Number of deleted files.")
    size_in_bytes: int
    kept: list[str] = Field(
        description="Links, and folders of other tables, in the table's folder: they were left alone."
    )


class CloneRequest(Envelope):
    """Where to create a clone of the table, and what kind."""

    location: FilePath | None = Field(
        default=None, description="The clone's location: a path, or a URL: file, s3, gs, az, memory."
    )
    name: _Name | None = Field(
        default=None,
        description=(
            "The clone's name; without a location, the clone is created in the warehouse folder of that name."
        ),
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
        description=(
            "Instead of a version: the newest one committed by this time; ISO 8601, UTC without a zone."
        ),
    )
    replace: bool = Field(
        default=False,
        description="An existing table becomes the clone, in one version; its history stays.",
    )
    read_version: Long | None = Field(
        default=None,
        description="To replace a table: a version of it that was the newest before the request was first sent; on a "
        "retry, the service looks for its commit from there on. What is replaced is always the newest version.",
    )
    if_not_exists: bool = Field(default=False, description="An existing table is left unchanged.")
    properties: Properties = Field(
        default_factory=dict,
        description=("The clone's table properties, in addition to those of the table or replacing them."),
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
    version: int | None = Field(description="The clone's version; absent if nothing was done.")
    source_version: int | None = Field(
        description="The version of the table that was cloned; absent if nothing was done."
    )
    operation_metrics: dict[str, int]


class ConvertRequest(Envelope):
    """The Parquet files, or the Iceberg table, to convert to a Delta table in place."""

    location: FilePath = Field(
        description="The location of the table and of its existing files: a path, or a URL: file, s3, gs, az."
    )
    name: _Name | None = Field(
        default=None, description="The table's name; by default the last part of its location."
    )
    source_format: Literal["parquet", "iceberg"] = Field(
        default="parquet", description="What the location contains: Parquet files, or an Iceberg table."
    )
    source: FilePath | None = Field(
        default=None,
        description=(
            "For an Iceberg table: its directory, or one of its metadata files; by default the location."
        ),
    )
    partition_schema: JsonObject | None = Field(
        default=None,
        description=(
            "The partition columns in Delta's schema JSON, in the order of the directories; by default "
            "there are none."
        ),
    )
    collect_statistics: bool = Field(
        default=True,
        description="Take statistics from the footers of the files, or from an Iceberg table's manifests.",
    )
    properties: Properties = Field(default_factory=dict, description="Table properties, including delta.*.")
    description: Text | None = None
    engine_info: str | None = Field(default=None, max_length=256)


class ConvertResponse(Answer):
    """The table."""

    result: Literal["converted", "exists"]
    table: TableResource
    version: int | None = Field(
        description=("The version of the table; absent if it was already a Delta table.")
    )
    operation_metrics: dict[str, int]


class TablesResponse(Answer):
    """A page of registered tables."""

    tables: list[TableResource]
    next_page_token: str | None = None


class ColumnRange(Answer):
    """The minimum and maximum of a column, null if it has no values. Dates are days since 1970-01-01."""

    min: int | None = Field(description="The minimum.")
    max: int | None = Field(description="The maximum.")


class SnapshotResponse(Answer):
    """The state of the table at one version."""

    table_id: str
    name: str
    location: str
    version: int
    read_mark: str | None = Field(
        default=None, description="An opaque mark to send with a commit based on this version."
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
        default=None, description="Live rows; null if a file's statistics have no row count."
    )
    column_ranges: dict[str, ColumnRange] = Field(
        default_factory=dict,
        description="Minimum and maximum of each requested column, if it has integers or dates and statistics determine them exactly.",
    )
    app_transactions: dict[str, int] = Field(default_factory=dict)
    domain_metadata: dict[str, str] = Field(default_factory=dict)


class DetailResponse(Answer):
    """DESCRIBE DETAIL: Delta's columns, under ``detail`` in Delta's spelling."""

    detail: dict[str, Any]
    table_schema: dict[str, Any] = Field(alias="schema", description="The columns of that version.")


class HistoryMember(Delta):
    """One of several transactions that share a version."""

    key: str = Field(description="The commit's transaction id, which is the Idempotency-Key of its request.")
    read_version: int = Field(alias="readVersion")
    predicate: str | None = None
    metrics: dict[str, int] = Field(
        description="The metrics in the commit's own response; operationMetrics are the version's."
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
