"""Find the old rows of the ledger without reading it.

Revision ID: 0019
Revises: 0018
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("transactions_by_age", "transactions", ["created_at"])
    op.create_index("ledger_files_by_age", "ledger_files", ["created_at"])


def downgrade() -> None:
    op.drop_index("ledger_files_by_age", "ledger_files")
    op.drop_index("transactions_by_age", "transactions")
