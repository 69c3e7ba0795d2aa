"""The relational tables: names, a ledger of transactions, stored answers, and snapshots read from logs.

None of it is the source of truth about a table's data: that is the Delta log. There are no foreign keys: the ledger
outlives a registration that is dropped and made again, and a snapshot is saved in several transactions.

Tested in `tests/integration/contract/test_sql_store.py`.
"""

import re
from datetime import UTC, datetime
from types import NoneType
from typing import Final, get_args

from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from delvec_contract.health_metrics import SampledMetrics

__all__ = [
    "FIRST_REVISION",
    "REVISION",
    "AccessStateRow",
    "AnswerRow",
    "AuditRow",
    "Base",
    "CloneRow",
    "CommitConflictRow",
    "CommitCountsRow",
    "CommitIntervalRow",
    "DroppedTableRow",
    "EventCounterRow",
    "EventMarkRow",
    "EventRow",
    "FileLeaseRow",
    "GrantRow",
    "HealthSampleRow",
    "IcebergConversionRow",
    "LedgerFileRow",
    "MaintenanceLeaseRow",
    "MaintenancePolicyRow",
    "MaintenanceRunRow",
    "MaintenanceTaskRow",
    "OverwrittenCommitRow",
    "OwnCommitRow",
    "SchemaCompatibilityRow",
    "SegmentBlobRow",
    "SegmentRow",
    "SegmentSummaryRow",
    "SnapshotMemberRow",
    "SnapshotRow",
    "StoredText",
    "TableRow",
    "TokenRow",
    "TransactionRow",
    "WebhookRow",
    "storable",
]

REVISION: Final = "0019"
"""The newest migration; the database is migrated only if it is behind this."""
FIRST_REVISION: Final = "0015"
"""The first migration: no other leads up from an older schema, which only development versions made."""
_METRIC_COLUMNS: Final = {
    "num_physical_rows": "num_records",
    "num_files_with_deletion_vectors": "num_deletion_vectors",
}
"""Columns of the views for dashboards that are not named as in the service's answers."""
_NOT_STORABLE: Final = re.compile("[\0\ud800-\udfff]")


def storable(text: str) -> str:
    """Return a text as :class:`StoredText` stores it, to compare it with a stored one."""
    return _NOT_STORABLE.sub("\ufffd", text)


class StoredText(TypeDecorator[str]):
    """Text that every database accepts: anybody may have written the names, ids and engines of logs.

    PostgreSQL does not support NUL, nor UTF-8 lone surrogates; each becomes U+FFFD, so that no text gets longer.
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the value for the database."""
        del dialect
        return value if value is None else storable(value)


class _LongText(StoredText):
    """The same without a length limit."""

    impl = Text
    cache_ok = True


