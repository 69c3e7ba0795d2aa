"""Conditions and values given as Spark Columns, as SQL text.

The service plans and records conditions as text, and PySpark has no public way from a Column to SQL. A Column of
classic Spark is a tree of JVM objects, one of Connect a tree of Python objects; both are exact. Nodes without an SQL
equivalent are refused: columns of a given DataFrame (``df.id`` does not say which table it belongs to), aliases, lambdas, Python
functions, aggregates over distinct values. Prefer text.

Tested in `tests/integration/spark/test_spark_delta_table.py`.
"""

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from pyspark.sql import Column

from delvec_engines.spark import jvm
from delvec_engines.spark.session_properties import is_remote
from delvec_errors import BadRequest, InvalidPredicate
from delvec_kernel.expressions.literals import literal
from delvec_kernel.schema.column_paths import backticked

__all__ = ["to_sql", "without_alias"]

_TOKEN: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|\w+|.""", re.DOTALL)
_PART: Final = re.compile(r"(?:`((?:[^`]|``)+)`|([^`.]+))(?:\.|$)")
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*")
_INFIX: Final = {
    **{sign: sign for sign in ("=", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "&", "|", "^")},
    "==": "=",
    "!=": "!=",
    "and": "AND",
    "or": "OR",
    "like": "LIKE",
    "ilike": "ILIKE",
    "rlike": "RLIKE",
}
_PREFIX: Final = {"!": "NOT ", "not": "NOT ", "negative": "- ", "~": "~ "}
_SUFFIX: Final = {"isnull": "IS NULL", "isnotnull": "IS NOT NULL"}
_BINARY: Final = 2
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def to_sql(column_or_text: str | Column) -> str:
    """Return a condition or a value as text; text stays as it is.

    Raises:
        InvalidPredicate: the Column cannot be converted to equivalent text.
    """
    if isinstance(column_or_text, str):
        return column_or_text
    expression = getattr(column_or_text, "_expr", None)
    if expression is not None and is_remote(column_or_text):
        return _of_connect(expression, column_or_text)
    if not isinstance(column_or_text, Column):
        raise InvalidPredicate(
            f"A condition or a value must be SQL text or a Spark Column, not {type(column_or_text).__name__}: {str(column_or_text)[:200]}"
        )
    try:
        return _of_classic(jvm.column_node(column_or_text), column_or_text)
    except InvalidPredicate:
        raise
    except Exception:  # noqa: BLE001 - a node that another version of Spark has changed
        _refuse(column_or_text)


def without_alias(text: str, alias: str | None) -> str:
    """Return SQL text with ``alias.column`` replaced by ``column``."""
    if alias is None:
        return text
    pieces = _TOKEN.findall(text)
    output_pieces: list[str] = []
    for i, piece in enumerate(pieces):
        follows = bool(output_pieces) and output_pieces[-1] == "."
        if piece.strip("`").lower() == alias.lower() and pieces[i + 1 : i + 2] == ["."] and not follows:
            pieces[i + 1] = ""
            continue
        output_pieces.append(piece)
    return "".join(output_pieces)


def _refuse(column: Any) -> NoReturn:
    raise InvalidPredicate(
        f'The Column {str(column)[:200]} cannot be converted to equivalent SQL text. Name columns with F.col("id"), not '
        "df.id, which belongs to a DataFrame; or give the SQL text, such as \"born < DATE'2000-01-01'\""
    )


def _of_classic(node: Any, column: Any) -> str:
    """Render a JVM node."""
    kind = node.getClass().getSimpleName()
    if kind == "UnresolvedAttribute":
        parts = node.nameParts()
        return _name([parts.apply(at) for at in range(parts.size())])
    if kind == "Literal":
        return _literal(_java_value(node, column), column)
    if kind == "SqlExpression":
        return _raw(node.expression())
    if kind == "UnresolvedFunction" and not (
        node.isDistinct() or node.isUserDefinedFunction() or node.isInternal()
    ):
        found = node.arguments()
        arguments = [_of_classic(found.apply(at), column) for at in range(found.size())]
        return _call(node.functionName(), arguments, column)
    if kind == "Cast":
        mode = node.evalMode().toString()
        return _cast(_of_classic(node.child(), column), node.dataType().sql(), mode, column)
    if kind == "CaseWhenOtherwise":
        pairs = [node.branches().apply(at) for at in range(node.branches().size())]
        branches = [(_of_classic(pair._1(), column), _of_classic(pair._2(), column)) for pair in pairs]
        rest = node.otherwise()
        return _case(branches, _of_classic(rest.get(), column) if rest.isDefined() else None)
    _refuse(column)


def _java_value(node: Any, column: Any) -> Any:
    value = node.value()
    if not hasattr(value, "getClass"):
        return value
    match value.getClass().getName():
        case "java.sql.Date" | "java.time.LocalDate":
            return dt.date.fromisoformat(value.toString())
        case "java.sql.Timestamp":
            micros = value.getNanos() // 1000
            return _EPOCH + dt.timedelta(seconds=value.getTime() // 1000, microseconds=micros)
    _refuse(column)


def _of_connect(node: Any, column: Any) -> str:
    """Render a Connect expression."""
    # ruff: noqa: SLF001 - no public API
    kind = type(node).__name__
    if kind == "ColumnReference" and node._plan_id is None:
        return _name(_parts(node._unparsed_identifier, column))
    if kind == "LiteralExpression":
        return _literal(_connect_value(node, column), column)
    if kind == "SQLExpression":
        return _raw(node._expr)
    if kind == "UnresolvedFunction" and not node._is_distinct:
        return _call(node._name, [_of_connect(each, column) for each in node._args], column)
    if kind == "CastExpression":
        target = node._data_type if isinstance(node._data_type, str) else node._data_type.simpleString()
        return _cast(_of_connect(node._expr, column), target, str(node._eval_mode), column)
    if kind == "CaseWhen":
        branches = [(_of_connect(when, column), _of_connect(then, column)) for when, then in node._branches]
        rest = node._else_value
        return _case(branches, None if rest is None else _of_connect(rest, column))
    _refuse(column)


def _connect_value(node: Any, column: Any) -> Any:
    value = node._value
    name = type(node._dataType).__name__
    if value is None or name in ("BooleanType", "StringType", "BinaryType", "DecimalType"):
        return value
    if name in ("ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType"):
        return value
    if name == "DateType" and isinstance(value, int):
        return (_EPOCH + dt.timedelta(days=value)).date()
    if name == "TimestampType" and isinstance(value, int):
        return _EPOCH + dt.timedelta(microseconds=value)
    _refuse(column)


def _literal(value: Any, column: Any) -> str:
    try:
        return literal(bytes(value) if isinstance(value, bytearray) else value)
    except BadRequest:
        _refuse(column)


def _raw(text: str) -> str:
    # The newline ends a trailing comment.
    return f"({text}\n)" if "--" in text else f"({text})"


def _cast(value: str, kind: str, mode: str, column: Any) -> str:
    if mode == "None":
        return f"CAST({value} AS {kind})"
    if "try" in mode.lower():
        return f"TRY_CAST({value} AS {kind})"
    _refuse(column)


def _case(branches: Sequence[tuple[str, str]], rest: str | None) -> str:
    text = "".join(f" WHEN {when} THEN {then}" for when, then in branches)
    return f"CASE{text}{'' if rest is None else f' ELSE {rest}'} END"


def _parts(identifier: str, column: Any) -> list[str]:
    """Split ``a.`b c``` into its parts."""
    parts: list[str] = []
    at = 0
    while at < len(identifier):
        found = _PART.match(identifier, at)
        if found is None or found[0] == "":
            _refuse(column)
        parts.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        at = found.end()
    if not parts or "*" in parts:
        _refuse(column)
    return parts


def _name(parts: Sequence[str]) -> str:
    return ".".join(backticked(part) for part in parts)


def _call(name: str, arguments: Sequence[str], column: Any) -> str:
    key = name.lower()
    if key in _INFIX and len(arguments) == _BINARY:
        return f"({arguments[0]} {_INFIX[key]} {arguments[1]})"
    if key in _PREFIX and len(arguments) == 1:
        return f"({_PREFIX[key]}{arguments[0]})"
    if key in _SUFFIX and len(arguments) == 1:
        return f"({arguments[0]} {_SUFFIX[key]})"
    if key == "in" and len(arguments) >= _BINARY:
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    if _FUNCTION.fullmatch(name) and key not in {*_INFIX, *_PREFIX, *_SUFFIX, "in"}:
        return f"{name}({', '.join(arguments)})"
    _refuse(column)
