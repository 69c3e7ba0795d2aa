"""Managed tables that were dropped and can be brought back."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dropped_tables",
        sa.Column("catalog", sa.String(36), primary_key=True, server_default=""),
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("location", sa.String(2000), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("dropped_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_being_deleted", sa.Boolean, nullable=False),
    )
    op.create_index("dropped_tables_by_name", "dropped_tables", ["catalog", "name"])
