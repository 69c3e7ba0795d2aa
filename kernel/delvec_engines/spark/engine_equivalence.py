"""Checks that expressions have the same result in this Spark session and on the DuckDB engine.

The DuckDB engine translates a part of Spark SQL, with Spark's default settings, built-in functions, and UTC. Other
settings of the session are checked here; in doubt, Spark runs the command.

Tested in `tests/integration/spark/test_spark_local_execution.py`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp

from delvec_engines.protocol import WriteTarget
from delvec_engines.row_changes import RowChange
from delvec_engines.spark import jvm
from delvec_engines.spark.session_properties import in_local_time, is_utc
from delvec_errors import DelvecError
from delvec_kernel.expressions.expression_kinds import column_path, column_type, kind_of
from delvec_kernel.expressions.functions import function_of
from delvec_kernel.expressions.predicate import Predicate, parse
from delvec_kernel.schema.types import DataType, PrimitiveType, StructType

__all__ = ["UsedExpression", "difference", "expressions_of"]

_ZONE: Final = "spark.sql.session.timeZone"
_REQUIRED_SETTINGS: Final = {
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.mapKeyDedupPolicy": "exception",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.timestampType": "timestamp_ltz",
}
"""Settings that change results or file contents, and the values that the DuckDB engine assumes."""
_OF_OTHER_TIMES: Final = re.compile(
    r"spark\.sql\.(?:legacy\.[\w.]+|[\w.]*(?:RebaseMode|collation)[\w.]*)", re.IGNORECASE
)
_FUNCTION_CALL: Final = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)\s*\(")
_SYNTAX: Final = frozenset(
    {
        *(
            "all",
            "and",
            "any",
            "between",
            "by",
            "cast",
            "char",
            "else",
            "escape",
            "from",
            "ilike",
            "in",
            "is",
        ),
        *("like", "not", "on", "or", "rlike", "some", "then", "try_cast", "varchar", "when"),
    }
)
_BUILT_IN: Final = "org.apache.spark.sql.catalyst.expressions."
_TIMESTAMP: Final = PrimitiveType("timestamp")
_TIMESTAMP_TYPES: Final = frozenset({"timestamp", "timestamp_ntz"})


@dataclass(frozen=True)
class UsedExpression:
    """An expression of a command.

    Attributes:
        text: the original SQL.
        root: the parsed expression.
        schema: the columns that it may read.
        to: type of the column it is assigned to; None for a condition.
    """

    text: str
    root: exp.Expr
    schema: StructType
    to: DataType | None = None

    @classmethod
    def of(cls, predicate: Predicate) -> "UsedExpression":
        """Wrap a predicate."""
        return cls(predicate.text, predicate.expression, predicate.schema)


def expressions_of(change: RowChange, target: WriteTarget) -> Iterator[UsedExpression]:
    """Yield the conditions and values of a change."""
    conditions = [change.on, *(clause.condition for clause in change.clauses)]
    for condition in conditions:
        if condition is not None:
            yield UsedExpression(condition.text, condition.root, condition.relations)
    for clause in change.clauses:
        for item, value in zip(target.schema.fields, clause.values, strict=bool(clause.values)):
            if value is not None:
                yield UsedExpression(value.text, value.root, value.relations, item.type)


def difference(
    spark: SparkSession, expressions: Sequence[UsedExpression], target: WriteTarget | None = None
) -> str | None:
    """Return why expressions may have another result on DuckDB, for logs; None if they have the same.

    Args:
        spark: a classic session.
        expressions: the expressions.
        target: the table of new rows, whose constraints are checked, too.
    """
    fallback_reason = _setting(spark)
    if fallback_reason is not None:
        return fallback_reason
    texts = {each.text for each in expressions if column_path(each.root) is None}
    local = not is_utc(str(spark.conf.get(_ZONE)))
    for each in expressions:
        reason = _unproven(each)
        if reason is None and local and _depends_on_zone(each):
            reason = "depends on the session's time zone, which is not UTC"
        if reason is not None:
            return f"the expression {each.text[:200]!r} {reason}"
    if target is not None and target.constraints.has_expressions:
        fallback_reason = _of_table(target, texts, local=local)
    return fallback_reason or _replaced(spark, texts)


def _setting(spark: SparkSession) -> str | None:
    for name, needed_value in _REQUIRED_SETTINGS.items():
        try:
            # Without a default here: Spark's own may come from an environment variable.
            value = str(spark.conf.get(name))
        except PySparkException:
            return f"{name} is not available"
        if value.lower() != needed_value:
            return f"{name} is {value}"
    listed = jvm.settings(spark)
    if listed is None:
        return "the session's settings cannot be listed"
    old = _OF_OTHER_TIMES.search(listed)
    return None if old is None else f"{old[0]} is set"


def _of_table(target: WriteTarget, texts: set[str], *, local: bool) -> str | None:
    """Return why the table's constraints may have another result; adds their SQL to ``texts``."""
    constraints = target.constraints
    try:
        rules = [check.sql for check in constraints.checks] + [rule.sql for rule in constraints.computed]
        for text in rules:
            # As a condition, which is what can be parsed.
            root = parse(f"(\n{text}\n) IS NULL", target.schema).expression
            reason = _unproven(UsedExpression(text, root, target.schema))
            if reason is not None:
                return f"the table's expression {text[:200]!r} {reason}"
        texts.update(rules)
        found = in_local_time(constraints, target.schema, ()) if local else None
    except DelvecError as error:
        return error.message
    if found is None:
        return None
    return f"the table's expression {found.expression[:200]!r} depends on the session's time zone"


