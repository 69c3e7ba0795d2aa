"""A table's rows as a relation of somebody's DuckDB connection, which reads the files itself.

The statements are those of the engine. Each finds its lookup under the name it knows by a common table expression,
so that one connection can hold any number of them.
"""

import uuid
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

from delvec.engines.duckdb.calendar import holds_times
from delvec.engines.duckdb.scan import LOOKUP, quoted, sources
from delvec.engines.duckdb.statements import Session
from delvec.scan import Scan

__all__ = ["arrow_relation", "relation"]


def relation(scan: Scan, columns: Sequence[str] | None, connection: Any = None) -> Any:
    """Return the live rows of a scan as a lazy relation.

    Args:
        scan: what to read.
        columns: which columns, in this order; all by default.
        connection: whose relation it is; by default that of a new connection in memory, with UTC as its time zone.

    Raises:
        CorruptDeletionVector: or a subclass: a deletion vector cannot be read.
        UnsupportedReaderFeature: a column that DuckDB cannot give back.
        UnsupportedTable: a file has early dates or timestamps in Spark 2's calendar.
    """
    connection = _opened(connection)
    names = list(scan.schema.names if columns is None else columns)
    listed = ", ".join(quoted(name) for name in names)
    session = Session(connection)
    has_times = any(holds_times(scan.schema.field(name).type) for name in names)
    parts: list[str] = []
    # Filters come later, so that none may be pushed where DuckDB answers them wrongly.
    for source in sources(scan, names, filtered=names):
        session.mount(source)
        if has_times:
            session.check_calendar(scan, source)
        statement = source.select(listed, None)
        if source.lookup is not None:
            own = f"{LOOKUP}_{uuid.uuid4().hex}"
            connection.register(own, source.lookup)
            statement = f"WITH {LOOKUP} AS (FROM {own}) {statement}"
        parts.append(f"({statement})")
    if not parts:
        return connection.from_arrow(scan.schema.select(names).to_arrow().empty_table())
    return connection.sql(" UNION ALL ".join(parts))


def arrow_relation(rows: pa.Table, connection: Any = None) -> Any:
    """Return rows in memory as a relation."""
    return _opened(connection).from_arrow(rows)


def _opened(connection: Any) -> Any:
    if connection is not None:
        return connection
    opened = duckdb.connect(":memory:")
    opened.execute("SET TimeZone = 'UTC'")
    return opened
