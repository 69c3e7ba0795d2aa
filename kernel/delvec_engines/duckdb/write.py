"""Writes new rows and copies live rows with DuckDB; checks that copies are complete.

Tested in `tests/integration/engines/test_own_rows.py` and
`tests/integration/engines/test_partition_folders.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa
from pyroaring import BitMap64

from delvec_engines.arrow_conversion import cast_batch
from delvec_engines.change_files import CHANGE_TYPE, ChangeFileWriter
from delvec_engines.compacted_files import Compacted, ReadOrder, RowRange, row_runs
from delvec_engines.duckdb.file_order import in_file_order
from delvec_engines.duckdb.row_expressions import RowExpressions
from delvec_engines.duckdb.scan import check_files, check_names, left_out, quoted, sources
from delvec_engines.duckdb.statement_runner import DuckDBSession
from delvec_engines.footers import rows_in
from delvec_engines.input_data import to_reader
from delvec_engines.parquet_writer import DataFileWriter
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import Clause
from delvec_engines.row_checks import RowChecks
from delvec_engines.scan import Scan
from delvec_errors import CorruptTable
from delvec_kernel.actions.actions import AddFile, Cdc
from delvec_kernel.transaction.transaction_changes import RowRun

__all__ = ["NewRows", "RowSink", "RowSinks", "append", "compact", "completion", "copy_rows"]


def copy_rows(
    session: DuckDBSession, scan: Scan, deleted_rows: Mapping[str, BitMap64], target: WriteTarget
) -> list[AddFile]:
    """Copy the live rows of the scan's files, without ``deleted_rows``, to new files.

    Constraints are not checked again.

    Raises:
        CorruptTable: a file cannot be read, or does not have the rows that its statistics say.
        StorageError: storage did not answer.
    """
    columns = ", ".join(quoted(name) for name in scan.schema.names)
    with DataFileWriter(target) as writer:
        for source in sources(scan, scan.schema.names, deleted_rows=deleted_rows):
            for batch in session.batches(scan, source, source.select(columns, None), None):
                writer.write(batch)
        _check_all_read(scan, deleted_rows, writer.rows)
        return writer.finish()


def compact(
    session: DuckDBSession, scan: Scan, bins: Sequence[Sequence[str]], target: WriteTarget
) -> Compacted:
    """Write the live rows of each bin's files together; see :meth:`delvec_engines.protocol.Engine.compact`.

    One bin after the other: one thread reads, one encodes, and one collects statistics.

    Raises:
        CorruptTable: a file cannot be read, or does not have the rows that its statistics say.
        StorageError: storage did not answer.
    """
    check_files(scan.only(path for paths in bins for path in paths))
    adds: list[AddFile] = []
    rewritten: dict[str, Sequence[RowRun]] = {}
    for number, paths in enumerate(bins):
        part = scan.only(paths)
        written, row_ranges = _compact_bin(session, part, target, number)
        rewritten |= row_runs(part, row_ranges, written)
        adds += written
    return Compacted(adds, rewritten)


def _compact_bin(
    session: DuckDBSession, scan: Scan, target: WriteTarget, number: int
) -> tuple[list[AddFile], Sequence[RowRange]]:
    vectors = scan.deletion_vectors if scan.has_deletion_vectors else {}
    paths = scan.files["path"].to_pylist()
    order = ReadOrder(lambda place: vectors.get(paths[place], BitMap64()))
    with DataFileWriter(target, task=number) as writer:
        for live in in_file_order(session, scan):
            order.add(live.files, live.rows)
            writer.write(live.columns)
            if target.advance is not None:
                target.advance(len(live.rows))
        return writer.finish(), order.row_ranges


def _check_all_read(scan: Scan, row_deletes: Mapping[str, BitMap64], rows: int) -> None:
    """Check that every row of the replaced files was either copied or in ``row_deletes``."""
    counts = [
        rows_in(scan, path) if count is None else count
        for path, count in zip(
            *(scan.files[name].to_pylist() for name in ("path", "num_records")), strict=True
        )
    ]
    expected = sum(counts) - sum(len(rows) for rows in left_out(scan, scan.files, row_deletes))
    if rows != expected:
        raise CorruptTable(
            f"The {len(scan)} files to rewrite of table '{scan.name}' (version {scan.version}) have {rows} remaining "
            f"rows, but {expected} according to their statistics; nothing was committed. Run `delvec check`.",
            table=scan.name,
            version=scan.version,
        )


def append(session: DuckDBSession, data: Any, target: WriteTarget) -> list[AddFile]:
    """Write rows as new files; streams are not collected.

    Raises:
        SchemaMismatch: the rows do not fit the table.
        ConstraintViolation: a row does not satisfy the table's constraints.
        UnsupportedTable: a column's name has the character NUL.
        UnsupportedWriterFeature: DuckDB cannot evaluate one of them; nothing was written.
        StorageError: storage did not answer.
    """
    check_names(target.location, target.schema.fields)
    checks = RowChecks(target)
    reader = to_reader(data, target.schema)
    complete = completion(session, reader.schema.names, target, checks)
    with DataFileWriter(target) as writer:
        # Check columns even without rows.
        empty = [pa.nulls(0, field.type) for field in reader.schema]
        writer.write(complete(pa.RecordBatch.from_arrays(empty, schema=reader.schema)))
        for batch in reader:
            writer.write(complete(batch))
        return writer.finish()


def completion(
    session: DuckDBSession,
    names: Sequence[str],
    target: WriteTarget,
    checks: RowChecks,
    *,
    replaces: bool = False,
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that checks new rows and adds their generated columns.

    Args:
        session: DuckDB.
        names: columns of the rows.
        target: the table.
        checks: the table's constraints.
        replaces: whether rows are those of an UPDATE or a MERGE.
    """
    if not checks.is_needed:
        return lambda batch: batch
    given_names = {name.lower() for name in names}
    expressions = RowExpressions(session, target.schema, checks, given_names, replaces=replaces)
    given = target.schema.without(expressions.absent)
    arrow = given.to_arrow()

    def complete(batch: pa.RecordBatch) -> pa.RecordBatch:
        # Constraints apply to the stored values, which may differ from the given ones.
        whole = expressions.complete(cast_batch(batch, given, arrow, check_nulls=True))
        checks.check(whole)
        return whole

    return complete