def _unproven(expression: UsedExpression) -> str | None:
    from delvec_engines.duckdb.row_expressions import refuse_inexact

    for node in expression.root.walk():
        function = function_of(node)
        if function is not None and not function.is_proven:
            return "may not mean the same on both engines"
    try:
        refuse_inexact(expression.root, expression.schema)
    except DelvecError as error:
        return f"is not exact on DuckDB: {error.message}"
    return None


# --- time zones ---------------------------------------------------------------------------------------------


def _depends_on_zone(expression: UsedExpression) -> bool:
    """Whether an expression may convert between timestamps and other types, which depends on the time zone."""
    root, to = expression.root.unnest(), expression.to
    path = column_path(root)
    if path is not None:
        found = column_type(path, expression.schema)
        return to is not None and found != to and (_has_moment(found) or _has_moment(to))
    if isinstance(root, exp.Null):
        return False
    if isinstance(root, exp.CurrentTimestamp):
        return to != _TIMESTAMP
    return _has_moment(to) or any(_brings_zone(node, expression.schema) for node in root.walk())


def _brings_zone(node: exp.Expr, schema: StructType) -> bool:
    # A date plus hours is a timestamp.
    if isinstance(node, exp.CurrentDate | exp.CurrentTimestamp | exp.Interval | exp.Anonymous):
        return True
    path = column_path(node)
    if path is not None:
        return not isinstance(node.parent, exp.Dot) and _has_moment(column_type(path, schema))
    return kind_of(node, schema) in _TIMESTAMP_TYPES


def _has_moment(kind: DataType | None) -> bool:
    return kind is not None and "timestamp" in str(kind.to_json())


# --- functions ----------------------------------------------------------------------------------------------


def _replaced(spark: SparkSession, texts: set[str]) -> str | None:
    """Return a function that may be a UDF in this session, under the name of a built-in one; None if there is none."""
    names = {name.lower() for text in texts for name in _FUNCTION_CALL.findall(text)} - _SYNTAX
    for name in sorted(names):
        if not (jvm.function_class(spark, name) or "").startswith(_BUILT_IN):
            return f"the function {name} is not Spark's own"
    return None
