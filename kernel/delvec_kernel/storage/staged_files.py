"""Files that are too large for memory, and must appear whole or not at all: written on local disk first."""

import io
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, Final, cast

import obstore
from obstore.exceptions import AlreadyExistsError, NotSupportedError

from delvec_kernel.storage import local_files as _local_files
from delvec_kernel.storage.file_locations import Allowed, FileLocation, locate, storage_errors

__all__ = ["StagedFile", "stage"]

_ONE_REQUEST: Final = 64 << 20
_BUFFER: Final = 1 << 20


class _StagedBytes(io.FileIO):
    """The staged file itself; a disk that does not take it is a StorageError."""

    def __init__(self, descriptor: int, url: str) -> None:
        super().__init__(descriptor, "wb")
        self._url = url

    def write(self, data: Any, /) -> int:
        with storage_errors("write", self._url, writing=True):
            return super().write(data)


@dataclass
class StagedFile:
    """A file that no reader sees yet.

    Attributes:
        file: where to write it: open, binary and buffered. It is closed after the block of :func:`stage`.
    """

    file: IO[bytes]
    _place: FileLocation
    _directory: int | None
    _name: str

    @property
    def size(self) -> int:
        """Bytes so far."""
        self.file.flush()
        return os.fstat(self.file.fileno()).st_size

    def publish(self) -> bool:
        """Give the file its name, whole; durable when this returns.

        Returns:
            False if there is a file of that name; it is left as it was. On an object store a file beyond 64 MiB
            takes several requests, and one that another writer publishes in the same moment may be replaced.

        Raises:
            StorageError: storage did not answer, and the file may be there or not.
        """
        place, size = self._place, self.size
        with storage_errors("create", place.url, writing=True):
            if self._directory is not None:
                os.fsync(self.file.fileno())
                return _local_files.publish(self._directory, self._name, place.path)
            # Not closed here: a store in memory keeps it.
            data = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
            if size > _ONE_REQUEST:
                return self._publish_in_parts()
            try:
                obstore.put(place.remote, place.key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, FileExistsError):
                return False
            except (NotSupportedError, NotImplementedError):
                return self._publish_in_parts()
            return True

    def _publish_in_parts(self) -> bool:
        place = self._place
        with suppress(FileNotFoundError):
            obstore.head(place.remote, place.key)
            return False
        with open(self._name, "rb") as file:  # noqa: PTH123 - a name of tempfile's
            obstore.put(place.remote, place.key, file)
        return True


@contextmanager
def stage(location: str, path: str, *, allowed: Allowed | None = None) -> Iterator[StagedFile]:
    """Begin a file of a table; what is not published is gone after the block.

    Args:
        location: the table's canonical location.
        path: URL-encoded, relative to the location.
        allowed: where links may lead, by URL; without it, only to another place in the table.

    Raises:
        StorageError: local disk does not take it.
        LocationNotAllowed: a link leads elsewhere.
    """
    place = locate(location, path, allowed=allowed, inside=True)
    with ExitStack() as stack:
        directory = None
        with storage_errors("create", place.url, writing=True):
            if place.local is not None:
                # A name is given by linking, which works within one file system.
                directory = stack.enter_context(place.opened_directory(create=True, durable=True))
                name, descriptor = _local_files.create_hidden(directory, place.local)
            else:
                descriptor, name = tempfile.mkstemp(prefix="delvec-", suffix=".tmp")
        stack.callback(_discard, name, directory)
        raw = _StagedBytes(descriptor, place.url)
        stack.callback(_close, raw)
        buffered = io.BufferedWriter(raw, _BUFFER)
        yield StagedFile(cast("IO[bytes]", buffered), place, directory, name)


def _close(raw: io.FileIO) -> None:
    # Not by way of the buffer: what is in it is either published by now, or of no use.
    with suppress(OSError):
        raw.close()


def _discard(name: str, directory: int | None) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=directory)
