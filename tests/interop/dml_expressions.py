"""Random expressions, each as Spark SQL and as a Python function with the same result."""

import datetime as dt
from decimal import Decimal

from tests.interop.dml_operators import (
    TESTS,
    Expression,
    arithmetic,
    both,
    chosen,
    constant,
    either,
    is_nan,
    negated,
    nothing,
    or_else,
    read,
    remainder,
    strict,
    tested,
    wider,
)
from tests.interop.dml_values import (
    EXACT,
    INTEGERS,
    NESTED,
    POOLS,
    STRUCTS,
    FailedValueError,
    Field,
    literal,
    whole,
)

__all__ = ["Expressions"]

COMPARED = set(POOLS) - NESTED
_WIDEST = "decimal(38,18)"
PATTERNS = {
    "a%": lambda text: text.startswith("a"),
    "%é%": lambda text: "é" in text,
    "_": lambda text: len(text) == 1,
    "%'%": lambda text: "'" in text,
    "%\\%": lambda text: text.endswith("%"),
}


class Expressions:
    """Generates random expressions over some scopes."""

    def __init__(self, random, scopes):
        self._random = random
        self._columns = [
            (scope, each) for scope in scopes for column in scope.columns for each in _with_fields(column)
        ]

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
            return Expression(f"isnan({value.sql})", "boolean", lambda rows: is_nan(value.of(rows)))
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
            members.append(nothing(value.kind))
        found = tested(value, "=", members[0])
        for member in members[1:]:
            found = either(found, tested(value, "=", member))
        return Expression(
            f"({value.sql} IN ({', '.join(each.sql for each in members)}))", "boolean", found.of
        )

    # --- values -----------------------------------------------------------------------------------------------

    def constant(self, kind):
        """Return a random literal of a type."""
        return constant(self._random.choice(POOLS[kind]), kind)

    def value(self, kind, depth=1):
        """Return an expression that may be assigned to a column of a type, though its value may not fit."""
        random = self._random
        roll = random.random()
        same = [each for each in self._columns if each[1].kind == kind]
        if roll < 0.06:
            return nothing(kind)
        if same and (roll < 0.2 or (kind in NESTED and kind not in STRUCTS)):
            return read(*random.choice(same))
        if depth and roll < 0.35 and kind not in NESTED and kind != "float":
            yes, no = self.value(kind, 0), self.value(kind, 0)
            if yes.kind == no.kind:
                return chosen(self.condition(1), yes, no)
        made = self._made(kind, same)
        if made is not None:
            return made
        return nothing(kind) if kind in NESTED else self.constant(kind)

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
        if kind.startswith("decimal") and kind != _WIDEST:
            return self._decimal(value)
        if kind == "date":
            days = random.randint(-40, 40)
            moved = strict(lambda day: _moved(day, days), value)
            return Expression(f"date_add({value.sql}, {days})", kind, moved)
        if kind in {"timestamp", "timestamp_ntz"}:
            hours = random.randint(1, 50)
            moved = strict(lambda at: at + dt.timedelta(hours=hours), value)
            return Expression(f"({value.sql} + INTERVAL {hours} HOUR)", kind, moved)
        return or_else(value, self.constant(kind)) if kind not in NESTED and random.random() < 0.5 else None

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
            kind = wider(value.kind, "int")
            by = random.randint(2, 9)
            return Expression(f"({value.sql} % {by})", kind, strict(lambda each: remainder(each, by), value))
        other = read(*random.choice(numbers)) if roll < 0.7 else constant(random.randint(-3, 12), "int")
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
                f"({value.sql} + {number})", "decimal", strict(lambda each: EXACT.add(each, number), value)
            )
        times = strict(lambda each: EXACT.multiply(each, number), value)
        return Expression(f"({value.sql} * {number})", "decimal", times)

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
            return or_else(value, self.constant("string"))
        other = read(*random.choice(texts)) if roll < 0.8 else self.constant("string")
        join = "concat({}, {})" if roll < 0.9 else "({} || {})"
        return Expression(
            join.format(value.sql, other.sql), "string", strict(lambda a, b: a + b, value, other)
        )


# --- parts --------------------------------------------------------------------------------------------------


def _with_fields(column):
    """Yield a column and, if it is a struct, its fields."""
    yield column
    for name, kind in STRUCTS.get(column.kind, {}).items():
        yield from _with_fields(Field(column, name, kind))


def _moved(day, days):
    try:
        return day + dt.timedelta(days=days)
    except OverflowError as error:
        raise FailedValueError(day) from error
