"""A read-only fsspec file system over :mod:`delvec_storage.files`, by which DuckDB reads object stores.

DuckDB's HTTP and S3 extensions must be downloaded; this works wherever the package does, with the same
credentials as everything else, and for ``memory:``. Size and time come from the log, so opening a file costs
no request. Files with variant or geospatial columns are always read this way, even local ones.

DuckDB turns exceptions into text. The original exceptions are kept, so that :func:`raised` can tell a storage error
from a damaged file.

Tested in `tests/integration/client/engines/duckdb/test_engine.py` and
`tests/integration/client/engines/duckdb/test_scan.py`.
"""

import ctypes
import io
import threading
from collections import deque
from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from fsspec import AbstractFileSystem  # type: ignore[import-untyped]

from delvec_engines.duckdb.file_names import FILE_ENDS, PROTOCOL, StorageFileName
from delvec_engines.duckdb.variants import copy_name
from delvec_errors import CorruptTable, DelvecError
from delvec_parquet.variant_footer import SLACK, End, seen_end
from delvec_storage import files as storage

__all__ = ["StorageFileSystem", "raised"]

_MAX_KEPT: Final = 256
_kept: deque[DelvecError] = deque(maxlen=_MAX_KEPT)


def raised(text: str) -> DelvecError | None:
    """Return the storage exception that the text of a DuckDB error refers to, or None."""
    return next((error for error in reversed(tuple(_kept)) if error.message in text), None)


class StorageFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Implements only the methods that DuckDB calls."""

    protocol = PROTOCOL
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return path

    def glob(self, path: str, **_: Any) -> list[str]:
        """Return ``path``: names are never patterns here."""
        return [path]

    def exists(self, path: str, **_: Any) -> bool:
        """Whether the file is in storage."""
        remote = StorageFileName.parse(path)
        return storage.stat(remote.location, remote.path, is_allowed=bool) is not None

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return the size in the log, or the larger size of a file with a replaced footer."""
        return {"name": path, "size": _size(StorageFileName.parse(path)), "type": "file"}

    def modified(self, path: str) -> datetime:
        """Return the modification time in the log, by which DuckDB validates its file cache."""
        return datetime.fromtimestamp(StorageFileName.parse(path).modification_time / 1000, UTC)

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.RawIOBase:
        """Open for reading; a missing file shows at the first read."""
        if mode != "rb":
            raise io.UnsupportedOperation(f"{path} is open for reading only")
        return _OpenFile(StorageFileName.parse(path))


def _size(remote: StorageFileName) -> int:
    return remote.size + SLACK if remote.as_bytes else remote.size


class _OpenFile(io.RawIOBase):
    """A file with one position per thread.

    DuckDB's threads share one handle, and seek and read are two calls: with a shared position, a thread could
    read where another thread has just moved it.
    """

    def __init__(self, remote: StorageFileName) -> None:
        super().__init__()
        self._remote = remote
        self._positions = threading.local()
        self._size = _size(remote)
        self._end: End | None = None
        self._known_end: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(getattr(self._positions, "value", 0))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._positions.value = max(0, base + offset)
        return self.tell()

    def read(self, size: int | None = -1, /) -> Any:
        start = self.tell()
        end = self._size if size is None or size < 0 else min(self._size, start + size)
        if end <= start:
            return b""
        try:
            data = self._seen(start, end) if self._remote.as_bytes else self._bytes(start, end)
        except (DelvecError, FileNotFoundError) as error:
            if isinstance(error, DelvecError):
                _kept.append(error)
            return _raising(error)
        self._positions.value = start + len(data)
        return data

    def _seen(self, start: int, end: int) -> bytes:
        if self._end is None:
            # Two threads may both read the footer; the result is the same.
            self._end = seen_end(self._bytes, self._remote.size, self._remote.path, copy_name)
        return self._end.read(self._bytes, start, end, self._size)

    def _bytes(self, start: int, end: int) -> bytes:
        remote = self._remote
        if self._known_end is None:
            self._known_end = FILE_ENDS.take((remote.location, remote.path, remote.size))
        known_from = remote.size - len(self._known_end)
        if start >= known_from:
            return self._known_end[start - known_from : end - known_from]
        data = bytes(storage.read_ranges(remote.location, remote.path, [(start, end)], is_allowed=bool)[0])
        if len(data) < end - start:
            raise CorruptTable(
                f"The data file '{remote.path}' ends after {start + len(data)} bytes, but the log says it has "
                f"{remote.size}; restore it from a backup.",
                file=remote.path,
            )
        return data


_set_error: Final = ctypes.PYFUNCTYPE(None, ctypes.py_object, ctypes.py_object)(
    ("PyErr_SetObject", ctypes.pythonapi)
)


def _raising(error: Exception) -> Iterator[Any]:
    """Return an object that raises ``error`` when DuckDB converts it to bytes, without a Python frame.

    An exception from a Python function has a traceback, with which DuckDB's error, shown to users of a relation, would
    begin.
    """
    untraced = copy(error)
    return iter(partial(_set_error, type(untraced), untraced), 0)
