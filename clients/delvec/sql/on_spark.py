"""Queries on Spark, over temporary views of the tables in question."""

import uuid
from typing import TYPE_CHECKING, Any

from delvec.engines.internal_names import INTERNAL
from delvec.engines.pyspark.remote import is_remote
from delvec.protocol.errors import InvalidStatement
from delvec.sql.queries import Query
from delvec.sql.tokens import TableName

if TYPE_CHECKING:
    from delvec.connection import Connection

__all__ = ["query_spark"]


def query_spark(lake: "Connection", query: Query, spark: Any) -> Any:
    """Return a query's rows as a lazy DataFrame; each table is pinned to one version.

    Raises:
        InvalidStatement: Spark cannot run it.
        TableNotFound: or another error of a table that it reads.
    """
    from pyspark.errors import AnalysisException, ParseException

    views: list[str] = []

    def view(table: TableName, condition: str | None) -> str:  # noqa: ARG001 - Spark pushes conditions itself
        frame = lake.table(table.name, engine=spark).to_df(version=table.version, timestamp=table.timestamp)
        views.append(f"{INTERNAL('view')}_{uuid.uuid4().hex}")
        frame.createOrReplaceTempView(views[-1])
        return views[-1]

    text = query.on("spark", view)
    try:
        frame = spark.sql(text)
        frame.schema  # noqa: B018 - Connect analyses here
    except (AnalysisException, ParseException) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidStatement(f"Spark cannot run the query: {reason}", line=1, column=1) from error
    if not is_remote(spark):
        # A DataFrame of classic Spark is analysed; Connect looks its views up again with every action.
        for name in views:
            spark.catalog.dropTempView(name)
    return frame
