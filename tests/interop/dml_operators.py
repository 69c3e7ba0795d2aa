"""Expressions, each as Spark SQL and as a Python function, and the operators that combine them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from tests.interop.dml_values import (
    INTEGERS,
    FailedValueError,
    UncertainValueError,
    compare,
    literal,
    whole,
)

__all__ = [
    "TESTS",
    "Expression",
    "Scope",
    "arithmetic",
    "both",
    "chosen",
    "constant",
    "either",
    "is_nan",
    "negated",
    "nothing",
    "or_else",
    "read",
    "remainder",
    "strict",
    "tested",
    "wider",
]

TESTS = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


@dataclass(frozen=True)
class Expression:
    """A condition or a value.

    Attributes:
        sql: the expression in Spark SQL.
        kind: the value's type.
        of: computes the value from rows, given by name.
    """

    sql: str
    kind: str
    of: Callable

    def is_true(self, **rows):
        return self.of(rows) is True


@dataclass(frozen=True)
class Scope:
    """Columns that may be read, and their qualifier.

    Attributes:
        rows: the name of the rows in :attr:`Expression.of`.
        prefix: the qualifier before a column's name.
    """

    rows: str
    prefix: str
    columns: tuple


def constant(value, kind):
    """Return a literal."""
    return Expression(literal(value, kind), kind, lambda _: value)


def nothing(kind):
    return Expression("NULL", kind, lambda _: None)


def read(scope, column):
    """Return the expression that reads a column, or a field of one."""
    rows = scope.rows
    return Expression(f"{scope.prefix}{column.quoted}", column.kind, lambda given: column.value(given[rows]))


def or_else(value, other):
    """Return COALESCE of two values."""
    return Expression(
        f"coalesce({value.sql}, {other.sql})",
        value.kind,
        lambda rows: other.of(rows) if value.of(rows) is None else value.of(rows),
    )


def strict(function, *values):
    """Return the evaluator of a function that is NULL if any argument is."""

    def of(rows):
        found = [value.of(rows) for value in values]
        return None if any(each is None for each in found) else function(*found)

    return of


def tested(left, operator, right):
    """Return a comparison."""
    if operator == "<=>":

        def of(rows):
            a, b = left.of(rows), right.of(rows)
            return (a is None and b is None) if a is None or b is None else compare(a, b) == 0

    else:
        of = strict(lambda a, b: TESTS[operator](compare(a, b)), left, right)
    return Expression(f"({left.sql} {operator} {right.sql})", "boolean", of)


def _looked_at(condition, rows):
    """Evaluate a condition that engines may skip.

    Raises:
        UncertainValueError: it fails, if it is evaluated at all.
    """
    try:
        return condition.of(rows)
    except FailedValueError as error:
        raise UncertainValueError(*error.args) from error


def both(left, right):
    def of(rows):
        found = _looked_at(left, rows), _looked_at(right, rows)
        return False if False in found else None if None in found else True

    return Expression(f"({left.sql} AND {right.sql})", "boolean", of)


def either(left, right):
    def of(rows):
        found = _looked_at(left, rows), _looked_at(right, rows)
        return True if True in found else None if None in found else False

    return Expression(f"({left.sql} OR {right.sql})", "boolean", of)


def negated(one):
    return Expression(f"(NOT {one.sql})", "boolean", strict(lambda value: not value, one))


def chosen(condition, yes, no):
    return Expression(
        f"CASE WHEN {condition.sql} THEN {yes.sql} ELSE {no.sql} END",
        yes.kind,
        lambda rows: (yes if _looked_at(condition, rows) is True else no).of(rows),
    )


def arithmetic(left, operator, right):
    """Return a sum, difference or product of integers; overflow is an error."""
    kind = wider(left.kind, right.kind)
    does = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}[operator]
    bits = INTEGERS[kind]
    return Expression(
        f"({left.sql} {operator} {right.sql})",
        kind,
        strict(lambda a, b: whole(does(a, b), bits), left, right),
    )


def wider(left, right):
    return left if INTEGERS[left] >= INTEGERS[right] else right


def remainder(number, by):
    found = abs(number) % by
    return -found if number < 0 else found


def is_nan(value):
    return value is not None and math.isnan(value)
