"""``DeltaTable.optimize()`` with delta-spark's names."""

# ruff: noqa: N802, N803 - delta-spark's spelling is the point

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

from delvec.table import DeltaTable as Table
from delvec_commands.transaction import Metrics
from delvec_engines.spark.manifest import hadoop_path

__all__ = ["DeltaOptimizeBuilder"]

_LONGS: Final = (
    "numFilesAdded",
    "numFilesRemoved",
    "partitionsOptimized",
    "numBins",
    "numBatches",
    "totalConsideredFiles",
    "totalFilesSkipped",
)
_SIZES: Final = T.StructType(
    [T.StructField("totalFiles", T.LongType()), T.StructField("totalSize", T.LongType())]
)
_RESULT: Final = T.StructType(
    [
        T.StructField("path", T.StringType()),
        T.StructField(
            "metrics",
            T.StructType(
                [
                    *(T.StructField(name, T.LongType()) for name in _LONGS),
                    T.StructField("filesAdded", _SIZES),
                    T.StructField("filesRemoved", _SIZES),
                ]
            ),
        ),
    ]
)


class DeltaOptimizeBuilder:
    """Builds an OPTIMIZE; get one from ``DeltaTable.optimize()``."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._spark = spark
        self._table = table
        self._where: str | None = None

    def where(self, partitionFilter: str) -> "DeltaOptimizeBuilder":
        """Optimize only partitions that match a condition."""
        self._where = partitionFilter
        return self

    def executeCompaction(self) -> DataFrame:
        """Compact small files and files with many deleted rows; return the path and metrics.

        The DataFrame has those of delta-spark's metrics that Delvec computes.

        Raises:
            InvalidPredicate: the condition reads a column that is not a partition column.
        """
        return self._frame(self._table.optimize(self._where))

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Z-order rows, so that files have narrow ranges in each of these columns; return the path and metrics.

        Raises:
            UnknownColumn: it does not exist.
            InvalidTableChange: a column is a partition column or has no statistics, or the table is clustered.
        """
        names = [name for given in cols for name in ([given] if isinstance(given, str) else given)]
        return self._frame(self._table.optimize.z_order(names, self._where))

    def _frame(self, metrics: Metrics) -> DataFrame:
        return self._spark.createDataFrame([(hadoop_path(self._table.location), _metrics(metrics))], _RESULT)


def _metrics(metrics: Metrics) -> tuple[object, ...]:
    values = dict(metrics) | {
        "numFilesAdded": metrics["numAddedFiles"],
        "numFilesRemoved": metrics["numRemovedFiles"],
    }
    return (
        *(values[name] for name in _LONGS),
        (metrics["numAddedFiles"], metrics["numAddedBytes"]),
        (metrics["numRemovedFiles"], metrics["numRemovedBytes"]),
    )
