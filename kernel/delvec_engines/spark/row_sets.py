"""Bitmaps of rows by file, built in tasks and merged on the driver."""

import sys
from array import array
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from zipimport import zipimporter

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from delvec_errors import DelvecError
from delvec_kernel.deletion_vectors.deletion_vector import deserialize_bitmap, serialize_bitmap

__all__ = ["RowSets", "drop_zip_importers", "without_traceback"]


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
