"""Converts conditions of pyarrow, deltalake and polars to Spark's SQL.

Tested in `tests/integration/client/test_peer_names.py`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final

from delvec_errors import BadRequest
from delvec_kernel.expressions.literals import literal
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import PrimitiveType, StructType

__all__ = ["both", "of_polars", "of_tuples"]

_OPERATORS: Final = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_LIST_OPERATORS: Final = {"in": "IN", "not in": "NOT IN"}
_PARTS: Final = 3
_USAGE: Final = (
    'filters must be a list of tuples such as [("age", ">", 17), ("country", "in", ["NZ", "AU"])], '
    "or a list of such lists, of which one must match; or give predicate=\"age > 17 AND country IN ('NZ', 'AU')\""
)
_OF_POLARS: Final = {"Eq": "=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_NULL_TESTS: Final = {"IsNull": "IS NULL", "IsNotNull": "IS NOT NULL"}
_EPOCH: Final = date(1970, 1, 1)


def of_tuples(filters: Any) -> str | None:
    """Return ``filters`` of pyarrow and deltalake as a condition: tuples that must all match, or lists of them.

    Raises:
        BadRequest: they are something else, such as a pyarrow expression.
    """
    if filters is None or filters == []:
        return None
    if not isinstance(filters, Sequence) or isinstance(filters, str):
        raise BadRequest(f"{_USAGE} (given: {type(filters).__name__})")
    if all(isinstance(each, tuple) for each in filters):
        return _all(filters)
    if all(isinstance(each, list) and each for each in filters):
        return " OR ".join(f"({_all(each)})" for each in filters)
    raise BadRequest(_USAGE)


def both(predicate: str | None, filters: Any) -> str | None:
    """Return a condition and filters as one condition."""
    other = of_tuples(filters)
    if predicate is None or other is None:
        return predicate if other is None else other
    return f"({predicate}) AND ({other})"


def _all(filters: Sequence[Any]) -> str:
    return " AND ".join(_comparison(each) for each in filters)


def _comparison(given: Any) -> str:
    if not isinstance(given, tuple) or len(given) != _PARTS or not isinstance(given[0], str):
        raise BadRequest(f"{_USAGE} (given: {given!r})")
    column, operator, value = given
    name, operator = backticked(column), str(operator).strip().lower()
    if operator in _LIST_OPERATORS:
        if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
            raise BadRequest(f"the filter on '{column}' needs a list of values after '{operator}'")
        values = ", ".join(literal(each) for each in value)
        return (
            f"{name} {_LIST_OPERATORS[operator]} ({values})" if values else str(operator == "not in").upper()
        )
    if operator not in _OPERATORS:
        known = ", ".join([*_OPERATORS, *_LIST_OPERATORS])
        raise BadRequest(f"the operator of a filter must be one of {known}, not '{operator}'")
    if value is None:
        if operator in ("=", "==", "!="):
            return f"{name} IS {'NOT ' if operator == '!=' else ''}NULL"
        raise BadRequest(f"the filter on '{column}' compares with None; use = or != instead")
    return f"({name} {_OPERATORS[operator]} {literal(value)})"


def of_polars(expression: Any, schema: StructType) -> str | None:
    """Return the parts of a polars expression that mean the same in SQL, to skip files; None if there are none.

    Only comparisons of whole numbers, texts and dates, and tests for NULL, joined by AND. Other parts are left out, so
    the result may match more rows than the expression.
    """
    try:
        tree = json.loads(expression.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 - some expressions cannot be serialized
        return None
    return " AND ".join(_conjuncts(tree, schema)) or None


def _conjuncts(tree: Any, schema: StructType) -> list[str]:
    kind, inside = _node(tree)
    if kind == "BinaryExpr" and inside.get("op") == "And":
        return [*_conjuncts(inside["left"], schema), *_conjuncts(inside["right"], schema)]
    if kind == "BinaryExpr" and inside.get("op") in _OF_POLARS:
        column, value = _column(inside["left"], schema), _value(inside["right"])
        if column is not None and value is not None and value[0](schema.field(column).type):
            return [f"{backticked(column)} {_OF_POLARS[inside['op']]} {literal(value[1])}"]
    if kind == "Function":
        test = _NULL_TESTS.get(str(inside.get("function", {}).get("Boolean")))
        column = _column(inside["input"][0], schema)
        if test is not None and column is not None:
            return [f"{backticked(column)} {test}"]
    return []


def _node(tree: Any) -> tuple[str, Any]:
    if isinstance(tree, Mapping) and len(tree) == 1:
        ((kind, inside),) = tree.items()
        return kind, inside
    return "", {}


def _column(tree: Any, schema: StructType) -> str | None:
    kind, name = _node(tree)
    return name if kind == "Column" and any(field.name == name for field in schema.fields) else None


def _value(tree: Any) -> tuple[Callable[[Any], bool], Any] | None:
    """Return a constant, and the column types that polars and Spark compare with it in the same way."""
    kind, inside = _node(tree)
    if kind != "Literal":
        return None
    _, scalar = _node(inside)
    name, value = _node(scalar)
    if name.startswith(("Int", "UInt")) and isinstance(value, int):
        return _is_whole, value
    if name == "String" and isinstance(value, str):
        return _is_text, value
    if name == "Date" and isinstance(value, int):
        return _is_date, _EPOCH + timedelta(days=value)
    return None


def _is_whole(kind: Any) -> bool:
    return kind in [PrimitiveType(name) for name in ("byte", "short", "integer", "long")]


def _is_text(kind: Any) -> bool:
    return bool(kind == PrimitiveType("string"))


def _is_date(kind: Any) -> bool:
    return bool(kind == PrimitiveType("date"))
