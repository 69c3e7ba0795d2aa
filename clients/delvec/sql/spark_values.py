"""Writes the values of a query in Spark's SQL so that DuckDB computes what Spark would.

A generic translation keeps names and changes meanings: DuckDB's casts round, and its days of the week begin at 0. Values that
the engine translates for predicates have the same SQL here; sqlglot translates the rest, with the corrections below.

Tested in `tests/integration/client/sql/test_spark_values.py`.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp
from sqlglot.dialects import DuckDB

from delvec.sql.query_functions import CALLS, NOT_TRANSLATED, PATTERNS, RESULT_TYPES, WEEKDAYS, refusal
from delvec.sql.sequences import dates, whole_numbers
from delvec.sql.spark_function_names import SPARK_FUNCTIONS
from delvec.sql.tokens import word_start
from delvec.sql.value_types import PLAIN, ValueTypes, is_translated, with_columns
from delvec_engines.duckdb.dialect import to_duckdb
from delvec_engines.duckdb.dialect_functions import to_re2
from delvec_engines.internal_names import INTERNAL
from delvec_errors import InvalidPredicate, InvalidStatement
from delvec_kernel.expressions.expression_kinds import INTEGER_TYPES, TEMPORAL_TYPES
from delvec_kernel.expressions.predicate import limited_nesting
from delvec_kernel.expressions.source_text import located, place
from delvec_kernel.expressions.spark_dialect import SPARK
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

__all__ = ["name_results", "sort_results", "write_values"]

_DUCKDB: Final = DuckDB()
_WHOLE: Final = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
_AROUND: Final = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Window, exp.WithinGroup)
_CORRECTED: Final = (exp.Sub, *CALLS, *_AROUND)
_OF_PIVOTS: Final = (
    exp.AnyValue,
    exp.ArrayAgg,
    exp.ArrayUniqueAgg,
    exp.Avg,
    exp.Count,
    exp.First,
    exp.Last,
    exp.Max,
    exp.Min,
    exp.Stddev,
    exp.StddevPop,
    exp.StddevSamp,
    exp.Sum,
    exp.Variance,
    exp.VariancePop,
)
_RELATIONS: Final = (
    exp.Exists,
    exp.Explode,
    exp.ExplodeOuter,
    exp.Posexplode,
    exp.PosexplodeOuter,
    exp.Unnest,
)
"""Functions that stand where relations do, or have a query inside: sqlglot rewrites what is around them."""
_FRACTIONS: Final = frozenset({"double", "float"})
_DATE: Final = PrimitiveType("date")
_MAX_PRECISION: Final = 38
_NAMED: Final = (exp.Alias, exp.Aliases, exp.Column, exp.Dot, exp.Star)
_WITHOUT_PARENTHESES: Final = frozenset({"CURRENT_DATE", "CURRENT_TIMESTAMP"})


def write_values(query: exp.Expr, schemas: Mapping[str, StructType], text: str) -> None:
    """Write the values of a query in DuckDB's SQL where that is known to be needed.

    Args:
        query: is changed.
        schemas: the schemas of the tables it reads, by name.
        text: the original query, for errors.

    Raises:
        InvalidStatement: it calls a function that has other results in DuckDB.
    """
    _Values(ValueTypes(schemas), text).within(query)


def sort_results(query: exp.Expr) -> None:
    """Sort by what SORT BY and CLUSTER BY say; rows that are sorted as a whole are so in each of Spark's partitions."""
    for select in list(query.find_all(exp.Select)):
        sort = select.args.get("sort") or select.args.get("cluster")
        for name in ("sort", "cluster", "distribute"):
            select.set(name, None)
        if sort is not None and select.args.get("order") is None:
            ordered = [
                one if isinstance(one, exp.Ordered) else exp.Ordered(this=one, nulls_first=True)
                for one in sort.expressions
            ]
            select.set("order", exp.Order(expressions=ordered))


def name_results(query: exp.Expr, text: str, *, only_renamed: bool = False) -> None:
    """Name the results of a query that have no alias as in Spark, by their text.

    Args:
        query: is changed.
        text: the original query.
        only_renamed: only calls of functions that would be written with another of their names.
    """
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if isinstance(query, exp.Select):
        for item in list(query.expressions):
            if (
                not isinstance(item, _NAMED)
                and not item.is_star
                and not (only_renamed and not _is_renamed(item, text))
            ):
                name = exp.to_identifier(_result_name(item, text), quoted=True)
                item.replace(exp.Alias(this=item.copy(), alias=name))


