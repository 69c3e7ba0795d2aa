"""Makes ``format("delvec")`` known to Spark, which looks for ``DefaultSource`` in modules named ``pyspark_*``."""

from delvec.spark_datasource.source import DelvecSource as DefaultSource

__all__ = ["DefaultSource"]
