"""Copies row groups of Parquet files into one file, byte for byte, without decoding values.

Pages are validated as they are copied: the sizes in the footer and the offset indexes must agree with them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Final

import obstore

from delvec_errors import CorruptTable, MissingDataFile, StorageError
from delvec_parquet.footer import ColumnChunk, Footer, Place, RowGroup, joined, parse
from delvec_parquet.pages import PageWalk, bloom_filter_size, moved_offset_index
from delvec_parquet.parquet_file import TRAILER_BYTES, footer_size
from delvec_storage import files
from delvec_storage.file_locations import Allowed, locate, storage_errors
from delvec_storage.remote_files import read_range

__all__ = ["SourceFile", "copy_row_groups", "read_footers"]

_MAGIC: Final = b"PAR1"
_BLOCK: Final = 8 << 20
"""Read size in bytes, which bounds memory."""
_GAP: Final = 64 << 10
"""Gaps up to this many bytes between column chunks are read through, not requested around."""
_CONCURRENT: Final = 16
_FIRST_READ: Final = 64 << 10
_MAX_INDEX_BYTES: Final = 64 << 20
_BLOOM_HEADER: Final = 256

_Range = tuple[int, int]


@dataclass(frozen=True)
class SourceFile:
    """A file whose row groups are copied.

    Attributes:
        path: as in the log.
        footer: of the file.
        size: in bytes.
    """

    path: str
    footer: Footer
    size: int


def read_footers(
    location: str, sources: Sequence[tuple[str, int]], *, allowed: Allowed | None = None
) -> list[SourceFile]:
    """Read the footers of files.

    Args:
        location: the table's canonical location.
        sources: path and size of each.
        allowed: decides by URL whether a file outside the location may be read.

    Raises:
        MissingDataFile: a file does not exist.
        CorruptTable: a file is not Parquet, or its footer is corrupt.
        UnusableFile: a footer exceeds 256 MiB.
        StorageError: storage did not answer.
    """

    def read(source: tuple[str, int]) -> SourceFile:
        return _read_footer(location, *source, allowed)

    with ThreadPoolExecutor(min(_CONCURRENT, max(1, len(sources))), "delvec-footers") as pool:
        return list(pool.map(read, sources))


def _read_footer(location: str, path: str, size: int, allowed: Allowed | None) -> SourceFile:
    def read(start: int, end: int) -> bytes:
        return bytes(files.read_ranges(location, path, [(start, end)], allowed=allowed)[0])

    with _footer_errors(path):
        tail = read(max(0, size - _FIRST_READ), size)
        length = footer_size(tail[-TRAILER_BYTES:], size, path)
        if length is None or len(tail) != min(size, _FIRST_READ):
            raise ValueError("it does not end as a Parquet file does")
        end = size - TRAILER_BYTES
        start = end - length
        data = (
            tail[-TRAILER_BYTES - length : -TRAILER_BYTES]
            if length + TRAILER_BYTES <= len(tail)
            else read(start, end)
        )
        return SourceFile(path, parse(data, start), size)


@contextmanager
def _footer_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise MissingDataFile(
            f"The data file '{path}' does not exist; restore it from a backup, or restore the table to a version that does not "
            "need it.",
            file=path,
        ) from error
    except (IndexError, ValueError) as error:
        raise CorruptTable(
            f"The data file '{path}' cannot be copied: {error}. Restore it from a backup.", file=path
        ) from error


def copy_row_groups(
    location: str, sources: Sequence[SourceFile], path: str, *, allowed: Allowed | None = None
) -> int:
    """Write a new file with the row groups of all files, in order, and return its size.

    Check beforehand that they can be combined (:func:`~delvec_parquet.footer.why_not_together`).

    Args:
        location: the table's canonical location.
        sources: the files.
        path: of the new file, relative to the location.
        allowed: decides by URL whether a source outside the location may be read.

    Raises:
        MissingDataFile: a source does not exist.
        CorruptTable: a source contradicts its footer; no file is left.
        StorageError: storage did not answer; no file is left.
    """
    with files.open_output(location, path, durable=True) as sink:
        new = _NewFile(sink, path)
        new.write(_MAGIC)
        for source in sources:
            with _footer_errors(source.path), _opened(location, source, allowed) as read:
                new.copy(source, read)
        for source in sources:
            # Write indexes together, next to the footer, since some readers fetch them all in one request.
            if not _has_indexes(source.footer):
                new.place_without_indexes(source)
                continue
            with _footer_errors(source.path), _opened(location, source, allowed) as read:
                new.copy_indexes(source, read)
        footer = joined([source.footer for source in sources], new.places())
        new.write(footer)
        new.write(len(footer).to_bytes(4, "little") + _MAGIC)
        return new.size


def _has_indexes(footer: Footer) -> bool:
    return any(
        chunk.column_index or chunk.offset_index for group in footer.row_groups for chunk in group.chunks
    )


_Read = Callable[[int, int], memoryview]


@contextmanager
def _opened(location: str, source: SourceFile, allowed: Allowed | None) -> Iterator[_Read]:
    """Open a source for range reads."""
    place = locate(location, source.path, allowed=allowed)
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
        opened = files.open_input(location, source.path, allowed=allowed)
    with opened:
        if opened.size() != source.size:
            raise ValueError("it has another size than the log says")

        def local(start: int, end: int) -> memoryview:
            with storage_errors("read", place.url):
                return memoryview(opened.read_at(end - start, start))

        yield local


class _NewFile:
    """The file being written."""

    def __init__(self, sink: IO[bytes], path: str) -> None:
        self._sink = sink
        self._path = path
        self.size = 0
        self._starts: dict[int, int] = {}
        self._pages: dict[int, list[int]] = {}
        self._blooms: dict[int, int] = {}
        self._places: list[list[list[Place]]] = []

    def write(self, data: bytes | memoryview) -> None:
        with storage_errors("write", self._path, writing=True):
            done = self._sink.write(data)
        if done != len(data):
            raise StorageError(
                f"Only a part of the file {self._path} could be written; try again.", file=self._path
            )
        self.size += len(data)

    def places(self) -> Sequence[Sequence[Sequence[Place]]]:
        """Return the new position of each column chunk, by file and row group."""
        return self._places

    def copy(self, source: SourceFile, read: _Read) -> None:
        """Copy the column chunks, and their Bloom filters."""
        for group in source.footer.row_groups:
            chunks = sorted(group.chunks, key=lambda chunk: chunk.start)
            walks = [PageWalk(chunk.end - chunk.start, chunk.num_values) for chunk in chunks]
            copied = -1
            for number, piece in _pieces(read, [(chunk.start, chunk.end) for chunk in chunks]):
                if number != copied:
                    copied = number
                    self._starts[id(chunks[number])] = self.size
                walks[number].feed(piece)
                self.write(piece)
            for chunk, walk in zip(chunks, walks, strict=True):
                walk.finish()
                if not walk.data_pages or walk.data_pages[0] != chunk.data_start - chunk.start:
                    raise ValueError("a column's first page is not where its footer says")
                if chunk.offset_index is not None:
                    self._pages[id(chunk)] = walk.data_pages
        self._blooms |= self._copy_parts(
            read, source.footer.row_groups, lambda chunk: _bloom_range(read, chunk)
        )

    def place_without_indexes(self, source: SourceFile) -> None:
        """Record the column chunks of a file without indexes."""
        self._places.append(
            [
                [
                    Place(self._starts.pop(id(chunk)), bloom_filter=self._blooms.pop(id(chunk), 0))
                    for chunk in group.chunks
                ]
                for group in source.footer.row_groups
            ]
        )

    def copy_indexes(self, source: SourceFile, read: _Read) -> None:
        """Copy column indexes as they are, and offset indexes with the new offsets."""
        groups = source.footer.row_groups
        columns = self._copy_parts(read, groups, lambda chunk: chunk.column_index)
        self._places.append([])
        for group in groups:
            chunk_places = []
            for chunk in group.chunks:
                start = self._starts.pop(id(chunk))
                offsets = (0, 0)
                if chunk.offset_index is not None:
                    index = moved_offset_index(
                        _whole(read, chunk.offset_index), chunk.start, start, self._pages.pop(id(chunk))
                    )
                    offsets = self.size, len(index)
                    self.write(index)
                bloom = self._blooms.pop(id(chunk), 0)
                chunk_places.append(Place(start, columns.get(id(chunk), 0), offsets, bloom))
            self._places[-1].append(chunk_places)

    def _copy_parts(
        self,
        read: _Read,
        groups: Iterable[RowGroup],
        of: Callable[[ColumnChunk], _Range | None],
    ) -> dict[int, int]:
        """Copy a part of each column chunk; return the new offsets."""
        wanted = [(found, id(chunk)) for group in groups for chunk in group.chunks if (found := of(chunk))]
        wanted.sort()
        starts: dict[int, int] = {}
        for number, piece in _pieces(read, [found for found, _ in wanted]):
            starts.setdefault(wanted[number][1], self.size)
            self.write(piece)
        return starts


def _pieces(read: _Read, ranges: Sequence[_Range]) -> Iterator[tuple[int, memoryview]]:
    """Yield the bytes of ascending, disjoint ranges in parts, each with the index of its range.

    Raises:
        ValueError: the file ends too early.
    """
    data, base = memoryview(b""), 0
    for number, (start, end) in enumerate(ranges):
        at = start
        while at < end:
            if not base <= at < base + len(data):
                data, base = read(at, _block_end(ranges, number, at)), at
                if not data:
                    raise ValueError("it ends before its columns do")
            piece = data[at - base : end - base]
            yield number, piece
            at += len(piece)


def _block_end(ranges: Sequence[_Range], number: int, start: int) -> int:
    """Return the end of one read, which covers nearby ranges up to a block."""
    end = ranges[number][1]
    while end < start + _BLOCK and number + 1 < len(ranges) and ranges[number + 1][0] - end <= _GAP:
        number += 1
        end = ranges[number][1]
    return min(end, start + _BLOCK)


def _whole(read: _Read, found: _Range) -> bytes:
    if found[1] - found[0] > _MAX_INDEX_BYTES:
        raise ValueError("the index of a column's pages has more than 64 MiB")
    data = bytes(read(*found))
    if len(data) != found[1] - found[0]:
        raise ValueError("it ends before its indexes do")
    return data


def _bloom_range(read: _Read, chunk: ColumnChunk) -> _Range | None:
    if chunk.bloom_filter is None:
        return None
    start, end = chunk.bloom_filter
    length = bloom_filter_size(bytes(read(start, start + _BLOOM_HEADER)))
    if end is not None and end - start != length:
        raise ValueError("a Bloom filter has another length than the footer says")
    return start, start + length
