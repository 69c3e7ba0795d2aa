"""Which rows of a file can satisfy a predicate, by the bounds of its pages.

Pages of different columns begin at different rows. All their starts together split the file into stretches, each inside one
page of every column, so that :mod:`~delvec_kernel.data_skipping.truth` can take stretches as files.

Tested in `tests/integration/engines/test_page_pruning.py`.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.data_skipping.truth import Folded, truth_of
from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType, StructType
from delvec_kernel.statistics.bounds import Bounds, Path, leaf_type
from delvec_kernel.statistics.literal_bounds import DECIMAL_DIGITS
from delvec_kernel.statistics.outer_bounds import bound_type
from delvec_parquet.page_index import PageBounds
from delvec_parquet.primitive_columns import Column

__all__ = ["ColumnPages", "bounds_of_pages", "is_understood", "joined_pages", "rows_that_may_match"]

_MAX_RANGES: Final = 16
"""DuckDB tests each row that it reads against all ranges."""
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_PHYSICAL_BITS: Final = {"int32": 32, "int64": 64}
_FIXED_BYTES: Final = 16
_FIRST_YEAR: Final = 1900


@dataclass(frozen=True)
class ColumnPages:
    """The pages of a column.

    Attributes:
        starts: their first rows, counted from the file's first; ascending, from 0.
        bounds: the bounds of each page.
    """

    starts: npt.NDArray[np.int64]
    bounds: Bounds


def is_understood(  # noqa: PLR0911 - one answer per type
    column: Column, data_type: DataType
) -> bool:
    """Whether the bounds of a file's column are those of the table's column, however the file was written.

    Not so for floating-point numbers, whose bounds may leave out NaN and the sign of zero, INT96, and timestamps in other
    units than the table's; nor for types that readers convert with more than a wider range.
    """
    if not column.is_ordered:
        return False
    kind, bits = column.kind, _PHYSICAL_BITS.get(column.physical, 0)
    if isinstance(data_type, DecimalType):
        is_number = bool(bits) or (column.physical == "fixed" and 0 < column.length <= _FIXED_BYTES)
        same = kind.scale == data_type.scale and 0 < kind.precision <= data_type.precision
        return is_number and kind.name == "decimal" and same
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in _BITS:
        return kind.name == "integer" and 0 < (kind.bits or bits) <= _BITS[name] and kind.bits <= bits
    if name == "string":
        return column.physical == "binary" and kind.name == "string"
    if name == "date":
        return column.physical == "int32" and kind.name == "date"
    if name in {"timestamp", "timestamp_ntz"}:
        is_micros = column.physical == "int64" and kind.name == "timestamp" and kind.unit == "us"
        return is_micros and kind.is_utc == (name == "timestamp")
    return False


def bounds_of_pages(pages: PageBounds, column: Column, data_type: DataType) -> Bounds:
    """Return the bounds of a column chunk's pages, in the types of ``literal_bounds``.

    Args:
        pages: the column index.
        column: the column of the file, one that :func:`is_understood`.
        data_type: the data type of the table.

    Raises:
        ValueError: a bound is not a value of the column, or above the other bound.
    """
    only_null = pages.only_null
    low, high = (_values(each, ~only_null, column, data_type) for each in (pages.minimums, pages.maximums))
    if pc.any(pc.greater(low, high)).as_py():
        raise ValueError("the bounds of a page are in the wrong order")
    nullable = np.ones(len(pages), np.bool_) if pages.null_counts is None else pages.null_counts != 0
    return Bounds(low, high, nullable | only_null, only_null)


def joined_pages(
    data_type: DataType, groups: Sequence[tuple[int, tuple[npt.NDArray[np.int64], Bounds] | None]]
) -> ColumnPages:
    """Return the pages of a column over all row groups.

    Args:
        data_type: the data type of the table.
        groups: of each row group its first row, and the starts of its pages, from 0, with their bounds; None if nothing is
            known about it.
    """
    unknown = pa.nulls(1, bound_type(data_type))
    may, never = np.ones(1, np.bool_), np.zeros(1, np.bool_)
    starts, bounds = [], []
    for first, known in groups:
        at, found = known or (np.zeros(1, np.int64), Bounds(unknown, unknown, may, never))
        starts.append(at + first)
        bounds.append(found)
    return ColumnPages(
        np.concatenate(starts),
        Bounds(
            pa.concat_arrays([each.low for each in bounds]),
            pa.concat_arrays([each.high for each in bounds]),
            np.concatenate([each.nullable for each in bounds]),
            np.concatenate([each.only_null for each in bounds]),
        ),
    )


def rows_that_may_match(
    predicate: Folded,
    schema: StructType,
    columns: Mapping[Path, ColumnPages],
    num_rows: int,
    others: Mapping[Path, tuple[Any, Any]] | None = None,
) -> list[range]:
    """Return ascending ranges that contain every row for which a predicate can be TRUE.

    Args:
        predicate: over ``schema``.
        schema: the schema of the table, or of the relations that the predicate reads.
        columns: the pages of some of its columns, at least one.
        num_rows: the number of rows of the file.
        others: least and greatest values of columns of another relation, each row of which is joined with each of the
            file's. Those of types without exact bounds are not used.
    """
    starts = np.unique(np.concatenate([each.starts for each in columns.values()]))
    column_bounds = {
        path: each.bounds.take(np.searchsorted(each.starts, starts, side="right") - 1)
        for path, each in columns.items()
    }
    for path, values in (others or {}).items():
        low, high = (_scalar(each, leaf_type(path, schema)) for each in values)
        if low is not None and high is not None:
            may, never = np.ones(len(starts), np.bool_), np.zeros(len(starts), np.bool_)
            column_bounds[path] = Bounds(
                pa.repeat(low, len(starts)), pa.repeat(high, len(starts)), may, never
            )
    may = truth_of(predicate, schema, column_bounds, len(starts)).true
    edges = np.flatnonzero(np.diff(may, prepend=False, append=False))
    ends = np.append(starts, num_rows)[edges].reshape(-1, 2)
    return _fewer([range(start, stop) for start, stop in ends.tolist()])


def _scalar(value: Any, data_type: DataType) -> pa.Scalar | None:
    """Return a Python value in the type of ``literal_bounds``; None if that is not exact or not known."""
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in _BITS and type(value) is int:
        return pa.scalar(value, pa.int64())
    if name == "string" and type(value) is str:
        return pa.scalar(value, pa.string())
    # Earlier days may be in Spark 2's calendar in a file.
    if name == "date" and type(value) is dt.date and value.year >= _FIRST_YEAR:
        return pa.scalar((value - dt.date(1970, 1, 1)).days, pa.int64())
    return None


def _fewer(ranges: list[range]) -> list[range]:
    """Join ranges over the smallest gaps until there are few."""
    if len(ranges) <= _MAX_RANGES:
        return ranges
    gaps = [after.start - before.stop for before, after in pairwise(ranges)]
    widest = sorted(np.argsort(gaps)[len(gaps) - _MAX_RANGES + 1 :].tolist())
    firsts, lasts = [0, *(place + 1 for place in widest)], [*widest, len(ranges) - 1]
    return [range(ranges[first].start, ranges[last].stop) for first, last in zip(firsts, lasts, strict=True)]


# --- values -------------------------------------------------------------------------------------------------


def _values(
    bounds: Sequence[bytes], has_bound: npt.NDArray[np.bool_], column: Column, data_type: DataType
) -> pa.Array:
    """Decode bounds in Parquet's plain encoding; null where not ``has_bound``.

    Raises:
        ValueError: one is not a value of the column.
    """
    if column.physical == "binary":
        return pa.array(
            [
                _text(each) if is_known else None
                for each, is_known in zip(bounds, has_bound.tolist(), strict=True)
            ],
            pa.string(),
        )
    size = column.length if column.physical == "fixed" else _PHYSICAL_BITS[column.physical] // 8
    whole = [
        each if is_known else bytes(size) for each, is_known in zip(bounds, has_bound.tolist(), strict=True)
    ]
    if any(len(each) != size for each in whole):
        raise ValueError("a bound has the wrong length")
    if isinstance(data_type, DecimalType):
        order: Literal["big", "little"] = "big" if column.physical == "fixed" else "little"
        return _decimals([int.from_bytes(each, order, signed=True) for each in whole], has_bound, column)
    numbers = np.frombuffer(b"".join(whole), f"<i{size}").astype(np.int64)
    if column.kind.bits:
        limit = 1 << column.kind.bits - 1
        if numbers.min() < -limit or numbers.max() > limit - 1:
            raise ValueError("a bound is out of the range of its type")
    return pa.array(numbers, pa.int64(), mask=~has_bound)


def _text(stored: bytes) -> str | None:
    """Decode text; None if it is not valid, as where a writer cut it inside a character."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return None


def _decimals(numbers: Sequence[int], has_bound: npt.NDArray[np.bool_], column: Column) -> pa.Array:
    limit = 10**column.kind.precision
    if any(abs(each) >= limit for each in numbers):
        raise ValueError("a bound has more digits than its type")
    data = b"".join(each.to_bytes(16, "little", signed=True) for each in numbers)
    kind = pa.decimal128(DECIMAL_DIGITS, column.kind.scale)
    whole = pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(data)])
    return pc.if_else(pa.array(has_bound), whole, pa.scalar(None, kind))