class _Moment(TypeDecorator[datetime]):
    """A time in UTC; SQLite does not store the time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        return value.astimezone(UTC) if value is not None and value.tzinfo is not None else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


class Base(DeclarativeBase):
    """The metadata that migrations are compared with."""

    type_annotation_map = {datetime: _Moment()}  # noqa: RUF012 - SQLAlchemy's own name for it


class TableRow(Base):
    """A registered table.

    Attributes:
        catalog: the catalog of the name: empty for a service's own, else the id of the warehouse of an embedded
            connection.
        name: the name that it was given; None if it is named after its folder.
        folder_name: the last part of its location, as a name; tables may share it.
    """

    __tablename__ = "tables"
    __table_args__ = (
        UniqueConstraint("catalog", "name", name="tables_name_unique"),
        UniqueConstraint("catalog", "location", name="tables_location_unique"),
        Index("tables_by_folder_name", "catalog", "folder_name"),
    )

    catalog: Mapped[str] = mapped_column(StoredText(36), primary_key=True, server_default="")
    id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    name: Mapped[str | None] = mapped_column(StoredText(128))
    folder_name: Mapped[str] = mapped_column(StoredText(128), server_default="")
    location: Mapped[str] = mapped_column(StoredText(2000))
    created_at: Mapped[datetime]


class DroppedTableRow(Base):
    """A managed table that was dropped, whose folder is still there; its other columns are those of its :class:`TableRow`.

    Attributes:
        is_being_deleted: whether the deletion of its files has begun, after which nothing brings it back.
    """

    __tablename__ = "dropped_tables"
    __table_args__ = (Index("dropped_tables_by_name", "catalog", "name"),)

    catalog: Mapped[str] = mapped_column(StoredText(36), primary_key=True, server_default="")
    id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    name: Mapped[str] = mapped_column(StoredText(128))
    location: Mapped[str] = mapped_column(StoredText(2000))
    created_at: Mapped[datetime]
    dropped_at: Mapped[datetime]
    is_being_deleted: Mapped[bool] = mapped_column(Boolean)


class TransactionRow(Base):
    """A transaction that has begun, and its outcome if known."""

    __tablename__ = "transactions"
    __table_args__ = (Index("transactions_by_age", "created_at"),)

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    id: Mapped[str] = mapped_column(StoredText(128), primary_key=True)
    operation: Mapped[str] = mapped_column(StoredText(64))
    state: Mapped[str] = mapped_column(StoredText(16))
    version: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


class LedgerFileRow(Base):
    """A file that Delvec was about to write; recorded before its first byte."""

    __tablename__ = "ledger_files"
    __table_args__ = (
        Index("ledger_files_by_transaction", "table_id", "transaction_id"),
        Index("ledger_files_by_age", "created_at"),
    )

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    path: Mapped[str] = mapped_column(_LongText(), primary_key=True)
    transaction_id: Mapped[str] = mapped_column(StoredText(128))
    kind: Mapped[str] = mapped_column(StoredText(32))
    state: Mapped[str] = mapped_column(StoredText(16))
    created_at: Mapped[datetime]


class AnswerRow(Base):
    """The answer to a request with an idempotency key, or a claim on the key.

    Attributes:
        request_hash: the hash of method, path and body, to detect reuse of the key for another request.
        claim: the claim of the worker that processes it; None once there is an answer.
        claimed_at: an old claim belongs to a worker that died.
        status: the HTTP status; None while there is no answer.
        body: compressed.
    """

    __tablename__ = "answers"
    __table_args__ = (Index("answers_by_created_at", "created_at"),)

    key: Mapped[str] = mapped_column(StoredText(128), primary_key=True)
    request_hash: Mapped[str] = mapped_column(StoredText(64))
    claim: Mapped[str | None] = mapped_column(StoredText(36))
    claimed_at: Mapped[datetime | None]
    status: Mapped[int | None] = mapped_column(Integer)
    body: Mapped[bytes | None] = mapped_column(LargeBinary)
    created_at: Mapped[datetime]


class OwnCommitRow(Base):
    """A version of a table that Delvec created; only the newest are kept.

    Attributes:
        key: its commitInfo.txnId.
        size: bytes of the log entry.
        metadata_id: the id of the table's metadata at the time: a different one means another table, created in its place.
    """

    __tablename__ = "own_commits"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    key: Mapped[str] = mapped_column(StoredText(128))
    size: Mapped[int] = mapped_column(BigInteger)
    metadata_id: Mapped[str] = mapped_column(StoredText(64))


class OverwrittenCommitRow(Base):
    """An own commit that another writer replaced; the ``by_`` columns describe the commit in its place."""

    __tablename__ = "overwritten_commits"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    key: Mapped[str] = mapped_column(StoredText(128), primary_key=True)
    by_operation: Mapped[str | None] = mapped_column(StoredText(64))
    by_engine: Mapped[str | None] = mapped_column(StoredText(256))
    by_key: Mapped[str | None] = mapped_column(StoredText(128))
    newest_version: Mapped[int] = mapped_column(BigInteger)
    found_at: Mapped[datetime]


class CloneRow(Base):
    """A shallow clone, and a table whose files it may need: its source, or a source of that one.

    Attributes:
        location: the location of the clone.
        source_location: the location of the cloned table.
        source_version: the cloned version.
        created_at: shortly before the clone was created.
    """

    __tablename__ = "clones"
    __table_args__ = (Index("clones_by_clone_id", "clone_id"),)

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    clone_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    location: Mapped[str] = mapped_column(StoredText(2000))
    source_location: Mapped[str] = mapped_column(StoredText(2000))
    source_version: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


class SnapshotRow(Base):
    """The newest version of a table that was saved, without its files.

    Attributes:
        table_id: derived from the location; the table need not be registered.
        generation: changes with every write; writers must pass the one they read.
        format: the format of the encoding; rows in another format are ignored.
        file_name: with ``file_size`` and ``file_time`` (milliseconds since the epoch) the log file that identifies
            the version.
        state: the snapshot without its files, as compressed JSON.
        digest: the digest of state and members together.
    """

    __tablename__ = "snapshots"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    generation: Mapped[str] = mapped_column(StoredText(32))
    format: Mapped[int] = mapped_column(Integer)
    version: Mapped[int] = mapped_column(BigInteger)
    file_name: Mapped[str] = mapped_column(StoredText(255))
    file_size: Mapped[int] = mapped_column(BigInteger)
    file_time: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[bytes] = mapped_column(LargeBinary)
    digest: Mapped[int] = mapped_column(BigInteger)
    used_at: Mapped[datetime]


class SnapshotMemberRow(Base):
    """A segment of a snapshot.

    Attributes:
        dead: the rows that are not live in this version.
    """

    __tablename__ = "snapshot_members"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    segment_id: Mapped[str] = mapped_column(StoredText(32), primary_key=True)
    position: Mapped[int] = mapped_column(Integer)
    dead: Mapped[bytes] = mapped_column(LargeBinary)


class SegmentRow(Base):
    """Some files of a table; immutable except for summaries of its columns.

    Attributes:
        nbytes: the size of its blobs.
        unused_since: when it stopped being part of a snapshot, or was created for one; None while it is part of one.
    """

    __tablename__ = "segments"
    __table_args__ = (
        Index("segments_by_table", "table_id"),
        Index("segments_by_unused_since", "unused_since"),
    )

    id: Mapped[str] = mapped_column(StoredText(32), primary_key=True)
    table_id: Mapped[str] = mapped_column(StoredText(36))
    num_rows: Mapped[int] = mapped_column(Integer)
    nbytes: Mapped[int] = mapped_column(BigInteger)
    unused_since: Mapped[datetime | None]


class SegmentBlobRow(Base):
    """One part of a segment."""

    __tablename__ = "segment_blobs"

    segment_id: Mapped[str] = mapped_column(StoredText(32), primary_key=True)
    name: Mapped[str] = mapped_column(StoredText(64), primary_key=True)
    checksum: Mapped[int] = mapped_column(BigInteger)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class SegmentSummaryRow(Base):
    """Bounds of one column over a whole segment.

    Attributes:
        kind: the kind of the bounds: integer, real, text or decimal (as text); None if neither is known.
    """

    __tablename__ = "segment_summaries"
    __table_args__ = (Index("segment_summaries_by_segment", "segment_id"),)

    column_key: Mapped[str] = mapped_column(StoredText(32), primary_key=True)
    segment_id: Mapped[str] = mapped_column(StoredText(32), primary_key=True)
    kind: Mapped[str | None] = mapped_column(StoredText(8))
    low_int: Mapped[int | None] = mapped_column(BigInteger)
    high_int: Mapped[int | None] = mapped_column(BigInteger)
    low_real: Mapped[float | None] = mapped_column(Double)
    high_real: Mapped[float | None] = mapped_column(Double)
    low_text: Mapped[str | None] = mapped_column(_LongText())
    high_text: Mapped[str | None] = mapped_column(_LongText())
    nullable: Mapped[bool] = mapped_column(Boolean)
    only_null: Mapped[bool] = mapped_column(Boolean)
    checksum: Mapped[int] = mapped_column(BigInteger)


class HealthSampleRow(Base):
    """The state of a table's files after a version; only some old samples are kept.

    Each number of :class:`~delvec_contract.health_metrics.SampledMetrics` has a column, too.

    Attributes:
        metadata_id: the id of the table's metadata at the time: a different one means another table, created in its place.
        gain_bytes: of the recommendation with the largest gain, as is ``cost_bytes``.
        actions: the recommended actions, separated by commas.
    """

    __tablename__ = "health_samples"
    __table_args__ = (Index("health_samples_by_time", "table_id", "sampled_at"),)

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    metadata_id: Mapped[str] = mapped_column(StoredText(64))
    sampled_at: Mapped[datetime]
    score: Mapped[float] = mapped_column(Double)
    gain_bytes: Mapped[int] = mapped_column(BigInteger)
    cost_bytes: Mapped[int] = mapped_column(BigInteger)
    actions: Mapped[str] = mapped_column(StoredText(128))


def _add_metrics() -> None:
    for name, field in SampledMetrics.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        kind = Double if float in kinds else BigInteger
        column = mapped_column(_METRIC_COLUMNS.get(name, name), kind, nullable=NoneType in kinds)
        setattr(HealthSampleRow, name, column)


_add_metrics()


class CommitCountsRow(Base):
    """Outcomes of a table's commits since counting began.

    Attributes:
        rebased: commits to a newer version than the one they read.
        rows_saved: rows that those changed, which did not have to be searched again.
    """

    __tablename__ = "commit_counts"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    since: Mapped[datetime]
    commits: Mapped[int] = mapped_column(BigInteger)
    rebased: Mapped[int] = mapped_column(BigInteger)
    conflicts: Mapped[int] = mapped_column(BigInteger)
    rows_saved: Mapped[int] = mapped_column(BigInteger)


class IcebergConversionRow(Base):
    """The version of a table that was last converted to Iceberg."""

    __tablename__ = "iceberg_conversions"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    format_version: Mapped[int] = mapped_column(primary_key=True)
    delta_version: Mapped[int] = mapped_column(BigInteger)
    converted_at: Mapped[datetime]


class CommitConflictRow(Base):
    """A commit that lost to another one; the ``winning_`` columns describe the other.

    Attributes:
        id: begins with the time in microseconds, so that it sorts by it.
        type: Delta's name of the exception.
        principal: whose commit it was; None if unknown.
        num_files: number of files that both concern; ``files`` has some of them, as a JSON array.
        overlapping_rows: number of rows that both change; None if it is not about rows.
    """

    __tablename__ = "commit_conflicts"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    id: Mapped[str] = mapped_column(StoredText(32), primary_key=True)
    found_at: Mapped[datetime]
    type: Mapped[str] = mapped_column(StoredText(64))
    operation: Mapped[str] = mapped_column(StoredText(64))
    read_version: Mapped[int] = mapped_column(BigInteger)
    transaction_id: Mapped[str] = mapped_column(StoredText(128))
    principal: Mapped[str | None] = mapped_column(StoredText(256))
    winning_version: Mapped[int] = mapped_column(BigInteger)
    winning_operation: Mapped[str] = mapped_column(StoredText(64))
    winning_engine: Mapped[str | None] = mapped_column(StoredText(256))
    winning_transaction_id: Mapped[str | None] = mapped_column(StoredText(128))
    winning_principal: Mapped[str | None] = mapped_column(StoredText(256))
    num_files: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[str] = mapped_column(_LongText())
    overlapping_rows: Mapped[int | None] = mapped_column(BigInteger)
    reason: Mapped[str] = mapped_column(_LongText())


class CommitIntervalRow(Base):
    """Outcomes of a table's commits in an hour, or in a day if long ago; fields as in CommitCountsRow."""

    __tablename__ = "commit_intervals"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    since: Mapped[datetime] = mapped_column(primary_key=True)
    seconds: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    commits: Mapped[int] = mapped_column(BigInteger)
    rebased: Mapped[int] = mapped_column(BigInteger)
    conflicts: Mapped[int] = mapped_column(BigInteger)
    rows_saved: Mapped[int] = mapped_column(BigInteger)


