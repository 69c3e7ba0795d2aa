"""Page indexes: where the pages of a column chunk begin, and the bounds of their values.

parquet.thrift, ColumnIndex and OffsetIndex; https://github.com/apache/parquet-format/blob/master/PageIndex.md. An index
that contradicts itself, its column chunk or the other index is an error, for which callers read all pages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from delvec_parquet.footer import ColumnChunk
from delvec_parquet.thrift import BINARY, INTEGERS, LISTS, STRUCT, CompactReader

__all__ = ["PageBounds", "page_bounds", "page_starts"]

_NULL_PAGES, _MINIMUMS, _MAXIMUMS, _NULL_COUNTS = 1, 2, 3, 5
_ELEMENT_TYPES: Final[dict[int, tuple[int, ...]]] = {
    _NULL_PAGES: (1, 2),
    _MINIMUMS: (BINARY,),
    _MAXIMUMS: (BINARY,),
    _NULL_COUNTS: INTEGERS,
}
_TRUE: Final = 1
_LAST_OF_NUMBER: Final = 0x80
_MAX_BYTES: Final = 9


@dataclass(frozen=True, slots=True)
class PageBounds:
    """A ColumnIndex.

    Attributes:
        only_null: whether all values of a page are null; its bounds mean nothing then.
        minimums: the minimums of each page, as in the file; they may be truncated, but are bounds.
        maximums: the maximums of each page, as the minimums.
        null_counts: or None.
    """

    only_null: npt.NDArray[np.bool_]
    minimums: Sequence[bytes]
    maximums: Sequence[bytes]
    null_counts: npt.NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.only_null)


def page_bounds(data: bytes) -> PageBounds:
    """Parse a ColumnIndex.

    Raises:
        ValueError: it is corrupt or contradicts itself.
        IndexError: it is truncated.
    """
    reader = CompactReader(data)
    lists: dict[int, list[bytes]] = {}
    only_null: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
    null_counts: npt.NDArray[np.int64] | None = None
    for number, kind in reader.fields():
        if number not in _ELEMENT_TYPES or kind not in LISTS:
            reader.skip(kind)
            continue
        count, inner = reader.list_header()
        if inner not in _ELEMENT_TYPES[number]:
            raise ValueError("a list of a column index has the wrong type, or is empty")
        if number == _NULL_PAGES:
            only_null = np.frombuffer(reader.take(count), np.uint8) == _TRUE
        elif number == _NULL_COUNTS:
            null_counts = _signed(_varints(data, reader, count))
        else:
            lists[number] = [reader.take(reader.varint()) for _ in reader.items(count)]
    if lists.keys() != {_MINIMUMS, _MAXIMUMS} or reader.at != len(data):
        raise ValueError("a column index lacks its bounds, or does not end where the footer says")
    pages = PageBounds(only_null, lists[_MINIMUMS], lists[_MAXIMUMS], null_counts)
    lengths = [len(pages.minimums), len(pages.maximums), len(pages if null_counts is None else null_counts)]
    if not len(pages) or any(each != len(pages) for each in lengths):
        raise ValueError("the lists of a column index differ in length, or are empty")
    if null_counts is not None and null_counts.min() < 0:
        raise ValueError("a column index has a negative null count")
    return pages


def page_starts(data: bytes, chunk: ColumnChunk, num_rows: int) -> npt.NDArray[np.int64]:
    """Parse the OffsetIndex of a column chunk; return the first row of each page, counted from the row group's.

    Args:
        data: the index.
        chunk: the column chunk.
        num_rows: the number of rows of the row group.

    Raises:
        ValueError: it is corrupt, or its pages are not in order, or outside the chunk or the row group.
        IndexError: it is truncated.
    """
    reader = CompactReader(data)
    pages = np.empty((0, 3), np.int64)
    for number, kind in reader.fields():
        if number == 1 and kind in LISTS:
            count, inner = reader.list_header()
            if inner != STRUCT:
                raise ValueError("an offset index is malformed")
            pages = _locations(data, reader, count)
        else:
            reader.skip(kind)
    if not len(pages) or reader.at != len(data):
        raise ValueError("an offset index has no pages, or does not end where the footer says")
    offsets, sizes, rows = pages.T
    if offsets.min() < chunk.data_start or offsets.max() >= chunk.end or sizes.min() <= 0:
        raise ValueError("a page of an offset index is outside its column chunk")
    ends = offsets + sizes
    if (ends[:-1] > offsets[1:]).any() or ends[-1] > chunk.end:
        raise ValueError("pages of an offset index overlap, or reach beyond their column chunk")
    if rows[0] != 0 or (np.diff(rows) <= 0).any() or rows[-1] >= num_rows:
        raise ValueError("the first rows of an offset index are not in order")
    return rows


# PageLocation's fields are two 64-bit integers around one of 32 bits; their headers and the struct's end are
# single bytes, and so read as integers, too.
_HEADERS: Final = (0x16, 0x15, 0x16, 0)


def _locations(data: bytes, reader: CompactReader, count: int) -> npt.NDArray[np.int64]:
    """Read a list of PageLocation: offset, size and first row of each."""
    raw = _varints(data, reader, 7 * count).reshape(count, 7)
    if not (raw[:, ::2] == _HEADERS).all():
        raise ValueError("a page location lacks a field, or has another")
    return _signed(raw[:, 1::2])


def _signed(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (values >> 1) ^ -(values & 1)


def _varints(data: bytes, reader: CompactReader, count: int) -> npt.NDArray[np.int64]:
    """Read unsigned integers of up to 63 bits, all at once: indexes have thousands, and a loop takes a microsecond for each."""
    left = np.frombuffer(data, np.uint8, offset=reader.at)[: _MAX_BYTES * count]
    ends = np.flatnonzero(left < _LAST_OF_NUMBER)[:count] + 1
    if len(ends) < count or not count:
        raise IndexError("a list is longer than the remaining data")
    starts = np.concatenate(([0], ends[:-1]))
    lengths = ends - starts
    if lengths.max() > _MAX_BYTES:
        raise ValueError("an integer exceeds 63 bits")
    used = left[: ends[-1]].astype(np.int64) & 0x7F
    shifts = 7 * (np.arange(ends[-1]) - np.repeat(starts, lengths))
    reader.at += int(ends[-1])
    return np.add.reduceat(used << shifts, starts)
