"""The engine of a session: DuckDB runs row changes that mean the same there, in the driver or in tasks; Spark everything else.

Small changes and rewrites are the driver's (:mod:`~delvec_engines.spark.local_execution`), larger changes are divided among tasks
(:mod:`~delvec_engines.spark.duckdb_tasks`); :mod:`~delvec_engines.spark.engine_equivalence` says whether DuckDB's result is Spark's.
The log says what ran a command, and why. If DuckDB refuses or fails, Spark runs the command from the start, so errors are
always Spark's.

Tested in `tests/integration/spark/test_spark_local_execution.py` and `tests/integration/spark/test_spark_duckdb_tasks.py`.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession

from delvec_engines.compacted_files import Compacted
from delvec_engines.copy_jobs import CopiedFile, CopyJob, LocalCopier, RowGroupCopier
from delvec_engines.dv_files import DeletionVectorFiles
from delvec_engines.operation import operation
from delvec_engines.protocol import Engine, WriteTarget
from delvec_engines.row_changes import ChangedRows, MergeSource, RowChange
from delvec_engines.scan import Scan
from delvec_engines.spark.duckdb_tasks import DuckDBTasks, is_cancelled
from delvec_engines.spark.engine import SparkEngine
from delvec_engines.spark.engine_equivalence import UsedExpression, difference, expressions_of
from delvec_engines.spark.local_execution import OBJECT_STORES, LocalExecution, note_out_of_reach
from delvec_errors import BadRequest, DelvecError, StorageError
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.column_paths import ColumnPath
from delvec_kernel.schema.types import has_variant
from delvec_parquet.row_group_copy import SourceFile

__all__ = ["ChoosingEngine", "reason_for_spark"]

_LOGGER: Final = logging.getLogger(__name__)
_SOURCE_BYTES: Final = 64 << 20
"""Maximum bytes of the source of a MERGE that DuckDB runs."""
_Result = TypeVar("_Result")


class ChoosingEngine:
    """Chooses an engine for each command of a session: DuckDB, in the driver or in tasks, or Spark.

    Args:
        on_spark: the session's Spark engine.
    """

    def __init__(self, on_spark: SparkEngine) -> None:
        self._on_spark = on_spark
        self.spark = on_spark.spark

    @property
    def name(self) -> str:
        """That of the Spark engine, whichever runs a command."""
        return self._on_spark.name

    @property
    def copier(self) -> RowGroupCopier | None:
        """Copies row groups in tasks, or in the driver if they are few bytes."""
        in_tasks = self._on_spark.copier
        return None if in_tasks is None else _ChoosingCopier(self.spark, in_tasks)

    @property
    def compacts_in_process(self) -> bool:
        """False: Spark compacts."""
        return self._on_spark.compacts_in_process

    def progress(self) -> float | None:
        """See :meth:`delvec_engines.protocol.Engine.progress`."""
        return self._on_spark.progress()

    def close(self) -> None:
        """Do nothing: the session is the caller's, and the process keeps DuckDB for the next command."""

    def bounded(self, max_memory: int) -> AbstractContextManager[Engine]:
        """Refuse, as Spark does; see :meth:`delvec_engines.spark.engine.SparkEngine.bounded`."""
        return self._on_spark.bounded(max_memory)

    def find_rows(
        self, scan: Scan, predicate: Predicate, dv_files: DeletionVectorFiles | None = None
    ) -> Mapping[str, BitMap64]:
        """Find rows on either engine; see :meth:`delvec_engines.protocol.Engine.find_rows`.

        Raises:
            BadRequest: a setting is not understood.
        """
        if len(scan) and predicate.is_deterministic:
            place = self._place(scan, [UsedExpression.of(predicate)])
            if place is not None:
                matching_rows = _result(scan, place, lambda: place.find_rows(scan, predicate))
                if matching_rows is not None:
                    return matching_rows
        return self._on_spark.find_rows(scan, predicate, dv_files)

    def change_rows(self, scan: Scan, change: RowChange, target: WriteTarget) -> ChangedRows:
        """Change rows on either engine; see :meth:`delvec_engines.protocol.Engine.change_rows`.

        Raises:
            BadRequest: a setting is not understood, or Spark cannot read the source.
        """
        place = self._place(scan, list(expressions_of(change, target)), change, target)
        if place is None:
            return self._on_spark.change_rows(scan, change, target)
        source = None
        if change.source is not None:
            source = change.source.data.collected(_SOURCE_BYTES)
            if source is None:
                _log_reason(scan, f"the source is larger than {_SOURCE_BYTES:,} bytes")
                return self._on_spark.change_rows(scan, change, target)
        changed = _result(scan, place, lambda: place.change_rows(scan, change, source, target))
        return self._on_spark.change_rows(scan, change, target) if changed is None else changed

    def copy_rows(
        self, scan: Scan, deleted_rows: Mapping[str, BitMap64], target: WriteTarget
    ) -> Sequence[AddFile]:
        """See :meth:`delvec_engines.protocol.Engine.copy_rows`."""
        return self._copied(scan, lambda engine: engine.copy_rows(scan, deleted_rows, target))

    def compact(self, scan: Scan, bins: Sequence[Sequence[str]], target: WriteTarget) -> Compacted:
        """See :meth:`delvec_engines.protocol.Engine.compact`."""
        return self._copied(scan, lambda engine: engine.compact(scan, bins, target))

    def cluster(
        self, scan: Scan, bins: Sequence[Sequence[str]], columns: Sequence[ColumnPath], target: WriteTarget
    ) -> Sequence[Compacted]:
        """See :meth:`delvec_engines.protocol.Engine.cluster`."""
        return self._copied(scan, lambda engine: engine.cluster(scan, bins, columns, target))

    def _copied(self, scan: Scan, copy: Callable[[Engine], _Result]) -> _Result:
        """Copy rows in the driver if they are few, else on Spark; none is computed, so the meaning is the same."""
        driver = LocalExecution(self.spark, parquet_bytes=self._on_spark.parquet_bytes)
        reason = reason_for_spark(lambda: driver.unsuitable(scan))
        if reason is None:
            copied = _result(scan, driver, lambda: copy(driver.engine))
            if copied is not None:
                return copied
        else:
            _log_reason(scan, reason)
        return copy(self._on_spark)

    # --- always Spark's -------------------------------------------------------------------------------------

    def merge_source(self, data: Any) -> MergeSource:
        """See :meth:`delvec_engines.protocol.Engine.merge_source`."""
        return self._on_spark.merge_source(data)

    def write(self, data: Any, target: WriteTarget) -> Sequence[AddFile]:
        """See :meth:`delvec_engines.protocol.Engine.write`."""
        return self._on_spark.write(data, target)

    def read(self, scan: Scan, columns: Sequence[str] | None, predicate: Predicate | None) -> pa.Table:
        """See :meth:`delvec_engines.protocol.Engine.read`."""
        return self._on_spark.read(scan, columns, predicate)

    def read_batches(
        self, scan: Scan, columns: Sequence[str] | None = None, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """See :meth:`delvec_engines.protocol.Engine.read_batches`."""
        return self._on_spark.read_batches(scan, columns, predicate)

    def to_df(
        self,
        scan: Scan,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        num_rows: int | None = None,
    ) -> DataFrame:
        """See :meth:`delvec_engines.protocol.Engine.to_df`."""
        return self._on_spark.to_df(scan, columns, predicate, num_rows)

    def count(self, scan: Scan, predicate: Predicate | None) -> int:
        """See :meth:`delvec_engines.protocol.Engine.count`."""
        return self._on_spark.count(scan, predicate)

    # --- the choice -----------------------------------------------------------------------------------------

    def _place(
        self,
        scan: Scan,
        expressions: Sequence[UsedExpression],
        change: RowChange | None = None,
        target: WriteTarget | None = None,
    ) -> "_Place | None":
        """Return where DuckDB runs a command; None if Spark has to."""
        place, reason = self._chosen(scan, expressions, change, target)
        if place is None:
            _log_reason(scan, reason)
        return place

    def choice(self, scan: Scan, predicate: Predicate | None) -> str:
        """Return where the rows of a condition would be found, and if on Spark, why; for EXPLAIN."""
        expressions = [] if predicate is None else [UsedExpression.of(predicate)]
        place, reason = self._chosen(scan, expressions)
        return f"Spark: {reason}" if place is None else f"DuckDB {place.where}"

    def _chosen(
        self,
        scan: Scan,
        expressions: Sequence[UsedExpression],
        change: RowChange | None = None,
        target: WriteTarget | None = None,
    ) -> "tuple[_Place | None, str]":
        """Return where DuckDB runs a command, or why Spark has to."""
        parquet_bytes = self._on_spark.parquet_bytes
        places: list[_Place] = [
            LocalExecution(self.spark, parquet_bytes=parquet_bytes),
            DuckDBTasks(self.spark, parquet_bytes=parquet_bytes),
        ]
        reasons = [reason_for_spark(partial(each.unsuitable, scan, change, target)) for each in places]
        if None not in reasons:
            return None, "; ".join(reason for reason in reasons if reason)
        reason = reason_for_spark(
            lambda: _variant_source(change) or difference(self.spark, expressions, target)
        )
        if reason is not None:
            return None, reason
        return places[reasons.index(None)], ""


class _Place(Protocol):
    """Where DuckDB runs: in the driver, or in tasks."""

    @property
    def where(self) -> str: ...

    def unsuitable(
        self, scan: Scan, change: RowChange | None = None, target: WriteTarget | None = None
    ) -> str | None: ...

    def find_rows(self, scan: Scan, predicate: Predicate) -> Mapping[str, BitMap64]: ...

    def change_rows(
        self, scan: Scan, change: RowChange, source: pa.Table | None, target: WriteTarget
    ) -> ChangedRows: ...


def _result(scan: Scan, place: _Place, work: Callable[[], _Result]) -> _Result | None:
    """Return what DuckDB does; None if it refuses or fails, so that Spark has to do it."""
    import duckdb

    started = time.monotonic()
    try:
        answer = work()
    except DelvecError as error:
        if isinstance(error, StorageError) and scan.location.startswith(OBJECT_STORES):
            note_out_of_reach(scan)
        _log_reason(scan, f"DuckDB failed {place.where}: {error.message}")
        return None
    except Exception as error:
        if isinstance(error, duckdb.InterruptException) or is_cancelled(error):
            raise
        _LOGGER.warning(
            "%s of table '%s' (version %s) failed %s, on DuckDB; running it on Spark.",
            operation(),
            scan.name,
            scan.version,
            place.where,
            exc_info=True,
        )
        return None
    _LOGGER.info(
        "%s of table '%s' (version %s) ran %s, on DuckDB: %s files, %.2f s.",
        operation(),
        scan.name,
        scan.version,
        place.where,
        len(scan),
        time.monotonic() - started,
    )
    return answer


def _variant_source(change: RowChange | None) -> str | None:
    has_one = change is not None and change.source is not None and has_variant(change.source.schema)
    return "the source has columns of type variant" if has_one else None


class _ChoosingCopier:
    """Copies row groups in the driver if it may do the work; no row is computed, so meaning is the same."""

    def __init__(self, spark: SparkSession, in_tasks: RowGroupCopier) -> None:
        self._spark = spark
        self._in_tasks = in_tasks

    def footers(self, scan: Scan) -> Sequence[SourceFile]:
        """See :class:`~delvec_engines.copy_jobs.RowGroupCopier`."""
        return self._chosen(scan).footers(scan)

    def copy(self, scan: Scan, jobs: Sequence[CopyJob]) -> Iterable[CopiedFile | DelvecError]:
        """See :class:`~delvec_engines.copy_jobs.RowGroupCopier`."""
        return self._chosen(scan).copy(scan, jobs)

    def _chosen(self, scan: Scan) -> RowGroupCopier:
        in_driver = reason_for_spark(lambda: LocalExecution(self._spark).unsuitable(scan)) is None
        return LocalCopier() if in_driver else self._in_tasks


def reason_for_spark(decide: Callable[[], str | None]) -> str | None:
    """Return why Spark has to run a command, for logs; None if it need not.

    Args:
        decide: returns the reason; if it fails, Spark runs the command.

    Raises:
        BadRequest: a setting is not understood.
    """
    try:
        return decide()
    except BadRequest:
        raise
    except Exception as error:
        _LOGGER.warning(
            "Delvec cannot decide where %s runs; running it on Spark.", operation(), exc_info=True
        )
        return f"deciding failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _log_reason(scan: Scan, reason: str) -> None:
    _LOGGER.info(
        "%s of table '%s' (version %s) runs on Spark: %s.", operation(), scan.name, scan.version, reason
    )
