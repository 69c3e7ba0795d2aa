"""Random expressions, each as Spark's text and as a function of Python's that gives what Spark gives."""

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from tests.interop.dml_values import INTEGERS, POOLS, FailedValueError, compare, literal, whole

__all__ = ["Expression", "Expressions", "Scope", "both", "read", "tested"]

COMPARED = {
    "short",
    "int",
    "long",
    "float",
    "double",
    "decimal(10,2)",
    "string",
    "boolean",
    "date",
    "timestamp",
}
TESTS = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}
PATTERNS = {
    "a%": lambda text: text.startswith("a"),
    "%é%": lambda text: "é" in text,
    "_": lambda text: len(text) == 1,
    "%'%": lambda text: "'" in text,
    "%\\%": lambda text: text.endswith("%"),
}


@dataclass(frozen=True)
class Expression:
    """A condition or a value.

    Attributes:
        sql: Spark's text.
        kind: of the value.
        of: gives the value for rows by the names that they go by.
    """

    sql: str
    kind: str
    of: Callable

    def is_true(self, **rows):
        return self.of(rows) is True


@dataclass(frozen=True)
class Scope:
    """Columns that may be read, and the name before the dot.

    Attributes:
        rows: the name of the rows in :attr:`Expression.of`.
        prefix: what stands before a column's name.
    """

    rows: str
    prefix: str
    columns: tuple


