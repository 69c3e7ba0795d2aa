"""Outer bounds: what a writer's minimum or maximum says about the values of a file, after what the writer may have lost.

PROTOCOL.md, "Per-file Statistics", lets writers round: a minimum may be too low and a maximum too high. Writers round the
wrong way, too. deltalake computes the bounds of decimals as doubles, Spark cuts timestamps to milliseconds, programs whose
JSON numbers are doubles round long integers, and text may be cut without the character that keeps a maximum above what was
cut off. A log does not say who wrote a file, so :func:`outer_bounds` decides by the value alone: where a lossy writer could
have written it, the bound is moved outwards by the most that this writer can lose; where none could, it is exact.
"""

from decimal import Context, Decimal
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.expressions.expression_kinds import INTEGER_TYPES
from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType
from delvec_kernel.statistics.literal_bounds import DECIMAL_DIGITS

__all__ = ["OuterBounds", "as_mask", "bound_type", "outer_bounds", "stored_type"]

_MILLISECOND: Final = 1000
_CHARACTERS: Final = 32
"""The length to which Spark cuts text. Writers in UTF-16 count a character above U+FFFF twice, or leave half of it."""
_BYTES: Final = 64
"""The length to which Parquet writers in Rust cut text, at the end of a character of at most 4 bytes."""
_LAST_CHARACTER: Final = "\U0010ffff"
_TWO_UNITS: Final = "[\U00010000-\U0010ffff]"
_HALF_CHARACTER: Final = "[?\ufffd]{1,2}$"
"""What encoders write for the first half of a character that was cut in two, and the last character that old Sparks put there."""
_OLD_LAST_CHARACTER: Final = "\ufffd"
"""What delta-spark before 3.3 appends to a maximum that it has cut, at a length that can be set. Characters of two units are above
it, and count as below: what begins with one may have been cut off."""

_DOUBLE_DIGITS: Final = 15
"""A double tells any two decimals of up to 15 digits apart, so it can only be written for one of them."""
_WRITTEN_DIGITS: Final = 17
"""Digits in which any double is written, unless all its digits are."""
_MORE_DIGITS: Final = np.array([1e17, 1e18])
_FLOAT_DIGITS: Final = 9
"""Digits in which any float is written."""
_EXACT_INTEGERS: Final = 2**53
_LOSS_BITS: Final = 50
"""A bound computed and written as a double differs from the value by less than 2**-50 of it: deltalake rounds three times, by
at most 2**-53 each."""
_INTEGER_ENDS: Final = Decimal(-(2**63)), Decimal(2**63 - 1)
"""deltalake casts the bounds of decimals without fraction to 64 bits, and writes these for all that lie beyond."""

_WIDE: Final = Context(prec=DECIMAL_DIGITS + 1)


class OuterBounds(NamedTuple):
    """Lower or upper bounds of a column, one per file.

    Attributes:
        values: in the types of ``literal_bounds``; null where unknown. None: unknown for all files.
        exact: whether the writer certainly wrote the least or greatest value itself. False where unknown; no nulls.
    """

    values: pa.Array | None
    exact: pa.BooleanArray


def bound_type(data_type: DataType) -> pa.DataType | None:
    """Return the Arrow type of a column's bounds; None where it has none."""
    kind = data_type.name if isinstance(data_type, PrimitiveType) else ""
    days_or_flags = kind in {"boolean", "date", "timestamp", "timestamp_ntz"}
    return pa.int64() if days_or_flags else stored_type(data_type)


def stored_type(data_type: DataType) -> pa.DataType | None:
    """Return the Arrow type in which a bound is read from JSON; None where bounds are not used."""
    if isinstance(data_type, DecimalType):
        return pa.decimal128(DECIMAL_DIGITS, data_type.scale)
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in INTEGER_TYPES:
        return pa.int64()
    if name in {"float", "double"}:
        return pa.float64()
    return pa.string() if name in {"string", "date", "timestamp", "timestamp_ntz"} else None


