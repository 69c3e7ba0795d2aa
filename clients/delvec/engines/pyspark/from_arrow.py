"""Arrow tables of this process as DataFrames."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from delvec.engines.pyspark.scan import spark_schema
from delvec.protocol.types import StructType

__all__ = ["frame_of"]


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Return rows as a frame.

    Args:
        spark: classic or Connect.
        rows: a table with or without rows.
        schema: of the rows. By itself Spark takes fewer types of Arrow's, and timestamps without a zone for moments.
    """
    # Spark cannot make a frame of nested columns that have no rows.
    return spark.createDataFrame(rows if rows.num_rows else [], spark_schema(schema))
