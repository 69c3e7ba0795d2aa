"""Parquet files of which DuckDB is to read variants as the bytes that they are.

A variant is a group of two binaries, ``metadata`` and ``value``. Where a footer marks the group as a variant, DuckDB gives a
type of its own in another encoding, and takes the JSON value ``null`` for NULL; of a shredded variant, whose values lie in
columns of their own (``typed_value``), it would leave those out where the mark is missing. So the reader sees a footer with a
few other bytes, in the same places: marks become those of a type that no reader knows, and a shredded variant has no
``metadata``, which it always has otherwise. :func:`variant_value` fails where such a value is read.

Only the list of columns is parsed (parquet.thrift, "FileMetaData", in Thrift's compact protocol), and nothing in it is believed.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from delvec.engines.duckdb.lookup import string_literal
from delvec_kernel.errors import CorruptTable
from delvec_kernel.schema.types import ArrayType, DataType, MapType, StructType
from delvec_kernel.storage.parquet_footers import TRAILER_BYTES, footer_size

__all__ = [
    "SHREDDED",
    "VARIANT_TYPE",
    "Patch",
    "looks_shredded",
    "patched",
    "variant_patches",
    "variant_value",
]

VARIANT_TYPE: Final = "STRUCT(metadata BLOB, value BLOB)"
SHREDDED: Final = "has a shredded variant"
Patch = tuple[int, bytes]
"""Where in the file other bytes are read, and which."""

_MOST_COLUMNS: Final = 1_000_000
"""As many as Arrow takes."""
_DEEPEST: Final = 64
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12  # fmt: skip
_SIZES: Final = {1: 0, 2: 0, _BYTE: 1, _DOUBLE: 8}
_LONG_LIST: Final = 15
_LAST_OF_NUMBER: Final = 0x80
_MOST_BITS: Final = 64
_SCHEMA, _NAME, _CHILDREN, _LOGICAL_TYPE = 2, 4, 5, 10
_VARIANT: Final = 16
"""The field of parquet.thrift's union LogicalType."""
_UNKNOWN: Final = 63
_VALUES: Final = frozenset({"metadata", "value", "typed_value"})


def variant_value(value: str, column: str) -> str:
    """Return the SQL of a variant from what is read of it: an error that names the column where it is shredded.

    Otherwise both binaries are required.
    """
    reason = (
        f"delvec: column '{column}' {SHREDDED}, which the DuckDB engine cannot reassemble; "
        "read it with Spark, or leave the column out"
    )
    return (
        f"CASE WHEN {value} IS NULL THEN NULL WHEN {value}.metadata IS NULL OR {value}.value IS NULL "
        f"THEN error({string_literal(reason)}) ELSE {value} END"
    )


def looks_shredded(kind: DataType) -> bool:
    """Whether a type is, or holds, a struct that in a file without marks looks like a shredded variant."""
    match kind:
        case StructType(fields):
            return _is_shredded({item.physical_name for item in fields}) or any(
                looks_shredded(item.type) for item in fields
            )
        case ArrayType(element):
            return looks_shredded(element)
        case MapType(key, value):
            return looks_shredded(key) or looks_shredded(value)
        case _:
            return False


def patched(data: bytes, start: int, patches: Sequence[Patch]) -> bytes:
    """Return what is read of a file from ``start`` with the patches that lie in it."""
    found = None
    for at, new in patches:
        first, last = max(at, start), min(at + len(new), start + len(data))
        if first < last:
            found = bytearray(data) if found is None else found
            found[first - start : last - start] = new[first - at : last - at]
    return data if found is None else bytes(found)


def variant_patches(read: Callable[[int, int], bytes], size: int, path: str) -> list[Patch]:
    """Return what of a Parquet file is to be read otherwise; nothing where it is none.

    Args:
        read: gives the bytes from one offset to another.
        size: of the file.
        path: for errors.

    Raises:
        CorruptTable: the footer is damaged.
        UnusableFile: it has more than 256 MiB.
    """
    length = footer_size(read(max(0, size - TRAILER_BYTES), size), size, path)
    if length is None:
        # DuckDB says better what is wrong.
        return []
    end = size - TRAILER_BYTES
    start = end - length
    try:
        found = _patches(_columns(_Thrift(read(start, end))))
        return [(start + at, new) for at, new in found]
    except (IndexError, ValueError) as error:
        raise CorruptTable(
            f"The footer of the data file '{path}' is damaged: {error}; restore it from a backup.", file=path
        ) from error


