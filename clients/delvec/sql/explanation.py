"""EXPLAIN: what a statement would read, and on which engine, without running it.

Tested in `tests/integration/client/sql/test_explain.py`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.sql.queries import QUERIES, Query, parse_query
from delvec.sql.tokens import Cursor, TableName
from delvec_commands.dml.optimize_options import OptimizeOptions
from delvec_commands.transaction import Metrics

if TYPE_CHECKING:
    from delvec.sql.row_statements import OpenTable
    from delvec.table import DeltaTable
    from delvec_engines.scan import Scan
    from delvec_kernel.expressions.predicate import Predicate

__all__ = ["Explanation"]

_SCHEMA: Final = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("action", pa.string()),
        pa.field("files", pa.int64()),
        pa.field("files_skipped", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("bytes_skipped", pa.int64()),
        pa.field("engine", pa.string()),
    ]
)


class Explanation:
    """Collects what a statement would read.

    Args:
        opened: opens tables.
        on_spark: whether Spark runs queries: it skips files itself.
    """

    def __init__(self, opened: "OpenTable", *, on_spark: bool) -> None:
        self._opened = opened
        self._on_spark = on_spark
        self._rows: list[dict[str, Any]] = []

    def table(self) -> pa.Table:
        """Return a row for each table that is read or changed, in the order in which the statement names them."""
        return pa.Table.from_pylist(self._rows, _SCHEMA)

    def open(self, name: TableName) -> Any:
        """Return a table whose commands are noted instead of run."""
        return _Explained(self._opened(name), self._note)

    def query_in(self, text: str) -> pa.Table:
        """Note the tables of the query in an INSERT or a CREATE TABLE."""
        cursor = Cursor(text)
        depth = 0
        while not cursor.at_end and (depth or cursor.word() not in QUERIES - {"("}):
            depth += (cursor.word() == "(") - (cursor.word() == ")")
            cursor.skip()
        return self.rows(parse_query(cursor.rest(), "spark"))

    def rows(self, query: Query) -> pa.Table:
        """Note the tables of a query; return no rows."""

        def note(name: TableName, condition: str | None) -> str:
            table = self._opened(name)
            if name.changes is None:
                condition = None if self._on_spark else condition
                scan, predicate = table.plan(None, condition, name.version, name.timestamp)
                self._note(table, "read", scan, predicate)
            return name.last

        query.on("spark", note)
        return pa.table({})

    def _note(
        self, table: "DeltaTable", action: str, scan: "Scan", predicate: "Predicate | None" = None
    ) -> None:
        snapshot = table.snapshot(scan.version)
        size = int(pc.sum(scan.files["size"]).as_py() or 0)
        choice = getattr(table.engine, "choice", None)
        changes_rows = choice is not None and action in ("DELETE", "UPDATE")
        self._rows.append(
            {
                "table": table.name,
                "version": scan.version,
                "action": action,
                "files": len(scan),
                "files_skipped": snapshot.num_files - len(scan),
                "bytes": size,
                "bytes_skipped": snapshot.size_in_bytes - size,
                "engine": choice(scan, predicate)
                if choice is not None and changes_rows
                else table.engine.name,
            }
        )


class _Explained:
    """A table whose commands are noted instead of run."""

    def __init__(self, table: "DeltaTable", note: Callable[..., None]) -> None:
        self._table = table
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def change_from_itself(self, command: Callable[[Any], Any]) -> Any:
        return self._table.change_from_itself(lambda changed: command(_Explained(changed, self._note)))

    def delete(self, predicate: str | None = None) -> Metrics:
        return self._changed("DELETE", predicate)

    def update(self, _values: Any, predicate: str | None = None) -> Metrics:
        return self._changed("UPDATE", predicate)

    def merge(self, *_arguments: Any, **_options: Any) -> "_ExplainedMerge":
        return _ExplainedMerge(lambda: self._changed("MERGE", None))

    @property
    def optimize(self) -> "_Explained":
        return self

    def run(self, options: OptimizeOptions) -> Metrics:
        return self._changed("OPTIMIZE", options.where)

    def _changed(self, action: str, predicate: str | None) -> Metrics:
        self._note(self._table, action, *self._table.plan(predicate=predicate))
        return Metrics({}, None)


class _ExplainedMerge:
    """A MERGE that is not run; every clause is accepted."""

    def __init__(self, execute: Callable[[], Metrics]) -> None:
        self.execute = execute

    def __getattr__(self, _name: str) -> Callable[..., "_ExplainedMerge"]:
        return lambda *_arguments, **_options: self