class RowSink(Protocol):
    """Takes rows, which somebody else makes files of."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        ...


@dataclass(frozen=True)
class RowSinks:
    """Where rows go that the caller makes files of, of a table without identity columns.

    Attributes:
        rows: new rows.
        changes: rows of the change feed.
    """

    rows: RowSink
    changes: RowSink


class NewRows:
    """Checks and writes rows; a context manager that removes its files if the block raises.

    Args:
        session: DuckDB, for constraints in SQL.
        target: the table.
        clauses: the clauses of the change; rows come with their clause's number.
        change_feed: whether change files are written.
        dry_run: check the rows, and write nothing.
        into: who takes the rows, in place of files.

    Raises:
        UnsupportedWriterFeature: DuckDB cannot evaluate a constraint or a generated column.
    """

    def __init__(
        self,
        session: DuckDBSession,
        target: WriteTarget,
        clauses: Sequence[Clause],
        *,
        change_feed: bool,
        dry_run: bool = False,
        into: RowSinks | None = None,
    ) -> None:
        self._target = target
        self._into = into
        self._is_dry = dry_run
        self._clauses = clauses
        checks = RowChecks(target)
        columns = target.schema.names
        identity_columns = {column.name for column in target.identity}
        self._columns: dict[int, list[int]] = {}
        self._complete: dict[int, Callable[[pa.RecordBatch], pa.RecordBatch]] = {}
        for number, clause in enumerate(clauses):
            if clause.action != "delete":
                column_positions = [
                    place
                    for place, value in enumerate(clause.values)
                    if value is not None or columns[place] in identity_columns
                ]
                self._columns[number] = column_positions
                names = [columns[place] for place in column_positions]
                self._complete[number] = completion(session, names, target, checks, replaces=True)
        self._writer = None if into else DataFileWriter(target)
        feeds = change_feed and not dry_run
        self._feed = ChangeFileWriter(target) if feeds and not into else None
        self._traces = into.changes if into and feeds else self._feed
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for own in (self._writer, self._feed):
            if own is not None:
                self._stack.enter_context(own)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, clause: int, columns: Sequence[pa.Array]) -> None:
        """Write rows that a clause produced.

        Args:
            clause: its number.
            columns: one array per column of the target that is not computed.

        Raises:
            ConstraintViolation: a row violates a constraint.
            SchemaMismatch: a value does not fit its column.
        """
        names = self._target.schema.names
        column_positions = self._columns[clause]
        rows = pa.RecordBatch.from_arrays(
            [columns[place] for place in column_positions], names=[names[place] for place in column_positions]
        )
        whole = self._complete[clause](rows)
        if self._writer is not None:
            whole = self._writer.numbered(whole)
        sink = self._into.rows if self._into else self._writer
        if not self._is_dry and sink is not None:
            sink.write(whole)
        self.trace("insert" if self._clauses[clause].action == "insert" else "update_postimage", whole)

    def trace(self, kind: str, rows: pa.RecordBatch) -> None:
        """Write changed rows to the change data feed, if it is enabled."""
        if self._traces is not None and rows.num_rows:
            self._traces.write(rows.append_column(CHANGE_TYPE, pa.repeat(kind, rows.num_rows)))

    def finish(self) -> tuple[list[AddFile], list[Cdc]]:
        """Complete all files, durably, and return their actions; none where another takes the rows.

        Raises:
            StorageError: storage did not answer.
        """
        changes = [] if self._feed is None else self._feed.finish()
        return [] if self._writer is None else self._writer.finish(), changes
