"""Parquet files of which DuckDB is to read variants and geospatial values as the bytes that they are.

A variant is a group of two binaries, ``metadata`` and ``value``. Where a footer marks the group as a variant, DuckDB gives a
type of its own in another encoding, and takes the JSON value ``null`` for NULL; of a shredded variant, whose values lie in
columns of their own (``typed_value``), it would leave those out where the mark is missing. So the reader sees another footer:

- marks become those of a type that no reader knows, and the binaries are read as they are; so are those of geometries and
  geographies, which DuckDB would parse, refuse where it does not know them, and write anew;
- a column with a shredded variant is listed once more, under another name (:func:`copy_name`), with all its variants marked:
  this copy DuckDB puts together. In the first one ``metadata`` is called :data:`HIDDEN`, by which :func:`variant_value` finds
  the values that are in the copy, and it tells NULL from ``null``.

Of the footer's lists (parquet.thrift, "FileMetaData", in Thrift's compact protocol) the entries are parsed or found, and
nothing in them is believed; all else is copied. Files seem to be longer than they are, each by :data:`SLACK`, since their size
is asked for before the footer is read.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from delvec.engines.duckdb.lookup import string_literal
from delvec.engines.internal_names import INTERNAL
from delvec_kernel.errors import CorruptTable
from delvec_kernel.parquet.thrift import (
    BINARY,
    INTEGERS,
    LISTS,
    STRUCT,
    CompactReader,
    list_header,
    varint,
    zigzag,
)
from delvec_kernel.schema.types import ArrayType, DataType, MapType, StructType
from delvec_kernel.storage.parquet_footers import MAX_FOOTER_BYTES, TRAILER_BYTES, footer_size

__all__ = [
    "BINARIES",
    "INCOMPLETE",
    "SLACK",
    "VARIANT_IN_FILE",
    "End",
    "copy_id",
    "copy_name",
    "looks_shredded",
    "seen_end",
    "variant_value",
]

BINARIES: Final = "STRUCT(metadata BLOB, value BLOB)"
HIDDEN: Final = "shredded"
"""As long as ``metadata``."""
VARIANT_IN_FILE: Final = f"STRUCT(metadata BLOB, value BLOB, {HIDDEN} BLOB)"
INCOMPLETE: Final = "has a variant without metadata"
SLACK: Final = 2 * MAX_FOOTER_BYTES
"""A footer with copies of all columns is at most twice as long, and that of a small one is longer by less than this, too."""

_COPY: Final = INTERNAL("copy")
_COPY_ID: Final = 1 << 30
_MOST_COLUMNS: Final = 1_000_000
"""As many as Arrow takes."""
_SCHEMA, _ROW_GROUPS, _KEY_VALUES, _COLUMN_ORDERS = 2, 4, 5, 7
_CHUNKS, _CHUNK_METADATA, _COMPRESSED_SIZE = 1, 3, 7
_NAME, _CHILDREN, _FIELD_ID, _LOGICAL_TYPE = 4, 5, 9, 10
_KEY: Final = 1
_VARIANT, _GEOSPATIAL = 16, (17, 18)
"""Fields of parquet.thrift's union LogicalType."""
_GEOPARQUET: Final = b"geo"
_GEOPARQUET_KEY: Final = b"\x03geo"
"""Under which key GeoParquet has what DuckDB takes for marks, too."""
_UNKNOWN: Final = 63
_MARK: Final = bytes([STRUCT, _VARIANT << 1, 0, 0])
"""The value of a column's logical type that is a variant."""
_VALUES: Final = frozenset({"metadata", "value", "typed_value"})


