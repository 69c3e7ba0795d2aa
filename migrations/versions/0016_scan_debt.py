"""Seconds that scans take in vain, in health samples."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("health_samples", sa.Column("scan_debt_seconds", sa.Double))
