"""Writes the values of a query in Spark's SQL so that DuckDB computes what Spark would.

A generic translation keeps names and changes meanings: DuckDB's casts round, and its days of the week begin at 0. Values that
the engine translates for predicates have the same SQL here; sqlglot translates the rest, with the corrections below.

Tested in `tests/integration/client/sql/test_spark_values.py`.
"""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp
from sqlglot.dialects import DuckDB

from delvec.sql.value_types import PLAIN, ValueTypes, is_translated, with_columns
from delvec_engines.duckdb.dialect import to_duckdb
from delvec_engines.internal_names import INTERNAL
from delvec_errors import InvalidPredicate, InvalidStatement
from delvec_kernel.expressions.expression_kinds import INTEGER_TYPES
from delvec_kernel.expressions.predicate import limited_nesting
from delvec_kernel.expressions.spark_dialect import SPARK
from delvec_kernel.schema.types import DataType, PrimitiveType, StructField, StructType

__all__ = ["name_results", "write_values"]

_DUCKDB: Final = DuckDB()
_WHOLE: Final = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
_MOMENTS: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_ONLY_IN_SPARK: Final = frozenset({"hash", "xxhash64"})
"""Functions of both engines whose results differ."""
_CORRECTED: Final = (exp.Anonymous, exp.ArrayAgg, exp.ArrayUniqueAgg, exp.StrToUnix, exp.Sum)
_NAMED: Final = (exp.Alias, exp.Aliases, exp.Column, exp.Dot, exp.Star)


def write_values(query: exp.Expr, schemas: Mapping[str, StructType], text: str) -> None:
    """Write the values of a query in DuckDB's SQL where that is known to be needed.

    Args:
        query: is changed.
        schemas: of the tables it reads, by name.
        text: the original query, for errors.

    Raises:
        InvalidStatement: it calls a function that has other results in DuckDB.
    """
    _Values(ValueTypes(schemas), text).within(query)


def name_results(query: exp.Expr) -> None:
    """Name the results of a query that have no alias as in Spark, by their text."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if isinstance(query, exp.Select):
        for item in list(query.expressions):
            if not isinstance(item, _NAMED) and not item.is_star:
                name = exp.to_identifier(_result_name(item), quoted=True)
                item.replace(exp.Alias(this=item.copy(), alias=name))


def _result_name(item: exp.Expr) -> str:
    if isinstance(item, exp.Count) and isinstance(item.this, exp.Star):
        return "count(1)"
    text = item.sql(dialect=SPARK, normalize_functions="lower", comments=False)
    return f"({text})" if isinstance(item, exp.Binary) else text


class _Values:
    def __init__(self, types: ValueTypes, text: str) -> None:
        self._types = types
        self._text = text

    def within(self, node: exp.Expr) -> None:
        """Write the values inside ``node``."""
        pending = [node]
        while pending:  # not by recursion: a thousand ORs are as deep
            for child in list(pending.pop().iter_expressions()):
                if isinstance(child, (*PLAIN, exp.Connector, exp.Not, exp.Paren)):
                    pending.append(child)
                elif is_translated(child) or isinstance(child, _CORRECTED):
                    child.replace(self._value(child))
                elif not isinstance(child, exp.Pivot):  # has aggregates alone, and names
                    pending.append(child)

    def _value(self, node: exp.Expr) -> exp.Expr:
        """Return what stands for a value: its SQL in DuckDB if that is known, else itself with its parts written."""
        columns: dict[str, str] = {}
        fields: list[StructField] = []

        def column(part: exp.Expr) -> exp.Column:
            if part is node:
                raise InvalidPredicate("The value is not translated as a whole.")
            name = INTERNAL(f"value_{len(fields)}")
            fields.append(StructField(name, self._types.of(part) or PrimitiveType("void")))
            columns[f'"{name}"'] = _sql(part) if isinstance(part, exp.Column) else f"({self._part(part)})"
            return exp.column(exp.to_identifier(name, quoted=True))

        try:
            with limited_nesting():
                value = with_columns(node, column)
                written = to_duckdb(value, StructType(tuple(fields)), {}, self._text)
        except InvalidPredicate as error:
            # What is too deep is left to sqlglot, whose error for it is known.
            return node if isinstance(error.__context__, RecursionError) else self._general(node)
        for name, sql in columns.items():
            written = written.replace(name, sql)
        return exp.Var(this=written)

    def _part(self, part: exp.Expr) -> str:
        copy = part.copy()
        copy.parent = part.parent  # its columns are those of the queries around it
        return _sql(self._general(copy))

    def _general(self, node: exp.Expr) -> exp.Expr:
        """Return a value that sqlglot translates, corrected where DuckDB is known to differ."""
        if isinstance(node, exp.Anonymous) and node.name.lower() in _ONLY_IN_SPARK:
            raise InvalidStatement(
                f"{node.name}() has other results in DuckDB than in Spark; pass engine=spark to run the query on Spark.",
                line=1,
                column=1,
            )
        kind = self._types.of(node.this)
        is_aggregate = not isinstance(node.parent, exp.Filter | exp.Window | exp.WithinGroup)
        self.within(node)
        sql = _corrected(node, kind)
        if sql is None and is_aggregate:
            sql = _corrected_aggregate(node, kind)
        return node if sql is None else exp.Var(this=sql)


def _corrected(node: exp.Expr, kind: DataType | None) -> str | None:
    """Return the SQL of a value that sqlglot translates wrongly; None of others. ``kind`` is the type of its operand."""
    name = kind.name if isinstance(kind, PrimitiveType) else None
    match node:
        case exp.Cast() if node.to.this in _WHOLE and kind is None:
            return _whole(node)
        case exp.Cast() if node.to.this in _WHOLE and name == "string":  # a text without a whole number
            return "NULL" if isinstance(node, exp.TryCast) else "error('a string is not a whole number')"
        case exp.Div():
            left, right = _sql(node.this), _sql(node.expression)
            return f"(CASE WHEN {right} = 0 THEN error('division by zero') ELSE {left} / {right} END)"
        case exp.Anonymous(expressions=[day]) if node.name.lower() == "weekday":
            return f"(isodow(CAST({_sql(day)} AS DATE)) - 1)"
        case exp.StrToUnix():
            seconds = f"epoch({_sql(node.this)})" if name in _MOMENTS else _sql(node)
            return f"CAST(floor({seconds}) AS BIGINT)"
    return None


def _corrected_aggregate(node: exp.Expr, kind: DataType | None) -> str | None:
    if isinstance(node, exp.ArrayAgg | exp.ArrayUniqueAgg):
        return f"coalesce({_sql(node)}, [])"
    if isinstance(node, exp.Sum) and isinstance(kind, PrimitiveType) and kind.name in INTEGER_TYPES:
        return f"CAST({_sql(node)} AS BIGINT)"  # DuckDB's is a HUGEINT, which becomes a decimal
    return None


def _whole(node: exp.Cast) -> str:
    """Return a cast to a whole number whose operand's type only DuckDB knows: of fractions it takes the whole part."""
    value, to = _sql(node.this), _sql(node.to)
    cast = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
    return (
        f"(CASE WHEN typeof({value}) IN ('DOUBLE', 'FLOAT') THEN {cast}(trunc({cast}({value} AS DOUBLE)) AS {to}) "
        f"WHEN typeof({value}) LIKE 'DECIMAL%' THEN {cast}(trunc({cast}({value} AS DECIMAL(38, 9))) AS {to}) "
        f"ELSE {cast}({value} AS {to}) END)"
    )


def _sql(node: exp.Expr) -> str:
    return node.sql(dialect=_DUCKDB, comments=False)