class EventRow(Base):
    """An event of a table, until it expires.

    Attributes:
        position: in the order in which events can be read: none appears before another that can be read already.
        id: derived from what happened, so that recording it twice adds nothing.
        data: JSON.
        recorded_at: when it was recorded; it expires by this time.
    """

    __tablename__ = "events"
    __table_args__ = (
        UniqueConstraint("id", name="events_id_unique"),
        Index("events_by_table", "table_id", "position"),
        Index("events_by_recorded_at", "recorded_at"),
    )

    position: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    id: Mapped[str] = mapped_column(StoredText(36))
    table_id: Mapped[str] = mapped_column(StoredText(36))
    type: Mapped[str] = mapped_column(StoredText(64))
    occurred_at: Mapped[datetime]
    recorded_at: Mapped[datetime]
    data: Mapped[str] = mapped_column(_LongText())


class EventCounterRow(Base):
    """One row, or none: the last position of an event. Whoever records events locks it until they can be read.

    Attributes:
        epoch: random; a different one means a different database, whose positions begin again.
        position: the position of the newest event.
        expired: of the newest event that has expired.
    """

    __tablename__ = "event_counter"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    epoch: Mapped[str] = mapped_column(StoredText(8))
    position: Mapped[int] = mapped_column(BigInteger)
    expired: Mapped[int] = mapped_column(BigInteger)


