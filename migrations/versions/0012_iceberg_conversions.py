"""Which versions were converted to Iceberg last, for metrics of how far behind that is."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "iceberg_conversions",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("format_version", sa.Integer, primary_key=True),
        sa.Column("delta_version", sa.BigInteger, nullable=False),
        sa.Column("converted_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("iceberg_conversions")
