"""Names belong to a catalog: a service's own, or that of the warehouse of an embedded connection.

What is registered stays, under the names that it has, in the service's own catalog. Replicas of the version before go
on: they see the columns that they know, and what they leave out has defaults.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tables_0005",
        sa.Column("catalog", sa.String(36), nullable=False, server_default=""),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(128)),
        sa.Column("folder_name", sa.String(128), nullable=False, server_default=""),
        sa.Column("location", sa.String(2000), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("catalog", "id", name="tables_by_catalog"),
        sa.UniqueConstraint("catalog", "name", name="tables_name_unique"),
        sa.UniqueConstraint("catalog", "location", name="tables_location_unique"),
    )
    op.execute(
        "INSERT INTO tables_0005 (catalog, id, name, folder_name, location, created_at) "
        "SELECT '', id, name, name, location, created_at FROM tables"
    )
    op.drop_table("tables")
    op.rename_table("tables_0005", "tables")
    op.create_index("tables_by_folder_name", "tables", ["catalog", "folder_name"])


def downgrade() -> None:
    op.create_table(
        "tables_0004",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("name", sa.String(128), nullable=False, unique=True),
        sa.Column("location", sa.String(2000), nullable=False, unique=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    # Tables without a name of their own are registered again when they are next opened.
    op.execute(
        "INSERT INTO tables_0004 (id, name, location, created_at) "
        "SELECT id, name, location, created_at FROM tables WHERE catalog = '' AND name IS NOT NULL"
    )
    op.drop_table("tables")
    op.rename_table("tables_0004", "tables")
