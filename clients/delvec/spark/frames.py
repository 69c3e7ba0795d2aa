"""Rows about a table as delta-spark's DataFrames: its history and its detail.

Tested in `tests/integration/spark/test_spark_delta_spark_api.py` and `tests/integration/spark/test_spark_sql_session.py`.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

__all__ = ["detail_frame", "history_frame", "is_retention_checked", "struct"]


def struct(**fields: T.DataType) -> T.StructType:
    """Return a struct of nullable fields."""
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


_RETENTION_CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS: Final = T.MapType(T.StringType(), T.StringType())
_JOB: Final = ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")
_HISTORY: Final = struct(
    version=T.LongType(),
    timestamp=T.TimestampType(),
    userId=T.StringType(),
    userName=T.StringType(),
    operation=T.StringType(),
    operationParameters=_TEXTS,
    job=struct(**dict.fromkeys(_JOB, T.StringType())),
    notebook=struct(notebookId=T.StringType()),
    clusterId=T.StringType(),
    readVersion=T.LongType(),
    isolationLevel=T.StringType(),
    isBlindAppend=T.BooleanType(),
    operationMetrics=_TEXTS,
    userMetadata=T.StringType(),
    engineInfo=T.StringType(),
)
_DETAIL: Final = struct(
    format=T.StringType(),
    id=T.StringType(),
    name=T.StringType(),
    description=T.StringType(),
    location=T.StringType(),
    createdAt=T.TimestampType(),
    lastModified=T.TimestampType(),
    partitionColumns=T.ArrayType(T.StringType()),
    clusteringColumns=T.ArrayType(T.StringType()),
    numFiles=T.LongType(),
    sizeInBytes=T.LongType(),
    properties=_TEXTS,
    minReaderVersion=T.IntegerType(),
    minWriterVersion=T.IntegerType(),
    tableFeatures=T.ArrayType(T.StringType()),
)


def history_frame(spark: SparkSession, entries: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return commits as DESCRIBE HISTORY does."""
    return spark.createDataFrame([_row(entry, _HISTORY) for entry in entries], _HISTORY)


def detail_frame(spark: SparkSession, detail: Mapping[str, Any]) -> DataFrame:
    """Return what is said of a table as DESCRIBE DETAIL does."""
    return spark.createDataFrame([_row(detail, _DETAIL)], _DETAIL)


def is_retention_checked(spark: SparkSession) -> bool:
    """Whether the session lets VACUUM check the retention, as it does by default."""
    return (spark.conf.get(_RETENTION_CHECK, "true") or "true").strip().lower() != "false"


def _row(values: Mapping[str, Any], schema: T.StructType) -> tuple[Any, ...]:
    return tuple(_value(values.get(item.name), item.dataType) for item in schema.fields)


def _value(value: Any, kind: T.DataType) -> Any:
    """Convert a value of the service's response for Spark: milliseconds become a timestamp."""
    if value is None:
        return None
    if isinstance(kind, T.TimestampType):
        return _EPOCH + timedelta(milliseconds=int(value))
    if isinstance(kind, T.StructType):
        return _row(value, kind) if isinstance(value, Mapping) else None
    if isinstance(kind, T.StringType):
        return str(value)
    return value
