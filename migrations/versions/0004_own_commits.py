"""What Delvec committed lately, and which of it other writers replaced."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_table("overwritten_commits")
    op.drop_table("own_commits")
