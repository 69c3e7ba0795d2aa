"""Maintenance policies, leases of those who run them, and what they did."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_table("maintenance_runs")
    op.drop_table("maintenance_leases")
    op.drop_table("maintenance_policies")