def variant_value(value: str, copy: str, column: str) -> str:
    """Return the SQL of a variant, its two binaries, from what is read of a column and of its copy.

    A value that is neither there nor shredded is ``null`` (Parquet's VariantShredding.md, "Value Shredding").
    """
    reason = string_literal(f"delvec: column '{column}' {INCOMPLETE}")
    return (
        f"CASE WHEN {value} IS NULL THEN NULL "
        f"WHEN {value}.{HIDDEN} IS NOT NULL THEN CAST(variant_to_parquet_variant({copy}) AS {BINARIES}) "
        f"WHEN {value}.metadata IS NULL THEN error({reason}) "
        f"ELSE struct_pack(metadata := {value}.metadata, value := coalesce({value}.value, '\\x00'::BLOB)) END"
    )


def copy_name(name: str) -> str:
    """Return what the copy of a column with a shredded variant is called."""
    return f"{_COPY}_{name}"


def copy_id(number: int) -> int:
    """Return the field id of that copy."""
    return number ^ _COPY_ID


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


@dataclass(frozen=True, slots=True)
class End:
    """How a file ends for its reader.

    Attributes:
        start: up to here it is as it is.
        data: its footer and what follows it, at the end of :data:`SLACK` more bytes.
    """

    start: int
    data: bytes

    def read(self, stored: Callable[[int, int], bytes], start: int, end: int, size: int) -> bytes:
        """Return the bytes from one offset to another, of a file that seems to have ``size``; ``stored`` gives those that it has."""
        begins = size - len(self.data)
        data = stored(start, min(end, self.start)) if start < self.start else b""
        if end > begins:
            filling = bytes(max(0, begins - max(start, self.start)))
            return data + filling + self.data[max(0, start - begins) : end - begins]
        return data + bytes(end - max(start, self.start)) if end > self.start else data


def seen_end(read: Callable[[int, int], bytes], size: int, path: str) -> End:
    """Return how a Parquet file ends for DuckDB; as it does where it is none.

    Args:
        read: gives the bytes from one offset to another.
        size: of the file.
        path: for errors.

    Raises:
        CorruptTable: the footer is damaged.
        UnusableFile: it has more than 256 MiB.
    """
    trailer = read(max(0, size - TRAILER_BYTES), size)
    length = footer_size(trailer, size, path)
    if length is None:
        # DuckDB says better what is wrong.
        return End(max(0, size - TRAILER_BYTES), trailer)
    start = size - TRAILER_BYTES - length
    try:
        footer = _seen(read(start, size - TRAILER_BYTES))
    except (IndexError, ValueError) as error:
        raise CorruptTable(
            f"The footer of the data file '{path}' is damaged: {error}; restore it from a backup.", file=path
        ) from error
    return End(start, footer + len(footer).to_bytes(4, "little") + trailer[4:])


_Edit = tuple[int, int, bytes]
"""From one offset to another, other bytes."""


@dataclass(slots=True)
class _Column:
    """An entry of a footer's list of columns, and where the bytes in question are."""

    start: int
    end: int = 0
    name: str = ""
    name_at: tuple[int, int] = (0, 0)
    children: int = 0
    children_at: tuple[int, int] = (0, 0)
    id: int = 0
    id_at: tuple[int, int] | None = None
    mark: int = 0
    mark_at: int | None = None
    last: int = 0
    below: list["_Column"] = field(default_factory=list)

    def all(self) -> Iterator["_Column"]:
        """Give it and all below it, in the order of the list."""
        pending = [self]
        while pending:
            column = pending.pop()
            yield column
            pending += reversed(column.below)

    @property
    def is_shredded(self) -> bool:
        return _is_shredded({each.name for each in self.below})


@dataclass(slots=True)
class _List:
    """A list of a footer: its header, where it ends, and where its entries do."""

    header: tuple[int, int]
    kind: int
    ends: list[int]

    def longer(
        self, data: bytes, positions: Sequence[int], changed: Callable[[int], Iterator[_Edit]]
    ) -> list[_Edit]:
        """Return the edits that append copies of some of its entries, with what ``changed`` edits in the one from an offset on."""
        starts = [self.header[1], *self.ends]
        copies = (_edited(data, starts[each], starts[each + 1], changed(starts[each])) for each in positions)
        return self.appended(len(positions), b"".join(copies))

    def appended(self, count: int, entries: bytes) -> list[_Edit]:
        """Return the edits that append entries."""
        end = self.ends[-1] if self.ends else self.header[1]
        return [(*self.header, list_header(len(self.ends) + count, self.kind)), (end, end, entries)]


