"""Clauses of UPDATE and MERGE as Spark columns: the number of the clause that applies to a row, and the new values.

Spark evaluates all expressions, with Spark's semantics; Python only writes the resulting rows.
A value is only evaluated for the rows of its clause: for others it might fail.

Tested in `tests/integration/spark/test_spark_row_changes.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql import types as T  # noqa: N812

from delvec_engines.internal_names import INTERNAL
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import SOURCE, TARGET, Clause, RowChange
from delvec_engines.row_checks import RowChecks
from delvec_engines.spark import failures
from delvec_engines.spark.change_tasks import CLAUSE, OLD, ChangeTask
from delvec_engines.spark.file_values import FILE
from delvec_engines.spark.merge_source import SOURCE_ROW
from delvec_engines.spark.row_expressions import BROKEN, as_stored, first_broken, generated_value
from delvec_engines.spark.scan import ROW, spark_schema
from delvec_engines.spark.session_properties import refuse_variables
from delvec_engines.spark.store_assignment import assigned, is_same
from delvec_engines.spark.write import with_writers
from delvec_errors import InvalidPredicate
from delvec_kernel.constraints.declared import Check
from delvec_kernel.expressions.expression import Expression
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import StructType

__all__ = ["ChangeFrames", "Numbered", "Pass", "sql_column"]

_RAW: Final = INTERNAL("raw") + "_"

Numbered = tuple[int, Clause]
"""A clause and its position in the change."""


@dataclass(frozen=True)
class Pass:
    """A pass: its rows, and the task that runs on them."""

    frame: DataFrame
    task: ChangeTask


def sql_column(expression: Expression) -> Column:
    """Return an expression as a column of a frame whose sides are aliased by their relations' names."""
    return F.expr(_sql(expression))


