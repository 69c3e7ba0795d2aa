"""Evaluates a table's constraints and generated columns with Spark, in the pass that writes the rows.

Spark adds the result as a column, because the rows checked must be the rows written: a second read of the
source could return other rows. The writing task reads the column and raises the error.

Tested in `tests/integration/spark/test_spark_row_changes.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql import types as T  # noqa: N812

from delvec_engines.internal_names import INTERNAL, InternalNames
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_checks import RowChecks
from delvec_engines.spark.failures import refusal
from delvec_engines.spark.scan import spark_schema
from delvec_kernel.constraints.declared import Check, Generated
from delvec_kernel.schema.column_paths import backticked

__all__ = [
    "BROKEN",
    "ExaminedFrame",
    "TaskChecks",
    "absent_columns",
    "as_stored",
    "examined",
    "first_broken",
    "generated_value",
]

BROKEN: Final = INTERNAL("broken")
"""Column with the number of the first check that a row violates."""
_HIDDEN_PREFIX: Final = INTERNAL("given") + "_"


@dataclass(frozen=True)
class TaskChecks:
    """Checks of rows in tasks; sent to executors.

    Attributes:
        tests: the checks, in the order of their numbers in :data:`BROKEN`.
        given: original names of columns by their present names: Spark evaluates the
            expressions over values cast to the table's types, but the uncast values are written.
        names: the driver's internal names of the columns that it adds.
    """

    target: WriteTarget
    tests: tuple[Check, ...]
    given: tuple[tuple[str, str], ...]
    names: InternalNames = INTERNAL

    def checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Check rows, and yield them without the columns that Spark added.

        Raises:
            SchemaMismatch: the rows do not fit the table.
            ConstraintViolation: a row violates a constraint.
        """
        checks = RowChecks(self.target)
        for batch in batches:
            (rows,) = checks.checked([self._rows(batch)])
            if self.tests:
                self._raise(batch, rows, checks)
            yield rows

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        came_as = {self.names("broken"), *(hidden for hidden, _ in self.given)}
        came = {name: batch.column(hidden) for hidden, name in self.given}
        names = [name for name in batch.schema.names if name not in came_as]
        return pa.RecordBatch.from_arrays([came.get(name, batch.column(name)) for name in names], names=names)

    def _raise(self, batch: pa.RecordBatch, rows: pa.RecordBatch, checks: RowChecks) -> None:
        broken = batch.column(self.names("broken"))
        if broken.null_count == len(broken):
            return
        first = broken.is_valid().index(pa.scalar(value=True)).as_py()
        raise checks.error(self.tests[broken[first].as_py()], rows.slice(first, 1))


@dataclass(frozen=True)
class ExaminedFrame:
    """Rows with the results of checks, and the checks for tasks."""

    frame: DataFrame
    checks: TaskChecks


def examined(frame: DataFrame, target: WriteTarget, checks: RowChecks) -> ExaminedFrame:
    """Return the table's columns, including missing default and generated columns, and the first violated check per row.

    Args:
        frame: columns of the table, in any order and case.
        target: the table.
        checks: the table's constraints.

    Raises:
        ExpressionNotAllowed: an expression is not allowed in tables; names it.
        UnsupportedWriterFeature: Spark does not accept an expression; names it.
    """
    frame, original_columns = _typed(frame, target)
    names = set(frame.columns)
    tests = checks.tests(names, replaces=False)
    kinds = {field.name: field.dataType for field in spark_schema(target.schema).fields}
    defaults = [rule for rule in checks.constraints.defaults if rule.column not in names]
    if defaults:
        values = (generated_value(frame, rule, checks).cast(kinds[rule.column]) for rule in defaults)
        frame = frame.select(
            "*", *(value.alias(rule.column) for value, rule in zip(values, defaults, strict=True))
        )
    # Missing columns are added as NULL, for expressions, too: Spark would resolve a name that is not a column as a
    # session variable.
    has_rule = {rule.column for rule in checks.constraints.computed}
    absent = [name for name in target.schema.names if name not in frame.columns and name not in has_rule]
    if absent:
        frame = frame.select("*", *(F.lit(None).cast(kinds[name]).alias(name) for name in absent))
    computed_columns = [
        generated_value(frame, rule, checks).cast(kinds[rule.column]).alias(rule.column)
        for rule in checks.constraints.generated
        if rule.column not in names
    ]
    if computed_columns:
        frame = frame.select("*", *computed_columns)
    if tests:
        frame = as_stored(frame, checks)
        frame = frame.select("*", first_broken(frame, tests, checks).alias(BROKEN))
    return ExaminedFrame(frame, TaskChecks(target, tuple(tests), original_columns))


