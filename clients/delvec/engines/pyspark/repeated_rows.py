"""Rows of a scan as often as they occur in it, each time with values of its own."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from delvec.engines.internal_names import INTERNAL
from delvec.engines.occurrences import Occurrences
from delvec.scan import Scan

__all__ = ["repeated"]

_KEY: Final = INTERNAL("occurrence")


def repeated(
    spark: SparkSession, frame: DataFrame, key: Column, scan: Scan, numbers: Sequence[int]
) -> DataFrame:
    """Return the rows of a frame joined with their occurrences, which all tasks get.

    Args:
        spark: the session.
        frame: rows of the scan.
        key: of a row of it, as in :meth:`~delvec.engines.occurrences.Occurrences.key`.
        scan: with occurrences.
        numbers: of its files.
    """
    found = Occurrences.of(scan.files, numbers)
    # As numbers, because what a moment without its zone becomes depends on the session.
    moments = {name for name, values in found.columns.items() if pa.types.is_timestamp(values.type)}
    columns = {name: v.cast(pa.int64()) if name in moments else v for name, v in found.columns.items()}
    listed = spark.createDataFrame(pa.table({_KEY: pa.array(found.keys), **columns}))
    named = [(F.timestamp_micros(name) if name in moments else F.col(name)).alias(name) for name in columns]
    return frame.join(F.broadcast(listed.select(_KEY, *named)), key == F.col(_KEY))
