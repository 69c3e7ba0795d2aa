"""Bearer tokens, grants of roles, and a count of their changes."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("principal", sa.String(128), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(128), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("token_hash", name="tokens_hash_unique"),
    )
    op.create_table(
        "grants",
        sa.Column("grantee", sa.String(256), primary_key=True),
        sa.Column("scope", sa.String(16), primary_key=True),
        sa.Column("target", sa.String(128), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("granted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("granted_by", sa.String(128), nullable=False),
    )
    op.create_table(
        "access_state",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("access_state")
    op.drop_table("grants")
    op.drop_table("tokens")
