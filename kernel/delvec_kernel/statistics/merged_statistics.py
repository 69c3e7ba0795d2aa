"""Statistics of a compacted file, merged from those of its source files."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from math import copysign, isfinite
from re import ASCII
from re import compile as pattern
from typing import Any, Final

import pyarrow as pa

from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType, StructType
from delvec_kernel.statistics.file_statistics import Number, bound, dump, load
from delvec_kernel.statistics.outer_bounds import outer_bounds, stored_type

__all__ = ["merged"]

_DAY: Final = pattern(r"\d{4}-\d{2}-\d{2}", ASCII)
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_TIMESTAMPS: Final = frozenset({"timestamp", "timestamp_ntz"})
_COMPARABLE: Final = _INTEGERS | _TIMESTAMPS | {"float", "double", "string", "date"}


def merged(statistics: Sequence[str], num_rows: Sequence[int], schema: StructType) -> str:
    """Return the ``stats`` of a file that holds all physical rows of several files.

    Null counts are summed. With wide bounds only 0 and "all rows" are meaningful, and the sum keeps both. A bound is the
    outermost as written, unless another one may stand for a value beyond it, which its writer has rounded or cut.

    Args:
        statistics: JSON text of each file, as in the log.
        num_rows: physical rows of each file.
        schema: of the table; it determines how bounds compare.

    Raises:
        CorruptLog: the statistics of a file are not a JSON object.
    """
    parsed_statistics = [load(each) for each in statistics]
    rows = sum(num_rows)
    sides = [
        [each.get(side) for each in parsed_statistics] for side in ("minValues", "maxValues", "nullCount")
    ]
    merging = _StatisticsMerger(num_rows)
    low, high, nulls = merging.struct(sides, schema)
    return dump(
        {
            "numRecords": Number(rows),
            "minValues": low,
            "maxValues": high,
            "nullCount": nulls,
            "tightBounds": merging.are_exact
            and all(each.get("tightBounds") is not False for each in parsed_statistics),
        }
    )


class _StatisticsMerger:
    """The bounds and null counts of one merged file.

    Attributes:
        are_exact: whether each bound is as exact as those that it was merged from.
    """

    def __init__(self, num_rows: Sequence[int]) -> None:
        self.are_exact = True
        self._num_rows = num_rows

    def struct(
        self, sides: Sequence[Sequence[Any]], schema: StructType
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return minimums, maximums and null counts, given those of each file, at one level of the schema."""
        merged_sides: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})
        for item in schema.fields:
            name = item.physical_name
            below = [[_get(each, name) for each in side] for side in sides]
            if isinstance(item.type, StructType):
                for side, inner in zip(merged_sides, self.struct(below, item.type), strict=True):
                    if inner:
                        side[name] = inner
                continue
            counts = [_count(each) for each in below[2]]
            null_counts = [each for each in counts if each is not None]
            if len(null_counts) == len(counts):
                merged_sides[2][name] = Number(sum(null_counts))
            # A file with only nulls has no bounds, and must not make the others' unknown.
            has_values = [count != rows for count, rows in zip(counts, self._num_rows, strict=True)]
            if any(_are_reversed(low, high, item.type) for low, high in zip(*below[:2], strict=True)):
                continue
            for side, values, upper in (
                (merged_sides[0], below[0], False),
                (merged_sides[1], below[1], True),
            ):
                outermost = self._outermost(
                    [each for each, is_needed in zip(values, has_values, strict=True) if is_needed],
                    item.type,
                    upper=upper,
                )
                if outermost is not None:
                    side[name] = outermost
        return merged_sides

    def _outermost(self, values: Sequence[Any], kind: DataType, *, upper: bool) -> Any:
        """Return the least or greatest bound; None where one is missing or they cannot be compared."""
        keys = [_key(each, kind) for each in values]
        if not keys or any(key is None for key in keys):
            return None
        choose = max if upper else min
        try:
            place = choose(range(len(keys)), key=keys.__getitem__)
            implied_bounds = _implied(keys, kind, upper=upper)
        except (
            TypeError,
            pa.ArrowInvalid,
            OverflowError,
        ):  # timestamps with and without a zone, or numbers out of range
            return None
        if implied_bounds is None or implied_bounds[place] == choose(implied_bounds):
            return values[place]
        self.are_exact = False
        return bound(choose(implied_bounds), kind, upper=upper)


def _are_reversed(low: Any, high: Any, kind: DataType) -> bool:
    """Return whether a minimum exceeds its maximum, which says that the writer compares in another order."""
    least, greatest = _key(low, kind), _key(high, kind)
    try:
        return least is not None and greatest is not None and bool(least > greatest)
    except TypeError:  # timestamps with and without a zone
        return True


def _implied(keys: Sequence[Any], kind: DataType, *, upper: bool) -> list[Any] | None:
    """Return the outer bounds that bounds imply; None where they have the same order."""
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name == "date" or name in _TIMESTAMPS:
        return None
    stated = [key[0] for key in keys] if name in {"float", "double"} else keys
    values = outer_bounds(pa.array(stated, stored_type(kind)), kind, upper=upper).values
    return None if values is None else list(values.to_pylist())


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _count(value: Any) -> int | None:
    try:
        return int(value) if isinstance(value, Number) and int(value) >= 0 else None
    except ValueError:
        return None


def _key(value: Any, kind: DataType) -> Any:  # noqa: PLR0911 - one answer per type
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if not (isinstance(kind, DecimalType) or name in _COMPARABLE):
        return None
    try:
        if name in _INTEGERS:
            return int(value) if isinstance(value, Number) else None
        if isinstance(kind, DecimalType):
            exact = Decimal(value) if isinstance(value, Number) else None
            return exact if exact is not None and exact.is_finite() else None
        if name in {"float", "double"}:
            number = float(value) if isinstance(value, Number) else float("nan")
            # -0.0 equals 0.0, but some readers order them.
            return (number, copysign(1.0, number)) if isfinite(number) else None
        if not isinstance(value, str) or isinstance(value, Number):
            return None
        if name == "date":
            return value if _DAY.fullmatch(value) else None
        return datetime.fromisoformat(value) if name in _TIMESTAMPS else value
    except (ValueError, InvalidOperation, OverflowError):
        return None