def _result_name(item: exp.Expr, text: str) -> str:
    if isinstance(item, exp.Count) and isinstance(item.this, exp.Star):
        return "count(1)"
    sql = item.sql(dialect=SPARK, normalize_functions="lower", comments=False)
    if sql in _WITHOUT_PARENTHESES:  # as an alias it would be the keyword
        return f"{sql.lower()}()"
    called, written = _called(item, text), sql.partition("(")[0]
    if called is not None and written.isidentifier():
        sql = called + sql[len(written) :]
    return f"({sql})" if isinstance(item, exp.Binary) and not isinstance(item, exp.Func) else sql


def _is_renamed(item: exp.Expr, text: str) -> bool:
    return _called(item, text) not in (
        None,
        item.sql(dialect=SPARK, comments=False).partition("(")[0].lower(),
    )


def _called(call: exp.Expr, text: str) -> str | None:
    """Return the name by which the text calls a function: several names may be of one class, as size and array_size."""
    start, end = call.meta.get("start"), call.meta.get("end")
    if not isinstance(call, exp.Func) or start is None or end is None:
        return None
    name = text[int(start) : int(end) + 1]
    return name.lower() if name.isidentifier() and text[int(end) + 1 :].lstrip().startswith("(") else None


class _Values:
    def __init__(self, types: ValueTypes, text: str) -> None:
        self._types = types
        self._text = text

    def within(self, node: exp.Expr) -> None:
        """Write the values inside ``node``."""
        pending = [node]
        while pending:  # not by recursion: a thousand ORs are as deep
            for child in list(pending.pop().iter_expressions()):
                if _is_around(child):
                    pending.append(child)
                elif is_translated(child) or isinstance(child, _CORRECTED):
                    child.replace(self._value(child))
                elif isinstance(child, exp.Pivot):
                    self._pivot(child)
                else:
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
                written = to_duckdb(value, StructType(tuple(fields)), self._text)
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
        if isinstance(node, exp.GenerateSeries):
            return exp.Var(this=self._sequence(node))
        call = _call(node)
        operand = call.this
        if isinstance(operand, exp.Distinct) and len(operand.expressions) == 1:
            operand = operand.expressions[0]
        kind = self._types.of(operand)
        if node is call and isinstance(call, CALLS):
            reason = refusal(call, kind)
            if reason is not None:
                raise self._refused(call, reason)
        if isinstance(call, PATTERNS):
            call.expression.replace(exp.Literal.string(to_re2(call.expression.name)))
        _check_dates(call, kind, self._types)
        is_whole = not isinstance(node.parent, _AROUND)
        self.within(node)
        sql = _corrected(node, kind)
        if sql is not None:
            return exp.Var(this=sql)
        return exp.Var(this=_with_type(node, call, kind)) if is_whole else node

    def _pivot(self, pivot: exp.Pivot) -> None:
        """Write the aggregates of a PIVOT. Where there is no row, counts are NULL in Spark, and arrays are empty."""
        if pivot.args.get("unpivot"):
            return
        is_one = len(pivot.expressions) == 1
        for item in list(pivot.expressions):
            aggregate, kind = item.unalias(), self._types.pivoted(item.unalias().this, pivot)
            if not isinstance(aggregate, _OF_PIVOTS):
                raise self._refused(aggregate, "Delvec does not translate it in a PIVOT")
            written: exp.Expr = exp.Var(this=_pivoted(aggregate, kind))
            if not is_one:  # of one, Spark ignores the alias
                alias = item.alias or _result_name(aggregate, self._text)
                written = exp.Alias(this=written, alias=exp.to_identifier(alias, quoted=True))
            item.replace(written)

    def _sequence(self, node: exp.GenerateSeries) -> str:
        step = node.args.get("step")
        kinds = {self._types.width(node.args[one]) for one in ("start", "end")}
        is_whole = kinds <= {"integer", "long"} and (step is None or self._types.width(step) in kinds)
        self.within(node)
        start, end, written = _sql(node.args["start"]), _sql(node.args["end"]), None
        if kinds == {"date"}:
            written = dates(start, end, step)
        elif is_whole:
            to = "BIGINT" if "long" in kinds else "INTEGER"
            written = whole_numbers(start, end, None if step is None else _sql(node.args["step"]), to)
        if written is None:
            raise self._refused(
                node,
                "it takes INT, BIGINT or DATE, cast if need be, and of dates a literal number of days or months",
            )
        return written

    def _refused(self, call: exp.Expr, reason: str) -> InvalidStatement:
        written_name = _called(call, self._text)
        name = written_name or call.sql(dialect=SPARK, comments=False).partition("(")[0].lower()
        is_unknown = isinstance(call, exp.Anonymous) and name not in SPARK_FUNCTIONS
        near = difflib.get_close_matches(name, SPARK_FUNCTIONS, n=3, cutoff=0.75) if is_unknown else []
        start = int(call.meta["start"]) if written_name else word_start(self._text, name) or 0
        line, column = place(self._text, start)
        error = InvalidStatement(
            f"Line {line}, column {column}: {_not_called(name, reason, near, is_unknown=is_unknown)}",
            line=line,
            column=column,
            suggestions=near,
        )
        return located(error, self._text, start, start + len(name))


