"""Reads the schemas of a scan's files for Spark, whose own reader would take values of other types for the table's.

No other place knows them in time: the log does not say who wrote a file, statistics and names of files prove nothing, and within
Spark's reader only a JAR could look. A process reads each schema once. From local disk that takes 50 µs a file, and 1 µs later.
From an object store with answers in 30 ms the driver reads 10,000 in 3 s; more are read by tasks.

Tested in `tests/integration/spark/test_spark_file_types.py`.
"""

import logging
import pickle
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from delvec_engines.file_schemas import file_schemas, keep_schemas, without_schemas
from delvec_engines.scan import Scan
from delvec_engines.spark.job_descriptions import described
from delvec_engines.spark.local_execution import is_out_of_reach, note_out_of_reach
from delvec_engines.spark.row_sets import drop_zip_importers
from delvec_engines.spark.session_properties import is_remote
from delvec_errors import DelvecError, StorageError
from delvec_kernel.schema.column_mapping import mapping_mode
from delvec_kernel.schema.file_types import naming
from delvec_parquet.file_schema import FileSchema

__all__ = ["MAX_IN_DRIVER", "stored_schemas"]

MAX_IN_DRIVER: Final = 10_000
"""Files in an object store whose schemas the driver reads itself."""
_FILES_OF_A_TASK: Final = 1_000
_LOGGER: Final = logging.getLogger(__name__)


def stored_schemas(spark: SparkSession, scan: Scan) -> list[FileSchema | None]:
    """Return the schema of each file; None if this process does not find the file, or cannot read the table's storage.

    Raises:
        CorruptTable: a footer is damaged.
        MissingDataFile: a file is missing, and the table maps columns by field id, so that Spark needs the names in each file.
        StorageError: storage did not answer when those were read.
    """
    read: dict[str, FileSchema] = {}
    if not scan.location.startswith("file:") and not is_remote(spark):
        unread = without_schemas(scan)
        if len(unread) > MAX_IN_DRIVER:
            read = _read_in_tasks(spark, unread)
    if not read:
        return _read_in_driver(scan)
    # Not from this process's memory, which keeps fewer schemas than a table may have files.
    paths = scan.files["path"].to_pylist()
    rest = scan.filter(pa.array([path not in read for path in paths], pa.bool_()))
    others = dict(zip(rest.files["path"].to_pylist(), _read_in_driver(rest), strict=True))
    return [read.get(path) or others.get(path) for path in paths]


def _read_in_driver(scan: Scan) -> list[FileSchema | None]:
    if naming(mapping_mode(scan.configuration)) == "id":
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


def _read_in_tasks(spark: SparkSession, scan: Scan) -> dict[str, FileSchema]:
    """Read and remember schemas; return them by path. What tasks cannot read is left out, for the driver."""
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
        return {}
    schemas_by_path: dict[str, FileSchema] = {}
    for share, answer in zip(shares, answers, strict=True):
        schemas = pickle.loads(answer)  # noqa: S301 - of our own task
        keep_schemas(share, schemas)
        paths = share.files["path"].to_pylist()
        schemas_by_path.update(
            (path, each) for path, each in zip(paths, schemas, strict=True) if each is not None
        )
    return schemas_by_path


def _read_share(sent: bytes) -> bytes:
    """Runs on executors; leaves errors to the driver, which finds them itself."""
    drop_zip_importers()
    scan = pickle.loads(sent)  # noqa: S301 - of our own driver
    try:
        return pickle.dumps(file_schemas(scan, may_miss=True))
    except DelvecError:
        return pickle.dumps([None] * len(scan))
