"""Job descriptions in Spark's UI, such as ``delvec MERGE events: find rows``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from delvec_engines.operation import operation
from delvec_engines.spark.session_properties import is_remote

__all__ = ["described"]

_DESCRIPTION: Final = "spark.job.description"
_OF_DELVEC: Final = "delvec "
_SEPARATOR: Final = ": "


@contextmanager
def described(spark: SparkSession, table: str | None, step: str) -> Iterator[None]:
    """Describe the jobs started inside the block; restores the program's description afterwards.

    It is appended to the program's own description. Spark Connect has no job descriptions, so there it is a tag of the
    operations: the UI shows it, and ``interruptTag`` accepts it.
    """
    what = operation() if table is None else f"{operation()} {table}"
    text = f"{_OF_DELVEC}{what}{_SEPARATOR}{step}"
    if is_remote(spark):
        # Tags must not contain commas.
        tag = text.replace(",", ";")
        fresh = tag not in spark.getTags()
        if fresh:
            spark.addTag(tag)
        try:
            yield
        finally:
            if fresh:
                spark.removeTag(tag)
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    own = before.partition(_OF_DELVEC)[0].removesuffix(_SEPARATOR) if before else None
    context.setLocalProperty(_DESCRIPTION, f"{own}{_SEPARATOR}{text}" if own else text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)
