"""Evaluates a table's constraints and generated columns with DuckDB for rows to be written.

Tested in `tests/integration/client/engines/duckdb/test_row_changes.py` and
`tests/integration/engines/test_update.py`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

from delvec_engines.arrow_conversion import cast_array
from delvec_engines.duckdb.dialect import predicate_sql, to_duckdb
from delvec_engines.duckdb.statement_runner import DuckDBSession
from delvec_engines.internal_names import INTERNAL
from delvec_engines.row_checks import RowChecks
from delvec_errors import ConstraintViolation, InvalidPredicate, UnknownColumn
from delvec_kernel.constraints.declared import Check, Generated
from delvec_kernel.expressions.expression_kinds import kind_of
from delvec_kernel.expressions.functions import function_of
from delvec_kernel.expressions.literals import literal
from delvec_kernel.expressions.predicate import parse
from delvec_kernel.schema.types import INTEGER_NAMES, StructType

__all__ = ["RowExpressions", "refuse_inexact"]

_ROWS: Final = "delvec_new_rows"
_NUMBER: Final = INTERNAL("row")
_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)


@dataclass(frozen=True)
class _Computed:
    """A column that DuckDB computes."""

    rule: Generated
    place: int
    sql: str


class RowExpressions:
    """CHECK constraints, invariants and generated columns of one table.

    Args:
        session: DuckDB.
        schema: the table's.
        checks: the table's other checks.
        input_columns: columns of the data in lower case; other generated columns are computed.
        replaces: whether rows are those of an UPDATE or a MERGE.

    Raises:
        ExpressionNotAllowed: an expression holds what tables may not ask of an engine; names it.
        UnsupportedWriterFeature: an expression that is not known to give Spark's answer in DuckDB; names it.
    """

    def __init__(
        self,
        session: DuckDBSession,
        schema: StructType,
        checks: RowChecks,
        input_columns: Collection[str],
        *,
        replaces: bool,
    ) -> None:
        self._session = session
        self._schema = schema
        self._checks = checks
        self._arrow = schema.to_arrow()
        self._computed: list[_Computed] = []
        for rule in checks.constraints.computed:
            if rule.column.lower() not in input_columns:
                place = schema.names.index(rule.column)
                kind = schema.fields[place].type.to_json() if rule in checks.constraints.defaults else None
                self._computed.append(_Computed(rule, place, self._value(rule, kind)))
        tests = checks.tests(input_columns, replaces=replaces)
        self._tests = [(test, self._condition(test)) for test in tests]

    @property
    def absent(self) -> list[str]:
        """The computed columns."""
        return [each.rule.column for each in self._computed]

    def complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Check rows, and return them in the table's schema with generated columns.

        Args:
            batch: the table's columns in its order, without computed ones.

        Raises:
            ConstraintViolation: a row violates a check, or an expression fails for it.
        """
        if self._computed:
            batch = self._with_computed(batch)
        if self._tests and batch.num_rows:
            self._check(self._checks.as_stored(batch))
        return batch

    def _with_computed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch.column(place) for place, name in enumerate(batch.schema.names)}
        for each in self._computed:
            name, field = each.rule.column, self._arrow.field(each.place)
            found = self._answers(batch, each.sql, each.rule.check) if batch.num_rows else pa.nulls(0)
            kind = self._schema.fields[each.place].type
            columns[name] = cast_array(found, kind, field.type, name, check_nulls=False)
            batch = batch.append_column(name, columns[name])
        ordered = [columns[name] for name in self._schema.names]
        return pa.RecordBatch.from_arrays(ordered, names=self._schema.names)

    def _check(self, batch: pa.RecordBatch) -> None:
        for test, sql in self._tests:
            # Not in WHERE: DuckDB pushes comparisons there into Arrow, where NaN is not the greatest value. NULL counts
            # as a violation.
            found = self._evaluated(batch, f"min(CASE WHEN {sql} THEN NULL ELSE {_NUMBER} END)", test)
            first = found[0].as_py()
            if first is not None:
                raise self._checks.error(test, batch.slice(first, 1))

    def _answers(self, batch: pa.RecordBatch, sql: str, check: Check) -> pa.Array:
        """Return the value of an expression per row, in row order even with ``preserve_insertion_order`` off."""
        return self._evaluated(batch, sql, check, f"ORDER BY {_NUMBER}")

    def _evaluated(self, batch: pa.RecordBatch, sql: str, check: Check, order: str = "") -> pa.Array:
        names = [name for name in check.columns if name in batch.schema.names]
        numbers = pa.array(np.arange(batch.num_rows))
        rows = batch.select(names).append_column(_NUMBER, numbers)
        statement = f"SELECT {sql} AS v FROM {_ROWS} {order}"  # noqa: S608 - written by the translator
        try:
            return self._session.over(_ROWS, rows, statement)["v"].combine_chunks()
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0]
            raise ConstraintViolation(
                f"Constraint {check.name} ({check.expression}) of {self._checks.where} cannot be evaluated for a row: "
                f"{reason}. Nothing was committed; correct the rows.",
                constraint=check.name,
                expression=check.expression,
            ) from error

    def _condition(self, check: Check) -> str:
        try:
            predicate = parse(self._checks.sql(check), self._schema)
            refuse_inexact(predicate.expression, self._schema)
            return predicate_sql(predicate)
        except (InvalidPredicate, UnknownColumn) as error:
            raise self._checks.refused(check, error.message, "DuckDB") from error

    def _value(self, rule: Generated, kind: Any = None) -> str:
        """Return the SQL of a column's value; a default is cast to the column's type ``kind`` (Delta JSON)."""
        text = self._checks.sql(rule)
        if isinstance(kind, str):
            text = f"CAST((\n{text}\n) AS {INTEGER_NAMES.get(kind, kind)})"
        try:
            value = _parsed_value(text, self._schema)
            refuse_inexact(value, self._schema)
            value = value.transform(self._at_write_time)
            return to_duckdb(value, self._schema, rule.expression)
        except (InvalidPredicate, UnknownColumn) as error:
            raise self._checks.refused(rule.check, error.message, "DuckDB") from error

    def _at_write_time(self, node: exp.Expr) -> exp.Expr:
        """Replace current_timestamp by the time of the write, since each batch is a statement of its own."""
        moment = self._checks.moment
        if isinstance(node, exp.CurrentDate):
            return _parsed_value(literal(moment.date()), self._schema)
        if isinstance(node, exp.CurrentTimestamp) or _is_now(node):
            return _parsed_value(literal(moment), self._schema)
        return node


