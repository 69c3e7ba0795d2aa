"""Spark, classic or Connect, as an engine."""

from delvec.engines.pyspark.engine import SparkEngine

__all__ = ["SparkEngine"]