class EventMarkRow(Base):
    """The newest version of a table whose commit is recorded as an event; the log has those that are still missing.

    Attributes:
        modified_at: of the commit's file, in milliseconds since the epoch, with ``size`` to recognize it.
    """

    __tablename__ = "event_marks"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger)
    modified_at: Mapped[int] = mapped_column(BigInteger)
    size: Mapped[int] = mapped_column(BigInteger)


class WebhookRow(Base):
    """How far the deliveries of a webhook are.

    Attributes:
        position: the position of the newest event that was delivered, or that it does not want.
        attempts: failed attempts to deliver the next one.
        due_at: when the next attempt is due.
        owner: the process that delivers until ``owned_until``.
    """

    __tablename__ = "webhooks"

    name: Mapped[str] = mapped_column(StoredText(64), primary_key=True)
    position: Mapped[int] = mapped_column(BigInteger)
    attempts: Mapped[int] = mapped_column(Integer)
    due_at: Mapped[datetime]
    owner: Mapped[str] = mapped_column(StoredText(36))
    owned_until: Mapped[datetime]


class MaintenancePolicyRow(Base):
    """A maintenance policy: attached to a table, to names by a pattern, or to all tables of a catalog.

    Attributes:
        content: JSON.
    """

    __tablename__ = "maintenance_policies"

    catalog: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    name: Mapped[str] = mapped_column(StoredText(128), primary_key=True)
    type: Mapped[str] = mapped_column(StoredText(64))
    table_id: Mapped[str | None] = mapped_column(StoredText(36))
    pattern: Mapped[str | None] = mapped_column(StoredText(128))
    content: Mapped[str] = mapped_column(_LongText())
    updated_at: Mapped[datetime]


