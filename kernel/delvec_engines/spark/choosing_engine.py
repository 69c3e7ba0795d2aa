"""The engine of a session: DuckDB runs row changes that mean the same there, in the driver or in tasks; Spark everything else.

Small changes and rewrites are the driver's (:mod:`~delvec_engines.spark.local_execution`), larger changes are divided among tasks
(:mod:`~delvec_engines.spark.duckdb_tasks`); :mod:`~delvec_engines.spark.engine_equivalence` says whether DuckDB's result is Spark's.
The log, the command's metrics and the commit say what ran it. If DuckDB cannot run a command, Spark runs it from the start;
:mod:`~delvec_engines.spark.fallback` says after which errors.

Tested in `tests/integration/spark/test_spark_local_execution.py` and `tests/integration/spark/test_spark_duckdb_tasks.py`.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame

from delvec_engines.compacted_files import Compacted
from delvec_engines.copy_jobs import CopiedFile, CopyJob, LocalCopier, RowGroupCopier
from delvec_engines.dv_files import DeletionVectorFiles
from delvec_engines.operation import SPARK, Execution, note_execution, operation
from delvec_engines.protocol import Engine, WriteTarget
from delvec_engines.row_changes import ChangedRows, MergeSource, RowChange
from delvec_engines.scan import Scan
from delvec_engines.spark.duckdb_tasks import DuckDBTasks
from delvec_engines.spark.engine import SparkEngine
from delvec_engines.spark.engine_equivalence import UsedExpression, difference, expressions_of
from delvec_engines.spark.fallback import first_line, is_of_storage, reason_after, warn
from delvec_engines.spark.local_execution import OBJECT_STORES, LocalExecution, note_out_of_reach
from delvec_errors import BadRequest, DelvecError
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
        self._driver = LocalExecution(self.spark, parquet_bytes=on_spark.parquet_bytes)
        self._tasks = DuckDBTasks(self.spark, parquet_bytes=on_spark.parquet_bytes)

    @property
    def name(self) -> str:
        """That of the Spark engine, whichever runs a command."""
        return self._on_spark.name

    @property
    def copier(self) -> RowGroupCopier | None:
        """Copies row groups in tasks, or in the driver if they are few bytes."""
        in_tasks = self._on_spark.copier
        return None if in_tasks is None else _ChoosingCopier(self._driver, in_tasks)

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

        def on_spark() -> Mapping[str, BitMap64]:
            return self._on_spark.find_rows(scan, predicate, dv_files)

        if not len(scan) or not predicate.is_deterministic:
            return on_spark()
        choice = self._choice(scan, [UsedExpression.of(predicate)])
        return _executed(scan, choice, lambda site: site.find_rows(scan, predicate), on_spark)

    def change_rows(self, scan: Scan, change: RowChange, target: WriteTarget) -> ChangedRows:
        """Change rows on either engine; see :meth:`delvec_engines.protocol.Engine.change_rows`.

        Raises:
            BadRequest: a setting is not understood, or Spark cannot read the source.
        """
        source = change.source

        def on_duckdb(site: "_ExecutionSite") -> ChangedRows:
            rows = None if source is None else source.data.collected(_SOURCE_BYTES)
            return site.change_rows(scan, change, rows, target)

        choice = self._choice(scan, list(expressions_of(change, target)), change, target)
        return _executed(scan, choice, on_duckdb, lambda: self._on_spark.change_rows(scan, change, target))

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
        choice = self._choice_of_copies(scan)
        return _executed(scan, choice, lambda _: copy(self._driver.engine), lambda: copy(self._on_spark))

    # --- always Spark's -------------------------------------------------------------------------------------

    def merge_source(self, data: Any) -> MergeSource:
        """See :meth:`delvec_engines.protocol.Engine.merge_source`."""
        return self._on_spark.merge_source(data)

    def write(self, data: Any, target: WriteTarget) -> Sequence[AddFile]:
        """See :meth:`delvec_engines.protocol.Engine.write`."""
        note_execution(Execution(SPARK))
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

    def execution(
        self, scan: Scan, work: Predicate | RowChange | None = None, target: WriteTarget | None = None
    ) -> Execution:
        """See :meth:`delvec_engines.protocol.Engine.execution`.

        Raises:
            BadRequest: a setting is not understood, or Spark cannot read the source.
        """
        if work is None:
            return self._choice_of_copies(scan).execution
        if isinstance(work, Predicate):
            return self._choice(scan, [UsedExpression.of(work)]).execution
        assert target is not None  # noqa: S101 - rows are changed
        return self._choice(scan, list(expressions_of(work, target)), work, target).execution

    def _choice(
        self,
        scan: Scan,
        expressions: Sequence[UsedExpression],
        change: RowChange | None = None,
        target: WriteTarget | None = None,
    ) -> "_Choice":
        """Return where DuckDB runs a command, or why Spark has to."""
        sites: list[_ExecutionSite] = [self._driver, self._tasks]
        reasons = [reason_for_spark(partial(each.unsuitable, scan, change, target)) for each in sites]
        if None not in reasons:
            return _Choice(None, "; ".join(reason for reason in reasons if reason))
        reason = reason_for_spark(
            lambda: _variant_source(change) or difference(self.spark, expressions, target)
        )
        source = None if change is None else change.source
        if reason is None and source is not None and source.data.collected(_SOURCE_BYTES) is None:
            reason = f"the source is larger than {_SOURCE_BYTES:,} bytes"
        return _Choice(sites[reasons.index(None)] if reason is None else None, reason or "")

    def _choice_of_copies(self, scan: Scan) -> "_Choice":
        reason = reason_for_spark(lambda: self._driver.unsuitable(scan))
        return _Choice(self._driver if reason is None else None, reason or "")


class _ExecutionSite(Protocol):
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


@dataclass(frozen=True)
class _Choice:
    """Where DuckDB runs a command.

    Attributes:
        site: None if Spark runs it.
        reason: why Spark has to.
    """

    site: _ExecutionSite | None
    reason: str = ""

    @property
    def execution(self) -> Execution:
        return Execution(SPARK, self.reason) if self.site is None else _by_duckdb(self.site)


@dataclass(frozen=True)
class _Fallback:
    """The outcome of an attempt of DuckDB after which Spark has to run the command.

    Attributes:
        reason: why.
    """

    reason: str


def _by_duckdb(site: _ExecutionSite) -> Execution:
    return Execution(f"DuckDB {site.where}")


def _executed(
    scan: Scan,
    choice: _Choice,
    on_duckdb: Callable[[_ExecutionSite], _Result],
    on_spark: Callable[[], _Result],
) -> _Result:
    """Run a command as chosen, and note what has; if DuckDB cannot, Spark runs it from the start."""
    reason = choice.reason
    if choice.site is not None:
        outcome = _attempted(scan, choice.site, on_duckdb)
        if not isinstance(outcome, _Fallback):
            note_execution(_by_duckdb(choice.site))
            return outcome
        reason = outcome.reason
    _LOGGER.info(
        "%s of table '%s' (version %s) runs on Spark: %s.", operation(), scan.name, scan.version, reason
    )
    result = on_spark()
    note_execution(Execution(SPARK, reason))
    return result


def _attempted(
    scan: Scan, site: _ExecutionSite, work: Callable[[_ExecutionSite], _Result]
) -> _Result | _Fallback:
    """Return what DuckDB does, or why Spark has to do it."""
    start = time.monotonic()
    try:
        answer = work(site)
    except Exception as error:
        if is_of_storage(error) and scan.location.startswith(OBJECT_STORES):
            note_out_of_reach(scan)
        reason = reason_after(error)
        if reason is None:
            raise
        return _Fallback(f"DuckDB {site.where} {reason}")
    _LOGGER.info(
        "%s of table '%s' (version %s) ran %s, on DuckDB: %s files, %.2f s.",
        operation(),
        scan.name,
        scan.version,
        site.where,
        len(scan),
        time.monotonic() - start,
    )
    return answer


def _variant_source(change: RowChange | None) -> str | None:
    has_one = change is not None and change.source is not None and has_variant(change.source.schema)
    return "the source has columns of type variant" if has_one else None


class _ChoosingCopier:
    """Copies row groups in the driver if it may do the work; no row is computed, so meaning is the same."""

    def __init__(self, driver: LocalExecution, in_tasks: RowGroupCopier) -> None:
        self._driver = driver
        self._in_tasks = in_tasks

    def footers(self, scan: Scan) -> Sequence[SourceFile]:
        """See :class:`~delvec_engines.copy_jobs.RowGroupCopier`."""
        return self._chosen(scan)[0].footers(scan)

    def copy(self, scan: Scan, jobs: Sequence[CopyJob]) -> Iterable[CopiedFile | DelvecError]:
        """See :class:`~delvec_engines.copy_jobs.RowGroupCopier`."""
        copier, where = self._chosen(scan)
        note_execution(Execution(f"Delvec {where}"))
        return copier.copy(scan, jobs)

    def _chosen(self, scan: Scan) -> tuple[RowGroupCopier, str]:
        in_driver = reason_for_spark(lambda: self._driver.unsuitable(scan)) is None
        return (LocalCopier(), "in the driver") if in_driver else (self._in_tasks, "in tasks")


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
    except DelvecError as error:
        return f"deciding failed: {error.message}"
    except Exception as error:  # noqa: BLE001 - in doubt, Spark runs it
        warn(error, "Delvec cannot decide what runs %s, so Spark does", operation())
        return f"deciding failed: {first_line(error)}"
