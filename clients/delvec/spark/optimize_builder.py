"""``DeltaTable.optimize()`` with delta-spark's names.

Tested in `tests/integration/spark/test_spark_delta_spark_api.py`.
"""

# ruff: noqa: N802, N803 - delta-spark's spelling is the point

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

from delvec.table import DeltaTable as Table
from delvec_commands.transaction import Metrics
from delvec_engines.spark.manifest import hadoop_path
from delvec_errors import InvalidPredicate, InvalidTableChange

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
_CUBE_FILES: Final = T.StructType([T.StructField("num", T.LongType()), T.StructField("size", T.LongType())])
_ZORDER: Final = T.StructType(
    [
        T.StructField("strategyName", T.StringType()),
        T.StructField("inputCubeFiles", _CUBE_FILES),
        T.StructField("inputOtherFiles", _CUBE_FILES),
        T.StructField("inputNumCubes", T.LongType()),
        T.StructField("mergedFiles", _CUBE_FILES),
        T.StructField("numOutputCubes", T.LongType()),
        T.StructField("mergedNumCubes", T.LongType()),
    ]
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
                    T.StructField("zOrderStats", _ZORDER),
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
        with _delta_words():
            return self._frame(self._table.optimize(self._where), is_zordered=False)

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Z-order rows, so that files have narrow ranges in each of these columns; return the path and metrics.

        Raises:
            UnknownColumn: it does not exist.
            InvalidTableChange: a column is a partition column or has no statistics, or the table is clustered.
        """
        names = [name for given in cols for name in ([given] if isinstance(given, str) else given)]
        with _delta_words():
            return self._frame(self._table.optimize.z_order(names, self._where), is_zordered=True)

    def _frame(self, metrics: Metrics, *, is_zordered: bool) -> DataFrame:
        values = (*_metrics(metrics), _zorder_stats(metrics) if is_zordered else None)
        return self._spark.createDataFrame([(hadoop_path(self._table.location), values)], _RESULT)


@contextmanager
def _delta_words() -> Iterator[None]:
    """Begin the message about a column that an OPTIMIZE may not use with delta-spark's words: programs look for them."""
    try:
        yield
    except InvalidPredicate as error:
        columns = error.details.get("columns")
        if not columns:
            raise
        partitions = ", ".join(error.details["partition_columns"])
        raise InvalidPredicate(
            f"Predicate references non-partition column '{columns[0]}'. Only the partition columns may be referenced: "
            f"[{partitions}]. {error.message}",
            **error.details,
        ) from None
    except InvalidTableChange as error:
        if "is a partition column" not in error.message:
            raise
        raise InvalidTableChange(
            f"{error.details['column']} is a partition column. Z-Ordering can only be performed on data columns. "
            f"{error.message}",
            **error.details,
        ) from None


def _zorder_stats(metrics: Metrics) -> tuple[object, ...]:
    """Return delta-spark's metrics of a Z-order: each group of files becomes one cube."""
    files = (metrics["numRemovedFiles"], metrics["numRemovedBytes"])
    return ("all", (0, 0), files, 0, files, metrics["numBins"], None)


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