def _is_shredded(names: AbstractSet[str]) -> bool:
    return "typed_value" in names and "metadata" in names and names <= _VALUES


def _seen(data: bytes) -> bytes:
    """Return a footer as DuckDB is to see it."""
    footer = CompactReader(data)
    columns: list[_Column] = []
    lists: dict[int, _List] = {}
    groups: list[_List] = []
    hidden: list[_Edit] = []
    for number, kind in footer.fields():
        if number == _SCHEMA and kind in LISTS:
            lists[number] = _list(footer, lambda: columns.append(_column(footer)))
            _nest(columns)
            if _GEOPARQUET_KEY not in data and not any(column.is_shredded for column in columns):
                # Row groups take longer than all else.
                return _edited(data, 0, len(data), _marks(columns))
        elif number == _ROW_GROUPS and kind in LISTS:
            lists[number] = _list(footer, lambda: groups.append(_chunks(footer)))
        elif number == _KEY_VALUES and kind in LISTS:
            _list(footer, lambda: hidden.extend(_key(footer)))
        elif number == _COLUMN_ORDERS and kind in LISTS:
            lists[number] = _list(footer, lambda: footer.skip(STRUCT))
        else:
            footer.skip(kind)
    if not columns:
        raise ValueError("it lists no columns")
    return _edited(data, 0, len(data), [*hidden, *_marks(columns), *_copies(data, columns, lists, groups)])


def _marks(columns: Sequence[_Column]) -> Iterator[_Edit]:
    """Give the edits by which no column is a variant or a geometry for DuckDB."""
    for column in columns:
        if column.mark_at is not None:
            yield column.mark_at, column.mark_at + 1, bytes([_UNKNOWN << 1])
        if column.is_shredded:
            for each in column.below:
                if each.name == "metadata":
                    yield *each.name_at, HIDDEN.encode()


def _copies(
    data: bytes, columns: Sequence[_Column], lists: dict[int, _List], groups: Sequence[_List]
) -> Iterator[_Edit]:
    """Give the edits that append the copies of columns with shredded variants."""
    root = columns[0]
    entries: list[bytes] = []
    leaves: list[int] = []
    copied = count = leaf = 0
    for top in root.below:
        inside = list(top.all())
        positions = range(leaf, leaf + sum(not each.children for each in inside))
        leaf = positions.stop
        if any(each.is_shredded for each in inside):
            copied += 1
            count += len(inside)
            leaves += positions
            entries.append(_edited(data, top.start, inside[-1].end, _of_copy(top, inside)))
    if not copied:
        return
    yield *root.children_at, zigzag(root.children + copied)
    yield from lists[_SCHEMA].appended(count, b"".join(entries))
    for each in (*groups, *([lists[_COLUMN_ORDERS]] if _COLUMN_ORDERS in lists else ())):
        if len(each.ends) != leaf:
            raise ValueError(f"it lists {leaf:,} columns, and has {len(each.ends):,} of them elsewhere")
    for group in groups:
        yield from group.longer(data, leaves, lambda start: _without_size(data, start))
    if _COLUMN_ORDERS in lists:
        yield from lists[_COLUMN_ORDERS].longer(data, leaves, lambda _: iter(()))


def _without_size(data: bytes, start: int) -> Iterator[_Edit]:
    """Give the edit of a copied column chunk: DuckDB adds the sizes up, and refuses more than lies between first and last."""
    footer = CompactReader(data, start)
    for number, kind in footer.fields():
        if number == _CHUNK_METADATA and kind == STRUCT:
            for inner, inner_kind in footer.fields():
                at = footer.at
                footer.skip(inner_kind)
                if inner == _COMPRESSED_SIZE and inner_kind in INTEGERS:
                    yield at, footer.at, zigzag(0)
        else:
            footer.skip(kind)


