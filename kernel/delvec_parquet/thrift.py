"""The part of Thrift's compact protocol that Parquet uses, read in place so that unknown fields are preserved.

Thrift libraries (thrift, thriftpy2, fastparquet) build objects from their version of parquet.thrift. They drop unknown
fields or forget the width of integers, so rewriting a footer with them loses what newer writers put there.

Tested in `tests/unit/parquet/test_footer.py` and `tests/unit/parquet/test_page_index.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["BINARY", "INTEGERS", "LISTS", "STRUCT", "CompactReader", "list_header", "varint", "zigzag"]

_BOOLEANS, _BYTE, INTEGERS, _DOUBLE, BINARY, LISTS, _MAP, STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12
_UUID: Final = 13
_SIZES: Final = {1: 0, 2: 0, _BYTE: 1, _DOUBLE: 8, _UUID: 16}
_MAX_DEPTH: Final = 64
_LONG_LIST: Final = 15
_LAST_OF_NUMBER: Final = 0x80
_MAX_BITS: Final = 64


def varint(value: int) -> bytes:
    """Encode an unsigned integer."""
    found = bytearray()
    while value >= _LAST_OF_NUMBER:
        found.append(value & 0x7F | _LAST_OF_NUMBER)
        value >>= 7
    found.append(value)
    return bytes(found)


def zigzag(value: int) -> bytes:
    """Encode a signed integer of at most 64 bits; the encoding is the same for all widths."""
    return varint((value << 1) ^ (value >> 63))


def list_header(count: int, kind: int) -> bytes:
    """Encode the header of a list."""
    if count < _LONG_LIST:
        return bytes([count << 4 | kind])
    return bytes([_LONG_LIST << 4 | kind]) + varint(count)


class CompactReader:
    """Reads values sequentially.

    Raises IndexError if the bytes end too early, ValueError if they are not valid Thrift.

    Attributes:
        at: the position of the next byte.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at

    def byte(self) -> int:
        """Read a byte."""
        found = self._data[self.at]
        self.at += 1
        return found

    def last(self) -> int:
        """Return the last byte read."""
        return self._data[self.at - 1]

    def take(self, length: int) -> bytes:
        """Read ``length`` bytes."""
        if length > len(self._data) - self.at:
            raise IndexError("the data ends in the middle of a value")
        self.at += length
        return self._data[self.at - length : self.at]

    def varint(self) -> int:
        """Read an unsigned integer."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < _LAST_OF_NUMBER:
                return value
            shift += 7
            if shift >= _MAX_BITS:
                raise ValueError("an integer exceeds 64 bits")

    def integer(self) -> int:
        """Read a signed integer."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def items(self, count: int) -> Iterator[int]:
        """Yield the positions of a list's items, each of which takes at least a byte."""
        if count > len(self._data) - self.at:
            raise IndexError("a list is longer than the remaining data")
        yield from range(count)

    def list_header(self) -> tuple[int, int]:
        """Read the number of items of a list, and their type."""
        header = self.byte()
        count, kind = header >> 4, header & 15
        return (self.varint() if count == _LONG_LIST else count), kind

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct; read or skip its value before the next."""
        number = 0
        while header := self.byte():
            delta, kind = header >> 4, header & 15
            number = number + delta if delta else self.integer()
            yield number, kind

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip a value."""
        if depth > _MAX_DEPTH:
            raise ValueError("the data is nested too deeply")
        if kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in LISTS:
            count, inner = self.list_header()
            self._skip_items(count, (inner,), depth)
        elif kind == _MAP:
            count = self.varint()
            kinds = self.byte() if count else 0
            self._skip_items(count, (kinds >> 4, kinds & 15), depth)
        else:
            self._skip_scalar(kind)

    def _skip_items(self, count: int, kinds: Sequence[int], depth: int) -> None:
        # Inside a list a Boolean takes a byte.
        kinds = [_BYTE if kind in _BOOLEANS else kind for kind in kinds]
        for _ in self.items(count):
            for kind in kinds:
                self.skip(kind, depth + 1)

    def _skip_scalar(self, kind: int) -> None:
        if kind in INTEGERS:
            self.varint()
        elif kind == BINARY:
            self.take(self.varint())
        elif kind in _SIZES:
            self.take(_SIZES[kind])
        else:
            raise ValueError(f"unknown Thrift type {kind}")
