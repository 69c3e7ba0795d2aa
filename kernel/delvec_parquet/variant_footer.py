"""Rewrites Parquet footers so that DuckDB reads variants and geospatial values as plain binary columns.

A variant is a group of two binaries, ``metadata`` and ``value``. If the footer annotates the group as VARIANT, DuckDB returns
its own type in another encoding, and turns the JSON value ``null`` into NULL. Without the annotation, it would ignore the
shredded columns (``typed_value``) of a shredded variant. So DuckDB gets a changed footer:

- annotations are replaced by an unknown type, so that the binaries are read unchanged; so are those of geometries and
  geographies, which DuckDB would parse, sometimes refuse, and re-encode;
- a column with a shredded variant is listed again under another name with annotations, so that DuckDB
  reassembles this copy. In the first one, ``metadata`` is renamed to :data:`HIDDEN`, from which the query sees
  that the value is in the copy, and distinguishes NULL from ``null``.

Nothing plainer reads every such file. DuckDB 2.0.0's own type reads the JSON value ``null`` as NULL, in files without shredding too, and
has another encoding. pyarrow 26 returns the parts of a shredded variant, and cannot put them together; a second way
for files without shredding would have to apply conditions and deletion vectors again.

Only lists of the footer (parquet.thrift, "FileMetaData", in Thrift's compact protocol) are parsed, as hostile input; the
rest is copied. Files appear longer by :data:`SLACK` than they are, since DuckDB asks for the size before the footer
is read.

Tested in `tests/integration/client/engines/duckdb/test_variant_footers.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from delvec_errors import CorruptTable
from delvec_parquet.parquet_file import MAX_FOOTER_BYTES, TRAILER_BYTES, footer_size
from delvec_parquet.thrift import BINARY, INTEGERS, LISTS, STRUCT, CompactReader, list_header, varint, zigzag

__all__ = ["HIDDEN", "SLACK", "End", "copy_id", "is_shredded", "seen_end"]

HIDDEN: Final = "shredded"
"""New name of ``metadata``, of the same length."""
SLACK: Final = 2 * MAX_FOOTER_BYTES
"""Upper bound of the growth: a footer with copies of all columns is at most twice as long."""

_COPY_ID: Final = 1 << 30
_MAX_COLUMNS: Final = 1_000_000
"""Arrow's limit."""
_SCHEMA, _ROW_GROUPS, _KEY_VALUES, _COLUMN_ORDERS = 2, 4, 5, 7
_CHUNKS, _CHUNK_METADATA, _COMPRESSED_SIZE = 1, 3, 7
_NAME, _CHILDREN, _FIELD_ID, _LOGICAL_TYPE = 4, 5, 9, 10
_KEY: Final = 1
_VARIANT, _GEOSPATIAL = 16, (17, 18)
"""Fields of parquet.thrift's union LogicalType."""
_GEOPARQUET: Final = b"geo"
_GEOPARQUET_KEY: Final = b"\x03geo"
"""The metadata key of GeoParquet, which DuckDB treats as annotations."""
_UNKNOWN: Final = 63
_MARK: Final = bytes([STRUCT, _VARIANT << 1, 0, 0])
"""The encoded logical type VARIANT."""
_VALUES: Final = frozenset({"metadata", "value", "typed_value"})


def copy_id(number: int) -> int:
    """Return the field id of that copy."""
    return number ^ _COPY_ID


@dataclass(frozen=True, slots=True)
class End:
    """The end of a file as its reader sees it.

    Attributes:
        start: offset up to which the stored file is unchanged.
        data: the changed footer and everything after it, which ends at the stored size plus :data:`SLACK`.
    """

    start: int
    data: bytes

    def read(self, stored: Callable[[int, int], bytes], start: int, end: int, size: int) -> bytes:
        """Return a range of bytes of a file with apparent size ``size``; ``stored`` reads the stored file."""
        begins = size - len(self.data)
        data = stored(start, min(end, self.start)) if start < self.start else b""
        if end > begins:
            filling = bytes(max(0, begins - max(start, self.start)))
            return data + filling + self.data[max(0, start - begins) : end - begins]
        return data + bytes(end - max(start, self.start)) if end > self.start else data


