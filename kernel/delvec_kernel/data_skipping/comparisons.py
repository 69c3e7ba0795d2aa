"""Three-valued comparisons of bounds: comparison operators, IN and LIKE.

Tested in `tests/unit/kernel/data_skipping/test_skipping.py` and
`tests/unit/kernel/data_skipping/test_skipping_rows.py`.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from delvec_kernel.statistics.bounds import Bounds, Mask

__all__ = ["FEW", "LikePattern", "Truth", "compared", "matched", "one_of"]


@dataclass(frozen=True)
class LikePattern:
    """The prefix of a LIKE pattern, and what may follow it.

    Attributes:
        prefix: the prefix of every matching value.
        rest: ``nothing`` if only the prefix itself matches, ``anything`` if every value with it does,
            ``something`` if only some do.
    """

    prefix: str
    rest: Literal["nothing", "anything", "something"]

    @classmethod
    def parse(cls, pattern: str, escape: str = "\\") -> "LikePattern | None":
        """Split ``pattern`` at its first wildcard; None if Spark would reject its escapes."""
        prefix: list[str] = []
        position = 0
        while position < len(pattern):
            char = pattern[position]
            if char == escape:
                position += 1
                if pattern[position : position + 1] not in {"%", "_", escape}:
                    return None
                prefix.append(pattern[position])
            elif char in "%_":
                rest = pattern[position:]
                return cls("".join(prefix), "anything" if set(rest) == {"%"} else "something")
            else:
                prefix.append(char)
            position += 1
        return cls("".join(prefix), "nothing")


FEW: Final = 32
"""Lists up to this length are compared member by member."""


@dataclass(frozen=True)
class Truth:
    """The possible truth values of a predicate in each file."""

    true: Mask
    false: Mask
    null: Mask

    def negated(self) -> "Truth":
        """NOT."""
        return Truth(self.false, self.true, self.null)

    def and_(self, other: "Truth") -> "Truth":
        """AND."""
        return Truth(
            self.true & other.true,
            self.false | other.false,
            (self.null & (other.null | other.true)) | (other.null & self.true),
        )

    def or_(self, other: "Truth") -> "Truth":
        """OR."""
        return self.negated().and_(other.negated()).negated()


def compared(operator: type[exp.Expr], a: Bounds, b: Bounds) -> Truth:
    """Compare with ``=``, ``<>``, ``<``, ``<=``, ``>`` or ``>=``; one operand is a column."""
    if operator in {exp.GT, exp.GTE}:
        return compared(exp.LT if operator is exp.GT else exp.LTE, b, a)
    if operator is exp.NEQ:
        return compared(exp.EQ, a, b).negated()
    count = len(a.nullable)
    if operator is exp.EQ:
        true = _may(pc.less_equal, a.low, b.high, count) & _may(pc.less_equal, b.low, a.high, count)
        false = _may(pc.less, a.low, b.high, count) | _may(pc.less, b.low, a.high, count)
    else:
        below, above = (pc.less, pc.greater_equal) if operator is exp.LT else (pc.less_equal, pc.greater)
        true, false = _may(below, a.low, b.high, count), _may(above, a.high, b.low, count)
    some = ~(a.only_null | b.only_null)
    return Truth(true & some, false & some, a.nullable | b.nullable)


def _may(
    compare: Callable[[pa.Array, pa.Array], pa.Array],
    left: pa.Array | None,
    right: pa.Array | None,
    count: int,
) -> Mask:
    if left is None or right is None:
        return np.ones(count, dtype=np.bool_)
    return _numpy(pc.fill_null(compare(left, right), fill_value=True)).astype(np.bool_)


def one_of(bounds: Bounds, values: Sequence[tuple[pa.Scalar, pa.Scalar]]) -> Truth:
    """Evaluate IN over ``values``, each the bounds of a literal."""
    if len(values) > FEW:
        if bounds.low is None:
            return compared(exp.EQ, bounds, bounds)
        if all(low == high for low, high in values):
            return _member(bounds, bounds.low, [low.as_py() for low, _ in values])
    never = np.zeros(len(bounds.nullable), dtype=np.bool_)
    literals = (Bounds(low, high, never, never) for low, high in values)
    return functools.reduce(Truth.or_, [compared(exp.EQ, bounds, each) for each in literals])


def _member(bounds: Bounds, low: pa.Array, values: list[Any]) -> Truth:
    """Evaluate IN over a long sorted list: per file, find the first member not below its lower bound."""
    distinct = sorted(set(values))
    high = low if bounds.high is None else bounds.high
    has_bounds = pc.is_valid(low) if bounds.high is None else pc.and_(pc.is_valid(low), pc.is_valid(high))
    least, most = pa.scalar(distinct[0], low.type), pa.scalar(distinct[-1], low.type)
    lows, highs = _numpy(pc.fill_null(low, least)), _numpy(pc.fill_null(high, most))
    if bounds.high is None:
        highs, has_bounds = np.full_like(lows, distinct[-1]), pc.and_not(has_bounds, has_bounds)
    ordered = np.array(distinct, dtype=lows.dtype)
    first = np.searchsorted(ordered, lows, side="left")
    member = ordered[np.minimum(first, len(ordered) - 1)]
    inside = first < len(ordered)
    true = inside & (member <= highs)
    only = true & _numpy(has_bounds) & (lows == highs) & (member == lows)
    some = ~bounds.only_null
    return Truth(true & some, ~only & some, bounds.nullable)


def matched(bounds: Bounds, pattern: LikePattern) -> Truth:
    """Evaluate LIKE."""
    some, count = ~bounds.only_null, len(bounds.nullable)
    if bounds.low is None or bounds.high is None:
        return Truth(some, some, bounds.nullable)
    prefix = pa.scalar(pattern.prefix)
    start = pc.utf8_slice_codeunits(bounds.low, 0, len(pattern.prefix))
    true = _may(pc.less_equal, start, prefix, count) & _may(pc.less_equal, prefix, bounds.high, count)
    false = np.ones(count, dtype=np.bool_)
    if pattern.rest == "anything":
        ends = (pc.starts_with(each, pattern.prefix) for each in (bounds.low, bounds.high))
        false = _may(pc.not_equal, pc.and_(*ends), pa.scalar(value=True), count)
    elif pattern.rest == "nothing":
        false = _may(pc.not_equal, bounds.low, prefix, count) | _may(pc.not_equal, bounds.high, prefix, count)
    return Truth(true & some, false & some, bounds.nullable)


def _numpy(values: pa.Array) -> npt.NDArray[Any]:
    return np.asarray(values.to_numpy(zero_copy_only=False))