def _is_now(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "now"


def _parsed_value(text: str, schema: StructType) -> exp.Expr:
    # parse() only accepts conditions, so make the value one.
    root = parse(f"(\n{text}\n) IS NULL", schema).expression
    if not isinstance(root, exp.Is) or not isinstance(root.this, exp.Paren):
        raise InvalidPredicate("it is not a single expression")
    return root.this


def refuse_inexact(root: exp.Expr, schema: StructType) -> None:
    """Refuse non-deterministic expressions and arithmetic that may differ from Spark's in the last digit.

    Predicates allow such arithmetic, because the last digit rarely matters in a comparison.

    Raises:
        InvalidPredicate: says why.
    """
    for node in root.walk():
        function = function_of(node)
        if function is not None and function.varies in {"session", "row"}:
            raise InvalidPredicate("it is not deterministic; compute the values first")
        if isinstance(node, _ARITHMETIC):
            kinds = {kind_of(side, schema) for side in (node.this, node.expression)} - {"null"}
            if isinstance(node, exp.Div) and "decimal" in kinds:
                raise InvalidPredicate("division of decimals rounds differently; cast the operands to double")
            if "float" in kinds and len(kinds) > 1:
                raise InvalidPredicate(
                    "arithmetic on float and another type rounds differently; cast the operands to double"
                )
