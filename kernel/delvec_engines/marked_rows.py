"""Looks up the rows of a deletion vector in batches of rows, in bounded memory."""

from array import array
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

__all__ = ["MAX_AT_ONCE", "MarkedRows"]

MAX_AT_ONCE: Final = 1 << 24
"""Maximum rows expanded to 8-byte integers at once: a hostile bitmap of half a megabyte can have 2^32 rows."""

Rows = npt.NDArray[np.uint64]


class MarkedRows:
    """The rows of a bitmap.

    Args:
        bitmap: the rows.
    """

    def __init__(self, bitmap: BitMap64) -> None:
        self._bitmap = bitmap
        self._all = _numbers(bitmap) if len(bitmap) <= MAX_AT_ONCE else None

    def among(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which of ``rows``, a batch of them, are marked; fastest if they ascend."""
        is_marked = np.zeros(len(rows), np.bool_)
        marked_rows = self._all
        if marked_rows is None:
            marked_rows = _numbers(self._bitmap & BitMap64(array("Q", rows.tobytes())))
        if not len(marked_rows) or not len(rows):
            return is_marked
        if (rows[1:] > rows[:-1]).all():
            # The marked rows within the batch are mostly fewer than its rows.
            start, end = np.searchsorted(marked_rows, rows[[0, -1]])
            inside = marked_rows[start : end + 1]
            at = np.minimum(np.searchsorted(rows, inside), len(rows) - 1)
            is_marked[at[rows[at] == inside]] = True
        else:
            at = np.minimum(np.searchsorted(marked_rows, rows), len(marked_rows) - 1)
            is_marked = marked_rows[at] == rows
        return is_marked

    def between(self, first: int, count: int) -> Rows:
        """Return the marked rows among ``count`` rows from ``first``, ascending."""
        if self._all is None:
            inside = BitMap64()
            inside.add_range(first, first + count)
            return _numbers(self._bitmap & inside)
        # Not a list of integers: NumPy would convert all marked rows to a type that holds both.
        start, end = np.searchsorted(self._all, np.array([first, first + count], np.uint64))
        return self._all[start:end]


def _numbers(bitmap: BitMap64) -> Rows:
    return np.frombuffer(bitmap.to_array(), np.uint64)
