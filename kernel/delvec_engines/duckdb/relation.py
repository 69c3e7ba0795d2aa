"""A table's rows as a relation of a user's DuckDB connection, which reads the files itself.

The SQL is that of the engine's scans. Each statement includes its lookup as a common table expression,
so that one connection can hold any number of relations.

Tested in `tests/integration/engines/test_sql.py` and `tests/integration/client/test_reading.py`.
"""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from delvec_engines.calendar import holds_times
from delvec_engines.duckdb.file_names import file_names, is_remote
from delvec_engines.duckdb.scan import LOOKUP, quoted, sources
from delvec_engines.duckdb.statement_runner import DuckDBSession, damage
from delvec_engines.interrupts import interruptible
from delvec_engines.protocol import mark, marked
from delvec_engines.scan import Scan

__all__ = ["arrow_relation", "check_files", "relation", "versions_read"]

_MAX_ROWS: Final = 1 << 53


def relation(
    scan: Scan,
    columns: Sequence[str] | None,
    connection: Any = None,
    *,
    shields_text: bool = True,
    tells_size: bool = True,
) -> Any:
    """Return the live rows of a scan as a lazy relation.

    Args:
        scan: what to read.
        columns: which columns, in this order; all by default.
        connection: the connection of the relation; by default a new in-memory connection with UTC as time zone.
        shields_text: whether a condition on the relation may be true for NULL in a text or binary column.
        tells_size: whether DuckDB learns how many rows there are. It then hashes the smaller side of a join, but reads all
            columns for ``ORDER BY … LIMIT``.

    Raises:
        CorruptDeletionVector: or a subclass: a deletion vector cannot be read.
        UnsupportedReaderFeature: DuckDB cannot return a column.
        MissingDataFile: a file does not exist.
        CorruptTable: a file cannot be read.
        UnsupportedTable: a file has early dates or timestamps in Spark 2's calendar.
    """
    connection = _opened(connection)
    try:
        with interruptible():
            return _relation(scan, columns, connection, shields_text=shields_text, tells_size=tells_size)
    except (duckdb.Error, OSError) as error:
        known = damage(error, scan)
        if known is None:
            raise
        raise known from error


def check_files(scan: Scan) -> None:
    """Check that local files of a scan exist, since DuckDB's own error would not name the table.

    Raises:
        MissingDataFile: one does not exist.
    """
    for name in file_names(scan.location, scan.files, scan.roots):
        if not is_remote(name) and not Path(name).exists():
            known = damage(FileNotFoundError(name), scan)
            if known is not None:
                raise known


def _relation(
    scan: Scan, columns: Sequence[str] | None, connection: Any, *, shields_text: bool, tells_size: bool
) -> Any:
    names = list(scan.schema.names if columns is None else columns)
    select_list = ", ".join(quoted(name) for name in names)
    session = DuckDBSession(connection)
    has_times = any(holds_times(scan.schema.field(name).type) for name in names)
    parts: list[str] = []
    # Users add filters later, so disable every pushdown that DuckDB gets wrong.
    for source in sources(scan, names, filter_columns=names, shields_text=shields_text):
        session.mount(source)
        if has_times:
            session.check_calendar(scan, source)
        statement = source.select(select_list, None)
        if source.lookup is not None:
            own = f"{LOOKUP}_{uuid.uuid4().hex}"
            connection.register(own, source.lookup)
            statement = f"WITH {LOOKUP} AS (FROM {own}) {statement}"
        parts.append(f"({statement})")
    own = mark(scan)
    if not parts:
        empty = connection.from_arrow(scan.schema.select(names).to_arrow().empty_table())
        return empty.set_alias(own) if own else empty
    rows = _num_rows(scan) if tells_size and names else 0
    if rows:
        parts.append(f"({_no_rows(rows, len(names))})")
    statement = " UNION ALL ".join(parts)
    return connection.sql(f'SELECT * FROM ({statement}) AS "{own}"' if own else statement)  # noqa: S608


def _num_rows(scan: Scan) -> int:
    """Return the number of rows that the log states, an estimate; 0 if it does not state all."""
    counts = scan.files["num_records"]
    rows = 0 if counts.null_count else pc.sum(counts).as_py() or 0
    return max(0, min(rows, _MAX_ROWS))


def _no_rows(estimate: int, columns: int) -> str:
    """Return a SELECT without rows of which DuckDB expects ``estimate``.

    DuckDB estimates a scan with a schema at one row, whatever ``explicit_cardinality`` says, and would hash a table of
    facts to join it with a small one.
    """
    nulls = ", ".join(["NULL"] * columns)
    return f"SELECT {nulls} FROM range({estimate}) LIMIT (SELECT 0)"  # noqa: S608


def versions_read(data: Any) -> frozenset[tuple[str, int]]:
    """Return (table id, version) of each read of a table's newest version that the relation's SQL shows."""
    try:
        return marked(str(data.sql_query()))
    except (duckdb.Error, AttributeError, RuntimeError):
        return frozenset()


def arrow_relation(rows: pa.Table, connection: Any = None) -> Any:
    """Return rows in memory as a relation."""
    return _opened(connection).from_arrow(rows)


def _opened(connection: Any) -> Any:
    if connection is not None:
        return connection
    opened = duckdb.connect(":memory:")
    opened.execute("SET TimeZone = 'UTC'")
    return opened
