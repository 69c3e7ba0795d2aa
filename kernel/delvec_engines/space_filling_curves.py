"""Sort keys for Z-order and clustering: positions on a Hilbert curve through the values of several columns.

Neighbors on the curve are close in every column, so that files cut from it have narrow ranges
in all of them. Each column is divided into ranges of about equally many rows, based on a sample; the range numbers
are a row's coordinates, and its position on the curve is the sort key. Every order is correct: a bad sample makes
wider ranges, but never loses a row.

The curve is that of J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.schema.column_paths import ColumnPath

__all__ = ["SAMPLE_ROWS", "CurveKeys", "curve_position"]

SAMPLE_ROWS: Final = 100_000
"""Rows in the sample that determines the ranges of each column."""

_KEY_BITS: Final = 62
_MAX_BITS: Final = 12
"""Maximum bits per coordinate: the sample cannot resolve more ranges."""
_TEXT_BYTES: Final = 16
"""Bytes of a string after the sample's common prefix that are compared."""

_ROWS_AT_ONCE: Final = 1 << 15
"""Twice as fast as a million rows at once, because arrays stay in the CPU cache."""

Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class _Ranges:
    """Maps the values of one column to coordinates.

    Attributes:
        column: the path of the column, by the names of the schema.
        borders: lower bounds of all ranges but the first, ascending.
        prefix: common prefix of the sample's strings; None for other types.
    """

    column: ColumnPath
    borders: npt.NDArray[Any]
    prefix: bytes | None

    def of(self, values: pa.Array, bits: int) -> Numbers:
        """Return each value's coordinate, below ``2 ** bits``; 0 for NULL."""
        found = np.searchsorted(self.borders, _comparable(values, self.prefix), side="right") + 1
        # A column of few values has wide ranges, or it would only matter between rows that agree in all others.
        spread = found * ((1 << bits) - 1) // (len(self.borders) + 1)
        return np.where(values.is_null().to_numpy(zero_copy_only=False), 0, spread).astype(np.uint64)


@dataclass(frozen=True)
class CurveKeys:
    """Computes sort keys; built from a sample, and small enough to be sent to tasks."""

    ranges: Sequence[_Ranges]

    @classmethod
    def of(cls, sample: pa.Table, columns: Sequence[ColumnPath]) -> Self:
        """Build the keys from a sample with these columns at top level."""
        bits = _bits(len(columns))
        return cls([_ranges(_values(sample, path), path, bits) for path in columns])

    def __call__(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return the key of each row, int64."""
        bits = _bits(len(self.ranges))
        keys = [np.zeros(0, np.int64)]
        for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
            part = rows.slice(start, _ROWS_AT_ONCE)
            coordinates = [each.of(_values(part, each.column), bits) for each in self.ranges]
            keys.append(curve_position(coordinates, bits).astype(np.int64))
        return pa.array(np.concatenate(keys))


def curve_position(coordinates: Sequence[Numbers], bits: int) -> Numbers:
    """Return the position of each point on the Hilbert curve.

    Args:
        coordinates: one array for each dimension, below ``2 ** bits``.
        bits: at most 32, and 64 divided by the number of dimensions.
    """
    axes = [each.astype(np.uint32) for each in coordinates]
    for place in range(bits - 1, 0, -1):
        lower = np.uint32((1 << place) - 1)
        for number, axis in enumerate(axes):
            # All bits below where the axis has the bit, else none: what a condition would choose, without one.
            inverted = (np.uint32(0) - ((axis >> np.uint32(place)) & np.uint32(1))) & lower
            exchanged = (axes[0] ^ axis) & (inverted ^ lower)
            axes[0] ^= inverted | exchanged
            axes[number] ^= exchanged
    for number in range(1, len(axes)):
        axes[number] ^= axes[number - 1]
    flips = np.zeros_like(axes[-1])
    for place in range(bits - 1, 0, -1):
        flips ^= (np.uint32(0) - ((axes[-1] >> np.uint32(place)) & np.uint32(1))) & np.uint32(
            (1 << place) - 1
        )
    position = np.zeros(len(flips), np.uint64)
    axes = [axis ^ flips for axis in axes]
    for place in range(bits - 1, -1, -1):
        for axis in axes:
            position <<= np.uint64(1)
            position |= (axis >> np.uint32(place)) & np.uint32(1)
    return position


def _bits(dimensions: int) -> int:
    return max(1, min(_MAX_BITS, _KEY_BITS // dimensions))


def _values(rows: pa.Table | pa.RecordBatch, path: ColumnPath) -> pa.Array:
    found = rows.column(path[0])
    for name in path[1:]:
        found = pc.struct_field(found, name)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found


def _ranges(values: pa.Array, path: ColumnPath, bits: int) -> _Ranges:
    known = values.drop_null()
    prefix = _common_prefix(known) if _is_text(known.type) else None
    sorted_values = np.sort(_comparable(known, prefix))
    if sorted_values.dtype.kind == "f":
        sorted_values = sorted_values[~np.isnan(sorted_values)]  # comes behind every border
    if not len(sorted_values):
        return _Ranges(path, sorted_values, prefix)
    count = min(len(sorted_values), (1 << bits) - 1)
    return _Ranges(path, np.unique(sorted_values[np.arange(1, count) * len(sorted_values) // count]), prefix)


def _comparable(values: pa.Array, prefix: bytes | None) -> npt.NDArray[Any]:
    """Return values in a form that numpy orders correctly; NULLs become arbitrary values."""
    kind = values.type
    if prefix is not None:
        return _texts(values, prefix)
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    return np.asarray(pc.fill_null(values, pa.scalar(0, values.type)).to_numpy(zero_copy_only=False))


def _texts(values: pa.Array, prefix: bytes) -> npt.NDArray[Any]:
    """Return the bytes of each string after a common prefix; strings without it become bytes that sort correctly."""
    whole = pc.fill_null(_large(values), b"")
    length = len(prefix)
    rest = _fixed(whole, length, _TEXT_BYTES)
    if not length:
        return rest
    head = _fixed(whole, 0, length)
    expected = np.array(prefix, dtype=f"S{length}")
    # Strings without the prefix sort before or after all others.
    rest[head < expected] = b""
    rest[head > expected] = b"\xff" * _TEXT_BYTES
    return rest


def _common_prefix(values: pa.Array) -> bytes:
    if not len(values):
        return b""
    bounds = pc.min_max(_large(values)).as_py()
    low, high = bytes(bounds["min"]), bytes(bounds["max"])
    same = 0
    while same < min(len(low), len(high), 1 << 10) and low[same] == high[same]:
        same += 1
    return low[:same]


def _large(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_binary())


def _fixed(values: pa.Array, start: int, width: int) -> npt.NDArray[Any]:
    """Return ``width`` bytes of each value from ``start``, padded with zero bytes, which numpy ignores."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    if data is None or not data.size:
        return np.zeros(len(values), f"S{width}")
    octets = np.frombuffer(data, np.uint8)
    places = (ends[:-1] + start)[:, None] + np.arange(width)
    is_there = places < ends[1:, None]
    found = np.where(is_there, octets[np.minimum(places, len(octets) - 1)], 0).astype(np.uint8)
    return np.ascontiguousarray(found).view(f"S{width}").reshape(len(values))


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)
