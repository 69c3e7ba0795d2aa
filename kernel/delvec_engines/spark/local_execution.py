"""Row changes and rewrites in the driver, on the DuckDB engine: for small ones, a job on the cluster would cost more than the work.

The files must be small, and the driver must be able to read the table's storage.

Tested in `tests/integration/spark/test_spark_local_execution.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import ChangedRows, MergeSource, RowChange
from delvec_engines.scan import Scan
from delvec_engines.spark.recent_failures import RecentFailures
from delvec_engines.spark.session_properties import is_remote
from delvec_errors import BadRequest
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.schema.types import StructType, has_variant
from delvec_kernel.table_properties import parse_byte_size

__all__ = [
    "ENABLED",
    "MAX_BYTES",
    "OBJECT_STORES",
    "LocalExecution",
    "driver_engine",
    "is_enabled",
    "is_out_of_reach",
    "local_source",
    "note_out_of_reach",
]

ENABLED: Final = "spark.delvec.localExecution.enabled"
MAX_BYTES: Final = "spark.delvec.localExecution.maxBytes"

_LOCAL_FILES: Final = "file:"
OBJECT_STORES: Final = ("s3:", "gs:", "az:", "abfss:")
_LOCAL_BYTES: Final = 512 << 20
_REMOTE_BYTES: Final = 64 << 20
"""Limit for remote storage, where many executors are faster than one driver."""
_MEMORY: Final = 1 << 30
_MEMORY_OF_CLUSTERS: Final = 256 << 20
"""DuckDB's memory on cluster drivers, whose containers often have little memory beside the JVM."""
_unreachable: Final = RecentFailures()
"""Storage that did not respond to this process, by location; each new attempt would take seconds."""


class LocalExecution:
    """Runs a session's commands on the DuckDB engine, in the driver.

    Args:
        spark: a classic or Spark Connect session.
        parquet_bytes: see :class:`~delvec_engines.duckdb.DuckDBEngine`.
    """

    where: Final = "in the driver"

    def __init__(self, spark: SparkSession, *, parquet_bytes: bool | None = None) -> None:
        self._spark = spark
        self._parquet_bytes = parquet_bytes

    def unsuitable(
        self,
        scan: Scan,
        change: RowChange | None = None,  # noqa: ARG002 - as for tasks, which do not run all changes
        target: WriteTarget | None = None,  # noqa: ARG002
    ) -> str | None:
        """Return why the driver cannot run a command, for logs; None if it can.

        Raises:
            BadRequest: a setting is not understood.
        """
        spark = self._spark
        found = _turned_off(spark)
        if found is not None:
            return found
        if has_variant(scan.schema):
            return "the table has columns of type variant"
        if not scan.location.startswith((_LOCAL_FILES, *OBJECT_STORES)):
            return "executors may not have access to the driver's storage"
        if is_out_of_reach(scan):
            return "storage did not respond to the driver a few minutes ago"
        on_disk = scan.location.startswith(_LOCAL_FILES) or bool(
            pc.any(pc.starts_with(scan.files["path"], _LOCAL_FILES)).as_py()
        )
        if on_disk and not _is_one_machine(spark):
            return "executors may see different files than the driver at a local path"
        size, limit = pc.sum(scan.files["size"]).as_py() or 0, _limit(spark, is_local=on_disk)
        return None if size <= limit else f"the plan has {size:,} bytes, more than {MAX_BYTES} = {limit:,}"

    @property
    def engine(self) -> Any:
        """The DuckDB engine of the driver's process."""
        return driver_engine(self._spark, self._parquet_bytes)

    def find_rows(self, scan: Scan, predicate: Predicate) -> Mapping[str, BitMap64]:
        """Find rows; see :meth:`delvec_engines.protocol.Engine.find_rows`."""
        # Few enough to stay in memory, so that nothing is left behind if Spark has to start again.
        matching_rows: Mapping[str, BitMap64] = self.engine.find_rows(scan, predicate)
        return matching_rows

    def change_rows(
        self, scan: Scan, change: RowChange, source: pa.Table | None, target: WriteTarget
    ) -> ChangedRows:
        """Change rows, with the source's rows in this process; see :meth:`delvec_engines.protocol.Engine.change_rows`."""
        if source is not None and change.source is not None:
            change = replace(change, source=local_source(source, change.source.schema))
        changed: ChangedRows = self.engine.change_rows(scan, change, target)
        return changed


def is_enabled(spark: SparkSession, setting: str, *, default: bool) -> bool:
    """Whether a setting of the session is true.

    Raises:
        BadRequest: it is neither true nor false.
    """
    value = str(spark.conf.get(setting, str(default))).strip().lower()
    if value not in {"true", "false"}:
        raise BadRequest(f"{setting} must be true or false, not {value!r}")
    return value == "true"


def local_source(rows: pa.Table, schema: StructType) -> MergeSource:
    """Return the rows of a Spark source, which has this schema, as a source for the DuckDB engine."""
    from delvec_engines.duckdb.merge_source import merge_source

    return replace(merge_source(rows), schema=schema)


def is_out_of_reach(scan: Scan) -> bool:
    """Whether storage did not respond a few minutes ago."""
    return _unreachable.reason(_store_of(scan)) is not None


def note_out_of_reach(scan: Scan) -> None:
    """Remember that storage did not respond."""
    _unreachable.note(_store_of(scan), "storage did not respond")


def driver_engine(spark: SparkSession, parquet_bytes: bool | None) -> Any:
    """Return the DuckDB engine of the driver's process, with the cores and the memory that it may use."""
    return _engine(*_resources(spark), parquet_bytes)


@lru_cache(maxsize=4)
def _engine(threads: int, memory: int, parquet_bytes: bool | None) -> Any:
    """Return this process's engine, cached because creating a database takes longer than a small change."""
    from delvec_engines.duckdb import DuckDBEngine

    return DuckDBEngine(memory_limit=memory, threads=threads, parquet_bytes=parquet_bytes)


def _turned_off(spark: SparkSession) -> str | None:
    """Return why local execution is off for this session, for logs; None if it is on."""
    if is_remote(spark):
        return "with Spark Connect, the driver is another process"
    if not is_enabled(spark, ENABLED, default=True):
        return f"{ENABLED} is false"
    return None if find_spec("duckdb") else "DuckDB is not installed"


def _is_one_machine(spark: SparkSession) -> bool:
    # "local-cluster[...]" has separate executor processes, so it does not count.
    return re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master) is not None


def _resources(spark: SparkSession) -> tuple[int, int]:
    """Return the cores, and the bytes of memory beside the JVM's, that the driver may use."""
    if _is_one_machine(spark):
        return max(1, int(spark.sparkContext.defaultParallelism)), _MEMORY
    return max(1, int(spark.conf.get("spark.driver.cores", "1") or 1)), _MEMORY_OF_CLUSTERS


def _store_of(scan: Scan) -> str:
    return "/".join(scan.location.split("/", 3)[:3])


def _limit(spark: SparkSession, *, is_local: bool) -> int:
    given = spark.conf.get(MAX_BYTES, "")
    if not given:
        return _LOCAL_BYTES if is_local else _REMOTE_BYTES
    size = parse_byte_size(str(given))
    if size is None:
        raise BadRequest(f"{MAX_BYTES} must be a size such as 512m, not {given!r}")
    return size
