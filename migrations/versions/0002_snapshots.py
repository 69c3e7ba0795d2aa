"""Snapshots of tables, as segments of files that a plan reads part by part."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
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


def downgrade() -> None:
    for table in ("segment_summaries", "segment_blobs", "segments", "snapshot_members", "snapshots"):
        op.drop_table(table)
