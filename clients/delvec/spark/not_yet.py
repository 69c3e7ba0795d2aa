"""Methods of delta-spark's ``DeltaTable`` that Delvec does not have yet: each says what to use instead."""

# ruff: noqa: N802, N803, ARG002, ARG003 - delta-spark's signatures are the point

from collections.abc import Mapping
from typing import Final, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

from delvec_kernel.errors import UnsupportedOperation

__all__ = ["NotYet"]

_CLONE: Final = "clone with delta-spark, or write the rows of toDF() to a new table"


class NotYet:
    """The maintenance half of ``DeltaTable``."""

    @classmethod
    def convertToDelta(
        cls, sparkSession: SparkSession, identifier: str, partitionSchema: str | T.StructType | None = None
    ) -> NoReturn:
        """Raise UnsupportedOperation: Parquet files are converted with delta-spark."""
        _later("convertToDelta", "convert them with delta-spark, then use DeltaTable.forPath")

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> NoReturn:
        """Raise UnsupportedOperation: tables are cloned with delta-spark."""
        _later("clone", _CLONE)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> NoReturn:
        """Raise UnsupportedOperation: tables are cloned with delta-spark."""
        _later("cloneAtVersion", _CLONE)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> NoReturn:
        """Raise UnsupportedOperation: tables are cloned with delta-spark."""
        _later("cloneAtTimestamp", _CLONE)


def _later(name: str, instead: str) -> NoReturn:
    raise UnsupportedOperation(f"{name} is not part of Delvec yet; {instead}.", operation=name)
