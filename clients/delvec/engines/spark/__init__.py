"""Spark, classic or Connect, as an engine.

The engine is imported when it is asked for: the processes that Spark starts to plan, to read and to commit for
``format("delvec")`` import parts of this package, and have no use for it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delvec.engines.spark.engine import SparkEngine

__all__ = ["SparkEngine"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'delvec.engines.spark' has no attribute {name!r}")
    from delvec.engines.spark.engine import SparkEngine

    globals()[name] = SparkEngine
    return SparkEngine