def seen_end(read: Callable[[int, int], bytes], size: int, path: str, copy_name: Callable[[str], str]) -> End:
    """Return the end of a Parquet file for DuckDB; unchanged if it is not a Parquet file.

    Args:
        read: reads a range of bytes.
        size: the size of the file.
        path: the path, for errors.
        copy_name: names the copy of a column.

    Raises:
        CorruptTable: the footer is damaged.
        UnusableFile: it has more than 256 MiB.
    """
    trailer = read(max(0, size - TRAILER_BYTES), size)
    length = footer_size(trailer, size, path)
    if length is None:
        # DuckDB's own error is more specific.
        return End(max(0, size - TRAILER_BYTES), trailer)
    start = size - TRAILER_BYTES - length
    try:
        footer = _seen(read(start, size - TRAILER_BYTES), copy_name)
    except (IndexError, ValueError) as error:
        raise CorruptTable(
            f"The footer of the data file '{path}' is damaged: {error}; restore it from a backup.", file=path
        ) from error
    return End(start, footer + len(footer).to_bytes(4, "little") + trailer[4:])


_Edit = tuple[int, int, bytes]
"""Start and end offset, and the bytes that replace this range."""


@dataclass(slots=True)
class _Column:
    """An entry of a footer's schema, with the offsets of the bytes to edit."""

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
        """Yield the entry and its descendants, in the order of the schema."""
        pending = [self]
        while pending:
            column = pending.pop()
            yield column
            pending += reversed(column.below)

    @property
    def is_shredded(self) -> bool:
        return is_shredded({each.name for each in self.below})


@dataclass(slots=True)
class _List:
    """A list in a footer: its header, its end, and the ends of its entries."""

    header: tuple[int, int]
    kind: int
    ends: list[int]

    def longer(
        self, data: bytes, positions: Sequence[int], changed: Callable[[int], Iterator[_Edit]]
    ) -> list[_Edit]:
        """Return the edits that append copies of some entries; ``changed`` gives the edits of the copy by its offset."""
        starts = [self.header[1], *self.ends]
        copies = (_edited(data, starts[each], starts[each + 1], changed(starts[each])) for each in positions)
        return self.appended(len(positions), b"".join(copies))

    def appended(self, count: int, entries: bytes) -> list[_Edit]:
        """Return the edits that append encoded entries."""
        end = self.ends[-1] if self.ends else self.header[1]
        return [(*self.header, list_header(len(self.ends) + count, self.kind)), (end, end, entries)]


def is_shredded(names: AbstractSet[str]) -> bool:
    """Whether fields of these names are those of a shredded variant."""
    return "typed_value" in names and "metadata" in names and names <= _VALUES


def _seen(data: bytes, copy_name: Callable[[str], str]) -> bytes:
    """Return the changed footer for DuckDB."""
    footer = CompactReader(data)
    columns: list[_Column] = []
    lists: dict[int, _List] = {}
    groups: list[_List] = []
    key_edits: list[_Edit] = []
    for number, kind in footer.fields():
        if number == _SCHEMA and kind in LISTS:
            lists[number] = _list(footer, lambda: columns.append(_column(footer)))
            _nest(columns)
            if _GEOPARQUET_KEY not in data and not any(column.is_shredded for column in columns):
                # Parsing row groups is the most expensive part, so only if a copy is needed.
                return _edited(data, 0, len(data), _marks(columns))
        elif number == _ROW_GROUPS and kind in LISTS:
            lists[number] = _list(footer, lambda: groups.append(_chunks(footer)))
        elif number == _KEY_VALUES and kind in LISTS:
            _list(footer, lambda: key_edits.extend(_key(footer)))
        elif number == _COLUMN_ORDERS and kind in LISTS:
            lists[number] = _list(footer, lambda: footer.skip(STRUCT))
        else:
            footer.skip(kind)
    if not columns:
        raise ValueError("it lists no columns")
    return _edited(
        data, 0, len(data), [*key_edits, *_marks(columns), *_copies(data, columns, lists, groups, copy_name)]
    )


