"""Pages of column chunks, walked while their bytes are copied, and the indexes that locate them.

If a footer ends a chunk in the middle of a page, some readers still read the file, but none could read a copy of it.
"""

from typing import Final

from delvec_kernel.parquet.thrift import INTEGERS, LISTS, STRUCT, CompactReader, zigzag

__all__ = ["PageWalk", "bloom_filter_size", "moved_offset_index"]

_FIRST_LOOK: Final = 128
_LONGEST_HEADER: Final = 16 << 20
_DATA, _INDEX, _DICTIONARY, _DATA_V2 = 0, 1, 2, 3
_TYPE, _COMPRESSED_SIZE = 1, 3
_HEADERS: Final = {5: _DATA, 7: _DICTIONARY, 8: _DATA_V2}
"""Fields of PageHeader that hold a page's number of values, and the page type each belongs to."""


class PageWalk:
    """Follows the pages of a column chunk whose bytes arrive in parts.

    Args:
        size: of the chunk.
        num_values: as the footer says.

    Attributes:
        data_pages: where each begins, from the start of the chunk.
    """

    def __init__(self, size: int, num_values: int) -> None:
        self._size = size
        self._left_values = num_values
        self._body = 0
        self._pending = b""
        self._at = 0
        self._pages = 0
        self.data_pages: list[int] = []

    def feed(self, data: memoryview) -> None:
        """Take the next bytes.

        Raises:
            ValueError: they are not the pages that the footer promises.
        """
        at = 0
        while at < len(data):
            if self._body:
                step = min(self._body, len(data) - at)
                self._body -= step
                self._at += step
                at += step
                continue
            at = self._header(data, at)

    def finish(self) -> None:
        """Check that the chunk ends where its last page does, and has its values.

        Raises:
            ValueError: it does not.
        """
        if self._at != self._size or self._body or self._pending or self._left_values:
            raise ValueError("a column does not end where its last page does, or lacks values")

    def _header(self, data: memoryview, at: int) -> int:
        """Read the page header that begins here, or keep its first part; return where to go on."""
        look = _FIRST_LOOK
        while True:
            window = self._pending + bytes(data[at : at + look])
            reader = CompactReader(window)
            try:
                kind, size, values = _page(reader)
                break
            except IndexError:
                if len(window) > _LONGEST_HEADER:
                    raise ValueError("the header of a page has more than 16 MiB") from None
                if at + look >= len(data):
                    self._pending = window
                    return len(data)
                look *= 8
        taken = reader.at - len(self._pending)
        self._pending = b""
        if size > self._size - self._at - reader.at or size < 0:
            raise ValueError("a page is longer than its column")
        if kind in (_DATA, _DATA_V2):
            self.data_pages.append(self._at)
            self._left_values -= values
        elif kind != _DICTIONARY or self._pages:
            raise ValueError("a column has a page that does not belong there")
        self._pages += 1
        self._at += reader.at
        self._body = size
        return at + taken


def _page(reader: CompactReader) -> tuple[int, int, int]:
    """Read a PageHeader; return type, size of what follows, and number of values."""
    kind = size = values = -1
    for number, field in reader.fields():
        if number == _TYPE and field in INTEGERS:
            kind = reader.integer()
        elif number == _COMPRESSED_SIZE and field in INTEGERS:
            size = reader.integer()
        elif number in _HEADERS and field == STRUCT:
            found = _first_integer(reader)
            if _HEADERS[number] == kind:
                values = found
        else:
            reader.skip(field)
    if kind not in (_DATA, _INDEX, _DICTIONARY, _DATA_V2) or values < 0:
        raise ValueError("there is no page where the footer says that one is")
    return kind, size, values


def _first_integer(reader: CompactReader) -> int:
    """Read a struct; return its field 1."""
    found = -1
    for number, kind in reader.fields():
        if number == 1 and kind in INTEGERS:
            found = reader.integer()
        else:
            reader.skip(kind)
    return found


def moved_offset_index(data: bytes, old: int, new: int, data_pages: list[int]) -> bytes:
    """Return the OffsetIndex of a column chunk that was moved: its offsets count from the start of the file.

    Args:
        data: the index.
        old: where the chunk began.
        new: where it begins.
        data_pages: where its data pages are, from there on.

    Raises:
        ValueError: it does not list these pages.
        IndexError: it is damaged.
    """
    reader = CompactReader(data)
    parts: list[bytes] = []
    found: list[int] = []
    copied = 0
    for number, kind in reader.fields():
        if number != 1 or kind not in LISTS:
            reader.skip(kind)
            continue
        count, inner = reader.list_header()
        if inner != STRUCT and count:
            raise ValueError("the index of a column's pages is none")
        for _ in reader.items(count):
            for field, field_kind in reader.fields():
                if field != 1 or field_kind not in INTEGERS:
                    reader.skip(field_kind)
                    continue
                start = reader.at
                found.append(reader.integer() - old)
                parts += [data[copied:start], zigzag(found[-1] + new)]
                copied = reader.at
    if reader.at != len(data) or found != data_pages:
        raise ValueError("the index of a column's pages does not list them")
    return b"".join([*parts, data[copied:]])


def bloom_filter_size(data: bytes) -> int:
    """Return the size in bytes of a Bloom filter with its header, from its first bytes: old footers do not state it.

    Raises:
        ValueError: it is none.
        IndexError: likewise.
    """
    reader = CompactReader(data)
    length = _first_integer(reader)
    if length < 0:
        raise ValueError("a Bloom filter has no length")
    return reader.at + length
