"""The audit log: who changed what."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_table("audit_log")
