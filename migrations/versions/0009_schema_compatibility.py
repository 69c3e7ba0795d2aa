"""Which older Delvecs can work with the schema."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
# A migration that replicas of the version before cannot live with says so: oldest_compatible = its own revision, or
# that of the first Delvec that does without what it takes away.
oldest_compatible = "0009"


def upgrade() -> None:
    op.create_table("schema_compatibility", sa.Column("oldest", sa.String(32), primary_key=True))


def downgrade() -> None:
    op.drop_table("schema_compatibility")