class MaintenanceLeaseRow(Base):
    """The maintenance lease of a table, with its expiry."""

    __tablename__ = "maintenance_leases"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    owner: Mapped[str] = mapped_column(StoredText(128))
    expires_at: Mapped[datetime]


class FileLeaseRow(Base):
    """Who deletes files of a table, or brings some back, until when.

    Attributes:
        location_hash: SHA-256 of the table's location, in hexadecimal: it may have other ids in other catalogs.
        kind: ``deleting`` or ``restoring``.
    """

    __tablename__ = "file_leases"

    location_hash: Mapped[str] = mapped_column(StoredText(64), primary_key=True)
    owner: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    kind: Mapped[str] = mapped_column(StoredText(16))
    expires_at: Mapped[datetime]


class MaintenanceRunRow(Base):
    """A maintenance run of a policy; fields are those of :class:`~delvec_contract.MaintenanceRun`."""

    __tablename__ = "maintenance_runs"
    __table_args__ = (Index("maintenance_runs_by_start", "table_id", "started_at"),)

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    id: Mapped[str] = mapped_column(StoredText(128), primary_key=True)
    type: Mapped[str] = mapped_column(StoredText(64))
    policy: Mapped[str | None] = mapped_column(StoredText(128))
    state: Mapped[str] = mapped_column(StoredText(16))
    reason: Mapped[str] = mapped_column(_LongText())
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime]
    cost_bytes: Mapped[int | None] = mapped_column(BigInteger)
    predicted_gain_bytes: Mapped[int | None] = mapped_column(BigInteger)
    measured_gain_bytes: Mapped[int | None] = mapped_column(BigInteger)
    predicted_gain_files: Mapped[int | None] = mapped_column(BigInteger)
    measured_gain_files: Mapped[int | None] = mapped_column(BigInteger)
    version: Mapped[int | None] = mapped_column(BigInteger)
    error: Mapped[str | None] = mapped_column(_LongText())


