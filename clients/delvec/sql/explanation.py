"""EXPLAIN: what a statement would read, and on which engine, without running it.

Tested in `tests/integration/client/sql/test_explain.py`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.sql.queries import QUERIES, Query, parse_query
from delvec.sql.tokens import Cursor, TableName
from delvec_commands.dml import merge, row_command, update
from delvec_commands.dml.merge_builder import MergeBuilder, MergeStatement
from delvec_commands.dml.optimize_options import OptimizeOptions
from delvec_commands.transaction import Metrics
from delvec_engines import row_ids
from delvec_engines.operation import Execution
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import RowChange

if TYPE_CHECKING:
    from delvec.sql.row_statements import OpenTable, RunQuery
    from delvec.table import DeltaTable
    from delvec_engines.scan import Scan

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

    def source(self, run: "RunQuery") -> "RunQuery":
        """Return what notes the tables of a MERGE's source, and runs it: its keys say which files of the target are read."""

        def noted(query: Query) -> Any:
            self.rows(query)
            return run(query)

        return noted

    def rows(self, query: Query) -> pa.Table:
        """Note the tables of a query; return no rows."""

        def note(name: TableName, condition: str | None) -> str:
            table = self._opened(name)
            if name.changes is None:
                condition = None if self._on_spark else condition
                scan, _ = table.plan(None, condition, name.version, name.timestamp)
                self._note(table, "read", scan, Execution(table.engine.name))
            return name.last

        query.on("spark", note)
        return pa.table({})

    def _note(self, table: "DeltaTable", action: str, scan: "Scan", execution: Execution) -> None:
        snapshot = table.snapshot(scan.version)
        size = int(pc.sum(scan.files["size"]).as_py() or 0)
        self._rows.append(
            {
                "table": table.name,
                "version": scan.version,
                "action": action,
                "files": len(scan),
                "files_skipped": snapshot.num_files - len(scan),
                "bytes": size,
                "bytes_skipped": snapshot.size_in_bytes - size,
                "engine": str(execution),
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
        scan, condition = self._table.plan(predicate=predicate)
        return self._noted("DELETE", scan, self._table.engine.execution(scan, condition))

    def update(self, values: Mapping[str, str], predicate: str | None = None) -> Metrics:
        scan, change = update.planned(self._table, values, predicate)
        return self._changed("UPDATE", *row_ids.add_to_change(scan, change, row_command.target_of(scan)))

    def merge(self, *arguments: Any, **options: Any) -> MergeBuilder:
        return self._table.merge(*arguments, **options).run_by(self._merged)

    def _merged(self, statement: MergeStatement, **_options: Any) -> Metrics:
        statement.check()
        source = self._table.engine.merge_source(statement.source)
        return self._changed("MERGE", *merge.planned(self._table, statement, source))

    @property
    def optimize(self) -> "_Explained":
        return self

    def run(self, options: OptimizeOptions) -> Metrics:
        scan, _ = self._table.plan(predicate=options.where)
        return self._noted("OPTIMIZE", scan, self._table.engine.execution(scan))

    def _changed(self, action: str, scan: "Scan", change: RowChange, target: WriteTarget) -> Metrics:
        return self._noted(action, scan, self._table.engine.execution(scan, change, target))

    def _noted(self, action: str, scan: "Scan", execution: Execution) -> Metrics:
        self._note(self._table, action, scan, execution)
        return Metrics({}, None)
