"""Functions of Spark that DuckDB lacks or has otherwise, each defined by others whose meaning is the same on both.

A definition is Spark's SQL with the arguments in place of its parameters, so that types, NULL and errors are those of the functions
and operators it is made of, which :mod:`delvec.sql.spark_values` then writes for DuckDB.

Tested in `tests/integration/engines/test_spark_values.py`.
"""

from functools import cache
from typing import Final

from sqlglot import exp

from delvec_kernel.expressions.spark_dialect import SPARK, is_deterministic_function

__all__ = ["define_functions"]

_BEFORE: Final = "slice(a, 1, delvec_index)"
_DISTINCT: Final = "(delvec_element, delvec_index) -> size(filter({before}, delvec_other -> delvec_other <=> delvec_element)) = 0"
_IN: Final = "size(filter(b, delvec_other -> delvec_other <=> delvec_element))"
_DEFINED: Final = {
    # a and b stand for the arguments, or x -> p for a function.
    "pmod": "CASE WHEN a % b < 0 THEN (a % b + b) % b ELSE a % b END",
    "exists": (
        "CASE WHEN a IS NULL THEN NULL WHEN size(filter(a, x -> p)) > 0 THEN TRUE "
        "WHEN size(filter(a, x -> p IS NULL)) > 0 THEN NULL ELSE FALSE END"
    ),
    "forall": (
        "CASE WHEN a IS NULL THEN NULL WHEN size(filter(a, x -> NOT p)) > 0 THEN FALSE "
        "WHEN size(filter(a, x -> p IS NULL)) > 0 THEN NULL ELSE TRUE END"
    ),
    "array_distinct": f"filter(a, {_DISTINCT.format(before=_BEFORE)})",
    "array_except": f"CASE WHEN b IS NOT NULL THEN array_distinct(filter(a, delvec_element -> {_IN} = 0)) END",
    "array_intersect": f"CASE WHEN b IS NOT NULL THEN array_distinct(filter(a, delvec_element -> {_IN} > 0)) END",
    "array_union": "CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN array_distinct(flatten(array(a, b))) END",
    "arrays_overlap": (
        "CASE WHEN a IS NULL OR b IS NULL THEN NULL "
        "WHEN size(filter(a, delvec_element -> size(filter(b, delvec_other -> delvec_other = delvec_element)) > 0)) > 0 "
        "THEN TRUE WHEN size(a) > 0 AND size(b) > 0 AND (size(filter(a, delvec_element -> delvec_element IS NULL)) > 0 "
        "OR size(filter(b, delvec_element -> delvec_element IS NULL)) > 0) THEN NULL ELSE FALSE END"
    ),
    "map_contains_key": "array_contains(map_keys(a), b)",
    "btrim": "trim(a)",
    "positive": "a",
    "any": "bool_or(a)",
    "every": "bool_and(a)",
    "some": "bool_or(a)",
}
_WITH_LAMBDA: Final = frozenset({"exists", "forall"})


_PARAMETERS: Final = frozenset("abpx")
_CLASSES: Final[dict[type[exp.Expr], str]] = {
    exp.Any: "any",
    exp.ArrayDistinct: "array_distinct",
    exp.ArrayExcept: "array_except",
    exp.ArrayIntersect: "array_intersect",
    exp.Exists: "exists",
    exp.MapContainsKey: "map_contains_key",
}
"""Those that sqlglot has classes for."""


def define_functions(query: exp.Expr) -> None:
    """Put their definitions in place of the calls of a query in Spark's SQL; those with other arguments stay, to be refused.

    The second parameter of a function that filters or transforms an array counts from 1 in DuckDB, as it then does here.
    """
    _define(query)
    for call in query.find_all(exp.ArrayFilter, exp.Transform):
        given = call.expression
        if isinstance(given, exp.Lambda) and len(given.expressions) > 1:
            index = given.expressions[1]
            for one in [each for each in given.this.find_all(exp.Identifier) if each.name == index.name]:
                if not isinstance(one.parent, exp.Dot) or one.arg_key == "this":
                    one.replace(exp.Var(this=f"CAST({one.sql(dialect='duckdb')} - 1 AS INTEGER)"))


def _define(query: exp.Expr) -> None:
    for call in list(query.find_all(exp.Anonymous, *_CLASSES))[::-1]:  # the inner ones first
        arguments = _arguments(call)
        name = call.name.lower() if isinstance(call, exp.Anonymous) else _CLASSES[type(call)]
        values = _values(name, arguments)
        is_quantifier = isinstance(call, exp.Any) and isinstance(call.parent, exp.Binary)  # LIKE ANY (...)
        if name not in _DEFINED or values is None or is_quantifier or not all(map(_is_repeatable, arguments)):
            continue
        definition = _definition(name).copy()
        if _parameters(definition) == values.keys():
            call.replace(exp.Paren(this=_filled(definition, values)))


@cache
def _definition(name: str) -> exp.Expr:
    """Return the definition of a function, made of none that is defined here."""
    (query,) = SPARK.parse(f"SELECT {_DEFINED[name]}")
    assert isinstance(query, exp.Select)  # noqa: S101 - for the type checker
    _define(query)
    definition: exp.Expr = query.expressions[0]
    for node in definition.walk():
        node.meta.clear()  # it has no place in the user's statement
    return definition


def _arguments(call: exp.Expr) -> list[exp.Expr]:
    if isinstance(call, exp.Anonymous):
        return list(call.expressions)
    given = [call.this, *(call.args.get(name) for name in ("expression", "key")), *call.expressions]
    return [one for one in given if isinstance(one, exp.Expr)]


def _values(name: str, arguments: list[exp.Expr]) -> dict[str, exp.Expr] | None:
    if name not in _WITH_LAMBDA:
        return dict(zip("ab", arguments, strict=False)) if len(arguments) <= len("ab") else None
    match arguments:
        case [array, exp.Lambda(this=body, expressions=[element])]:
            return {"a": array, "p": exp.Paren(this=body), "x": element}
    return None


def _parameters(definition: exp.Expr) -> set[str]:
    return {one.name for one in definition.find_all(exp.Identifier)} & _PARAMETERS


def _filled(definition: exp.Expr, values: dict[str, exp.Expr]) -> exp.Expr:
    for one in [each for each in definition.find_all(exp.Identifier) if each.name in _PARAMETERS]:
        # A parameter is a column, but the element of an array in a function is an identifier.
        place = one.parent if isinstance(one.parent, exp.Column) else one
        if place is definition:
            return values[one.name].copy()
        place.replace(values[one.name].copy())
    return definition


def _is_repeatable(argument: exp.Expr) -> bool:
    calls = argument.find_all(exp.Func, exp.Anonymous)
    return argument.find(exp.Query) is None and all(map(is_deterministic_function, calls))
