"""``DeltaMergeBuilder`` with delta-spark's names and arguments.

Tested in `tests/integration/spark/test_spark_delta_table.py`.
"""

# ruff: noqa: N802, A002 - delta-spark's spelling is the point

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

from delvec.spark.arguments import check_condition, check_source, check_values
from delvec.spark.column_texts import to_sql, without_alias
from delvec.table import DeltaTable as Table
from delvec_engines.spark import jvm
from delvec_engines.spark.session_properties import is_remote
from delvec_errors import BadRequest

__all__ = ["DeltaMergeBuilder", "alias_of", "assignments"]

_RESULT: Final = {
    "num_affected_rows": ("numTargetRowsUpdated", "numTargetRowsDeleted", "numTargetRowsInserted"),
    "num_updated_rows": ("numTargetRowsUpdated",),
    "num_deleted_rows": ("numTargetRowsDeleted",),
    "num_inserted_rows": ("numTargetRowsInserted",),
}
_AUTO_MERGE: Final = "spark.databricks.delta.schema.autoMerge.enabled"
_RESULT_SCHEMA: Final = T.StructType([T.StructField(name, T.LongType()) for name in _RESULT])


class DeltaMergeBuilder:
    """A MERGE and its clauses; :meth:`execute` runs it.

    Conditions and values are SQL text or Columns, in which aliases of table and source distinguish their columns. Of
    several clauses for the same rows, the first whose condition is true applies.
    """

    def __init__(
        self, spark: SparkSession, table: Table, alias: str | None, source: DataFrame, condition: str | Column
    ) -> None:
        check_source(source)
        if condition is None:
            raise ValueError("condition cannot be None")
        check_condition(condition)
        self._spark = spark
        self._table = table
        self._alias = alias
        self._source = source
        self._condition = condition
        self._clauses: list[Callable[[Any], Any]] = []
        self._evolves = False

    def whenMatchedUpdate(
        self, condition: str | Column | None = None, set: Mapping[str, str | Column] | None = None
    ) -> Self:
        """Update matched rows with a dict of columns and values."""
        values, text = assignments(set, self._alias, "set"), self._condition_of(condition)
        return self._add(lambda merge: merge.when_matched_update(values, text))

    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> Self:
        """Update all columns of matched rows from the source's columns of the same names."""
        text = self._condition_of(condition)
        return self._add(lambda merge: merge.when_matched_update_all(text))

    def whenMatchedDelete(self, condition: str | Column | None = None) -> Self:
        """Delete matched rows."""
        text = self._condition_of(condition)
        return self._add(lambda merge: merge.when_matched_delete(text))

    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: Mapping[str, str | Column] | None = None
    ) -> Self:
        """Insert unmatched source rows with a dict of columns and values."""
        new, text = assignments(values, self._alias, "values"), self._condition_of(condition)
        return self._add(lambda merge: merge.when_not_matched_insert(new, text))

    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> Self:
        """Insert unmatched source rows with all columns of the same names."""
        text = self._condition_of(condition)
        return self._add(lambda merge: merge.when_not_matched_insert_all(text))

    def whenNotMatchedBySourceUpdate(
        self, condition: str | Column | None = None, set: Mapping[str, str | Column] | None = None
    ) -> Self:
        """Update rows that no source row matches."""
        values, text = assignments(set, self._alias, "set"), self._condition_of(condition)
        return self._add(lambda merge: merge.when_not_matched_by_source_update(values, text))

    def whenNotMatchedBySourceDelete(self, condition: str | Column | None = None) -> Self:
        """Delete rows that no source row matches."""
        text = self._condition_of(condition)
        return self._add(lambda merge: merge.when_not_matched_by_source_delete(text))

    def withSchemaEvolution(self) -> Self:
        """Add the source's new columns to the table, for clauses that update or insert all columns."""
        self._evolves = True
        return self

    def execute(self) -> DataFrame:
        """Run the MERGE as one commit; return the number of updated, deleted and inserted rows, as delta-spark does.

        Respects the session's ``spark.databricks.delta.schema.autoMerge.enabled``.

        Raises:
            MultipleMatches: several source rows would change one row.
            InvalidPredicate: a condition or a value is not SQL over the two tables' columns.
            ConcurrentModification: or a subclass: another writer won.
        """
        auto_merge = (self._spark.conf.get(_AUTO_MERGE, "false") or "").strip().lower() == "true"
        aliases = {"target_alias": self._alias, "source_alias": alias_of(self._source)}
        merge: Any = self._table.merge(
            self._source,
            to_sql(self._condition),
            merge_schema=self._evolves or auto_merge,
            **{name: alias for name, alias in aliases.items() if alias is not None},
        )
        for clause in self._clauses:
            merge = clause(merge)
        metrics = merge.execute()
        row = tuple(sum(int(metrics.get(part, 0)) for part in parts) for parts in _RESULT.values())
        return self._spark.createDataFrame([row], _RESULT_SCHEMA)

    def _add(self, clause: Callable[[Any], Any]) -> Self:
        self._clauses.append(clause)
        return self

    @staticmethod
    def _condition_of(condition: str | Column | None) -> str | None:
        check_condition(condition)
        return None if condition is None else to_sql(condition)


def assignments(values: Mapping[str, str | Column] | None, alias: str | None, name: str) -> dict[str, str]:
    """Return columns and values as text, without the table's alias before the columns.

    Raises:
        ValueError: it is None.
        TypeError: it is not a dict from names to strings or Columns.
        BadRequest: it is empty.
        InvalidPredicate: a value cannot be converted to text.
    """
    check_values(values, name)
    if not values:
        raise BadRequest(
            f"{name} must be a dict with at least one column and its value, such as {{'age': 'age + 1'}}"
        )
    return {without_alias(column, alias): to_sql(value) for column, value in values.items()}


def alias_of(frame: DataFrame) -> str | None:
    """Return the alias of a DataFrame, or the name of its table or view; None if it has none."""
    if is_remote(frame):
        plan = frame._plan  # noqa: SLF001 - no public API
        return str(plan._alias) if type(plan).__name__ == "SubqueryAlias" else None  # noqa: SLF001
    return jvm.alias(frame)
