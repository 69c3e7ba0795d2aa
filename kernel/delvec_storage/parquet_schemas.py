"""Reads the schemas of Parquet files, without the rest of their footers.

Equal ones are parsed once (:mod:`delvec_parquet.known_schemas`). Measured on 10,000 files on local disk: 0.4 s; pyarrow takes 1.7 s, DuckDB's ``parquet_schema`` 4 s.
"""

import os
from collections.abc import Callable
from typing import Final

from delvec_parquet.file_end import FileEnd
from delvec_parquet.file_schema import FileSchema
from delvec_parquet.known_schemas import KnownSchemas
from delvec_storage import local_files
from delvec_storage.file_locations import Allowed, locate, storage_errors
from delvec_storage.remote_files import read_range

__all__ = ["SchemaReader"]

_TAIL_BYTES: Final = 64 << 10
"""Bytes of the end of a file in an object store to read first: a request costs more than they do."""


class SchemaReader:
    """Reads schemas; thread-safe. Equal schemas of its files are one object."""

    def __init__(self) -> None:
        self._known = KnownSchemas()

    def read(
        self,
        location: str,
        path: str,
        size: int,
        *,
        is_allowed: Allowed | None = None,
        keep_end: Callable[[bytes], None] | None = None,
    ) -> FileSchema | None:
        """Return a file's schema; None if the file is not Parquet.

        Args:
            location: the table's canonical location.
            path: the path, as in the log.
            size: in bytes, as in the log; that of local files is looked up.
            is_allowed: where files may lie.
            keep_end: gets the end of a file in an object store, as far as it was read.

        Raises:
            FileNotFoundError: the file does not exist.
            CorruptTable: the schema is damaged.
            UnusableFile: the footer exceeds 256 MiB.
            StorageError: storage did not answer.
        """
        place = locate(location, path, is_allowed=is_allowed)
        with storage_errors("read", place.url):
            if place.local is not None:
                return self._of_descriptor(local_files.open_file(place.path, place.check), path)
            tail = bytes(read_range(place, max(0, size - _TAIL_BYTES), size))
            if keep_end is not None and len(tail) == min(size, _TAIL_BYTES):
                keep_end(tail)
            end = FileEnd(tail, size)

            def read(start: int, stop: int) -> bytes:
                data = end.get(start, stop)
                return bytes(read_range(place, start, stop)) if data is None else data

            return self._known.of_file(read, size, path)

    def read_local(self, file: str, path: str) -> FileSchema | None:
        """Return the schema of a local file that an engine is about to open, whose place has been checked.

        A third of the time of :meth:`read`, which opens directory by directory.

        Args:
            file: its path.
            path: the path, as in the log, for errors.

        Raises:
            OSError: it cannot be read, for example because it does not exist.
            CorruptTable: the schema is damaged.
            UnusableFile: the footer exceeds 256 MiB.
        """
        return self._of_descriptor(
            os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), path
        )

    def _of_descriptor(self, descriptor: int, path: str) -> FileSchema | None:
        def read(start: int, end: int) -> bytes:
            return os.pread(descriptor, end - start, start)

        try:
            return self._known.of_file(read, os.fstat(descriptor).st_size, path)
        finally:
            os.close(descriptor)
