"""Spark's SQL as predicates are read: sqlglot's, with what it blurs told apart."""

from typing import Final

from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

__all__ = ["SPARK", "SparkDialect"]


class _Parser(SparkParser):
    """Keeps CAST and TRY_CAST apart: under ANSI, Spark 4's default, only the second gives NULL."""

    STRICT_CAST = True


class SparkDialect(Spark):
    """Spark, with that parser."""

    Parser = _Parser


SPARK: Final = SparkDialect()