def _not_called(name: str, reason: str, near: Sequence[str], *, is_unknown: bool) -> str:
    """Return why a function is not called, and what to do."""
    if is_unknown:
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        return f"Spark has no function {name}(){hint} Functions of your own session need engine=spark and functions=['{name}']."
    what = (
        "is not supported when DuckDB runs the query."
        if reason == NOT_TRANSLATED
        else f"may have other results in DuckDB than in Spark: {reason}."
    )
    return f"{name}() {what} Pass engine=spark to run the query on Spark, or write it in DuckDB's SQL with dialect='duckdb'."


def _pivoted(aggregate: exp.Expr, kind: DataType | None) -> str:
    """Return the SQL of an aggregate of a PIVOT; of no row it is what Spark has there."""
    of = aggregate.this
    if isinstance(aggregate, exp.Count):
        is_of_rows = isinstance(of, exp.Star | exp.Literal)
        # A list of no rows is NULL; one of NULLs has no elements that count.
        return "nullif(count(*), 0)" if is_of_rows else f"list_count(list({_sql(of)}))"
    return _with_type(aggregate, aggregate, kind)


def _is_around(node: exp.Expr) -> bool:
    """Whether only what is inside a node is written."""
    if isinstance(node, exp.If):
        return isinstance(node.parent, exp.Case)  # a branch, and no value
    if isinstance(node, exp.Exists) and node.args.get("expression") is not None:
        return False  # over the elements of an array
    return isinstance(node, (*PLAIN, *_RELATIONS, exp.Connector, exp.Not, exp.Paren))


def _call(node: exp.Expr) -> exp.Expr:
    """Return the function of an aggregate or a window function, or the value itself."""
    while isinstance(node, _AROUND):
        node = node.this
    return node


def _corrected(node: exp.Expr, kind: DataType | None) -> str | None:
    """Return the SQL of a value that sqlglot translates wrongly; None of others. ``kind`` is the type of its operand."""
    name = kind.name if isinstance(kind, PrimitiveType) else None
    match node:
        case exp.Cast():
            return _cast(node, kind, name)
        case exp.Div():
            left, divisor = _sql(node.this), _sql(node.expression)
            return f"(CASE WHEN {divisor} = 0 THEN error('division by zero') ELSE {left} / {divisor} END)"
    return (
        _corrected_number(node, name)
        or _corrected_time(node, name)
        or _corrected_array(node)
        or _searched_array(node)
        or _element_at(node, kind)
        or _corrected_text(node, kind)
    )