def outer_bounds(bounds: pa.Array, data_type: DataType, *, upper: bool) -> OuterBounds:
    """Return what the minimums or maximums of a column, as writers stated them, imply.

    Args:
        bounds: in the column's own type, timestamps in microseconds; or as :func:`bound_type`.
        data_type: of the column, one that has bounds.
        upper: whether they are maximums.
    """
    name = data_type.name if isinstance(data_type, PrimitiveType) else "decimal"
    never = pa.array(np.zeros(len(bounds), np.bool_))
    if name in {"float", "double"}:
        # Writers that copy a Parquet footer's maximum ignore NaN, which sorts above every number.
        return OuterBounds(None if upper else _least_number(bounds, single=name == "float"), never)
    if name == "date":
        return OuterBounds(bounds.cast(pa.int32()).cast(pa.int64()), pc.is_valid(bounds))
    if name in {"timestamp", "timestamp_ntz"}:
        return OuterBounds(_beyond_millisecond(bounds.cast(pa.int64()), upper=upper), never)
    if name == "string":
        return OuterBounds(_beyond_cut(bounds) if upper else bounds, never)
    bounds = bounds.cast(bound_type(data_type))
    if isinstance(data_type, DecimalType):
        return _decimals(bounds, data_type, upper=upper)
    return _integers(bounds, upper=upper)


def _least_number(bounds: pa.Array, *, single: bool) -> pa.Array:
    low = bounds.cast(pa.float64())
    nearest = bounds.cast(pa.float32(), safe=False).cast(pa.float64())
    if not single and pc.any(pc.less(nearest, low)).as_py():
        # The column may have been a float column. Its 0.7 is written so, but is 0.699999988 as a double.
        short = pc.less_equal(_digits(low), _FLOAT_DIGITS)
        # No float is written as a number that is too large or too small for one.
        is_float = pc.and_(pc.is_finite(nearest), pc.not_equal(nearest, 0.0))
        nearest = pc.if_else(pc.and_(pc.and_(short, is_float), pc.less(nearest, low)), nearest, low)
    low = nearest if single else pc.min_element_wise(low, nearest, skip_nulls=False)
    return pc.if_else(pc.is_finite(low), low, pa.scalar(None, pa.float64()))


def _beyond_millisecond(micros: pa.Array, *, upper: bool) -> pa.Array:
    """Add what writers cut to milliseconds lose: they round down or, before 1970, towards the epoch."""
    if upper:
        return pc.add(micros, _MILLISECOND)
    return pc.if_else(pc.less_equal(micros, 0), pc.subtract(micros, _MILLISECOND), micros)


def _beyond_cut(highest: pa.Array) -> pa.Array:
    """Return text above all that begins with a maximum, if it has a length to which writers cut."""
    characters, size = pc.utf8_length(highest), pc.binary_length(highest)
    units = pc.add(characters, pc.count_substring_regex(highest, _TWO_UNITS))
    near_end = [
        pc.equal(characters, _CHARACTERS),
        pc.and_(pc.greater(units, characters), pc.is_in(units, pa.array([_CHARACTERS - 1, _CHARACTERS]))),
        pc.and_(pc.greater(size, _BYTES - 4), pc.less_equal(size, _BYTES)),
    ]
    cut = pc.or_(
        pc.or_(near_end[0], near_end[1]), pc.or_(near_end[2], pc.ends_with(highest, _OLD_LAST_CHARACTER))
    )
    if not pc.any(cut).as_py():
        return highest
    whole = pc.replace_substring_regex(highest, _HALF_CHARACTER, "")
    return pc.if_else(cut, pc.binary_join_element_wise(whole, _LAST_CHARACTER, ""), highest)


# --- numbers that may have been doubles ---------------------------------------------------------------------


