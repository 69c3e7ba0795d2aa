"""What Spark's UI shows of Delvec's jobs: ``delvec MERGE events: find rows``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from delvec.engines.operation import operation
from delvec.engines.spark.session import is_remote

__all__ = ["described"]

_DESCRIPTION: Final = "spark.job.description"
_OF_DELVEC: Final = "delvec "
_BETWEEN: Final = ": "


@contextmanager
def described(spark: SparkSession, table: str | None, step: str) -> Iterator[None]:
    """Describe the jobs that are started inside; afterwards the description is the program's own again.

    A description of the program's stands before it. With Spark Connect, whose jobs cannot be described, it is a tag of the
    operations: the UI shows it, and ``interruptTag`` takes it.
    """
    what = operation() if table is None else f"{operation()} {table}"
    text = f"{_OF_DELVEC}{what}{_BETWEEN}{step}"
    if is_remote(spark):
        # A tag must not have one.
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
    own = before.partition(_OF_DELVEC)[0].removesuffix(_BETWEEN) if before else None
    context.setLocalProperty(_DESCRIPTION, f"{own}{_BETWEEN}{text}" if own else text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)
