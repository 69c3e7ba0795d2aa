"""CREATE TABLE ... CLONE: statements that make a table of another one."""

from typing import TYPE_CHECKING

from delvec.sql.tokens import Cursor, newest_version
from delvec.transaction import Metrics
from delvec_kernel.errors import BadRequest

if TYPE_CHECKING:
    from delvec.sql.changes import OpenTable

__all__ = ["clone"]


def clone(cursor: Cursor, opened: "OpenTable") -> Metrics:
    """Run CREATE [OR REPLACE] TABLE [IF NOT EXISTS] target SHALLOW | DEEP CLONE source [VERSION | TIMESTAMP AS OF ...].

    TBLPROPERTIES (key = value, ...) and LOCATION 'path' may follow, in any order. REPLACE TABLE means CREATE OR REPLACE.

    Raises:
        InvalidStatement: it is something else.
    """
    replace = cursor.take("REPLACE")
    if not replace:
        cursor.expect("CREATE")
        replace = cursor.take("OR", "REPLACE")
    cursor.expect("TABLE")
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    target = newest_version(cursor).name
    shallow = cursor.take("SHALLOW")
    if not shallow and not cursor.take("DEEP"):
        cursor.fail("SHALLOW CLONE or DEEP CLONE is expected; other tables are created by create_table()")
    cursor.expect("CLONE")
    source = cursor.table()
    properties: dict[str, str] = {}
    location: str | None = None
    while not cursor.at_end:
        if location is None and cursor.take("LOCATION"):
            location = cursor.literal("a path in quotes")
        elif not properties and cursor.take("TBLPROPERTIES"):
            properties = table_properties(cursor)
        else:
            cursor.fail("TBLPROPERTIES (...), LOCATION '...' or the end of the statement is expected")
    if location is not None and "/" in target:
        raise BadRequest(
            f"The clone is called by a location already, {target}: leave LOCATION out, or give it a name."
        )
    return opened(source).run_clone(
        target if location is None else location,
        name=None if location is None else target,
        shallow=shallow,
        version=source.version,
        timestamp=source.timestamp,
        replace=replace,
        if_not_exists=if_not_exists,
        properties=properties,
    )[1]


def table_properties(cursor: Cursor) -> dict[str, str]:
    """Take ``(key = value, ...)``; keys are texts, or names with dots.

    Raises:
        InvalidStatement: it is something else.
    """
    cursor.expect("(")
    found: dict[str, str] = {}
    while True:
        key = cursor.text_or_path("a property")
        if not cursor.take("="):
            cursor.fail("= is expected")
        found[key] = cursor.text_or_path("a value")
        if not cursor.take(","):
            cursor.expect(")")
            return found
