"""CREATE TABLE ... CLONE, CONVERT TO DELTA and UNDROP TABLE.

Tested in `tests/integration/client/sql/test_statements.py`.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delvec.catalog import Catalog
from delvec.sql.tokens import Cursor, invalid, newest_version
from delvec_commands.transaction import Metrics
from delvec_errors import BadRequest

if TYPE_CHECKING:
    from delvec.sql.changes import OpenTable

__all__ = ["clone", "convert", "undrop"]


def clone(cursor: Cursor, opened: "OpenTable") -> Metrics:
    """Run CREATE [OR REPLACE] TABLE [IF NOT EXISTS] target SHALLOW | DEEP CLONE source [VERSION | TIMESTAMP AS OF ...].

    TBLPROPERTIES (key = value, ...) and LOCATION 'path' may follow, in any order. REPLACE TABLE means CREATE OR
    REPLACE.

    Raises:
        InvalidStatement: it is another statement.
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
        cursor.fail("SHALLOW CLONE or DEEP CLONE is expected; create other tables with create_table()")
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
            f"The clone already has the location {target}: leave out LOCATION, or give the clone a name."
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


def convert(lake: Catalog, cursor: Cursor, engine: Any) -> Metrics:
    """Run CONVERT TO DELTA parquet.`path` [NO STATISTICS] [PARTITIONED BY (column type, ...)], or of iceberg.`path`.

    Raises:
        InvalidStatement: it is another statement.
        UnsupportedOperation: the Iceberg table has features that Delta lacks.
    """
    cursor.expect("CONVERT", "TO", "DELTA")
    at = cursor.position
    source = cursor.name("parquet.`path`").lower()
    if source not in ("parquet", "iceberg") or not cursor.take("."):
        raise invalid(
            cursor.text,
            at,
            "parquet.`path` is expected, the directory of the files, or iceberg.`path`, that of an Iceberg table.",
        )
    path = cursor.name("a path in backticks")
    collects = not cursor.take("NO", "STATISTICS")
    partitions = None
    # The tokenizer returns the two as one word.
    if cursor.word().split() == ["PARTITIONED", "BY"]:
        cursor.take(cursor.word())
        cursor.expect("(")
        partitions = cursor.columns()
        cursor.expect(")")
    cursor.end()
    if source == "iceberg":
        if partitions is not None:
            raise invalid(
                cursor.text,
                at,
                "leave out PARTITIONED BY; an Iceberg table defines its own partition columns.",
            )
        return lake.run_import_iceberg(path, collect_statistics=collects, engine=engine)[1]
    return lake.run_convert(path, partitions, collect_statistics=collects, engine=engine)[1]


def undrop(lake: Catalog, cursor: Cursor, engine: Any) -> pa.Table:
    """Run UNDROP TABLE table.

    Returns:
        No column and no row.
    """
    cursor.expect("UNDROP", "TABLE")
    name = newest_version(cursor).name
    cursor.end()
    lake.undrop_table(name, engine=engine)
    return pa.table({})


def table_properties(cursor: Cursor) -> dict[str, str]:
    """Parse ``(key = value, ...)``; keys are string literals or dotted names.

    Raises:
        InvalidStatement: it is another statement.
    """
    cursor.expect("(")
    properties: dict[str, str] = {}
    while True:
        key = cursor.text_or_path("a property")
        if not cursor.take("="):
            cursor.fail("= is expected")
        properties[key] = cursor.text_or_path("a value")
        if not cursor.take(","):
            cursor.expect(")")
            return properties