class Expressions:
    """A source of random expressions over some scopes."""

    def __init__(self, random, scopes):
        self._random = random
        self._columns = [(scope, column) for scope in scopes for column in scope.columns]

    # --- conditions -------------------------------------------------------------------------------------------

    def condition(self, depth=2):
        """Return a random condition."""
        roll = self._random.random()
        if depth and roll < 0.2:
            return both(self.condition(depth - 1), self.condition(depth - 1))
        if depth and roll < 0.4:
            return either(self.condition(depth - 1), self.condition(depth - 1))
        if depth and roll < 0.48:
            return negated(self.condition(depth - 1))
        return self._test()

    def _test(self):  # noqa: PLR0911 - one answer per kind
        random = self._random
        compared = [each for each in self._columns if each[1].kind in COMPARED]
        if random.random() < 0.15 or not compared:
            return self._null_test()
        scope, column = random.choice(compared)
        value, kind = read(scope, column), column.kind
        roll = random.random()
        if kind == "boolean" and roll < 0.4:
            return value
        if kind == "string" and roll < 0.3:
            return self._text_test(value)
        if kind in {"float", "double"} and roll < 0.15:
            return Expression(f"isnan({value.sql})", "boolean", lambda rows: _nan(value.of(rows)))
        if roll < 0.4:
            return self._in(value)
        if roll < 0.5:
            low, high = self.constant(kind), self.constant(kind)
            text = f"{value.sql} BETWEEN {low.sql} AND {high.sql}"
            return Expression(
                f"({text})", "boolean", both(tested(value, ">=", low), tested(value, "<=", high)).of
            )
        if roll < 0.7:
            others = [each for each in compared if each[1].kind == kind]
            return tested(value, self._operator(), read(*random.choice(others)))
        if roll < 0.8 and kind not in {"boolean", "float"}:
            value = self.value(kind)
        return tested(value, self._operator(), self.constant(kind))

    def _operator(self):
        return self._random.choice([*TESTS, "=", "<=>", ">="])

    def _null_test(self):
        value = read(*self._random.choice(self._columns))
        if self._random.random() < 0.5:
            return Expression(f"({value.sql} IS NULL)", "boolean", lambda rows: value.of(rows) is None)
        return Expression(f"({value.sql} IS NOT NULL)", "boolean", lambda rows: value.of(rows) is not None)

    def _text_test(self, value):
        pattern, test = self._random.choice(list(PATTERNS.items()))
        return Expression(f"({value.sql} LIKE {literal(pattern, 'string')})", "boolean", strict(test, value))

    def _in(self, value):
        members = [self.constant(value.kind) for _ in range(self._random.randint(1, 3))]
        if self._random.random() < 0.1:
            members.append(Expression("NULL", value.kind, lambda _: None))
        found = tested(value, "=", members[0])
        for member in members[1:]:
            found = either(found, tested(value, "=", member))
        return Expression(
            f"({value.sql} IN ({', '.join(each.sql for each in members)}))", "boolean", found.of
        )

    # --- values -----------------------------------------------------------------------------------------------

    def constant(self, kind):
        """Return a literal of a kind."""
        value = self._random.choice(POOLS[kind])
        return Expression(literal(value, kind), kind, lambda _: value)

    def value(self, kind, depth=1):
        """Return an expression whose value may be assigned to a column of a kind, though it may not fit."""
        random = self._random
        roll = random.random()
        same = [each for each in self._columns if each[1].kind == kind]
        if roll < 0.06:
            return Expression("NULL", kind, lambda _: None)
        if same and (roll < 0.2 or kind in {"array", "map", "binary"}):
            return read(*random.choice(same))
        if depth and roll < 0.35 and kind not in {"array", "map", "struct", "binary", "float"}:
            yes, no = self.value(kind, 0), self.value(kind, 0)
            if yes.kind == no.kind:
                return chosen(self.condition(1), yes, no)
        made = self._made(kind, same)
        if made is not None:
            return made
        return (
            Expression("NULL", kind, lambda _: None)
            if kind in {"array", "map", "struct"}
            else self.constant(kind)
        )

    def _made(self, kind, same):  # noqa: C901, PLR0911 - one answer per kind
        random = self._random
        if kind == "struct":
            x, y = self.value("int", 0), self.value("string", 0)
            if x.kind != "int":
                return None
            text = f"named_struct('x', {x.sql}, 'y', {y.sql})"
            return Expression(text, kind, lambda rows: {"x": x.of(rows), "y": y.of(rows)})
        if kind in INTEGERS:
            return self._number()
        if kind == "string":
            return self._text()
        if not same:
            return None
        value = read(*random.choice(same))
        if kind == "boolean":
            return self.condition(1)
        if kind == "double":
            return self._double(value)
        if kind.startswith("decimal"):
            return self._decimal(value)
        if kind == "date":
            days = random.randint(-40, 40)
            moved = strict(lambda day: _moved(day, days), value)
            return Expression(f"date_add({value.sql}, {days})", kind, moved)
        if kind == "timestamp":
            hours = random.randint(1, 50)
            moved = strict(lambda at: at + dt.timedelta(hours=hours), value)
            return Expression(f"({value.sql} + INTERVAL {hours} HOUR)", kind, moved)
        if random.random() < 0.5:
            other = self.constant(kind)
            return Expression(
                f"coalesce({value.sql}, {other.sql})",
                kind,
                lambda rows: other.of(rows) if value.of(rows) is None else value.of(rows),
            )
        return None

    def _number(self):  # noqa: PLR0911 - one answer per kind
        random = self._random
        numbers = [each for each in self._columns if each[1].kind in INTEGERS]
        roll = random.random()
        texts = [each for each in self._columns if each[1].kind == "string"]
        if texts and roll < 0.15:
            text = read(*random.choice(texts))
            return Expression(f"length({text.sql})", "int", strict(len, text))
        dates = [each for each in self._columns if each[1].kind == "date"]
        if dates and roll < 0.25:
            day = read(*random.choice(dates))
            return Expression(f"year({day.sql})", "int", strict(lambda each: each.year, day))
        doubles = [each for each in self._columns if each[1].kind == "double"]
        if doubles and roll < 0.33:
            number = read(*random.choice(doubles))
            return Expression(
                f"CAST({number.sql} AS BIGINT)", "long", strict(lambda each: whole(each, 64), number)
            )
        if not numbers:
            return None
        value = read(*random.choice(numbers))
        if roll < 0.45:
            bits = INTEGERS[value.kind]
            return Expression(
                f"abs({value.sql})", value.kind, strict(lambda each: whole(abs(each), bits), value)
            )
        if roll < 0.55:
            kind = _wider(value.kind, "int")
            by = random.randint(2, 9)
            return Expression(f"({value.sql} % {by})", kind, strict(lambda each: _remainder(each, by), value))
        other = read(*random.choice(numbers)) if roll < 0.7 else _int(random.randint(-3, 12))
        return arithmetic(value, random.choice("+-*"), other)

    def _double(self, value):
        random = self._random
        roll = random.random()
        if roll < 0.3:
            return Expression(f"(- {value.sql})", "double", strict(lambda each: -each, value))
        if roll < 0.5:
            return Expression(f"({value.sql} / 4)", "double", strict(lambda each: each / 4, value))
        number = random.choice([2.0, 0.5, -1.5])
        other = Expression(f"CAST({number} AS DOUBLE)", "double", lambda _: number)
        if roll < 0.75:
            return Expression(
                f"({value.sql} + {other.sql})", "double", strict(lambda each: each + number, value)
            )
        return Expression(f"({value.sql} * {other.sql})", "double", strict(lambda each: each * number, value))

    def _decimal(self, value):
        random = self._random
        number = Decimal(random.choice(["0.05", "1.5", "-2.25", "100"]))
        if random.random() < 0.5:
            return Expression(
                f"({value.sql} + {number})", "decimal", strict(lambda each: each + number, value)
            )
        return Expression(f"({value.sql} * {number})", "decimal", strict(lambda each: each * number, value))

    def _text(self):  # noqa: PLR0911 - one answer per kind
        random = self._random
        texts = [each for each in self._columns if each[1].kind == "string"]
        numbers = [each for each in self._columns if each[1].kind in INTEGERS]
        roll = random.random()
        if numbers and (roll < 0.15 or not texts):
            value = read(*random.choice(numbers))
            return Expression(f"CAST({value.sql} AS STRING)", "string", strict(str, value))
        if not texts:
            return None
        value = read(*random.choice(texts))
        if roll < 0.3:
            return Expression(f"upper({value.sql})", "string", strict(str.upper, value))
        if roll < 0.4:
            return Expression(f"lower({value.sql})", "string", strict(str.lower, value))
        if roll < 0.5:
            return Expression(f"substring({value.sql}, 1, 2)", "string", strict(lambda text: text[:2], value))
        if roll < 0.6:
            return Expression(f"trim({value.sql})", "string", strict(lambda text: text.strip(" "), value))
        if roll < 0.7:
            other = self.constant("string")
            return Expression(
                f"coalesce({value.sql}, {other.sql})",
                "string",
                lambda rows: other.of(rows) if value.of(rows) is None else value.of(rows),
            )
        other = read(*random.choice(texts)) if roll < 0.8 else self.constant("string")
        join = "concat({}, {})" if roll < 0.9 else "({} || {})"
        return Expression(
            join.format(value.sql, other.sql), "string", strict(lambda a, b: a + b, value, other)
        )


