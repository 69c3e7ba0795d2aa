"""ALTER TABLE: what of it has no better form than SQL's."""

from typing import TYPE_CHECKING

from delvec.alterations import Altered
from delvec.sql.tokens import Cursor

if TYPE_CHECKING:
    from delvec.sql.changes import OpenTable

__all__ = ["alter"]


def alter(cursor: Cursor, opened: "OpenTable") -> Altered:
    """Run ALTER TABLE table ALTER COLUMN column SYNC IDENTITY.

    Raises:
        InvalidStatement: it is something else.
    """
    cursor.expect("ALTER", "TABLE")
    name = cursor.table()
    if not cursor.take("CHANGE"):
        cursor.expect("ALTER")
    cursor.take("COLUMN")
    column = cursor.column()
    if not cursor.take("SYNC", "IDENTITY"):
        cursor.fail("SYNC IDENTITY is expected; other changes of tables are made by table.alter")
    cursor.end()
    done = opened(name).alter.sync_identity(column)
    assert done is not None  # noqa: S101 - None is for blocks only
    return done