def absent_columns(frame: DataFrame, checks: RowChecks) -> list[str]:
    """Return the columns missing in a frame that Spark computes."""
    given = {name.lower() for name in frame.columns}
    return [rule.column for rule in checks.constraints.computed if rule.column.lower() not in given]


def _typed(frame: DataFrame, target: WriteTarget) -> tuple[DataFrame, tuple[tuple[str, str], ...]]:
    """Return the columns with the table's names and types, and the original of each cast column."""
    fields_by_name = {field.name.lower(): field for field in spark_schema(target.schema).fields}
    columns, original_columns = [], []
    for number, field in enumerate(frame.schema.fields):
        to = fields_by_name[field.name.lower()]
        column = F.col(backticked(field.name))
        if not _is_cast(field.dataType, to.dataType):
            columns.append(column.alias(to.name))
            continue
        hidden = f"{_HIDDEN_PREFIX}{number}"
        original_columns.append((hidden, to.name))
        columns += [_cast(field, to.dataType).alias(to.name), column.alias(hidden)]
    return frame.select(*columns), tuple(original_columns)


def _is_cast(value_type: T.DataType, column_type: T.DataType) -> bool:
    nested = (T.StructType, T.ArrayType, T.MapType)
    if isinstance(value_type, nested) or isinstance(column_type, nested):
        return False
    return bool(value_type.simpleString() != column_type.simpleString())


def _cast(field: T.StructField, column_type: T.DataType) -> Any:
    value = backticked(field.name)
    # try_cast: the task raises the error for values that do not fit.
    return F.expr(f"try_cast({value} AS {column_type.simpleString()})")


def as_stored(frame: DataFrame, checks: RowChecks) -> DataFrame:
    """Return rows as they will be read back: an empty string in a partition column is NULL."""
    if not checks.partition_texts:
        return frame
    names = ((name, F.col(backticked(name))) for name in frame.columns)
    return frame.select(
        *(
            F.nullif(column, F.lit("")).alias(name) if name in checks.partition_texts else column
            for name, column in names
        )
    )


def first_broken(frame: DataFrame, tests: Sequence[Check], checks: RowChecks) -> Any:
    """Return the number of the first check that a row of ``frame`` violates, or NULL.

    Raises:
        ExpressionNotAllowed: an expression is not allowed in tables; names it.
        UnsupportedWriterFeature: Spark does not accept an expression; names it.
    """
    whens = []
    for number, test in enumerate(tests):
        condition = f"({checks.sql(test)})"
        try:
            kind = frame.select(F.expr(condition).alias("v")).schema.fields[0].dataType
        except AnalysisException as error:
            raise checks.refused(test, refusal(error), "Spark") from error
        if not isinstance(kind, T.BooleanType | T.NullType):
            raise checks.refused(test, f"its type is {kind.simpleString()}, not boolean", "Spark")
        # NULL counts as a violation.
        whens.append(f"WHEN NOT coalesce({condition}, false) THEN {number}")
    return F.expr(f"CASE {' '.join(whens)} END")


def generated_value(frame: DataFrame, rule: Generated, checks: RowChecks) -> Any:
    """Return the value of a generated column's expression for a row of ``frame``, in the expression's type.

    Raises:
        ExpressionNotAllowed: it is not allowed in tables.
        UnsupportedWriterFeature: Spark does not accept it.
    """
    try:
        value = F.expr(f"({checks.sql(rule)})")
        frame.select(value.alias("v")).schema  # noqa: B018 - analysed here, for the error
    except AnalysisException as error:
        raise checks.refused(rule.check, refusal(error), "Spark") from error
    return value
