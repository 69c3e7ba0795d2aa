"""The engines of a Spark session, for classic Spark and Spark Connect.

Imported lazily: the processes that Spark starts to plan, read and commit for ``format("delvec")`` import other parts of
this package, but not the engines.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delvec_engines.spark.choosing_engine import ChoosingEngine
    from delvec_engines.spark.engine import SparkEngine

__all__ = ["ChoosingEngine", "SparkEngine"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'delvec_engines.spark' has no attribute {name!r}")
    from delvec_engines.spark import choosing_engine, engine

    value = getattr(choosing_engine if name == "ChoosingEngine" else engine, name)
    globals()[name] = value
    return value