def _of_copy(top: _Column, inside: Sequence[_Column]) -> Iterator[_Edit]:
    name = copy_name(top.name).encode()
    # With the length, which is before it.
    start = top.name_at[0] - len(varint(top.name_at[1] - top.name_at[0]))
    yield start, top.name_at[1], varint(len(name)) + name
    if top.id_at is not None:
        yield *top.id_at, zigzag(copy_id(top.id))
    for column in inside:
        if column.mark in _GEOSPATIAL and column.mark_at is not None:
            yield column.mark_at, column.mark_at + 1, bytes([_UNKNOWN << 1])
        if column.is_shredded and column.mark_at is None and column.last < _LOGICAL_TYPE:
            end = column.end - 1
            yield end, end, bytes([(_LOGICAL_TYPE - column.last) << 4 | STRUCT]) + _MARK


def _edited(data: bytes, start: int, end: int, edits: Iterator[_Edit] | Sequence[_Edit]) -> bytes:
    """Return a part of a footer with what is edited in it."""
    parts = []
    for first, last, new in sorted(edits, key=lambda edit: edit[:2]):
        if first < start:
            raise ValueError("its lists overlap")
        parts += [data[start:first], new]
        start = last
    return b"".join([*parts, data[start:end]])


def _nest(columns: Sequence[_Column]) -> None:
    """Hang each column below its group; they come in the order of a walk that is depth first."""
    waiting: list[_Column] = []
    for column in columns:
        while waiting and len(waiting[-1].below) >= waiting[-1].children:
            waiting.pop()
        if waiting:
            waiting[-1].below.append(column)
        if column.children > 0:
            waiting.append(column)


def _list(footer: CompactReader, item: Callable[[], object]) -> _List:
    """Read a list of structs."""
    at = footer.at
    count, kind = footer.list_header()
    if count > _MOST_COLUMNS:
        raise ValueError(f"it lists {count:,} columns")
    found = _List((at, footer.at), kind, [])
    for _ in footer.items(count):
        item()
        found.ends.append(footer.at)
    return found


def _chunks(footer: CompactReader) -> _List:
    """Read a row group; return the list of its columns."""
    found = None
    for number, kind in footer.fields():
        if number == _CHUNKS and kind in LISTS:
            found = _list(footer, lambda: footer.skip(STRUCT))
        else:
            footer.skip(kind)
    if found is None:
        raise ValueError("it has a row group without columns")
    return found


def _key(footer: CompactReader) -> Iterator[_Edit]:
    """Read an entry of the file's metadata; give the edit by which GeoParquet's is not found."""
    found = []
    for number, kind in footer.fields():
        if number == _KEY and kind == BINARY:
            key = footer.take(footer.varint())
            if key == _GEOPARQUET:
                found.append((footer.at - len(key), footer.at, b"-" * len(key)))
        else:
            footer.skip(kind)
    yield from found


def _column(footer: CompactReader) -> _Column:
    column = _Column(footer.at)
    for number, kind in footer.fields():
        column.last = number
        if number == _NAME and kind == BINARY:
            length = footer.varint()
            column.name = footer.take(length).decode(errors="replace")
            column.name_at = (footer.at - length, footer.at)
        elif number in (_CHILDREN, _FIELD_ID) and kind in INTEGERS:
            at = footer.at
            value = footer.integer()
            if number == _CHILDREN:
                column.children, column.children_at = value, (at, footer.at)
            else:
                column.id, column.id_at = value, (at, footer.at)
        elif number == _LOGICAL_TYPE and kind == STRUCT:
            for member, inner in footer.fields():
                if member == _VARIANT or member in _GEOSPATIAL:
                    # Beyond 15 a field has its number in a byte of its own, the last one read.
                    column.mark, column.mark_at = member, footer.at - 1
                    if footer.last() != member << 1:
                        raise ValueError("a column's type is not valid Thrift")
                footer.skip(inner)
        else:
            footer.skip(kind)
    column.end = footer.at
    return column
