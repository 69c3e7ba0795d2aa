"""Row groups of files of a table: their footers, and copies of them (:mod:`delvec_parquet.row_group_copy`)."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

import obstore

from delvec_errors import StorageError
from delvec_parquet.row_group_copy import ReadRange, SourceFile, copied_row_groups, source_file
from delvec_storage import files
from delvec_storage.file_locations import Allowed, locate, storage_errors
from delvec_storage.remote_files import read_range

__all__ = ["copy_row_groups", "read_footers"]

_CONCURRENT: Final = 16


def read_footers(
    location: str, sources: Sequence[tuple[str, int]], *, is_allowed: Allowed | None = None
) -> list[SourceFile]:
    """Read the footers of files.

    Args:
        location: the table's canonical location.
        sources: path and size of each.
        is_allowed: decides by URL whether a file outside the location may be read.

    Raises:
        MissingDataFile: a file does not exist.
        CorruptTable: a file is not Parquet, or its footer is corrupt.
        UnusableFile: a footer exceeds 256 MiB.
        StorageError: storage did not answer.
    """

    def footer_of(source: tuple[str, int]) -> SourceFile:
        path, size = source

        def read(start: int, end: int) -> memoryview:
            return files.read_ranges(location, path, [(start, end)], is_allowed=is_allowed)[0]

        return source_file(path, size, read)

    with ThreadPoolExecutor(min(_CONCURRENT, max(1, len(sources))), "delvec-footers") as pool:
        return list(pool.map(footer_of, sources))


def copy_row_groups(
    location: str, sources: Sequence[SourceFile], path: str, *, is_allowed: Allowed | None = None
) -> int:
    """Write a new file with the row groups of all files, in order, and return its size.

    Check beforehand that they can be combined (:func:`~delvec_parquet.footer.why_not_together`).

    Args:
        location: the table's canonical location.
        sources: the files.
        path: the path of the new file, relative to the location.
        is_allowed: decides by URL whether a source outside the location may be read.

    Raises:
        MissingDataFile: a source does not exist.
        CorruptTable: a source contradicts its footer; no file is left.
        StorageError: storage did not answer; no file is left.
    """
    with files.open_output(location, path) as sink:

        def write(data: bytes | memoryview) -> None:
            with storage_errors("write", path, writing=True):
                count = sink.write(data)
            if count != len(data):
                raise StorageError(f"Only a part of the file {path} could be written; try again.", file=path)

        return copied_row_groups(sources, partial(_opened, location, is_allowed), write)


@contextmanager
def _opened(location: str, is_allowed: Allowed | None, source: SourceFile) -> Iterator[ReadRange]:
    """Open a source for range reads."""
    place = locate(location, source.path, is_allowed=is_allowed)
    if place.local is None:
        with storage_errors("read", place.url):
            if obstore.head(place.remote, place.key)["size"] != source.size:
                raise ValueError("it has another size than the log says")

        def remote(start: int, end: int) -> memoryview:
            with storage_errors("read", place.url):
                return read_range(place, start, end)

        yield remote
        return
    with storage_errors("read", place.url):
        input_file = files.open_input(location, source.path, is_allowed=is_allowed)
    with input_file:
        if input_file.size() != source.size:
            raise ValueError("it has another size than the log says")

        def local(start: int, end: int) -> memoryview:
            with storage_errors("read", place.url):
                return memoryview(input_file.read_at(end - start, start))

        yield local