def _integers(bounds: pa.Array, *, upper: bool) -> OuterBounds:
    valid = pc.is_valid(bounds)
    numbers = pc.fill_null(bounds, 0).to_numpy(zero_copy_only=False)
    large = np.flatnonzero((numbers >= _EXACT_INTEGERS) | (numbers <= -_EXACT_INTEGERS))
    rounded_positions = large[_may_be_double(numbers[large])]
    if not len(rounded_positions):
        return OuterBounds(bounds, valid)
    ends = np.iinfo(np.int64)
    moved_numbers, margin = numbers.copy(), np.abs(numbers[rounded_positions] >> _LOSS_BITS) + 1
    moved_numbers[rounded_positions] = (
        np.minimum(numbers[rounded_positions], ends.max - margin) + margin
        if upper
        else np.maximum(numbers[rounded_positions], ends.min + margin) - margin
    )
    exact = np.ones(len(numbers), np.bool_)
    exact[rounded_positions] = False
    return OuterBounds(
        pa.array(moved_numbers, pa.int64(), mask=~as_mask(valid)),
        pc.and_(valid, pa.array(exact)),
    )


def _may_be_double(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which integers of at least 2**53 a program may have written for a double."""
    doubles = numbers.astype(np.float64)
    inside = doubles < 2.0**63
    every_digit = inside & (np.where(inside, doubles, 0).astype(np.int64) == numbers)
    # Digits beyond the 17th, of which a long has two at most, are then zeros.
    step = 10 ** np.searchsorted(_MORE_DIGITS, np.abs(doubles), side="right")
    may: npt.NDArray[np.bool_] = every_digit | (numbers % step == 0)
    return may


def _decimals(bounds: pa.Array, data_type: DecimalType, *, upper: bool) -> OuterBounds:
    valid = pc.is_valid(bounds)
    unit = Decimal(1).scaleb(-data_type.scale)
    if data_type.precision <= _DOUBLE_DIGITS:
        return OuterBounds(bounds, valid)
    least = pa.scalar(Decimal(10**_DOUBLE_DIGITS).scaleb(-data_type.scale), bounds.type)
    large = pc.fill_null(pc.greater_equal(pc.abs(bounds), least), fill_value=False)
    if not pc.any(large).as_py():
        return OuterBounds(bounds, valid)
    numbers = bounds.filter(large)
    doubles = _text(numbers).cast(pa.float64())
    # One digit more, since the double may be 10**38.
    wide = pa.decimal256(DECIMAL_DIGITS + 1, data_type.scale)
    is_rounded = pc.or_(
        pc.less_equal(_digits(numbers), _WRITTEN_DIGITS),
        pc.equal(doubles.cast(wide), numbers.cast(wide)),
    )
    # No value is beyond those of the type. Unary minus would round to 28 digits.
    most = Decimal(10**data_type.precision - 1).scaleb(-data_type.scale, _WIDE)
    loss = pc.multiply(pc.abs(doubles), 2.0**-_LOSS_BITS).cast(bounds.type)
    margin = pc.add(loss.cast(wide), pa.scalar(unit, wide))
    if most >= _INTEGER_ENDS[-1]:
        at_ends = [pc.equal(numbers, pa.scalar(end, numbers.type)) for end in _INTEGER_ENDS]
        is_rounded = pc.or_(is_rounded, pc.or_(*at_ends))
        margin = pc.if_else(at_ends[upper], pa.scalar(most, wide), margin)
    moved_numbers = (pc.add if upper else pc.subtract)(numbers.cast(wide), margin)
    limits = [pa.scalar(each, moved_numbers.type) for each in (most.copy_negate(), most)]
    moved_numbers = pc.min_element_wise(pc.max_element_wise(moved_numbers, limits[0]), limits[1]).cast(
        bounds.type
    )
    all_rounded = pc.replace_with_mask(large, large, is_rounded)
    values = pc.replace_with_mask(bounds, large, pc.if_else(is_rounded, moved_numbers, numbers))
    return OuterBounds(values, pc.and_(valid, pc.invert(all_rounded)))


def _text(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string())


def _digits(numbers: pa.Array) -> pa.Array:
    """Return the count of significant digits."""
    plain = pc.replace_substring_regex(_text(numbers), r"[-.]|[eE].*$", "")
    return pc.utf8_length(pc.utf8_trim(plain, "0"))


def as_mask(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return booleans without nulls for NumPy."""
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.bool_)
