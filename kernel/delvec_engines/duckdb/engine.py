"""The single-process engine."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from delvec_engines.arrow_conversion import cast_batch
from delvec_engines.compacted_files import Compacted
from delvec_engines.copy_jobs import LocalCopier, RowGroupCopier
from delvec_engines.duckdb.cluster import cluster
from delvec_engines.duckdb.dialect import filter_sql
from delvec_engines.duckdb.find_rows import find_rows
from delvec_engines.duckdb.merge_source import merge_source
from delvec_engines.duckdb.row_changes import PartOfChange, change_part, change_rows, insert_rows
from delvec_engines.duckdb.scan import ScanSource, quoted, sources
from delvec_engines.duckdb.statement_runner import DuckDBSession
from delvec_engines.duckdb.write import RowSinks, append, compact, copy_rows
from delvec_engines.dv_files import DeletionVectorFiles
from delvec_engines.operation import Execution
from delvec_engines.page_pruning import RowRanges, row_ranges
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import ChangedRows, MergeSource, RowChange
from delvec_engines.scan import Scan
from delvec_errors import BadRequest, EngineUnavailable, InvalidPredicate
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_paths import ColumnPath
from delvec_kernel.schema.types import StructType
from delvec_parquet.use import uses_parquet_bytes

__all__ = ["DuckDBEngine"]

_MIN_MEMORY: Final = 128 << 20
_NAME: Final = f"delvec-duckdb/{version('delvec')}"  # not per engine: it reads a file


class DuckDBEngine:
    """Reads and writes tables with DuckDB in this process. Safe to share between threads.

    Args:
        connection: a DuckDB connection whose database and settings are used; it stays open. By default, a new
            in-memory database.
        memory_limit: bytes, for the engine's own database; DuckDB's default if None.
        temp_directory: spill directory of the engine's own database; DuckDB's default if None.
        threads: maximum threads of the engine's own database.
        parquet_bytes: whether it copies row groups and reads page indexes; by default as ``DELVEC_PARQUET_BYTES`` says,
            which is ``on`` unless set to ``off``.
    """

    def __init__(
        self,
        connection: Any = None,
        *,
        memory_limit: int | None = None,
        temp_directory: str | None = None,
        threads: int | None = None,
        parquet_bytes: bool | None = None,
    ) -> None:
        self._is_own = connection is None
        self._again = partial(
            DuckDBEngine,
            memory_limit=memory_limit,
            temp_directory=temp_directory,
            threads=threads,
            parquet_bytes=parquet_bytes,
        )
        self._parquet_bytes = uses_parquet_bytes(parquet_bytes)
        self._session = DuckDBSession(
            connection, memory_limit, temp_directory, threads, parquet_bytes=self._parquet_bytes
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._is_own:
            raise TypeError(
                "an engine with its own DuckDB connection cannot be pickled, because DuckDB connections cannot"
            )
        return self._again, ()

    @property
    def name(self) -> str:
        """``delvec-duckdb/<version>``, recorded in the log as engineInfo."""
        return _NAME

    @property
    def copier(self) -> RowGroupCopier | None:
        """Copies row groups in this process, without DuckDB."""
        return LocalCopier() if self._parquet_bytes else None

    @property
    def compacts_in_process(self) -> bool:
        """True: so do all commands."""
        return True

    def execution(
        self,
        scan: Scan,  # noqa: ARG002 - the protocol's
        work: Predicate | RowChange | None = None,  # noqa: ARG002
        target: WriteTarget | None = None,  # noqa: ARG002
    ) -> Execution:
        """Return this engine's name: it executes everything itself."""
        return Execution(self.name)

    def progress(self) -> float | None:
        """Return the progress of the running statement from 0 to 1, or None if unknown; a command may run several."""
        return self._session.progress()

    def close(self) -> None:
        """Release DuckDB's memory; a connection that was passed in stays open."""
        self._session.close()

    @contextmanager
    def bounded(self, max_memory: int) -> Iterator["DuckDBEngine"]:
        """Lend an engine with three quarters of ``max_memory`` for DuckDB; the rest is for rows being encoded.

        It spills into its own directory below the system's temporary directory.

        Raises:
            BadRequest: it is less than 128 MiB.
        """
        if max_memory < _MIN_MEMORY:
            raise BadRequest(
                f"max_memory must be at least {_MIN_MEMORY >> 20} MiB, which DuckDB needs to read row groups (given: "
                f"{max_memory:,} bytes)"
            )
        with (
            TemporaryDirectory(prefix="delvec-") as folder,
            closing(
                DuckDBEngine(
                    memory_limit=max_memory * 3 // 4,
                    temp_directory=folder,
                    parquet_bytes=self._parquet_bytes,
                )
            ) as engine,
        ):
            yield engine

    def find_rows(
        self, scan: Scan, predicate: Predicate, dv_files: DeletionVectorFiles | None = None
    ) -> Mapping[str, BitMap64]:
        """Return, per path, the physical indexes of the rows that satisfy ``predicate``.

        Raises:
            InvalidPredicate: evaluating the predicate fails for a live row.
            CorruptTable: or a subclass: a file cannot be read.
        """
        return find_rows(self._session, scan, predicate, dv_files)

    def merge_source(self, data: Any) -> MergeSource:
        """Take the source of a MERGE: anything that :meth:`write` takes, or a table, read at its newest version.

        Raises:
            InvalidSchema: columns that have no Delta type, or two of one name.
            SchemaMismatch: ``data`` is not tabular.
        """
        return merge_source(data)

    def change_rows(self, scan: Scan, change: RowChange, target: WriteTarget) -> ChangedRows:
        """Update, delete and insert rows: new files for new rows, bitmaps for the old ones.

        Raises:
            MultipleMatches: several source rows would change one row.
            InvalidPredicate: DuckDB cannot evaluate an expression as Spark does, or it fails for a row.
            ConstraintViolation: a new row does not satisfy the table's constraints.
            SchemaMismatch: a value does not fit its column.
            CorruptTable: or a subclass: a file or deletion vector cannot be read.
            StorageError: storage did not answer.
        """
        return change_rows(self._session, scan, change, target)

    def find_part(
        self, scan: Scan, predicate: Predicate, within: Mapping[str, range]
    ) -> Mapping[str, BitMap64]:
        """Return what :meth:`find_rows` does, of files of which ``within`` has the path only rows in that range."""
        return find_rows(self._session, scan, predicate, within=_each(within))

    def change_part(
        self, scan: Scan, change: RowChange, target: WriteTarget, within: Mapping[str, range], into: RowSinks
    ) -> PartOfChange:
        """Do a part of :meth:`change_rows`; see :func:`delvec_engines.duckdb.row_changes.change_part`."""
        return change_part(self._session, scan, change, target, _each(within), into)

    def insert_rows(
        self, scan: Scan, change: RowChange, target: WriteTarget, matched_rows: np.ndarray, into: RowSinks
    ) -> int:
        """Do the rest of it; see :func:`delvec_engines.duckdb.row_changes.insert_rows`."""
        return insert_rows(self._session, scan, change, target, matched_rows, into)

    def copy_rows(
        self, scan: Scan, deleted_rows: Mapping[str, BitMap64], target: WriteTarget
    ) -> Sequence[AddFile]:
        """Write the live rows of the scan's files again, without those in ``deleted_rows``.

        Raises:
            CorruptTable: a file cannot be read, or lacks rows.
            StorageError: storage did not answer.
        """
        return copy_rows(self._session, scan, deleted_rows, target)

    def compact(self, scan: Scan, bins: Sequence[Sequence[str]], target: WriteTarget) -> Compacted:
        """Write the live rows of each bin's files together.

        Raises:
            CorruptTable: a file cannot be read, or lacks rows.
            StorageError: storage did not answer.
        """
        with self._session.reading_ahead(scan) as session:
            return compact(session, scan, bins, target)

    def cluster(
        self, scan: Scan, bins: Sequence[Sequence[str]], columns: Sequence[ColumnPath], target: WriteTarget
    ) -> Sequence[Compacted]:
        """Write the live rows of each bin's files in the order of a curve through these columns.

        Raises:
            CorruptTable: a file cannot be read, or lacks rows.
            StorageError: storage did not answer.
        """
        return cluster(self._session, scan, bins, columns, target)

    def write(self, data: Any, target: WriteTarget) -> Sequence[AddFile]:
        """Write rows as new files.

        Raises:
            SchemaMismatch: the rows do not fit the table.
            ConstraintViolation: a row does not satisfy the table's constraints.
            UnsupportedWriterFeature: DuckDB cannot evaluate one of them; nothing was written.
            StorageError: storage did not answer.
        """
        return append(self._session, data, target)

    def read(self, scan: Scan, columns: Sequence[str] | None, predicate: Predicate | None) -> pa.Table:
        """Return the live rows that satisfy ``predicate``, in the schema's column order.

        Raises:
            InvalidPredicate: evaluating the predicate fails for a live row.
            CorruptTable: or a subclass: a file or deletion vector cannot be read.
        """
        schema = _selected(scan, columns)
        try:
            return self._read(scan, schema, predicate, strictly=False)
        except InvalidPredicate:
            if not scan.has_deletion_vectors:
                raise
            # The predicate may fail for deleted rows only: try again on live rows.
            return self._read(scan, schema, predicate, strictly=True)

    def read_batches(
        self, scan: Scan, columns: Sequence[str] | None = None, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the same rows as :meth:`read` batch by batch.

        Raises:
            InvalidPredicate: evaluating the predicate fails for a live row.
            CorruptTable: or a subclass: a file or deletion vector cannot be read.
        """
        schema = _selected(scan, columns)
        target = schema.to_arrow()
        for source, sql in self._statements(scan, schema, predicate, strictly=True):
            for batch in self._session.batches(scan, source, sql, predicate):
                yield _exact(batch, schema, target)

    def to_df(
        self,
        scan: Scan,
        columns: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's
        predicate: Predicate | None = None,  # noqa: ARG002
        num_rows: int | None = None,  # noqa: ARG002
    ) -> Any:
        """Refuse: lazy DataFrames are Spark's.

        Raises:
            EngineUnavailable: always.
        """
        raise EngineUnavailable(
            f"A lazy DataFrame needs the Spark engine, but table '{scan.name}' uses {self.name}; pass engine=spark to "
            ".table(), or call .to_arrow() or .changes()",
            engine=self.name,
        )

    def count(self, scan: Scan, predicate: Predicate | None) -> int:
        """Return the number of live rows that satisfy ``predicate``.

        Raises:
            InvalidPredicate: evaluating the predicate fails for a live row.
            CorruptTable: or a subclass: a file or deletion vector cannot be read.
        """
        try:
            return self._count(scan, predicate, strictly=False)
        except InvalidPredicate:
            if not scan.has_deletion_vectors:
                raise
            return self._count(scan, predicate, strictly=True)

    def _read(
        self, scan: Scan, schema: StructType, predicate: Predicate | None, *, strictly: bool
    ) -> pa.Table:
        target = schema.to_arrow()
        batches: list[pa.RecordBatch] = []
        for source, sql in self._statements(scan, schema, predicate, strictly=strictly):
            found = self._session.table(scan, source, sql, predicate)
            batches += [_exact(batch, schema, target) for batch in found.to_batches()]
        return pa.Table.from_batches(batches, target)

    def _count(self, scan: Scan, predicate: Predicate | None, *, strictly: bool) -> int:
        total = 0
        for source, sql in self._statements(scan, StructType(()), predicate, strictly=strictly):
            counting = f"SELECT count(*) AS n FROM ({sql})"  # noqa: S608 - made of quoted parts
            total += self._session.table(scan, source, counting, predicate)["n"][0].as_py()
        return total

    def _statements(
        self, scan: Scan, schema: StructType, predicate: Predicate | None, *, strictly: bool
    ) -> Iterator[tuple[ScanSource, str]]:
        condition, reads = (None, ()) if predicate is None else (filter_sql(predicate), predicate.columns)
        listed = ", ".join(quoted(name) for name in schema.names) or "NULL AS nothing"
        within = row_ranges(scan, predicate) if self._parquet_bytes else {}
        for source in sources(scan, schema.names, predicate, within=within):
            yield source, source.select(listed, condition, reads, strictly=strictly)


def _each(within: Mapping[str, range]) -> Mapping[str, RowRanges]:
    return {path: (rows,) for path, rows in within.items()}


def _selected(scan: Scan, columns: Sequence[str] | None) -> StructType:
    """Return the schema of the columns read, in the table's order."""
    if columns is None:
        return scan.schema
    wanted = {scan.schema.field(name).name for name in columns}
    return scan.schema.select(name for name in scan.schema.names if name in wanted)


def _exact(batch: pa.RecordBatch, schema: StructType, target: pa.Schema) -> pa.RecordBatch:
    return cast_batch(batch.select(target.names), schema, target, check_nulls=False)