class ChangeFrames:
    """Builds the passes of one change.

    Args:
        change: the clauses.
        target: the table after the commit.
        scanned: the table's schema before the commit.
        sends_few: whether tasks may send small numbers of new rows to the driver.

    Raises:
        UnsupportedWriterFeature: a constraint cannot be parsed.
    """

    def __init__(
        self, change: RowChange, target: WriteTarget, scanned: StructType, *, sends_few: bool
    ) -> None:
        self._change = change
        self._target = target
        self._scanned = scanned
        self._sends_few = sends_few
        self._checks = RowChecks(target)
        self._fields = spark_schema(target.schema).fields
        self._types: dict[str, T.DataType] = {}
        self._source_is_local = change.source is not None and change.source.data.is_local

    def columns(self) -> list[str]:
        """Return the table's columns that a pass reads."""
        if self._change.change_feed:
            return list(self._scanned.names)
        read = self._change.columns_read(TARGET)
        return [name for name in self._scanned.names if name in read]

    def analyse(self, both: DataFrame, clauses: Sequence[Clause]) -> None:
        """Let Spark analyze every expression before any job runs.

        Args:
            both: a frame with all columns that they may read; no job runs.
            clauses: those that Spark evaluates.

        Raises:
            InvalidPredicate: Spark does not accept an expression; names it.
        """
        texts = {_sql(each): each for each in self._change.expressions(clauses)}
        try:
            schema = both.selectExpr(*(f"{text} AS e{i}" for i, text in enumerate(texts))).schema
        except AnalysisException as error:
            raise _refused_expression(both, texts, error) from error
        self._types = {text: field.dataType for text, field in zip(texts, schema.fields, strict=True)}

    def changed(self, frame: DataFrame, clauses: Sequence[Numbered], *, keep_matches: bool) -> Pass:
        """Return the pass for rows of the table, joined with the source if there is one.

        Args:
            frame: the sides under their aliases, FILE and ROW; SOURCE_ROW if there is a source.
            clauses: "matched" and "not-matched-by-source".
            keep_matches: whether matching rows are kept even if no clause applies to them.
        """
        has_source = self._change.source is not None
        whens = [(number, _applies(clause, has_source=has_source)) for number, clause in clauses]
        frame = _numbered(frame, whens, or_else=F.col(SOURCE_ROW).isNotNull() if keep_matches else None)
        metadata_columns = [F.col(FILE), F.col(ROW), F.col(CLAUSE)]
        if keep_matches:
            metadata_columns.append(F.col(SOURCE_ROW))
        old = self._old_columns() if self._change.change_feed and clauses else []
        # Existing rows keep their identity values.
        target = replace(self._target, identity=())
        return self._pass(frame, clauses, [*metadata_columns, *old], target, matches=keep_matches)

    def inserted(self, frame: DataFrame, clauses: Sequence[Numbered]) -> Pass:
        """Return the pass for unmatched source rows, aliased by the source's name."""
        target = self._target
        if target.identity:
            frame, target = with_writers(frame, target)
        whens = [(number, _applies(clause, has_source=False)) for number, clause in clauses]
        nowhere = [F.lit(None).cast("int").alias(FILE), F.lit(None).cast("long").alias(ROW)]
        metadata_columns = [*nowhere, F.col(CLAUSE)]
        return self._pass(_numbered(frame, whens), clauses, metadata_columns, target, matches=False)

    # --- values ---------------------------------------------------------------------------------------

    def _pass(
        self,
        frame: DataFrame,
        clauses: Sequence[Numbered],
        carried_columns: list[Column],
        target: WriteTarget,
        *,
        matches: bool,
    ) -> Pass:
        writing = [each for each in clauses if each[1].action != "delete"]
        tests: tuple[Check, ...] = ()
        if writing:
            # A matched row without a clause is only there to be reported.
            for_all = len(writing) == len(clauses) and (self._change.covers_matches or not matches)
            raws, values = self._values(writing, for_all=for_all)
            if raws:
                frame = frame.select("*", *raws)
            frame = frame.select(*carried_columns, *values)
            frame, tests = self._examined(frame, writing)
        else:
            frame = frame.select(*carried_columns)
        task = ChangeTask(
            target=target,
            actions=tuple(clause.action for clause in self._change.clauses),
            tests=tests,
            is_checked=self._checks.is_needed,
            change_feed=self._change.change_feed,
            matches=matches,
            is_dry=self._change.dry_run,
            # Tasks report the last identity value with their files, so they must write the rows. Files of many
            # partitions are better written in parallel, too.
            sends_few=self._sends_few and not target.identity and not target.partition_columns,
        )
        return Pass(frame, task)

    def _values(self, writing: Sequence[Numbered], *, for_all: bool) -> tuple[list[Column], list[Column]]:
        """Return intermediate columns, so that each value is computed once, and the columns of the new rows."""
        raws: list[Column] = []
        values = []
        for position, field in enumerate(self._fields):
            by_text: dict[str, list[int]] = {}
            of_source: set[str] = set()
            for number, clause in writing:
                given = clause.values[position]
                if given is not None:
                    by_text.setdefault(_sql(given), []).append(number)
                    if self._source_is_local and set(given.columns) == {SOURCE}:
                        of_source.add(_sql(given))
            if for_all and len(by_text) == 1:
                ((text, numbers),) = by_text.items()
                if len(numbers) == len(writing) and is_same(self._types[text], field.dataType):
                    values.append(F.expr(f"{text} AS {backticked(field.name)}"))
                    continue
            result = None
            for text, numbers in by_text.items():
                value, found = F.expr(text), self._types[text]
                if not is_same(found, field.dataType):
                    raw = f"{_RAW}{position}_{numbers[0]}"
                    raws.append(F.when(_under(numbers), value).alias(raw))
                    value = assigned(F.col(raw), found, field.dataType, field.name, is_utc=text in of_source)
                if for_all and len(numbers) == len(writing):
                    result = value
                else:
                    result = (
                        F.when(_under(numbers), value)
                        if result is None
                        else result.when(_under(numbers), value)
                    )
            nothing = F.lit(None).cast(field.dataType)
            values.append((nothing if result is None else result).alias(field.name))
        return raws, values

    def _old_columns(self) -> list[Column]:
        """Return the old values of rows in the table's new schema."""
        columns = []
        before = {field.name.lower(): field for field in spark_schema(self._scanned).fields}
        for position, field in enumerate(self._fields):
            was = before.get(field.name.lower())
            if was is None:
                column = F.lit(None).cast(field.dataType)
            else:
                column = F.col(f"{TARGET}.{backticked(was.name)}")
                column = assigned(column, was.dataType, field.dataType, field.name)
            columns.append(column.alias(f"{OLD}{position}"))
        return columns

    def _examined(self, frame: DataFrame, writing: Sequence[Numbered]) -> tuple[DataFrame, tuple[Check, ...]]:
        """Add generated columns without values, and the number of the first check that a new row violates."""
        assigned_columns: list[str] = []
        kinds = {field.name: field.dataType for field in self._fields}
        computed_columns: dict[str, Column] = {}
        for rule in self._checks.constraints.generated:
            position = self._target.schema.names.index(rule.column)
            absent = [number for number, clause in writing if clause.values[position] is None]
            if len(absent) < len(writing):
                assigned_columns.append(rule.column)
            if absent:
                value = generated_value(frame, rule, self._checks).cast(kinds[rule.column])
                column = F.col(backticked(rule.column))
                computed_columns[rule.column] = (
                    F.when(_under(absent), value).otherwise(column).alias(rule.column)
                )
        tests = self._checks.tests(assigned_columns, replaces=True)
        if computed_columns:
            frame = frame.select(
                *(computed_columns.get(name, F.col(backticked(name))) for name in frame.columns)
            )
        if tests:
            frame = as_stored(frame, self._checks)
            broken = F.when(
                _under([number for number, _ in writing]), first_broken(frame, tests, self._checks)
            )
            frame = frame.select("*", broken.alias(BROKEN))
        return frame, tuple(tests)