def _marks(columns: Sequence[_Column]) -> Iterator[_Edit]:
    """Yield the edits that remove the annotations of variants and geospatial types."""
    for column in columns:
        if column.mark_at is not None:
            yield column.mark_at, column.mark_at + 1, bytes([_UNKNOWN << 1])
        if column.is_shredded:
            for each in column.below:
                if each.name == "metadata":
                    yield *each.name_at, HIDDEN.encode()


def _copies(
    data: bytes,
    columns: Sequence[_Column],
    lists: dict[int, _List],
    groups: Sequence[_List],
    copy_name: Callable[[str], str],
) -> Iterator[_Edit]:
    """Yield the edits that append the copies of columns with shredded variants."""
    root = columns[0]
    entries: list[bytes] = []
    leaves: list[int] = []
    num_copies = count = leaf = 0
    for top in root.below:
        inside = list(top.all())
        positions = range(leaf, leaf + sum(not each.children for each in inside))
        leaf = positions.stop
        if any(each.is_shredded for each in inside):
            num_copies += 1
            count += len(inside)
            leaves += positions
            entries.append(_edited(data, top.start, inside[-1].end, _of_copy(top, inside, copy_name)))
    if not num_copies:
        return
    yield *root.children_at, zigzag(root.children + num_copies)
    yield from lists[_SCHEMA].appended(count, b"".join(entries))
    for each in (*groups, *([lists[_COLUMN_ORDERS]] if _COLUMN_ORDERS in lists else ())):
        if len(each.ends) != leaf:
            raise ValueError(f"it lists {leaf:,} columns, and has {len(each.ends):,} of them elsewhere")
    for group in groups:
        yield from group.longer(data, leaves, lambda start: _without_size(data, start))
    if _COLUMN_ORDERS in lists:
        yield from lists[_COLUMN_ORDERS].longer(data, leaves, lambda _: iter(()))


def _without_size(data: bytes, start: int) -> Iterator[_Edit]:
    """Yield the edit that zeroes the size of a copied chunk: DuckDB refuses chunks whose sizes exceed their range."""
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


def _of_copy(top: _Column, inside: Sequence[_Column], copy_name: Callable[[str], str]) -> Iterator[_Edit]:
    name = copy_name(top.name).encode()
    # Including the length before it.
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
    """Return a part of a footer with the edits applied."""
    parts = []
    for first, last, new in sorted(edits, key=lambda edit: edit[:2]):
        if first < start:
            raise ValueError("its lists overlap")
        parts += [data[start:first], new]
        start = last
    return b"".join([*parts, data[start:end]])


def _nest(columns: Sequence[_Column]) -> None:
    """Assign each column to its parent group; the schema is in depth-first order."""
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
    if count > _MAX_COLUMNS:
        raise ValueError(f"it lists {count:,} columns")
    struct_list = _List((at, footer.at), kind, [])
    for _ in footer.items(count):
        item()
        struct_list.ends.append(footer.at)
    return struct_list


def _chunks(footer: CompactReader) -> _List:
    """Read a row group; return the list of its column chunks."""
    column_chunks = None
    for number, kind in footer.fields():
        if number == _CHUNKS and kind in LISTS:
            column_chunks = _list(footer, lambda: footer.skip(STRUCT))
        else:
            footer.skip(kind)
    if column_chunks is None:
        raise ValueError("it has a row group without columns")
    return column_chunks


def _key(footer: CompactReader) -> Iterator[_Edit]:
    """Read a key-value entry; yield the edit that hides the one of GeoParquet."""
    edits = []
    for number, kind in footer.fields():
        if number == _KEY and kind == BINARY:
            key = footer.take(footer.varint())
            if key == _GEOPARQUET:
                edits.append((footer.at - len(key), footer.at, b"-" * len(key)))
        else:
            footer.skip(kind)
    yield from edits


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
                    # A field number whose delta exceeds 15 is in a separate byte, the last one read.
                    column.mark, column.mark_at = member, footer.at - 1
                    if footer.last() != member << 1:
                        raise ValueError("a column's type is not valid Thrift")
                footer.skip(inner)
        else:
            footer.skip(kind)
    column.end = footer.at
    return column
