"""Files that are too large for memory, and must appear whole or not at all: written on local disk first."""

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import obstore
from obstore.exceptions import AlreadyExistsError, NotSupportedError

from delvec import _local_files
from delvec._places import Place, locate, storage_errors

__all__ = ["Draft", "draft"]

_ONE_REQUEST: Final = 64 << 20


@dataclass
class Draft:
    """A file that no reader sees yet.

    Attributes:
        path: where to write it, on local disk; close it before publishing.
    """

    path: Path
    _place: Place

    def publish(self) -> bool:
        """Give the file its name, whole; durable when this returns.

        Returns:
            False if there is a file of that name; it is left as it was. On an object store a file beyond 64 MiB
            takes several requests, and one that another writer publishes in the same moment may be replaced.

        Raises:
            StorageError: storage did not answer, and the file may be there or not.
        """
        place = self._place
        with storage_errors("create", place.url, writing=True):
            if place.local is not None:
                _local_files.sync_file(self.path)
                return _local_files.publish(self.path, place.local)
            with self.path.open("rb") as file:
                # Not closed here: a store in memory keeps it.
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if len(data) > _ONE_REQUEST:
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
        with self.path.open("rb") as file:
            obstore.put(place.remote, place.key, file)
        return True


@contextmanager
def draft(location: str, path: str) -> Iterator[Draft]:
    """Begin a file of a table; what is not published is gone after the block.

    Args:
        location: the table's canonical location.
        path: URL-encoded, relative to the location.

    Raises:
        StorageError: local disk does not take it.
    """
    place = locate(location, path)
    with storage_errors("create", place.url, writing=True):
        if place.local is not None:
            # A name is given by linking, which works within one file system.
            _local_files.create_directory(place.local.parent, durable=True)
            temporary = _local_files.hidden_beside(place.local)
        else:
            handle, name = tempfile.mkstemp(prefix="delvec-", suffix=".tmp")
            os.close(handle)
            temporary = Path(name)
    try:
        yield Draft(temporary, place)
    finally:
        with suppress(OSError):
            temporary.unlink()
