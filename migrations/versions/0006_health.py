"""Health samples of tables, counts of commits, and views of both for dashboards.

A migration that changes a table which a view reads drops the view before, and makes it again after, with the same columns.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_COLUMNS = (
    "s.version, s.sampled_at, s.score, s.num_files, s.size_in_bytes, s.num_records, s.num_deleted_rows, s.deleted_ratio, "
    "s.deleted_bytes, s.num_deletion_vectors, s.small_files, s.commits_since_checkpoint, s.gain_bytes, s.cost_bytes, "
    "s.actions"
)


def upgrade() -> None:
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
    op.create_table(
        "commit_counts",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("commits", sa.BigInteger, nullable=False),
        sa.Column("rebased", sa.BigInteger, nullable=False),
        sa.Column("conflicts", sa.BigInteger, nullable=False),
        sa.Column("rows_saved", sa.BigInteger, nullable=False),
    )
    op.execute(
        f"CREATE VIEW delvec_health AS SELECT t.catalog, t.id AS table_id, coalesce(t.name, t.folder_name) AS name, "  # noqa: S608 - constants
        f"t.location, {_COLUMNS}, c.since AS counted_since, c.commits, c.rebased, c.conflicts, c.rows_saved FROM tables t "
        "LEFT JOIN health_samples s ON s.table_id = t.id AND s.version = "
        "(SELECT max(n.version) FROM health_samples n WHERE n.table_id = t.id) "
        "LEFT JOIN commit_counts c ON c.table_id = t.id"
    )
    op.execute(
        "CREATE VIEW delvec_health_history AS SELECT t.catalog, t.id AS table_id, "  # noqa: S608 - constants
        f"coalesce(t.name, t.folder_name) AS name, t.location, {_COLUMNS} "
        "FROM tables t JOIN health_samples s ON s.table_id = t.id"
    )


def downgrade() -> None:
    op.execute("DROP VIEW delvec_health_history")
    op.execute("DROP VIEW delvec_health")
    op.drop_table("commit_counts")
    op.drop_table("health_samples")
