"""Maintenance that is running, and how much of it is done."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "maintenance_tasks",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("id", sa.String(128), primary_key=True),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("engine", sa.String(128), nullable=False),
        sa.Column("principal", sa.String(256), nullable=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("num_files", sa.BigInteger, nullable=False),
        sa.Column("files_done", sa.BigInteger, nullable=False),
        sa.Column("size_in_bytes", sa.BigInteger, nullable=False),
        sa.Column("bytes_done", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("maintenance_tasks")
