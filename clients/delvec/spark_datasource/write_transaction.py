"""The transaction of a write by ``format("delvec")``.

It begins in one driver process, tasks write its files, and another driver process commits it, so it is
pickled. Tasks cannot evaluate Spark SQL: they evaluate constraints and generated columns with DuckDB if
that is known to give Spark's result.

Tested in `tests/integration/spark/test_spark_task_writes.py`.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from delvec.connection import Connection
from delvec.spark_datasource.sink_options import WriteRequest
from delvec.table import DeltaTable
from delvec_commands.backoff import pause
from delvec_commands.dml.append import NewRows, WriteOptions, add_rows
from delvec_commands.dml.first_rows import FirstWrite
from delvec_commands.dml.overwrite import Replacement, replace_rows
from delvec_commands.dml.table_definition import TableDefinition, location_of
from delvec_contract.commits import BeginResponse
from delvec_engines.parquet_writer import write_data_files
from delvec_engines.protocol import Engine, WriteTarget
from delvec_engines.row_checks import RowChecks
from delvec_engines.spark.session_properties import in_local_time, is_utc, zone_of_session
from delvec_engines.spark.task_rows import ReplayableRows
from delvec_errors import (
    BadRequest,
    DelvecError,
    EngineUnavailable,
    NotFound,
    StorageError,
    UnsupportedOperation,
    UnsupportedWriterFeature,
)
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.alter_table.change_types import WriteChange
from delvec_kernel.constraints.declared import REPLACE_WHERE
from delvec_kernel.schema.types import StructType

__all__ = ["WriteTransaction"]

_RETRIES: Final = 3
_MAX_TASKS: Final = 1 << 16
_NUMBERS_AT_ONCE: Final = 1 << 16


@dataclass(frozen=True)
class WriteTransaction:
    """The transaction that tasks write.

    Attributes:
        begun: the transaction.
        target: where and how tasks write.
        columns: columns of the rows.
        changes: schema changes to commit with the rows.
        already_applied: the table has this ``txn`` already; nothing to do.
        first: the creation of the table, if the rows are its first.
    """

    begun: BeginResponse
    target: WriteTarget
    columns: StructType
    changes: Sequence[WriteChange]
    already_applied: bool
    first: FirstWrite | None = None

    @classmethod
    def begin(
        cls, lake: Connection, request: WriteRequest, columns: StructType, options: WriteOptions
    ) -> "WriteTransaction":
        """Begin the transaction; creates a missing table, as delta-spark does.

        Raises:
            SchemaMismatch: the columns do not fit the table.
            BadRequest: the request's partition columns differ from the table's.
            UnsupportedWriterFeature: tasks cannot evaluate a constraint or a generated column.
        """
        table = _table(request, lake, columns)
        if isinstance(table, FirstWrite):
            target = replace(table.target, replace_where=request.replace_where)
            transaction = cls(table.begun, target, columns, (), already_applied=False, first=table)
            transaction.check()
            return transaction
        # Not empty_table(): it imports pandas, which takes 0.25 seconds.
        nothing = pa.Table.from_batches([], columns.to_arrow())
        rows = NewRows.begin(table._service, table, nothing, options)  # noqa: SLF001
        _check_partitions(request, rows.target)
        target = rows.target
        if request.replace_where is not None:
            target = replace(target, replace_where=request.replace_where)
        if target.identity:
            # The number of tasks is unknown, so each generates blocks of identity values.
            target = replace(target, writers=_MAX_TASKS, numbers_at_once=_NUMBERS_AT_ONCE)
        transaction = cls(rows.begun, target, columns, rows.changes, rows.already_applied)
        transaction.check()
        return transaction

    def check(self) -> None:
        """Fail now instead of in tasks if they cannot evaluate the checks."""
        with self._checked([]) as batches:
            list(batches)

    def write(self, batches: Iterable[pa.RecordBatch], task: int) -> list[AddFile]:
        """Write the rows of a task; runs on executors.

        If storage fails, they are rewritten to other files; nothing refers to the first ones.

        Raises:
            DelvecError: the rows do not fit the table, or storage did not answer.
        """
        rows = ReplayableRows(batches)
        for attempt in range(_RETRIES):
            try:
                return self._written(rows, task)
            except StorageError as error:
                if not (error.retryable and rows.is_whole):
                    raise
                time.sleep(pause(error, attempt))
        return self._written(rows, task)

    def _written(self, batches: Iterable[pa.RecordBatch], task: int) -> list[AddFile]:
        if self.target.constraints.has_expressions:
            batches = iter(batches)
            first = next(batches, None)
            self._check_zone(None if first is None else first.schema)
            batches = () if first is None else chain([first], batches)
        if self.target.identity and task >= _MAX_TASKS:
            raise UnsupportedOperation(
                f"Column '{self.target.identity[0].name}' is an identity column, whose values at most {_MAX_TASKS} "
                "tasks can generate; coalesce the DataFrame first, or use Delvec's table.append(df)."
            )
        try:
            with self._checked(batches) as checked:
                return write_data_files(checked, self.target, task=task)
        except OSError as error:
            raise StorageError(
                f"A task cannot write its files to {self.target.location}: {error}; retry, or check storage."
            ) from error

    def commit(
        self,
        lake: Connection,
        files: Sequence[AddFile] | DelvecError,
        options: WriteOptions,
        replacement: Replacement | None,
        stream: Mapping[str, str] | None = None,
    ) -> None:
        """Commit the files of tasks.

        Args:
            lake: the service.
            files: the files of all tasks, or the error of one.
            options: the options of the write.
            replacement: the rows to replace.
            stream: for a micro-batch, the operation parameters for the table's history.

        Raises:
            DelvecError: the error of a task or of the commit.
        """
        if self.first is not None:
            self._create(lake, self.first, files, options, stream)
            return
        with closing(_WrittenFiles(files)) as engine:
            table = lake.table(self.target.location, engine=engine)
            service = table._service  # noqa: SLF001
            rows = NewRows(
                service, table, self.begun, None, self.target, options, self.changes, stream=stream
            )
            if replacement is None:
                add_rows(rows)
            else:
                replace_rows(rows, replacement)

    def _create(
        self,
        lake: Connection,
        first: FirstWrite,
        files: Sequence[AddFile] | DelvecError,
        options: WriteOptions,
        stream: Mapping[str, str] | None,
    ) -> None:
        """Create the table with the files of tasks, in one version."""
        if isinstance(files, DelvecError):
            raise files
        first.create(
            lake._service,  # noqa: SLF001
            files,
            "WRITE" if stream is None else "STREAMING UPDATE",
            engine_info=_WrittenFiles.name,
            parameters=stream,
            txn=options.txn,
            user_metadata=options.user_metadata,
        )

    def _check_zone(self, rows: pa.Schema | None) -> None:
        """Refuse expressions that tasks would evaluate in another time zone than the session's."""
        given = {name.lower() for name in self.columns.names}
        local = in_local_time(self.target.constraints, self.target.schema, given)
        zone = "UTC" if local is None else zone_of_session(rows)
        if local is None or is_utc(zone):
            return
        name = "replaceWhere" if local.name == REPLACE_WHERE else f"Constraint {local.name}"
        raise UnsupportedWriterFeature(
            f"{name} ({local.expression}) depends on the time zone of Spark's session, which is {zone}, but "
            "format('delvec') evaluates in UTC. Nothing was committed; set spark.sql.session.timeZone to UTC, write "
            "timestamps with their zone ('2026-01-31 00:00:00+00:00'), or use Delvec's table.append(df) and "
            "table.overwrite(df), which evaluate with Spark.",
            constraint=local.name,
            expression=local.expression,
        )

    @contextmanager
    def _checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Iterable[pa.RecordBatch]]:
        checks = RowChecks(self.target)
        if not checks.constraints.has_expressions:
            yield checks.checked(batches) if checks.is_needed else batches
            return
        try:
            from delvec_engines.duckdb.statement_runner import DuckDBSession
            from delvec_engines.duckdb.write import completion
        except ModuleNotFoundError as error:
            raise EngineUnavailable(
                f"The table at {self.target.location} has CHECK constraints, column defaults or generated columns, or the "
                f"write has replaceWhere; to evaluate them, format('delvec') needs {error.name} on the executors: "
                "pip install '.[local]' in Delvec's clone, or use Delvec's table.append(df) and table.overwrite(df)."
            ) from error
        with closing(DuckDBSession()) as session:
            with session.connected() as cursor:
                cursor.execute("SET threads = 1")
            try:
                complete = completion(session, self.columns.names, self.target, checks)
            except UnsupportedWriterFeature as error:
                raise UnsupportedWriterFeature(
                    f"{error.message} format('delvec') evaluates with DuckDB in its tasks; Delvec's table.append(df) and "
                    "table.overwrite(df) evaluate with Spark.",
                    **error.details,
                ) from error
            yield (complete(batch) for batch in batches)