def _element_at(node: exp.Expr, kind: DataType | None) -> str | None:
    """Return ``element_at`` and ``try_element_at``: of arrays they count from 1, and only the second has no error beyond the end."""
    if not isinstance(node, exp.Bracket) or node.args.get("offset") != 1:
        return None
    of, key = _sql(node.this), node.expressions[0]
    index = _sql(key)
    if isinstance(kind, MapType) or (isinstance(key, exp.Literal) and key.is_string):
        return f"{of}[{index}]"
    beyond = "NULL" if node.args.get("safe") else "error('an index beyond the end of an array')"
    of_map = "" if isinstance(kind, ArrayType) else f"WHEN typeof({of}) LIKE 'MAP(%' THEN {of}[{index}] "
    return (
        f"(CASE WHEN {of} IS NULL OR {index} IS NULL THEN NULL {of_map}WHEN {index} = 0 THEN error('an index of 0 in an array, which "
        f"counts from 1') WHEN abs({index}) > cardinality({of}) THEN {beyond} ELSE {of}[{index}] END)"
    )


def _corrected_text(node: exp.Expr, kind: DataType | None) -> str | None:
    match node:
        case exp.Reverse() if isinstance(kind, ArrayType):
            return f"list_reverse({_sql(node.this)})"
        case exp.SubstringIndex(args={"delimiter": separator, "count": count}):
            number, by = int(re.sub(r"[() ]", "", count.sql())), _sql(separator)
            parts = f"string_split({_sql(node.this)}, {by})"
            first = "1" if number > 0 else f"greatest(len({parts}) - {abs(number) - 1}, 1)"
            last = str(number) if number > 0 else f"len({parts})"
            return (
                f"array_to_string(list_slice({parts}, {first}, {last}), {by})"
                if number
                else f"left({_sql(node.this)}, 0)"
            )
    return None


def _cast(node: exp.Cast, kind: DataType | None, name: str | None) -> str | None:
    value, to = _sql(node.this), node.to.this
    if to in _WHOLE and name in TEMPORAL_TYPES - {"date"}:
        return f"CAST(floor(epoch({value})) AS {_sql(node.to)})"
    if to in _WHOLE and name == "string":  # a text without a whole number
        return (
            f"CAST(NULL AS {_sql(node.to)})"
            if isinstance(node, exp.TryCast)
            else "error('a string is not a whole number')"
        )
    if to in _WHOLE and kind is None:
        return _whole(node)
    if to == exp.DType.TEXT and name == "timestamp":
        return f"CAST(CAST({value} AS TIMESTAMP) AS VARCHAR)"
    if to == exp.DType.TEXT and name in _FRACTIONS:
        text = f"CAST({value} AS VARCHAR)"
        plain = f"{value} = 0 OR abs({value}) >= 0.001 AND abs({value}) < 10000000"
        error = "error('a number that Spark writes with an exponent; pass engine=spark')"
        return f"(CASE WHEN {value} IS NULL THEN NULL WHEN {plain} THEN {text} ELSE {error} END)"
    return None


def _check_dates(node: exp.Expr, kind: DataType | None, types: ValueTypes) -> None:
    if isinstance(node, exp.Sub) and kind == _DATE and types.of(node.expression) == _DATE:
        raise InvalidStatement(
            "A date minus a date is an interval in Spark and a number in DuckDB; use datediff().",
            line=1,
            column=1,
        )


def _corrected_number(node: exp.Expr, name: str | None) -> str | None:
    match node:
        case exp.Ln() | exp.Log():
            numbers = [_sql(each) for each in (node.this, node.args.get("expression")) if each is not None]
            return f"(CASE WHEN {' AND '.join(f'{each} > 0' for each in numbers)} THEN {_sql(node)} END)"
        case exp.Floor() | exp.Ceil() if name in _FRACTIONS | INTEGER_TYPES:
            return f"CAST({_sql(node)} AS BIGINT)"
        case exp.Round(this=value, args={"decimals": exp.Literal() as digits}) if name in _FRACTIONS:
            # Spark rounds the digits that it shows: 2.675 is 2.68.
            exact = f"CAST(CAST(CAST({_sql(value)} AS VARCHAR) AS DECIMAL(38, {digits.name})) AS DOUBLE)"
            return f"(CASE WHEN abs({_sql(value)}) < 1e15 THEN {exact} ELSE {_sql(value)} END)"
        case exp.BitwiseCount():
            return f"CAST(bit_count(CAST({_sql(node.this)} AS BIGINT)) AS INTEGER)"
    return _quantile(node)