def _applies(clause: Clause, *, has_source: bool) -> Column | None:
    """Return the condition under which a clause applies; None for always."""
    parts = []
    if has_source:
        present = F.col(SOURCE_ROW).isNotNull()
        parts.append(present if clause.match == "matched" else ~present)
    if clause.condition is not None:
        parts.append(sql_column(clause.condition))
    return reduce(lambda left, right: left & right, parts) if parts else None


def _numbered(
    frame: DataFrame, whens: Sequence[tuple[int, Column | None]], or_else: Column | None = None
) -> DataFrame:
    """Add the number of the first clause that applies, and drop rows to which none does."""
    if len(whens) == 1 and or_else is None:
        ((number, condition),) = whens
        # A filter can be pushed into the scan; a CASE cannot.
        frame = frame if condition is None else frame.filter(condition)
        return frame.select("*", F.lit(number).alias(CLAUSE))
    always = F.expr("true")
    clause = F.lit(None).cast("int")
    for number, condition in reversed(whens):
        clause = F.when(always if condition is None else condition, F.lit(number)).otherwise(clause)
    wanted = F.col(CLAUSE).isNotNull()
    return frame.select("*", clause.alias(CLAUSE)).filter(wanted if or_else is None else wanted | or_else)


def _under(numbers: Sequence[int]) -> Column:
    return F.col(CLAUSE) == numbers[0] if len(numbers) == 1 else F.col(CLAUSE).isin(*numbers)


def _sql(expression: Expression) -> str:
    refuse_variables(expression.text)
    return f"(\n{expression.sql()}\n)"


def _refused_expression(
    frame: DataFrame, texts: Mapping[str, Expression], error: AnalysisException
) -> InvalidPredicate:
    for text, expression in texts.items():
        try:
            frame.select(F.expr(text).alias("e")).schema  # noqa: B018 - Connect analyses here
        except AnalysisException as found:
            return InvalidPredicate(
                f"Spark does not accept the expression {expression.text!r}: {failures.refusal(found)}",
                predicate=expression.text,
            )
    return InvalidPredicate(f"Spark does not accept the expressions: {failures.refusal(error)}", predicate="")
