"""Delvec's statements through an object that is otherwise a Spark session.

Tested in `tests/integration/spark/test_spark_sql_session.py`.
"""

import re
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from delvec.alterations import Altered
from delvec.connection import Connection
from delvec.spark.current_connection import current
from delvec_commands.transaction import Metrics
from delvec_errors import InvalidStatement, TableNotFound

__all__ = ["DelvecSession", "sql"]

_DROP: Final = re.compile(r"\s*DROP\b", re.IGNORECASE)


class DelvecSession:
    """A Spark session whose ``sql`` and ``table`` know the tables of a connection; get it from :func:`sql`.

    Everything else is the session's own.
    """

    def __init__(self, spark: SparkSession, connection: Connection) -> None:
        self._spark = spark
        self._lake = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def sql(self, sqlQuery: str, *arguments: Any, **options: Any) -> DataFrame:  # noqa: N803 - as in PySpark
        """Run a statement as :meth:`delvec.Connection.sql`, or as ``spark.sql`` if it is none of Delvec's.

        Those are statements that :meth:`delvec.Connection.sql` cannot parse, or whose table the connection does not
        have, also DROP TABLE IF EXISTS, and those with arguments.

        Raises:
            DelvecError: of the statement.
            AnalysisException: or another error of Spark, of a statement that Spark ran.
        """
        if arguments or options:
            return self._spark.sql(sqlQuery, *arguments, **options)
        try:
            result = self._lake.sql(sqlQuery, engine=self._spark)
        except (InvalidStatement, TableNotFound):
            return self._spark.sql(sqlQuery)
        if result == Altered(None, None) and _DROP.match(sqlQuery):
            return self._spark.sql(sqlQuery)
        return self._frame(result)

    def table(self, tableName: str) -> DataFrame:  # noqa: N803 - as in PySpark
        """Return the newest version of a table of the connection, or a table or view of the session."""
        try:
            return self._lake.table(tableName, engine=self._spark).to_df()
        except TableNotFound:
            return self._spark.table(tableName)

    def _frame(self, result: Any) -> DataFrame:
        """Return a result as a DataFrame: metrics are one row, an alteration is none."""
        if isinstance(result, Altered):
            return self._spark.createDataFrame([], "version long")
        if isinstance(result, Metrics):
            result = pa.Table.from_pylist([dict(result)])
        if isinstance(result, pa.Table):
            return self._spark.createDataFrame(
                result if result.num_columns else [], None if result.num_columns else "done int"
            )
        frame: DataFrame = result
        return frame


def sql(spark: SparkSession, connection: Connection | None = None) -> DelvecSession:
    """Return a session whose ``sql`` also runs Delvec's statements.

    ::

        session = delvec.spark.sql(spark)
        session.sql("MERGE INTO people USING changes ON ...").show()  # changes is a temporary view

    Args:
        spark: a session, classic or Connect.
        connection: whose tables; by default that of :func:`delvec.spark.use`.
    """
    return DelvecSession(spark, connection or current())
