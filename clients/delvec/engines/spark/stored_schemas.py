"""Reads the schemas of a scan's files for Spark, whose own reader would take values of other types for the table's.

No other place knows them in time: the log does not say who wrote a file, statistics and names of files prove nothing, and within
Spark's reader only a JAR could look. A process reads each schema once. From local disk that takes 50 µs a file, and 1 µs later.
From an object store with answers in 30 ms the driver reads 10,000 in 3 s; more are read by tasks.

Tested in `tests/integration/spark/test_spark_file_types.py`.
"""

import logging
import pickle
from typing import Final

from pyspark.sql import SparkSession

from delvec.engines.file_schemas import file_schemas, keep_schemas, without_schemas
from delvec.engines.spark.job_descriptions import described
from delvec.engines.spark.local_execution import is_out_of_reach, note_out_of_reach
from delvec.engines.spark.row_sets import drop_zip_importers
from delvec.engines.spark.session import is_remote
from delvec.scan import Scan
from delvec_kernel.errors import DelvecError, StorageError
from delvec_kernel.parquet.file_schema import FileSchema
from delvec_kernel.parquet.file_types import naming

__all__ = ["MOST_IN_DRIVER", "stored_schemas"]

MOST_IN_DRIVER: Final = 10_000
"""Files in an object store whose schemas the driver reads itself."""
_FILES_OF_A_TASK: Final = 1_000
_LOGGER: Final = logging.getLogger(__name__)


def stored_schemas(spark: SparkSession, scan: Scan) -> list[FileSchema | None]:
    """Return the schema of each file; None if this process does not find the file, or cannot read the table's storage.

    Raises:
        CorruptTable: a footer is damaged.
        MissingDataFile: or StorageError; only if the table's columns are found by field id, since Spark is told their names.
    """
    if not scan.location.startswith("file:") and not is_remote(spark):
        unread = without_schemas(scan)
        if len(unread) > MOST_IN_DRIVER:
            _read_in_tasks(spark, unread)
    if naming(scan.configuration.get("delta.columnMapping.mode", "none")) == "id":
        return file_schemas(scan)
    if is_out_of_reach(scan):
        return [None] * len(scan)
    try:
        # On another machine than the executors', a file may be missing that they have.
        return file_schemas(scan, may_miss=True)
    except StorageError as error:
        note_out_of_reach(scan)
        _LOGGER.warning(
            "Spark reads the files of table '%s' (version %s) without a check of their types, because the driver cannot "
            "read them: %s",
            scan.name,
            scan.version,
            error.message,
        )
        return [None] * len(scan)


def _read_in_tasks(spark: SparkSession, scan: Scan) -> None:
    """Read and remember the schemas; if tasks cannot, the driver has to."""
    shares = [scan.slice(start, _FILES_OF_A_TASK) for start in range(0, len(scan), _FILES_OF_A_TASK)]
    try:
        with described(spark, scan.name, "read schemas of files"):
            sent = spark.sparkContext.parallelize(list(map(pickle.dumps, shares)), len(shares))
            answers = sent.map(_read_share).collect()
    except Exception:
        # Executors may lack this package.
        _LOGGER.warning(
            "Tasks cannot read the files of table '%s'; the driver does.", scan.name, exc_info=True
        )
        return
    for share, answer in zip(shares, answers, strict=True):
        schemas = pickle.loads(answer)  # noqa: S301 - of our own task
        if schemas is not None:
            keep_schemas(share, schemas)


def _read_share(sent: bytes) -> bytes:
    """Runs on executors; None if it failed, which the driver finds out for itself."""
    drop_zip_importers()
    try:
        return pickle.dumps(file_schemas(pickle.loads(sent), may_miss=True))  # noqa: S301 - of our own driver
    except DelvecError:
        return pickle.dumps(None)
