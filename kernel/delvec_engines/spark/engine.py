"""The engine that reads and writes with a SparkSession, classic or Connect, without any JAR.

Tested in `tests/integration/engines/test_own_rows.py` and `tests/integration/spark/test_spark_write.py`.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyspark
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession

from delvec_engines import input_data
from delvec_engines.compacted_files import Compacted
from delvec_engines.copy_jobs import RowGroupCopier
from delvec_engines.dv_files import DeletionVectorFiles
from delvec_engines.operation import Execution
from delvec_engines.parquet_writer import write_data_files
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import ChangedRows, MergeSource, RowChange
from delvec_engines.row_checks import RowChecks
from delvec_engines.scan import Scan
from delvec_engines.spark import failures
from delvec_engines.spark.arrow_frames import frame_of, to_arrow
from delvec_engines.spark.cluster import cluster
from delvec_engines.spark.copy_tasks import TaskCopier
from delvec_engines.spark.find_rows import MAX_ROWS_FOR_BITMAPS, filter_rows, fold, physical_rows
from delvec_engines.spark.frame_reads import answer_count
from delvec_engines.spark.job_descriptions import described
from delvec_engines.spark.manifest import ManifestStore, file_numbers
from delvec_engines.spark.merge_source import merge_source
from delvec_engines.spark.row_changes import RowChanger
from delvec_engines.spark.row_expressions import absent_columns, examined
from delvec_engines.spark.scan import BROADCAST_LIMIT, ScanFrames
from delvec_engines.spark.session_properties import is_remote
from delvec_engines.spark.session_python import use_this_python
from delvec_engines.spark.vector_tasks import find_into_vectors
from delvec_engines.spark.write import (
    check_schema,
    compact,
    copy_rows,
    is_spark_frame,
    ntz_to_timestamp,
    rebalanced,
    with_writers,
    write_frame,
)
from delvec_errors import BadRequest, InvalidPredicate
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_paths import ColumnPath, backticked
from delvec_kernel.schema.types import StructType
from delvec_parquet.use import uses_parquet_bytes

__all__ = ["SparkEngine"]

_BROADCAST_SETTING: Final = "DELVEC_SPARK_BROADCAST_BYTES"
_REMOTE_BROADCAST_LIMIT: Final = 32 << 20


class SparkEngine:
    """Reads and writes on a cluster. Needs PySpark 4.0 or later.

    Executors need Delvec to find and to write rows, not to read them. This engine has every command run by Spark;
    :class:`~delvec_engines.spark.choosing_engine.ChoosingEngine` leaves small ones to DuckDB.

    Args:
        spark: the session. Its settings stay as they are; see
            :func:`~delvec_engines.spark.session_python.use_this_python` for the Python of its workers.
        manifests_in_table: write manifests under the table, in ``_delvec/scans``, instead of a temporary
            directory; always with Spark Connect, whose driver cannot read this machine's files.
        max_rows_for_bitmaps: see :data:`~delvec_engines.spark.find_rows.MAX_ROWS_FOR_BITMAPS`.
        broadcast_limit: maximum bytes of bit sets of deleted rows that are sent to all tasks; above it, each task reads
            the deletion vectors of its own files, for which executors need the ``delvec`` package. By default
            ``DELVEC_SPARK_BROADCAST_BYTES``, or 128 MiB; 32 MiB with Spark Connect.
        parquet_bytes: as for :class:`~delvec_engines.duckdb.DuckDBEngine`; also for DuckDB in the driver and in tasks.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        manifests_in_table: bool = False,
        max_rows_for_bitmaps: int = MAX_ROWS_FOR_BITMAPS,
        broadcast_limit: int | None = None,
        parquet_bytes: bool | None = None,
    ) -> None:
        use_this_python(spark)
        self.spark = spark
        self.parquet_bytes = uses_parquet_bytes(parquet_bytes)
        self._is_remote = is_remote(spark)
        self._max_rows_for_bitmaps = max_rows_for_bitmaps
        self._frames = ScanFrames(
            spark,
            ManifestStore(in_table=manifests_in_table or self._is_remote),
            broadcast_limit=_broadcast_limit(broadcast_limit, is_remote=self._is_remote),
        )

    @property
    def name(self) -> str:
        """``delvec-spark/<version of PySpark>``."""
        return f"delvec-spark/{pyspark.__version__}"

    @property
    def copier(self) -> RowGroupCopier | None:
        """Copies row groups in tasks."""
        return TaskCopier(self.spark) if self.parquet_bytes else None

    @property
    def compacts_in_process(self) -> bool:
        """False: tasks compact."""
        return False

    def execution(
        self,
        scan: Scan,  # noqa: ARG002 - the protocol's
        work: Predicate | RowChange | None = None,  # noqa: ARG002
        target: WriteTarget | None = None,  # noqa: ARG002
    ) -> Execution:
        """Return this engine's name: it executes everything itself."""
        return Execution(self.name)

    def progress(self) -> float | None:
        """Return None: Spark has its own display."""
        return None

    def close(self) -> None:
        """Do nothing: the session is the caller's."""

    def bounded(self, max_memory: int) -> AbstractContextManager["SparkEngine"]:
        """Refuse: the memory of Spark's executors is configured at their start, and they spill by themselves.

        Raises:
            BadRequest: always.
        """
        raise BadRequest(
            f"max_memory is for DuckDB (given: {max_memory:,} bytes); Spark spills by itself: leave out max_memory, "
            "and size executors with spark.executor.memory."
        )

    def to_df(
        self,
        scan: Scan,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        num_rows: int | None = None,
    ) -> DataFrame:
        """Return the live rows as a lazy DataFrame; it keeps reading the scan's version.

        Args:
            scan: what to read.
            columns: the columns, in this order; all by default.
            predicate: only rows for which it is true.
            num_rows: the number of these rows, if the log tells it: the answer of the frame's ``count()``.

        Raises:
            InvalidPredicate: Spark does not accept the predicate.
            CorruptDeletionVector: or a subclass; a deletion vector cannot be read.
            UnsupportedTable: with the session's settings, Spark would read wrong rows.
        """
        names = list(scan.schema.names if columns is None else scan.schema.select(columns).names)
        needed = [*names, *sorted((predicate.columns if predicate else set()) - set(names))]
        frame = self._frames.live(scan, needed)
        if predicate is not None:
            frame = self._filter(frame, predicate, scan.schema)
        if needed != names:
            frame = frame.select(*(backticked(name) for name in names))
        if num_rows is not None:
            answer_count(frame, num_rows)
        return frame

    def find_rows(
        self, scan: Scan, predicate: Predicate, dv_files: DeletionVectorFiles | None = None
    ) -> Mapping[str, BitMap64]:
        """Return, per path of the scan, the physical indexes of the rows that satisfy ``predicate``."""
        if not predicate.is_deterministic:
            raise InvalidPredicate(
                f"The predicate {predicate.text!r} is not deterministic; compute its values first, and compare with "
                "those",
                predicate=predicate.text,
            )
        if not len(scan):
            return {}
        try:
            return self._find_rows(scan, predicate, dv_files, only_live=False)
        except InvalidPredicate:
            if not scan.has_deletion_vectors:
                raise
            # The predicate may fail for deleted rows only: try again on live rows.
            return self._find_rows(scan, predicate, dv_files, only_live=True)

    def _find_rows(
        self, scan: Scan, predicate: Predicate, dv_files: DeletionVectorFiles | None, *, only_live: bool
    ) -> Mapping[str, BitMap64]:
        numbers = file_numbers(len(scan))
        with self._reading(scan, predicate, "find rows"):
            rows = self._frames.located(scan, sorted(predicate.columns), numbers, only_live=only_live)
            matches = self._filter(rows, predicate, scan.schema)
            if dv_files is not None and physical_rows(scan) > self._max_rows_for_bitmaps:
                return find_into_vectors(matches, scan, numbers, dv_files)
            matching_rows = fold(matches)
        paths = dict(zip(numbers, scan.files["path"].to_pylist(), strict=True))
        if matching_rows.keys() - paths.keys():
            raise failures.unknown_file(scan)
        return {paths[number]: rows for number, rows in matching_rows.items() if rows}

    def merge_source(self, data: Any) -> MergeSource:
        """Take the source of a MERGE: anything that :meth:`write` takes, or another table's rows.

        Raises:
            InvalidSchema: columns that have no Delta type, or two of one name.
            SchemaMismatch: ``data`` is not input_data.
        """
        return merge_source(self.spark, data, self.to_df)

    def change_rows(self, scan: Scan, change: RowChange, target: WriteTarget) -> ChangedRows:
        """Update, delete and insert rows; see :meth:`delvec_engines.protocol.Engine.change_rows`."""
        # With Spark Connect, this machine may not have access to the table.
        sends_few = not self._is_remote
        with described(self.spark, scan.name, "change rows"):
            return RowChanger(self.spark, self._frames, scan, change, target, sends_few=sends_few).run()

    def copy_rows(
        self, scan: Scan, deleted_rows: Mapping[str, BitMap64], target: WriteTarget
    ) -> Sequence[AddFile]:
        """Copy the live rows of the scan's files, without those in ``deleted_rows``, to new files.

        Raises:
            CorruptTable: the files do not have the rows that their statistics say.
        """
        with self._reading(scan, None, "rewrite files"):
            return copy_rows(self._frames, scan, deleted_rows, target)

    def compact(self, scan: Scan, bins: Sequence[Sequence[str]], target: WriteTarget) -> Compacted:
        """Write the live rows of each bin's files together, with one task per bin.

        Raises:
            CorruptTable: the files do not have the rows that their statistics say.
        """
        with self._reading(scan, None, "compact files"):
            return compact(self._frames, scan, bins, target)

    def cluster(
        self, scan: Scan, bins: Sequence[Sequence[str]], columns: Sequence[ColumnPath], target: WriteTarget
    ) -> Sequence[Compacted]:
        """Write the live rows of each bin's files in the order of a curve through these columns; Spark sorts them.

        Raises:
            CorruptTable: a file cannot be read, or lacks rows.
            StorageError: storage did not answer.
        """
        with self._reading(scan, None, "sort files"):
            return cluster(self._frames, scan, bins, columns, target)

    def write(self, data: Any, target: WriteTarget) -> Sequence[AddFile]:
        """Write ``data`` as new files: a Spark DataFrame on the executors, anything else from this process.

        With Spark Connect executors write everything, because this machine may not have access to the table.

        They also do if Spark has to evaluate constraints or generated columns.

        Raises:
            SchemaMismatch: ``data`` has unknown columns or incompatible types.
            ConstraintViolation: a row does not satisfy the table's constraints.
            UnsupportedWriterFeature: Spark does not accept one of them; nothing was written.
            BadRequest: a query or a stream fails before its end.
        """
        checks = RowChecks(target)
        if not is_spark_frame(data):
            reader = input_data.to_reader(data, target.schema)
            if not self._is_remote and not checks.constraints.has_expressions:
                return write_data_files(checks.checked(reader) if checks.is_needed else reader, target)
            rows = checks.conformed(reader).read_all()
            data = frame_of(self.spark, rows, StructType.from_arrow(rows.schema))
        check_schema(data, target, absent_columns(data, checks))
        data = rebalanced(ntz_to_timestamp(data, target), target)
        if target.identity:
            data, target = with_writers(data, target)
        with failures.of_source(), described(self.spark, _last_part(target.location), "write files"):
            if not checks.is_needed:
                return write_frame(data, target)
            found = examined(data, target, checks)
            return write_frame(found.frame, target, found.checks)

    def read(self, scan: Scan, columns: Sequence[str] | None, predicate: Predicate | None) -> pa.Table:
        """Return the live rows, deletion vectors applied, in the schema's column order."""
        wanted = set(scan.schema.names if columns is None else scan.schema.select(columns).names)
        schema = scan.schema.select([name for name in scan.schema.names if name in wanted])
        if not len(scan):
            return schema.to_arrow().empty_table()
        with self._reading(scan, predicate, "read rows"):
            return to_arrow(self.to_df(scan, schema.names, predicate), schema)

    def read_batches(
        self, scan: Scan, columns: Sequence[str] | None = None, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of :meth:`read`, which Spark sends to the driver all at once."""
        yield from self.read(scan, columns, predicate).to_batches()

    def count(self, scan: Scan, predicate: Predicate | None) -> int:
        """Return the number of live rows that satisfy ``predicate``, counted in the files."""
        if not len(scan):
            return 0
        with self._reading(scan, predicate, "count rows"):
            return int(self.to_df(scan, sorted(predicate.columns) if predicate else [], predicate).count())

    @contextmanager
    def _reading(self, scan: Scan, predicate: Predicate | None, step: str) -> Iterator[None]:
        with failures.of_scan(scan, predicate), described(self.spark, scan.name, step):
            yield

    def _filter(self, frame: DataFrame, predicate: Predicate, schema: StructType) -> DataFrame:
        with failures.of_predicate(predicate):
            filtered = filter_rows(frame, predicate, schema)
            if self._is_remote:
                filtered.schema  # noqa: B018 - makes Connect analyze now, so that errors are raised here
        return filtered


def _last_part(location: str) -> str:
    """Return the last part of a location, to describe a table whose name is unknown."""
    return unquote(location.rpartition("/")[2])


def _broadcast_limit(given: int | None, *, is_remote: bool) -> int:
    if given is not None:
        return given
    text = os.environ.get(_BROADCAST_SETTING, "").strip()
    if text:
        if not text.isdecimal():
            raise BadRequest(f"{_BROADCAST_SETTING} must be a number of bytes, not {text!r}")
        return int(text)
    # Connect sends it in one request from this process.
    return min(BROADCAST_LIMIT, _REMOTE_BROADCAST_LIMIT) if is_remote else BROADCAST_LIMIT
