"""The schema: names, commits, snapshots, health, maintenance, conversions to Iceberg, and access.

A migration that changes a table which a view reads drops the view before, and makes it again after, with the same columns.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = None
branch_labels = None
depends_on = None
# A migration that replicas of the version before cannot live with says so: oldest_compatible = its own revision, or
# that of the first Delvec that does without what it takes away.
oldest_compatible = "0015"

_HEALTH_COLUMNS = (
    "s.version, s.sampled_at, s.score, s.num_files, s.size_in_bytes, s.num_records, s.num_deleted_rows, s.deleted_ratio, "
    "s.deleted_bytes, s.num_deletion_vectors, s.small_files, s.commits_since_checkpoint, s.gain_bytes, s.cost_bytes, "
    "s.actions"
)


def upgrade() -> None:
    op.create_table("schema_compatibility", sa.Column("oldest", sa.String(32), primary_key=True))
    _names()
    _commits()
    _snapshots()
    _health()
    _maintenance()
    _iceberg()
    _access()


def _names() -> None:
    op.create_table(
        "tables",
        sa.Column("catalog", sa.String(36), nullable=False, server_default=""),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(128)),
        sa.Column("folder_name", sa.String(128), nullable=False, server_default=""),
        sa.Column("location", sa.String(2000), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("catalog", "id", name="tables_by_catalog"),
        sa.UniqueConstraint("catalog", "name", name="tables_name_unique"),
        sa.UniqueConstraint("catalog", "location", name="tables_location_unique"),
    )
    op.create_index("tables_by_folder_name", "tables", ["catalog", "folder_name"])
    op.create_table(
        "clones",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("clone_id", sa.String(36), primary_key=True),
        sa.Column("location", sa.String(2000), nullable=False),
        sa.Column("source_location", sa.String(2000), nullable=False),
        sa.Column("source_version", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("clones_by_clone_id", "clones", ["clone_id"])


def _commits() -> None:
    op.create_table(
        "transactions",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("id", sa.String(128), primary_key=True),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.BigInteger),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "ledger_files",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("transaction_id", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ledger_files_by_transaction", "ledger_files", ["table_id", "transaction_id"])
    op.create_table(
        "answers",
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("claim", sa.String(36)),
        sa.Column("claimed_at", sa.DateTime(timezone=True)),
        sa.Column("status", sa.Integer),
        sa.Column("body", sa.LargeBinary),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("answers_by_created_at", "answers", ["created_at"])
    op.create_table(
        "own_commits",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True),
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("metadata_id", sa.String(64), nullable=False),
    )
    op.create_table(
        "overwritten_commits",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True),
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("by_operation", sa.String(64)),
        sa.Column("by_engine", sa.String(256)),
        sa.Column("by_key", sa.String(128)),
        sa.Column("newest_version", sa.BigInteger, nullable=False),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "commit_conflicts",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("read_version", sa.BigInteger, nullable=False),
        sa.Column("transaction_id", sa.String(128), nullable=False),
        sa.Column("principal", sa.String(256)),
        sa.Column("winning_version", sa.BigInteger, nullable=False),
        sa.Column("winning_operation", sa.String(64), nullable=False),
        sa.Column("winning_engine", sa.String(256)),
        sa.Column("winning_transaction_id", sa.String(128)),
        sa.Column("winning_principal", sa.String(256)),
        sa.Column("num_files", sa.BigInteger, nullable=False),
        sa.Column("files", sa.Text, nullable=False),
        sa.Column("overlapping_rows", sa.BigInteger),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_table(
        "commit_intervals",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("since", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("seconds", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("commits", sa.BigInteger, nullable=False),
        sa.Column("rebased", sa.BigInteger, nullable=False),
        sa.Column("conflicts", sa.BigInteger, nullable=False),
        sa.Column("rows_saved", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "commit_counts",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("commits", sa.BigInteger, nullable=False),
        sa.Column("rebased", sa.BigInteger, nullable=False),
        sa.Column("conflicts", sa.BigInteger, nullable=False),
        sa.Column("rows_saved", sa.BigInteger, nullable=False),
    )


def _snapshots() -> None:
    op.create_table(
        "snapshots",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("generation", sa.String(32), nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("file_name", sa.String(255), nullable=False),
        sa.Column("file_size", sa.BigInteger, nullable=False),
        sa.Column("file_time", sa.BigInteger, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "snapshot_members",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("segment_id", sa.String(32), primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("dead", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "segments",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("table_id", sa.String(36), nullable=False),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("nbytes", sa.BigInteger, nullable=False),
        sa.Column("unused_since", sa.DateTime(timezone=True)),
    )
    op.create_index("segments_by_table", "segments", ["table_id"])
    op.create_index("segments_by_unused_since", "segments", ["unused_since"])
    op.create_table(
        "segment_blobs",
        sa.Column("segment_id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "segment_summaries",
        sa.Column("column_key", sa.String(32), primary_key=True),
        sa.Column("segment_id", sa.String(32), primary_key=True),
        sa.Column("kind", sa.String(8)),
        sa.Column("low_int", sa.BigInteger),
        sa.Column("high_int", sa.BigInteger),
        sa.Column("low_real", sa.Double),
        sa.Column("high_real", sa.Double),
        sa.Column("low_text", sa.Text),
        sa.Column("high_text", sa.Text),
        sa.Column("nullable", sa.Boolean, nullable=False),
        sa.Column("only_null", sa.Boolean, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("segment_summaries_by_segment", "segment_summaries", ["segment_id"])
    if op.get_bind().dialect.name == "postgresql":
        # Blobs are compressed already.
        op.execute("ALTER TABLE segment_blobs ALTER COLUMN data SET STORAGE EXTERNAL")


def _health() -> None:
    op.create_table(
        "health_samples",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("metadata_id", sa.String(64), nullable=False),
        sa.Column("sampled_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("score", sa.Double, nullable=False),
        sa.Column("num_files", sa.BigInteger, nullable=False),
        sa.Column("size_in_bytes", sa.BigInteger, nullable=False),
        sa.Column("num_records", sa.BigInteger),
        sa.Column("num_deleted_rows", sa.BigInteger, nullable=False),
        sa.Column("deleted_ratio", sa.Double),
        sa.Column("deleted_bytes", sa.BigInteger, nullable=False),
        sa.Column("num_deletion_vectors", sa.BigInteger, nullable=False),
        sa.Column("small_files", sa.BigInteger, nullable=False),
        sa.Column("commits_since_checkpoint", sa.BigInteger, nullable=False),
        sa.Column("gain_bytes", sa.BigInteger, nullable=False),
        sa.Column("cost_bytes", sa.BigInteger, nullable=False),
        sa.Column("actions", sa.String(128), nullable=False),
    )
    op.create_index("health_samples_by_time", "health_samples", ["table_id", "sampled_at"])
    op.execute(
        f"CREATE VIEW delvec_health AS SELECT t.catalog, t.id AS table_id, coalesce(t.name, t.folder_name) AS name, "  # noqa: S608 - constants
        f"t.location, {_HEALTH_COLUMNS}, c.since AS counted_since, c.commits, c.rebased, c.conflicts, c.rows_saved FROM tables t "
        "LEFT JOIN health_samples s ON s.table_id = t.id AND s.version = "
        "(SELECT max(n.version) FROM health_samples n WHERE n.table_id = t.id) "
        "LEFT JOIN commit_counts c ON c.table_id = t.id"
    )
    op.execute(
        "CREATE VIEW delvec_health_history AS SELECT t.catalog, t.id AS table_id, "  # noqa: S608 - constants
        f"coalesce(t.name, t.folder_name) AS name, t.location, {_HEALTH_COLUMNS} "
        "FROM tables t JOIN health_samples s ON s.table_id = t.id"
    )


def _maintenance() -> None:
    op.create_table(
        "maintenance_policies",
        sa.Column("catalog", sa.String(36), primary_key=True),
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("table_id", sa.String(36)),
        sa.Column("pattern", sa.String(128)),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "maintenance_leases",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "maintenance_runs",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("id", sa.String(128), primary_key=True),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("policy", sa.String(128)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cost_bytes", sa.BigInteger),
        sa.Column("predicted_gain_bytes", sa.BigInteger),
        sa.Column("measured_gain_bytes", sa.BigInteger),
        sa.Column("predicted_gain_files", sa.BigInteger),
        sa.Column("measured_gain_files", sa.BigInteger),
        sa.Column("version", sa.BigInteger),
        sa.Column("error", sa.Text),
    )
    op.create_index("maintenance_runs_by_start", "maintenance_runs", ["table_id", "started_at"])
    op.create_table(
        "maintenance_tasks",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("id", sa.String(128), primary_key=True),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("engine", sa.String(128), nullable=False),
        sa.Column("principal", sa.String(256)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("num_files", sa.BigInteger, nullable=False),
        sa.Column("files_done", sa.BigInteger, nullable=False),
        sa.Column("size_in_bytes", sa.BigInteger, nullable=False),
        sa.Column("bytes_done", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "file_leases",
        sa.Column("location_hash", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(36), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    )


def _iceberg() -> None:
    op.create_table(
        "iceberg_conversions",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("format_version", sa.Integer, primary_key=True),
        sa.Column("delta_version", sa.BigInteger, nullable=False),
        sa.Column("converted_at", sa.DateTime(timezone=True), nullable=False),
    )


def _access() -> None:
    op.create_table(
        "tokens",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("principal", sa.String(128), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(128), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("token_hash", name="tokens_hash_unique"),
    )
    op.create_table(
        "grants",
        sa.Column("grantee", sa.String(256), primary_key=True),
        sa.Column("scope", sa.String(16), primary_key=True),
        sa.Column("target", sa.String(128), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("granted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("granted_by", sa.String(128), nullable=False),
    )
    op.create_table(
        "access_state",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "audit_log",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("principal", sa.String(256)),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("table_id", sa.String(36)),
        sa.Column("table_name", sa.String(200)),
        sa.Column("change", sa.Text),
        sa.Column("transaction_id", sa.String(128)),
        sa.Column("version", sa.BigInteger),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("error_code", sa.String(64)),
    )
    op.create_index("audit_log_by_table", "audit_log", ["table_id", "id"])
    op.create_index("audit_log_by_principal", "audit_log", ["principal", "id"])
