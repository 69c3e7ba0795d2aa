"""Copies row groups of Parquet files into one file, byte for byte, without decoding values.

Pages are validated as they are copied: the sizes in the footer and the offset indexes must agree with them. Reading and writing
are passed in.

Tested in `tests/unit/storage/test_row_groups.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from delvec_errors import CorruptTable, MissingDataFile
from delvec_parquet.column_pages import PageWalk, bloom_filter_size, moved_offset_index
from delvec_parquet.file_end import FileEnd
from delvec_parquet.footer import ColumnChunk, Footer, Place, RowGroup, joined, parse

__all__ = ["ReadRange", "SourceFile", "copied_row_groups", "source_file"]

_MAGIC: Final = b"PAR1"
_BLOCK: Final = 8 << 20
"""Read size in bytes, which bounds memory."""
_GAP: Final = 64 << 10
"""Gaps up to this many bytes between column chunks are read through, not requested around."""
_FIRST_READ: Final = 64 << 10
_MAX_INDEX_BYTES: Final = 64 << 20
_BLOOM_HEADER: Final = 256

_Range = tuple[int, int]
ReadRange = Callable[[int, int], memoryview]
"""Reads a file from one offset to another."""


@dataclass(frozen=True)
class SourceFile:
    """A file whose row groups are copied.

    Attributes:
        path: the path, as in the log.
        footer: the footer of the file.
        size: in bytes.
    """

    path: str
    footer: Footer
    size: int


def source_file(path: str, size: int, read: ReadRange) -> SourceFile:
    """Read a file's footer.

    Args:
        path: the path, as in the log.
        size: in bytes.
        read: reads the file.

    Raises:
        MissingDataFile: ``read`` does not find the file.
        CorruptTable: the file is not Parquet, or its footer is corrupt.
        UnusableFile: the footer exceeds 256 MiB.
    """
    with _footer_errors(path):
        end = FileEnd(read(max(0, size - _FIRST_READ), size), size)
        place = end.footer_range(path) if len(end.data) == min(size, _FIRST_READ) else None
        if place is None:
            raise ValueError("it does not end as a Parquet file does")
        data = end.get(*place)
        return SourceFile(path, parse(bytes(read(*place)) if data is None else data, place[0]), size)


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


def copied_row_groups(
    sources: Sequence[SourceFile],
    open_source: Callable[[SourceFile], AbstractContextManager[ReadRange]],
    write: Callable[[bytes | memoryview], None],
) -> int:
    """Write a file with the row groups of all files, in order, and return its size.

    Check beforehand that they can be combined (:func:`~delvec_parquet.footer.why_not_together`).

    Args:
        sources: the files.
        open_source: opens one of them.
        write: appends to the new file.

    Raises:
        MissingDataFile: ``open_source`` does not find a source.
        CorruptTable: a source contradicts its footer.
    """
    new = _NewFile(write)
    new.write(_MAGIC)
    for source in sources:
        with _footer_errors(source.path), open_source(source) as read:
            new.copy(source, read)
    for source in sources:
        # Write indexes together, next to the footer, since some readers fetch them all in one request.
        if not _has_indexes(source.footer):
            new.place_without_indexes(source)
            continue
        with _footer_errors(source.path), open_source(source) as read:
            new.copy_indexes(source, read)
    footer = joined([source.footer for source in sources], new.places())
    new.write(footer)
    new.write(len(footer).to_bytes(4, "little") + _MAGIC)
    return new.size


def _has_indexes(footer: Footer) -> bool:
    return any(
        chunk.column_index or chunk.offset_index for group in footer.row_groups for chunk in group.chunks
    )


class _NewFile:
    """The file being written."""

    def __init__(self, write: Callable[[bytes | memoryview], None]) -> None:
        self._write = write
        self.size = 0
        self._starts: dict[int, int] = {}
        self._pages: dict[int, list[int]] = {}
        self._blooms: dict[int, int] = {}
        self._places: list[list[list[Place]]] = []

    def write(self, data: bytes | memoryview) -> None:
        self._write(data)
        self.size += len(data)

    def places(self) -> Sequence[Sequence[Sequence[Place]]]:
        """Return the new position of each column chunk, by file and row group."""
        return self._places

    def copy(self, source: SourceFile, read: ReadRange) -> None:
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

    def copy_indexes(self, source: SourceFile, read: ReadRange) -> None:
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
        read: ReadRange,
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


def _pieces(read: ReadRange, ranges: Sequence[_Range]) -> Iterator[tuple[int, memoryview]]:
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


def _whole(read: ReadRange, found: _Range) -> bytes:
    if found[1] - found[0] > _MAX_INDEX_BYTES:
        raise ValueError("the index of a column's pages has more than 64 MiB")
    data = bytes(read(*found))
    if len(data) != found[1] - found[0]:
        raise ValueError("it ends before its indexes do")
    return data


def _bloom_range(read: ReadRange, chunk: ColumnChunk) -> _Range | None:
    if chunk.bloom_filter is None:
        return None
    start, end = chunk.bloom_filter
    length = bloom_filter_size(bytes(read(start, start + _BLOOM_HEADER)))
    if end is not None and end - start != length:
        raise ValueError("a Bloom filter has another length than the footer says")
    return start, start + length