class MaintenanceTaskRow(Base):
    """Maintenance that runs, or ended recently; fields are those of :class:`~delvec_contract.MaintenanceTask`.

    Attributes:
        updated_at: of the newest report; a task that is no longer reported is lost.
    """

    __tablename__ = "maintenance_tasks"

    table_id: Mapped[str] = mapped_column(StoredText(36), primary_key=True)
    id: Mapped[str] = mapped_column(StoredText(128), primary_key=True)
    operation: Mapped[str] = mapped_column(StoredText(64))
    engine: Mapped[str] = mapped_column(StoredText(128))
    principal: Mapped[str | None] = mapped_column(StoredText(256))
    state: Mapped[str] = mapped_column(StoredText(16))
    started_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    num_files: Mapped[int] = mapped_column(BigInteger)
    files_done: Mapped[int] = mapped_column(BigInteger)
    size_in_bytes: Mapped[int] = mapped_column(BigInteger)
    bytes_done: Mapped[int] = mapped_column(BigInteger)


class SchemaCompatibilityRow(Base):
    """The oldest revision of Delvec that supports the current schema: one row, written by the migrations.

    It lets running replicas continue while the first new one migrates, and the last upgrade be rolled back.
    """

    __tablename__ = "schema_compatibility"

    oldest: Mapped[str] = mapped_column(StoredText(32), primary_key=True)


class TokenRow(Base):
    """A bearer token: only its hash, never the token.

    Attributes:
        token_hash: SHA-256 in hexadecimal; tokens are random, so no salt is needed.
        revoked_at: None while it is valid. A revoked token stays, so that its name is never reused.
    """

    __tablename__ = "tokens"
    __table_args__ = (UniqueConstraint("token_hash", name="tokens_hash_unique"),)

    name: Mapped[str] = mapped_column(StoredText(128), primary_key=True)
    principal: Mapped[str] = mapped_column(StoredText(128))
    token_hash: Mapped[str] = mapped_column(StoredText(64))
    created_at: Mapped[datetime]
    created_by: Mapped[str] = mapped_column(StoredText(128))
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class GrantRow(Base):
    """A role that a principal or a group has on some tables.

    Attributes:
        scope: ``all``, ``namespace``, ``pattern`` or ``table``.
        target: the namespace, the pattern, or the id of the table; empty for ``all``.
    """

    __tablename__ = "grants"

    grantee: Mapped[str] = mapped_column(StoredText(256), primary_key=True)
    scope: Mapped[str] = mapped_column(StoredText(16), primary_key=True)
    target: Mapped[str] = mapped_column(StoredText(128), primary_key=True)
    role: Mapped[str] = mapped_column(StoredText(16))
    granted_at: Mapped[datetime]
    granted_by: Mapped[str] = mapped_column(StoredText(128))


class AccessStateRow(Base):
    """One row, or none: counts the changes of tokens and grants, so that replicas notice them.

    Attributes:
        generation: the number of changes; no row means none.
    """

    __tablename__ = "access_state"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    generation: Mapped[int] = mapped_column(BigInteger)


class AuditRow(Base):
    """An entry of the audit log: a request that changed something, or was denied.

    Attributes:
        id: begins with the time in microseconds, so that it sorts by it.
        principal: None if the request had no known token.
        operation: its operationId in the OpenAPI document.
        table_name: the table's name at the time, or the requested name if there is no such table.
        change: what was changed: a commit's operation, a grant, the name of a token or a policy.
    """

    __tablename__ = "audit_log"
    __table_args__ = (
        Index("audit_log_by_table", "table_id", "id"),
        Index("audit_log_by_principal", "principal", "id"),
    )

    id: Mapped[str] = mapped_column(StoredText(32), primary_key=True)
    answered_at: Mapped[datetime]
    principal: Mapped[str | None] = mapped_column(StoredText(256))
    request_id: Mapped[str] = mapped_column(StoredText(128))
    operation: Mapped[str] = mapped_column(StoredText(64))
    table_id: Mapped[str | None] = mapped_column(StoredText(36))
    table_name: Mapped[str | None] = mapped_column(StoredText(200))
    change: Mapped[str | None] = mapped_column(_LongText())
    transaction_id: Mapped[str | None] = mapped_column(StoredText(128))
    version: Mapped[int | None] = mapped_column(BigInteger)
    outcome: Mapped[str] = mapped_column(StoredText(16))
    status: Mapped[int] = mapped_column(Integer)
    error_code: Mapped[str | None] = mapped_column(StoredText(64))
