"""Pages of column chunks, validated while their bytes are copied, and the indexes that locate them.

Some readers tolerate a footer that ends a chunk in the middle of a page, but none could read a copy of such a chunk.

Tested in `tests/integration/contract/test_row_group_copy.py` and
`tests/integration/engines/test_copy_plan.py`.
"""

from typing import Final

from delvec_parquet.thrift import INTEGERS, LISTS, STRUCT, CompactReader, zigzag

__all__ = ["PageWalk", "bloom_filter_size", "moved_offset_index"]

_FIRST_HEADER_BYTES: Final = 128
_MAX_HEADER_BYTES: Final = 16 << 20
_DATA, _INDEX, _DICTIONARY, _DATA_V2 = 0, 1, 2, 3
_TYPE, _COMPRESSED_SIZE = 1, 3
_HEADERS: Final = {5: _DATA, 7: _DICTIONARY, 8: _DATA_V2}
"""PageHeader fields with a page's number of values, and the page type of each."""


class PageWalk:
    """Validates the pages of a column chunk whose bytes arrive in parts.

    Args:
        size: the size of the chunk.
        num_values: from the footer.

    Attributes:
        data_pages: offsets of the data pages, relative to the chunk.
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
        """Process the next bytes.

        Raises:
            ValueError: the pages contradict the footer.
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
        """Check that the last page ends with the chunk, and that the number of values is right.

        Raises:
            ValueError: either check fails.
        """
        if self._at != self._size or self._body or self._pending or self._left_values:
            raise ValueError("a column chunk does not end with its last page, or lacks values")

    def _header(self, data: memoryview, at: int) -> int:
        """Parse the page header at ``at``, or keep its first part; return the position after it."""
        look = _FIRST_HEADER_BYTES
        while True:
            window = self._pending + bytes(data[at : at + look])
            reader = CompactReader(window)
            try:
                kind, size, values = _page(reader)
                break
            except IndexError:
                if len(window) > _MAX_HEADER_BYTES:
                    raise ValueError("a page header exceeds 16 MiB") from None
                if at + look >= len(data):
                    self._pending = window
                    return len(data)
                look *= 8
        num_bytes = reader.at - len(self._pending)
        self._pending = b""
        if size > self._size - self._at - reader.at or size < 0:
            raise ValueError("a page is longer than its column chunk")
        if kind in (_DATA, _DATA_V2):
            self.data_pages.append(self._at)
            self._left_values -= values
        elif kind != _DICTIONARY or self._pages:
            raise ValueError("a column chunk has an unexpected page")
        self._pages += 1
        self._at += reader.at
        self._body = size
        return at + num_bytes


def _page(reader: CompactReader) -> tuple[int, int, int]:
    """Read a PageHeader; return page type, compressed size, and number of values."""
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
        raise ValueError("no page starts where the footer says")
    return kind, size, values


def _first_integer(reader: CompactReader) -> int:
    """Read a struct; return its field 1."""
    first_integer = -1
    for number, kind in reader.fields():
        if number == 1 and kind in INTEGERS:
            first_integer = reader.integer()
        else:
            reader.skip(kind)
    return first_integer


def moved_offset_index(data: bytes, old: int, new: int, data_pages: list[int]) -> bytes:
    """Return the OffsetIndex of a moved column chunk, with adjusted file offsets.

    Args:
        data: the index.
        old: the chunk's old offset.
        new: the chunk's new offset.
        data_pages: offsets of its data pages, relative to the chunk.

    Raises:
        ValueError: the index does not list these pages.
        IndexError: the index is truncated.
    """
    reader = CompactReader(data)
    parts: list[bytes] = []
    page_offsets: list[int] = []
    copy_end = 0
    for number, kind in reader.fields():
        if number != 1 or kind not in LISTS:
            reader.skip(kind)
            continue
        count, inner = reader.list_header()
        if inner != STRUCT and count:
            raise ValueError("an offset index is malformed")
        for _ in reader.items(count):
            for field, field_kind in reader.fields():
                if field != 1 or field_kind not in INTEGERS:
                    reader.skip(field_kind)
                    continue
                start = reader.at
                page_offsets.append(reader.integer() - old)
                parts += [data[copy_end:start], zigzag(page_offsets[-1] + new)]
                copy_end = reader.at
    if reader.at != len(data) or page_offsets != data_pages:
        raise ValueError("an offset index does not match the pages of its column chunk")
    return b"".join([*parts, data[copy_end:]])


def bloom_filter_size(data: bytes) -> int:
    """Return the size in bytes of a Bloom filter including its header, given its first bytes; old footers lack it.

    Raises:
        ValueError: it is not a Bloom filter.
        IndexError: it is truncated.
    """
    reader = CompactReader(data)
    length = _first_integer(reader)
    if length < 0:
        raise ValueError("a Bloom filter header has no length")
    return reader.at + length
