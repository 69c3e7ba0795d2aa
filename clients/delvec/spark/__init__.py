"""Delvec for programs written against delta-spark: ``from delvec.spark import DeltaTable``.

The names and arguments are those of ``delta.tables``; no JAR and no Spark configuration is needed.
"""

from delvec.spark.current_connection import use
from delvec.spark.delta_merge_builder import DeltaMergeBuilder
from delvec.spark.delta_table import DeltaTable
from delvec.spark.optimize_builder import DeltaOptimizeBuilder
from delvec.spark.sql_session import sql
from delvec.spark.table_builder import DeltaTableBuilder, IdentityGenerator
from delvec_engines.spark.session_python import configure_spark_with_delvec

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
    "configure_spark_with_delvec",
    "sql",
    "use",
]