# --- parts --------------------------------------------------------------------------------------------------


def read(scope, column):
    """Return the expression that is a column."""
    rows, name = scope.rows, column.name
    return Expression(f"{scope.prefix}{column.quoted}", column.kind, lambda given: given[rows][name])


def strict(function, *values):
    """Return the evaluation of a function that is NULL where an argument is."""

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


def both(left, right):
    def of(rows):
        found = left.of(rows), right.of(rows)
        return False if False in found else None if None in found else True

    return Expression(f"({left.sql} AND {right.sql})", "boolean", of)


def either(left, right):
    def of(rows):
        found = left.of(rows), right.of(rows)
        return True if True in found else None if None in found else False

    return Expression(f"({left.sql} OR {right.sql})", "boolean", of)


def negated(one):
    return Expression(f"(NOT {one.sql})", "boolean", strict(lambda value: not value, one))


def chosen(condition, yes, no):
    return Expression(
        f"CASE WHEN {condition.sql} THEN {yes.sql} ELSE {no.sql} END",
        yes.kind,
        lambda rows: (yes if condition.of(rows) is True else no).of(rows),
    )


def arithmetic(left, operator, right):
    """Return a sum, difference or product of whole numbers, which fails where it overflows."""
    kind = _wider(left.kind, right.kind)
    does = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}[operator]
    bits = INTEGERS[kind]
    return Expression(
        f"({left.sql} {operator} {right.sql})",
        kind,
        strict(lambda a, b: whole(does(a, b), bits), left, right),
    )


def _int(number):
    return Expression(str(number), "int", lambda _: number)


def _wider(left, right):
    return left if INTEGERS[left] >= INTEGERS[right] else right


def _remainder(number, by):
    found = abs(number) % by
    return -found if number < 0 else found


def _nan(value):
    return value is not None and math.isnan(value)


def _moved(day, days):
    try:
        return day + dt.timedelta(days=days)
    except OverflowError as error:
        raise FailedValueError(day) from error
