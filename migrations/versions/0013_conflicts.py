"""Conflicts of commits, and what became of commits hour by hour."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_table("commit_intervals")
    op.drop_table("commit_conflicts")