class _WrittenFiles:
    """An engine whose new rows are already written by tasks; it reads and copies other rows with DuckDB."""

    name = "delvec-spark-sink"
    copier = None
    compacts_in_process = False

    def __init__(self, written: Sequence[AddFile] | DelvecError = ()) -> None:
        self._written = written
        self._duckdb: Any = None

    def write(self, data: Any, target: WriteTarget) -> Sequence[AddFile]:  # noqa: ARG002
        """Return the files of the tasks."""
        if isinstance(self._written, DelvecError):
            raise self._written
        return self._written

    def progress(self) -> None:
        """Return None: tasks wrote the rows."""

    def close(self) -> None:
        """Close the DuckDB engine, if it was used."""
        if self._duckdb is not None:
            self._duckdb.close()

    def find_rows(self, *given: Any) -> Any:
        """Find the replaced rows of files that are replaced in part."""
        return self._reader().find_rows(*given)

    def copy_rows(self, *given: Any) -> Any:
        """Copy the other rows of such files."""
        return self._reader().copy_rows(*given)

    def _reader(self) -> Engine:
        if self._duckdb is None:
            try:
                from delvec_engines.duckdb import DuckDBEngine
            except ModuleNotFoundError as error:
                raise EngineUnavailable(
                    f"replaceWhere removes some rows of files, for which format('delvec') needs {error.name} on the "
                    "driver: pip install '.[local]' in Delvec's clone, or use Delvec's table.overwrite(df, "
                    "replace_where=...)."
                ) from error
            self._duckdb = DuckDBEngine()
        found: Engine = self._duckdb
        return found

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError("format('delvec') writes only in tasks")

    read = read_batches = to_df = count = _refuse
    execution = merge_source = change_rows = bounded = compact = cluster = _refuse


def _table(request: WriteRequest, lake: Connection, columns: StructType) -> DeltaTable | FirstWrite:
    """Return the table; for one that does not exist its creation, which has begun."""
    engine = _WrittenFiles()
    try:
        table = lake.table(request.path, engine=engine)
        table.version()  # raises if the log of a registered table is gone
    except NotFound:
        location = location_of(request.path)
        # As Spark's own sources: what a DataFrame happens to hold says nothing about the rows of later writes.
        definition = TableDefinition(columns.as_nullable(), request.partition_by or ())
        body = definition.creation(location, None if location else request.path)
        first = FirstWrite.begin(lake._service, body)  # noqa: SLF001
        return first or lake.run_create(request.path, definition, engine=engine)[0]
    return table


def _check_partitions(request: WriteRequest, target: WriteTarget) -> None:
    wanted = request.partition_by
    if wanted is None or request.overwrite_schema or list(wanted) == list(target.partition_columns):
        return
    raise BadRequest(
        f"Table '{request.path}' is partitioned by {list(target.partition_columns)}, not by {list(wanted)}; leave out "
        "the option partitionBy, or overwrite the table with overwriteSchema."
    )
