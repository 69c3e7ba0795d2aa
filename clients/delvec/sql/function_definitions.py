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


def _cases(names: str, first: int) -> str:
    return " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(names.split(), first))


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
    "negative": "-(a)",
    "e": "2.718281828459045D",
    "nanvl": "CASE WHEN isnan(a) THEN b ELSE a END",
    "get": "CASE WHEN b >= 0 AND b < size(a) THEN try_element_at(a, b + 1) END",
    "array_repeat": (
        "CASE WHEN b IS NULL THEN NULL WHEN b < 1 THEN filter(array(a), delvec_element -> FALSE) "
        "ELSE transform(sequence(1, CAST(b AS INT)), delvec_element -> a) END"
    ),
    "zip_with": (
        "CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN transform(filter(sequence(1, CAST(greatest(size(a), size(b), 1) AS INT)), "
        "x -> x <= greatest(size(a), size(b))), x -> p) END"
    ),
    "map_filter": "map_from_arrays(filter(map_keys(a), x -> p), transform(filter(map_keys(a), x -> p), x -> a[x]))",
    "transform_keys": "map_from_arrays(transform(map_keys(a), x -> p), map_values(a))",
    "transform_values": "map_from_arrays(map_keys(a), transform(map_keys(a), x -> p))",
    "map_concat": (
        "CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN map_from_entries(flatten(array(map_entries(a), map_entries(b)))) END"
    ),
    "regexp_substr": "nullif(regexp_extract(a, b, 0), '')",
    "dayname": f"CASE weekday(a) {_cases('Mon Tue Wed Thu Fri Sat Sun', 0)} END",
    "monthname": f"CASE month(a) {_cases('Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec', 1)} END",
    "any": "bool_or(a)",
    "every": "bool_and(a)",
    "some": "bool_or(a)",
}
_WITH_LAMBDA: Final = frozenset({"exists", "forall"})
_OF_ENTRIES: Final = frozenset({"map_filter", "transform_keys", "transform_values"})
"""Of maps, with functions of keys and values."""

_PARAMETERS: Final = frozenset("abpx")
_CLASSES: Final[dict[type[exp.Expr], str]] = {
    exp.Any: "any",
    exp.ArrayDistinct: "array_distinct",
    exp.ArrayExcept: "array_except",
    exp.ArrayIntersect: "array_intersect",
    exp.Dayname: "dayname",
    exp.Exists: "exists",
    exp.MapContainsKey: "map_contains_key",
    exp.Monthname: "monthname",
    exp.Nanvl: "nanvl",
    exp.Negative: "negative",
    exp.RegexpSubstr: "regexp_substr",
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
    match arguments:
        case [array, exp.Lambda(this=body, expressions=[element])] if name in _WITH_LAMBDA:
            return {"a": array, "p": exp.Paren(this=body), "x": element}
        case [of, exp.Lambda(expressions=[key, value]) as function] if name in _OF_ENTRIES:
            body = _substituted(function, {value.name: exp.Bracket(this=of, expressions=[key])})
            return None if body is None else {"a": of, "p": body, "x": key}
        case [left, right, exp.Lambda(expressions=[one, other]) as function] if name == "zip_with":
            position = _unused(function)
            body = _substituted(function, {one.name: _at(left, position), other.name: _at(right, position)})
            return None if body is None else {"a": left, "b": right, "p": body, "x": position}
    is_plain = name not in _WITH_LAMBDA and len(arguments) <= len("ab")
    return dict(zip("ab", arguments, strict=False)) if is_plain else None


def _at(array: exp.Expr, position: exp.Expr) -> exp.Expr:
    """Return ``try_element_at(array, position)``."""
    return exp.Bracket(this=array, expressions=[position], offset=1, safe=True)


def _unused(function: exp.Lambda) -> exp.Identifier:
    """Return a variable that a function does not have."""
    name, known = "delvec_position", {one.name for one in function.find_all(exp.Identifier)}
    while name in known:
        name += "_"
    return exp.to_identifier(name)


def _substituted(function: exp.Lambda, values: dict[str, exp.Expr]) -> exp.Expr | None:
    """Return the body of a function with values in place of its variables; None if an inner function has one of that name."""
    body = exp.Paren(this=function.this.copy())
    inner = {one.name for each in body.find_all(exp.Lambda) for one in each.expressions}
    if inner & {one.name for one in function.expressions}:
        return None
    for one in [each for each in body.find_all(exp.Identifier) if each.name in values]:
        if not isinstance(one.parent, exp.Dot) or one.arg_key == "this":
            place = one.parent if isinstance(one.parent, exp.Column) else one
            place.replace(values[one.name].copy())
    return body


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
    calls = [
        one for one in argument.find_all(exp.Func, exp.Anonymous) if not isinstance(one, exp.GenerateSeries)
    ]
    return argument.find(exp.Query) is None and all(map(is_deterministic_function, calls))
