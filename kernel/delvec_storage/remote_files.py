"""Files in object stores with Python's file interface."""

import io
from typing import Any

import obstore
from obstore.exceptions import BaseError

from delvec_storage.file_locations import FileLocation, answered_status, storage_errors

__all__ = ["RemoteFile", "RemoteOutput", "read_range"]


def read_range(place: FileLocation, start: int, end: int) -> memoryview:
    """Return the bytes from ``start`` to ``end`` of a remote file, fewer if the file ends earlier."""
    store = place.remote
    try:
        return memoryview(obstore.get(store, place.key, options={"range": (start, end)}).bytes())
    except BaseError as error:
        # Stores reject ranges that are empty or start at the end of the file. Re-raise other errors as they are, since
        # a failing HEAD request would have no message.
        status = answered_status(error)
        if start < end and (status not in (None, 416) or obstore.head(store, place.key)["size"] > start):
            raise
        return memoryview(b"")


class RemoteFile(io.RawIOBase):
    """A remote file for random access; every read is one request, since Arrow buffers and coalesces reads."""

    def __init__(self, place: FileLocation, size: int) -> None:
        super().__init__()
        self._place, self._size, self._position = place, size, 0

    def readable(self) -> bool:
        """Whether the file can be read."""
        return True

    def seekable(self) -> bool:
        """Whether positions can be set."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes, by default all remaining ones."""
        end = self._size if size is None or size < 0 else min(self._size, self._position + size)
        if end <= self._position:
            return b""
        with storage_errors("read", self._place.url):
            data = bytes(read_range(self._place, self._position, end))
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """Return all remaining bytes."""
        return self.read(-1)

    def readinto(self, buffer: Any, /) -> int:
        """Read into ``buffer``; return the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class RemoteOutput(io.RawIOBase):
    """A remote file being written; :func:`open_output` closes it."""

    def __init__(self, writer: Any, url: str) -> None:
        super().__init__()
        self._writer, self._url, self._position = writer, url, 0

    def writable(self) -> bool:
        """Whether the file can be written."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def write(self, data: Any, /) -> int:
        """Write ``data``; return its length in bytes."""
        with storage_errors("write", self._url, writing=True):
            self._writer.write(bytes(data))
        self._position += len(data)
        return len(data)
