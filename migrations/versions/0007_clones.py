"""Shallow clones, so that VACUUM keeps what they need of their sources."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "clones",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("clone_id", sa.String(36), primary_key=True),
        sa.Column("location", sa.String(2000), nullable=False),
        sa.Column("source_location", sa.String(2000), nullable=False),
        sa.Column("source_version", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("clones_by_clone_id", "clones", ["clone_id"])


def downgrade() -> None:
    op.drop_table("clones")
