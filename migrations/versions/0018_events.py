"""Events, and how far webhooks have got with them."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("table_id", sa.String(36), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.UniqueConstraint("id", name="events_id_unique"),
    )
    op.create_index("events_by_table", "events", ["table_id", "position"])
    op.create_index("events_by_recorded_at", "events", ["recorded_at"])
    op.create_table(
        "event_counter",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.String(8), nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("expired", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "event_marks",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("modified_at", sa.BigInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "webhooks",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("owner", sa.String(36), nullable=False),
        sa.Column("owned_until", sa.DateTime(timezone=True), nullable=False),
    )
