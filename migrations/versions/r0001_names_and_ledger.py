"""Names of tables, and the ledger of transactions and files."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tables",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("name", sa.String(128), nullable=False, unique=True),
        sa.Column("location", sa.String(2000), nullable=False, unique=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
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


def downgrade() -> None:
    op.drop_table("ledger_files")
    op.drop_table("transactions")
    op.drop_table("tables")
