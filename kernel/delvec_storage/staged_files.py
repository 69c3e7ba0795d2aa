"""Large files that must appear atomically, written to local disk first."""

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

from delvec_storage import local_files as _local_files
from delvec_storage.file_locations import Allowed, FileLocation, locate, storage_errors

__all__ = ["StagedFile", "stage"]

_ONE_REQUEST: Final = 64 << 20
_BUFFER: Final = 1 << 20


class _StagedBytes(io.FileIO):
    """The staged file; write errors become a StorageError."""

    def __init__(self, descriptor: int, url: str) -> None:
        super().__init__(descriptor, "wb")
        self._url = url

    def write(self, data: Any, /) -> int:
        with storage_errors("write", self._url, writing=True):
            return super().write(data)


@dataclass
class StagedFile:
    """A file that readers cannot see yet.

    Attributes:
        file: to write to: open, binary and buffered. Closed at the end of the block of :func:`stage`.
    """

    file: IO[bytes]
    _place: FileLocation
    _directory: int | None
    _name: str

    @property
    def size(self) -> int:
        """Bytes written so far."""
        self.file.flush()
        return os.fstat(self.file.fileno()).st_size

    def publish(self) -> bool:
        """Publish the complete file under its name; durable when this returns.

        Returns:
            False if the file already exists; it is left unchanged. On an object store, a file over 64 MiB takes several
            requests and may replace one that another writer publishes at the same moment.

        Raises:
            StorageError: storage did not answer, and the file may or may not exist.
        """
        place, size = self._place, self.size
        with storage_errors("create", place.url, writing=True):
            if self._directory is not None:
                os.fsync(self.file.fileno())
                return _local_files.publish(self._directory, self._name, place.path)
            # Do not close the mmap: an in-memory store keeps a reference.
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
        with open(self._name, "rb") as file:  # noqa: PTH123 - a name from tempfile
            obstore.put(place.remote, place.key, file)
        return True


@contextmanager
def stage(location: str, path: str, *, is_allowed: Allowed | None = None) -> Iterator[StagedFile]:
    """Stage a file of a table; it is deleted after the block unless published.

    Args:
        location: the table's canonical location.
        path: URL-encoded, relative to the location.
        is_allowed: decides by URL where links may lead; only within the table by default.

    Raises:
        StorageError: writing to local disk failed.
        LocationNotAllowed: a link leads elsewhere.
    """
    place = locate(location, path, is_allowed=is_allowed, inside=True)
    with ExitStack() as stack:
        directory = None
        with storage_errors("create", place.url, writing=True):
            if place.local is not None:
                # Stage in the target directory, since publishing is a hard link within one file system.
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
    # Bypass the buffer, whose content is either published or no longer needed.
    with suppress(OSError):
        raw.close()


def _discard(name: str, directory: int | None) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=directory)
