"""Bitmaps of rows by file, built in tasks and merged on the driver."""

import sys
from array import array
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar
from zipimport import zipimporter

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from delvec_kernel.deletion_vectors.deletion_vector import deserialize_bitmap, serialize_bitmap
from delvec_kernel.errors import DelvecError

__all__ = ["MOST_AT_ONCE", "MarkedRows", "RowSets", "drop_zip_importers", "without_traceback"]

MOST_AT_ONCE: Final = 1 << 24
"""Maximum rows expanded to 8-byte integers at once: a hostile bitmap of half a megabyte can have 2^32 rows."""


class MarkedRows:
    """Looks up the rows of a deletion vector in bounded memory.

    Args:
        bitmap: the rows.
    """

    def __init__(self, bitmap: BitMap64) -> None:
        self._bitmap = bitmap
        self._all = _numbers(bitmap) if len(bitmap) <= MOST_AT_ONCE else None

    def among(self, rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return which of ``rows``, a batch of them, are marked."""
        marked = self._all
        if marked is None:
            marked = _numbers(self._bitmap & BitMap64(array("Q", rows.tobytes())))
        if not len(marked):
            return np.zeros(len(rows), np.bool_)
        at = np.minimum(np.searchsorted(marked, rows), len(marked) - 1)
        found: npt.NDArray[np.bool_] = marked[at] == rows
        return found

    def between(self, first: int, count: int) -> npt.NDArray[np.uint64]:
        """Return the marked rows among ``count`` rows from ``first``, ascending."""
        if self._all is None:
            return _numbers(self._bitmap & BitMap64(range(first, first + count)))
        start, end = np.searchsorted(self._all, [first, first + count])
        return self._all[start:end]


def _numbers(bitmap: BitMap64) -> npt.NDArray[np.uint64]:
    return np.frombuffer(bitmap.to_array(), np.uint64)


class RowSets:
    """Row indexes by file number.

    Attributes:
        found: the sets.
        pairs: number of rows added, by file number; exceeds the size of the set if a row was added twice, in one task
            or in several.
    """

    def __init__(self) -> None:
        self.found: dict[int, BitMap64] = {}
        self.pairs: dict[int, int] = {}

    def add(self, files: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
        """Add rows; fastest if equal ``files`` are adjacent."""
        if not len(files):
            return
        cuts = np.flatnonzero(files[1:] != files[:-1]) + 1
        indexes = rows.astype(np.uint64)
        if len(cuts) >= len(files) // 4:
            order = np.argsort(files, kind="stable")
            files, indexes = files[order], indexes[order]
            cuts = np.flatnonzero(files[1:] != files[:-1]) + 1
        for start, end in zip([0, *cuts], [*cuts, len(files)], strict=True):
            self._join(
                int(files[start]), BitMap64(array("Q", indexes[start:end].tobytes())), int(end - start)
            )

    def merge(self, number: int, sent: bytes, pairs: int) -> None:
        """Add an entry of a task's :meth:`serialized`."""
        self._join(number, deserialize_bitmap(sent), pairs)

    def serialized(self) -> Iterator[tuple[int, bytes, int]]:
        """Yield for each file its number, serialized rows, and number of rows added."""
        for number, rows in self.found.items():
            yield number, serialize_bitmap(rows), self.pairs[number]

    def _join(self, number: int, rows: BitMap64, pairs: int) -> None:
        known = self.found.get(number)
        if known is None:
            self.found[number] = rows
        else:
            known |= rows
            self.found[number] = known
        self.pairs[number] = self.pairs.get(number, 0) + pairs


_P = ParamSpec("_P")
_T = TypeVar("_T")


def drop_zip_importers() -> None:
    """Drop the import system's cached ZIP importers; they are recreated when needed.

    Before each task Spark invalidates the import caches. Until Python 3.13, every ZIP importer then
    rereads its archive's directory, and PySpark is an archive with one importer per package: 0.1
    seconds or more per task, in a process that imports nothing.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def without_traceback(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a function that Spark calls, so that its errors are shown without traceback and causes."""

    @wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except DelvecError as error:
            raise error.with_traceback(None) from None

    return called