def _quantile(node: exp.Expr) -> str | None:
    if isinstance(node, exp.ApproxQuantile):
        return f"quantile_disc({_sql(node.this)}, {_sql(node.args['quantile'])})"
    if isinstance(node, exp.Quantile):
        return f"quantile_cont(CAST({_sql(node.this)} AS DOUBLE), {_sql(node.args['quantile'])})"
    return None


def _corrected_time(node: exp.Expr, name: str | None) -> str | None:
    match node:
        case exp.StrToUnix():
            seconds = f"trunc(epoch({_sql(node.this)}))" if name in TEMPORAL_TYPES else f"floor({_sql(node)})"
            return f"CAST({seconds} AS BIGINT)"
        case exp.UnixSeconds():
            return f"CAST(floor(epoch({_sql(node.this)})) AS BIGINT)"
        case exp.DateTrunc():
            unit = node.text("unit").upper()
            unit = {"YYYY": "YEAR", "YY": "YEAR", "MM": "MONTH", "MON": "MONTH"}.get(unit, unit)
            return f"CAST(date_trunc('{unit}', CAST({_sql(node.this)} AS DATE)) AS DATE)"
        case exp.TimestampTrunc() | exp.TimestampAdd() | exp.StrToTime() | exp.TimestampFromParts():
            return _sql(node) if name == "timestamp_ntz" else f"CAST({_sql(node)} AS TIMESTAMPTZ)"
    return _weekday(node)


def _weekday(node: exp.Expr) -> str | None:
    """Return the day of the week, which begins with 0 on Monday or with 1 on Sunday."""
    match node:
        case exp.Anonymous(expressions=[day]) if node.name.lower() == "weekday":
            return f"CAST(isodow(CAST({_sql(day)} AS DATE)) - 1 AS INTEGER)"
        case exp.Extract() if node.name.lower() in WEEKDAYS:
            return f"CAST(dayofweek({_sql(node.expression)}) + 1 AS INTEGER)"
    return None


def _corrected_array(node: exp.Expr) -> str | None:
    match node:
        case exp.ArraySize():
            return f"CAST(cardinality({_sql(node.this)}) AS INTEGER)"
        case exp.ArraySort():
            order = "DESC" if node.args.get("asc") == exp.false() else "ASC"
            nulls = "FIRST" if node.args.get("nulls_first") == exp.true() else "LAST"
            return f"list_sort({_sql(node.this)}, '{order}', 'NULLS {nulls}')"
        case exp.Anonymous(expressions=[text]) if node.name.lower() == "octet_length":
            return f"CAST(strlen({_sql(text)}) AS INTEGER)"
    return None


def _searched_array(node: exp.Expr) -> str | None:
    if not isinstance(node, exp.ArrayContains | exp.ArrayPosition):
        return None
    array, value = _sql(node.this), _sql(node.expression)
    is_asked = f"{array} IS NOT NULL AND {value} IS NOT NULL"
    if isinstance(node, exp.ArrayPosition):
        return f"(CASE WHEN {is_asked} THEN CAST(coalesce(list_position({array}, {value}), 0) AS BIGINT) END)"
    has_null = f"len(list_filter({array}, lambda element : element IS NULL)) > 0"
    return (
        f"(CASE WHEN NOT ({is_asked}) THEN NULL WHEN list_contains({array}, {value}) THEN TRUE WHEN {has_null} THEN NULL "
        "ELSE FALSE END)"
    )


def _with_type(node: exp.Expr, call: exp.Expr, kind: DataType | None) -> str:
    """Return a value with the type that Spark gives it."""
    sql = _sql(node)
    name = kind.name if isinstance(kind, PrimitiveType) else None
    if isinstance(call, exp.ArrayAgg | exp.ArrayUniqueAgg):
        return f"coalesce({sql}, [])"
    if isinstance(call, exp.Sum) and name in INTEGER_TYPES:
        return f"CAST({sql} AS BIGINT)"  # DuckDB's is a HUGEINT, which becomes a decimal
    if isinstance(call, exp.Sum) and isinstance(kind, DecimalType):
        return f"CAST({sql} AS DECIMAL({min(kind.precision + 10, _MAX_PRECISION)}, {kind.scale}))"
    to = RESULT_TYPES.get(call.name.lower() if isinstance(call, exp.Anonymous) else type(call))
    return sql if to is None else f"CAST({sql} AS {to})"


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
