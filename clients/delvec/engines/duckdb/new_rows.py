"""New rows of an UPDATE or a MERGE on their way into files, and their traces in the change data feed."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import pyarrow as pa

from delvec.engines.change_files import CHANGE_TYPE, ChangeFileWriter
from delvec.engines.duckdb.statements import Session
from delvec.engines.duckdb.write import completion
from delvec.engines.engine import WriteTarget
from delvec.engines.parquet_writer import DataFileWriter
from delvec.engines.row_changes import Clause
from delvec.engines.row_checks import RowChecks
from delvec.protocol.wire import AddFile, ChangeFile

__all__ = ["NewRows"]


class NewRows:
    """Checks and writes rows; a context manager that removes its files if the block raises.

    Args:
        session: DuckDB, for what the table asks in SQL.
        target: the table.
        clauses: of the change; rows come with the number of theirs.
        change_feed: whether change files are written.
        dry_run: check the rows, and write nothing.

    Raises:
        UnsupportedWriterFeature: DuckDB cannot evaluate what the table asks of rows, or compute a column.
    """

    def __init__(
        self,
        session: Session,
        target: WriteTarget,
        clauses: Sequence[Clause],
        *,
        change_feed: bool,
        dry_run: bool = False,
    ) -> None:
        self._target = target
        self._is_dry = dry_run
        self._clauses = clauses
        checks = RowChecks(target)
        numbered = {column.name for column in target.identity}
        self._columns: dict[int, list[int]] = {}
        self._complete: dict[int, Callable[[pa.RecordBatch], pa.RecordBatch]] = {}
        for number, clause in enumerate(clauses):
            if clause.action != "delete":
                given = [
                    place
                    for place, value in enumerate(clause.values)
                    if value is not None or target.schema.names[place] in numbered
                ]
                self._columns[number] = given
                names = [target.schema.names[place] for place in given]
                self._complete[number] = completion(session, names, target, checks, replaces=True)
        self._writer = DataFileWriter(target)
        self._feed = ChangeFileWriter(target) if change_feed and not dry_run else None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._writer)
        if self._feed is not None:
            self._stack.enter_context(self._feed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, clause: int, columns: Sequence[pa.Array]) -> None:
        """Take rows that a clause made.

        Args:
            clause: its number.
            columns: one for each column of the target; those without a value are computed.

        Raises:
            ConstraintViolation: a row does not satisfy what the table asks.
            SchemaMismatch: a value does not fit its column.
        """
        names = self._target.schema.names
        given = self._columns[clause]
        rows = pa.RecordBatch.from_arrays(
            [columns[place] for place in given], names=[names[place] for place in given]
        )
        whole = self._writer.numbered(self._complete[clause](rows))
        if not self._is_dry:
            self._writer.write(whole)
        self.trace("insert" if self._clauses[clause].action == "insert" else "update_postimage", whole)

    def trace(self, kind: str, rows: pa.RecordBatch) -> None:
        """Note changed rows for the change data feed, if there is one."""
        if self._feed is not None and rows.num_rows:
            self._feed.write(rows.append_column(CHANGE_TYPE, pa.repeat(kind, rows.num_rows)))

    def finish(self) -> tuple[list[AddFile], list[ChangeFile]]:
        """Complete all files, durably, and return their actions.

        Raises:
            StorageError: storage did not answer.
        """
        changes = [] if self._feed is None else self._feed.finish()
        return self._writer.finish(), changes
