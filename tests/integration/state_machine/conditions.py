"""Conditions on rows, as SQL and as Python with SQL's three-valued logic."""

import operator
from dataclasses import dataclass

__all__ = ["EVERYTHING", "PARTS", "Condition", "any_condition", "between_ids", "part_is"]

PARTS = ("a", "b", "c")
_COMPARISONS = {"=": operator.eq, "<": operator.lt, ">=": operator.ge, "<>": operator.ne}


@dataclass(frozen=True)
class Condition:
    """A condition; ``truth`` maps a row to True, False or None.

    Attributes:
        parts: the partitions that it is limited to.
    """

    sql: str
    truth: object
    parts: tuple = PARTS

    def __call__(self, row):
        return self.truth(row) is True

    def __repr__(self):
        return self.sql


EVERYTHING = Condition("true", lambda _: True)


def part_is(part):
    return Condition(f"part = '{part}'", lambda row: row.part == part, (part,))


def between_ids(low, high):
    return Condition(f"id >= {low} AND id <= {high}", lambda row: low <= row.id <= high)


def any_condition(choices, newest_id):
    """Return a condition on rows whose ids go up to ``newest_id``."""
    makers = (
        lambda: _comparison(choices),
        lambda: _some_ids(choices, newest_id),
        lambda: part_is(choices.pick(PARTS)),
        lambda: _both(part_is(choices.pick(PARTS)), _comparison(choices)),
        lambda: choices.pick([_null(), _not(_null())]),
        lambda: _not(_comparison(choices)),
        lambda: _either(_comparison(choices), _comparison(choices)),
        lambda: EVERYTHING,
    )
    return choices.pick(makers)()


def _some_ids(choices, newest_id):
    first = choices.integer(0, newest_id)
    return between_ids(first, first + choices.integer(0, 6))


def _comparison(choices):
    symbol, bound = choices.pick(sorted(_COMPARISONS)), choices.integer(0, 9)
    compare = _COMPARISONS[symbol]
    return Condition(
        f"value {symbol} {bound}", lambda row: None if row.value is None else compare(row.value, bound)
    )


def _null():
    return Condition("value IS NULL", lambda row: row.value is None)


def _not(one):
    def truth(row):
        found = one.truth(row)
        return None if found is None else not found

    return Condition(f"NOT ({one.sql})", truth)


def _both(one, other):
    def truth(row):
        found = one.truth(row), other.truth(row)
        return False if False in found else None if None in found else True

    parts = tuple(part for part in one.parts if part in other.parts)
    return Condition(f"({one.sql}) AND ({other.sql})", truth, parts)


def _either(one, other):
    def truth(row):
        found = one.truth(row), other.truth(row)
        return True if True in found else None if None in found else False

    return Condition(f"({one.sql}) OR ({other.sql})", truth)