@dataclass(slots=True)
class _Column:
    """An entry of a footer's list of columns, and where the bytes in question are."""

    name: str = ""
    name_at: int = 0
    children: int = 0
    mark_at: int | None = None
    below: list["_Column"] = field(default_factory=list)


def _patches(columns: Sequence[_Column]) -> Iterator[Patch]:
    for column in _nested(columns):
        if column.mark_at is not None:
            yield column.mark_at, bytes([_UNKNOWN << 1])
        if _is_shredded({each.name for each in column.below}):
            for each in column.below:
                if each.name == "metadata":
                    yield each.name_at, b"-" * len(each.name)


def _is_shredded(names: AbstractSet[str]) -> bool:
    return "typed_value" in names and "metadata" in names and names <= _VALUES


def _nested(columns: Sequence[_Column]) -> Sequence[_Column]:
    """Hang each column below its group; they come in the order of a walk that is depth first."""
    waiting: list[_Column] = []
    for column in columns:
        while waiting and len(waiting[-1].below) >= waiting[-1].children:
            waiting.pop()
        if waiting:
            waiting[-1].below.append(column)
        if column.children > 0:
            waiting.append(column)
    return columns


def _columns(footer: "_Thrift") -> list[_Column]:
    for number, kind in footer.fields():
        if number == _SCHEMA and kind in _LISTS:
            count, _ = footer.list_header()
            if count > _MOST_COLUMNS:
                raise ValueError(f"it lists {count:,} columns")
            return [_column(footer) for _ in footer.items(count)]
        footer.skip(kind)
    raise ValueError("it lists no columns")


def _column(footer: "_Thrift") -> _Column:
    column = _Column()
    for number, kind in footer.fields():
        if number == _NAME and kind == _BINARY:
            length = footer.varint()
            column.name_at = footer.at
            column.name = footer.take(length).decode(errors="replace")
        elif number == _CHILDREN and kind in _INTEGERS:
            column.children = footer.integer()
        elif number == _LOGICAL_TYPE and kind == _STRUCT:
            for member, inner in footer.fields():
                if member == _VARIANT:
                    # Beyond 15 a field has its number in a byte of its own, the last one read.
                    column.mark_at = footer.at - 1
                    if footer.last() != _VARIANT << 1:
                        raise ValueError("a column's type is not valid Thrift")
                footer.skip(inner)
        else:
            footer.skip(kind)
    return column


class _Thrift:
    """Reads Thrift's compact protocol; what is no such thing is an IndexError or a ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def byte(self) -> int:
        found = self._data[self.at]
        self.at += 1
        return found

    def last(self) -> int:
        return self._data[self.at - 1]

    def take(self, length: int) -> bytes:
        if length > len(self._data) - self.at:
            raise IndexError("it ends in the middle of a name")
        self.at += length
        return self._data[self.at - length : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < _LAST_OF_NUMBER:
                return value
            shift += 7
            if shift >= _MOST_BITS:
                raise ValueError("a number has more than 64 bits")

    def integer(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def items(self, count: int) -> Iterator[int]:
        if count > len(self._data) - self.at:
            raise IndexError("a list is longer than the footer")
        yield from range(count)

    def list_header(self) -> tuple[int, int]:
        header = self.byte()
        count, kind = header >> 4, header & 15
        return (self.varint() if count == _LONG_LIST else count), kind

    def fields(self) -> Iterator[tuple[int, int]]:
        """Give number and type of each field of a struct; its value is to be read before the next."""
        number = 0
        while header := self.byte():
            delta, kind = header >> 4, header & 15
            number = number + delta if delta else self.integer()
            yield number, kind

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass over a value."""
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        if kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in _LISTS:
            count, inner = self.list_header()
            self._skip_items(count, (inner,), depth)
        elif kind == _MAP:
            count = self.varint()
            kinds = self.byte() if count else 0
            self._skip_items(count, (kinds >> 4, kinds & 15), depth)
        else:
            self._skip_scalar(kind)

    def _skip_items(self, count: int, kinds: Sequence[int], depth: int) -> None:
        # In a list a Boolean is a byte.
        kinds = [_BYTE if kind in _BOOLEANS else kind for kind in kinds]
        for _ in self.items(count):
            for kind in kinds:
                self.skip(kind, depth + 1)

    def _skip_scalar(self, kind: int) -> None:
        if kind in _INTEGERS:
            self.varint()
        elif kind == _BINARY:
            self.take(self.varint())
        elif kind in _SIZES:
            self.take(_SIZES[kind])
        else:
            raise ValueError(f"Thrift has no type {kind}")
