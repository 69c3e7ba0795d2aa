"""Methods of delta-spark's ``DeltaTable`` that Delvec does not have yet: each says what to use instead."""

# ruff: noqa: N802, N803, ARG003 - delta-spark's signatures are the point

from typing import NoReturn

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

from delvec_kernel.errors import UnsupportedOperation

__all__ = ["NotYet"]


class NotYet:
    """The maintenance half of ``DeltaTable``."""

    @classmethod
    def convertToDelta(
        cls, sparkSession: SparkSession, identifier: str, partitionSchema: str | T.StructType | None = None
    ) -> NoReturn:
        """Raise UnsupportedOperation: Parquet files are converted with delta-spark."""
        _later("convertToDelta", "convert them with delta-spark, then use DeltaTable.forPath")


def _later(name: str, instead: str) -> NoReturn:
    raise UnsupportedOperation(f"{name} is not part of Delvec yet; {instead}.", operation=name)
