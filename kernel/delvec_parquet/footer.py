"""Parquet footers for copying row groups: the byte ranges of row groups, and the footer of the combined file.

A footer is parquet.thrift's FileMetaData. The new footer is the old bytes with a few numbers replaced: offsets, ordinals
and row counts. Everything else is preserved, including statistics, encodings and fields unknown to this module.
Footers are not trusted: overlapping or out-of-range byte ranges are errors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from delvec_parquet.thrift import BINARY, INTEGERS, LISTS, STRUCT, CompactReader, list_header, zigzag

__all__ = [
    "ColumnChunk",
    "Footer",
    "Place",
    "RowGroup",
    "column_names",
    "joined",
    "parse",
    "why_not_together",
]

_START: Final = 4
"""Offset after the magic number."""
_MAX_ROW_GROUPS: Final = 32_767
"""Ordinals have 16 bits."""
_MAX_COLUMNS: Final = 1_000_000
_SCHEMA, _NUM_ROWS, _ROW_GROUPS, _CREATED_BY, _ENCRYPTION = 2, 3, 4, 6, (8, 9)
_OLD_WRITERS: Final = (b"parquet-cpp version", b"impala version")
"""Writers known to record wrong column chunk sizes (PARQUET-816)."""


class _MovedInteger(NamedTuple):
    """An integer in a row group's metadata that changes in the new file: byte range, value and name."""

    start: int
    end: int
    value: int
    name: str
    column: int


@dataclass(slots=True)
class ColumnChunk:
    """Byte ranges of a column chunk; ends are exclusive.

    Attributes:
        start: the start of its first page.
        end: the end of its last page.
        data_start: of its first data page.
        num_values: in its data pages.
        column_index: or None.
        offset_index: or None.
        bloom_filter: or None; its end is None if the footer lacks the length.
    """

    start: int = 0
    end: int = 0
    data_start: int = 0
    num_values: int = 0
    column_index: tuple[int, int] | None = None
    offset_index: tuple[int, int] | None = None
    bloom_filter: tuple[int, int | None] | None = None

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the byte ranges that must not overlap with any others."""
        yield self.start, self.end
        for found in (self.column_index, self.offset_index):
            if found is not None:
                yield found
        if self.bloom_filter is not None:
            start, end = self.bloom_filter
            yield start, start + 1 if end is None else end


@dataclass(slots=True)
class RowGroup:
    """A row group.

    Attributes:
        num_rows: in the row group.
        chunks: the chunks of its columns, in order.
        start: the start of its entry in the footer.
        end: the end of its entry in the footer.
        numbers: the integers in the entry that change.
    """

    num_rows: int = 0
    chunks: list[ColumnChunk] = field(default_factory=list)
    start: int = 0
    end: int = 0
    numbers: list[_MovedInteger] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of its column chunks."""
        return sum(chunk.end - chunk.start for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Footer:
    """A parsed footer.

    Attributes:
        num_rows: in the file.
        row_groups: those with rows, in order.
        same: the fields that must be equal for files to be combined: all but row counts and row groups.
    """

    num_rows: int
    row_groups: Sequence[RowGroup]
    same: tuple[tuple[int, bytes], ...]
    _data: bytes
    _rows_at: tuple[int, int]
    _groups_at: tuple[int, int]


class Place(NamedTuple):
    """New offsets of a column chunk and its indexes.

    Attributes:
        start: the start of the chunk.
        column_index: its offset.
        offset_index: its offset and its new length.
        bloom_filter: its offset.
    """

    start: int
    column_index: int = 0
    offset_index: tuple[int, int] = (0, 0)
    bloom_filter: int = 0


# --- reading --------------------------------------------------------------------------------------------------


def parse(data: bytes, end: int) -> Footer:
    """Parse a footer.

    Args:
        data: FileMetaData in Thrift's compact protocol.
        end: the footer's offset in the file, where the data ends.

    Raises:
        ValueError: the footer is corrupt or contradicts itself.
        IndexError: the footer is truncated.
    """
    reader = CompactReader(data)
    num_rows, rows_at = -1, (0, 0)
    groups: list[RowGroup] | None = None
    groups_at = (0, 0)
    same: list[tuple[int, bytes]] = []
    for number, kind in reader.fields():
        start = reader.at
        if number == _NUM_ROWS and kind in INTEGERS:
            num_rows = reader.integer()
            rows_at = start, reader.at
        elif number == _ROW_GROUPS and kind in LISTS:
            count, inner = reader.list_header()
            if inner != STRUCT and count:
                raise ValueError("the footer's list of row groups is malformed")
            groups = [_row_group(reader) for _ in reader.items(count)]
            groups_at = start, reader.at
        else:
            reader.skip(kind)
            same.append((number, data[start : reader.at]))
    if groups is None or num_rows != sum(group.num_rows for group in groups):
        raise ValueError("the footer lacks row groups, or their rows do not add up to the file's row count")
    groups = [group for group in groups if group.num_rows]
    _check(groups, end)
    return Footer(num_rows, groups, tuple(same), data, rows_at, groups_at)


def _check(groups: Sequence[RowGroup], end: int) -> None:
    if len({len(group.chunks) for group in groups}) > 1:
        raise ValueError("its row groups differ in their number of columns")
    if any(group.num_rows < 0 for group in groups):
        raise ValueError("a row group has a negative row count")
    taken = sorted(found for group in groups for chunk in group.chunks for found in chunk.ranges())
    if any(stop < start for start, stop in taken):
        raise ValueError("a byte range in the footer ends before it starts")
    if taken and (taken[0][0] < _START or max(stop for _, stop in taken) > end):
        raise ValueError("a byte range in the footer lies outside the file's data")
    if any(after[0] < before[1] for before, after in pairwise(taken)):
        raise ValueError("byte ranges in the footer overlap")


def _row_group(reader: CompactReader) -> RowGroup:
    group = RowGroup(start=reader.at)
    raw_chunks: list[dict[str, int]] = []
    for number, kind in reader.fields():
        if number == 1 and kind in LISTS:
            count, _ = reader.list_header()
            if count > _MAX_COLUMNS:
                raise ValueError(
                    f"a row group lists {count:,} columns, more than the supported {_MAX_COLUMNS:,}"
                )
            raw_chunks = [_chunk(reader, group, column) for column in reader.items(count)]
        elif number == 3 and kind in INTEGERS:  # noqa: PLR2004 - numbers of parquet.thrift
            group.num_rows = reader.integer()
        elif number in _OF_GROUP and kind in INTEGERS:
            _note(reader, group, _OF_GROUP[number], -1)
        else:
            reader.skip(kind)
    group.end = reader.at
    # Ignore columns of empty row groups, which writers describe in different ways.
    group.chunks = [_column_chunk(each) for each in raw_chunks] if group.num_rows else []
    return group


_OF_GROUP: Final = {5: "group_offset", 7: "ordinal"}
_OF_CHUNK: Final = {
    2: "file_offset",
    4: "offset_index_offset",
    5: "offset_index_length",
    6: "column_index_offset",
    7: "column_index_length",
}
_OF_META: Final = {
    5: "num_values",
    7: "compressed_size",
    9: "data_page_offset",
    10: "index_page_offset",
    11: "dictionary_page_offset",
    14: "bloom_filter_offset",
    15: "bloom_filter_length",
}
_CHUNK_PATH, _CHUNK_META, _CHUNK_ENCRYPTED = 1, 3, (8, 9)


def _note(reader: CompactReader, group: RowGroup, name: str, column: int) -> int:
    start = reader.at
    value = reader.integer()
    group.numbers.append(_MovedInteger(start, reader.at, value, name, column))
    return value


def _chunk(reader: CompactReader, group: RowGroup, column: int) -> dict[str, int]:
    """Read a column's entry; return the integers in it."""
    raw_chunk: dict[str, int] = {}
    for number, kind in reader.fields():
        if number == _CHUNK_META and kind == STRUCT:
            for inner, inner_kind in reader.fields():
                if inner in _OF_META and inner_kind in INTEGERS:
                    raw_chunk[_OF_META[inner]] = _note(reader, group, _OF_META[inner], column)
                else:
                    reader.skip(inner_kind)
        elif number in _OF_CHUNK and kind in INTEGERS:
            raw_chunk[_OF_CHUNK[number]] = _note(reader, group, _OF_CHUNK[number], column)
        elif (number == _CHUNK_PATH and kind == BINARY) or number in _CHUNK_ENCRYPTED:
            raise ValueError("a column chunk is encrypted or stored in another file")
        else:
            reader.skip(kind)
    return raw_chunk


def _column_chunk(raw_chunk: dict[str, int]) -> ColumnChunk:
    if not {"num_values", "compressed_size", "data_page_offset"} <= raw_chunk.keys() or raw_chunk.get(
        "index_page_offset"
    ):
        raise ValueError(
            "a column chunk lacks its data page offset, size or number of values, or has an index page"
        )
    data_start = raw_chunk["data_page_offset"]
    dictionary = raw_chunk.get("dictionary_page_offset", 0)
    if dictionary > data_start:
        raise ValueError("a dictionary page lies after the data pages that use it")
    start = dictionary or data_start
    return ColumnChunk(
        start,
        start + raw_chunk["compressed_size"],
        data_start,
        raw_chunk["num_values"],
        _range(raw_chunk, "column_index"),
        _range(raw_chunk, "offset_index"),
        _bloom_filter(raw_chunk),
    )


def _range(found: dict[str, int], name: str) -> tuple[int, int] | None:
    start, length = found.get(f"{name}_offset"), found.get(f"{name}_length")
    if not start and not length:
        return None
    if start is None or length is None or length <= 0:
        raise ValueError("a page index has no offset or no length")
    return start, start + length


def _bloom_filter(found: dict[str, int]) -> tuple[int, int | None] | None:
    start, length = found.get("bloom_filter_offset"), found.get("bloom_filter_length")
    if not start:
        return None
    return start, None if length is None else start + length


def column_names(footer: Footer) -> list[str]:
    """Return the names of a file's top-level columns.

    Raises:
        ValueError: the footer lists no columns.
        IndexError: the list is truncated.
    """
    data = dict(footer.same).get(_SCHEMA)
    if data is None:
        raise ValueError("the footer has no schema")
    reader = CompactReader(data)
    count, _ = reader.list_header()
    names: list[str] = []
    # Schema elements still to come in each enclosing group, the root first.
    open_groups: list[int] = []
    for place in reader.items(count):
        name, children = _schema_element(reader)
        while open_groups and not open_groups[-1]:
            open_groups.pop()
        if place and len(open_groups) == 1:
            names.append(name)
        if open_groups:
            open_groups[-1] -= 1
        if children:
            open_groups.append(children)
    return names


def _schema_element(reader: CompactReader) -> tuple[str, int]:
    name, children = "", 0
    for number, kind in reader.fields():
        if number == 4 and kind == BINARY:  # noqa: PLR2004 - numbers of parquet.thrift
            name = reader.take(reader.varint()).decode(errors="replace")
        elif number == 5 and kind in INTEGERS:  # noqa: PLR2004
            children = reader.integer()
        else:
            reader.skip(kind)
    return name, children


# --- writing --------------------------------------------------------------------------------------------------


def why_not_together(footers: Sequence[Footer]) -> str | None:
    """Return why the row groups of these files cannot be combined in one file, or None."""
    first = footers[0]
    if any(number in _ENCRYPTION for number, _ in first.same):
        return "they are encrypted"
    written_by = dict(first.same).get(_CREATED_BY, b"")
    if any(name in written_by for name in _OLD_WRITERS):
        return "they were written by an old Parquet writer with unreliable footers"
    for footer in footers[1:]:
        if footer.same == first.same:
            continue
        ours, theirs = dict(first.same), dict(footer.same)
        number = next((each for each in {**ours, **theirs} if ours.get(each) != theirs.get(each)), 0)
        return _DIFFERENCES.get(number, "their footers differ")
    if sum(len(footer.row_groups) for footer in footers) > _MAX_ROW_GROUPS:
        return f"together they exceed the limit of {_MAX_ROW_GROUPS:,} row groups per file"
    return None


_DIFFERENCES: Final = {
    2: "their Parquet schemas differ",
    5: "their footers have different key-value metadata",
    6: "they were written by different Parquet writers",
}


def joined(footers: Sequence[Footer], places: Sequence[Sequence[Sequence[Place]]]) -> bytes:
    """Return the footer of a file with the row groups of all files, in order.

    Args:
        footers: the footers of the files, which differ only in their rows.
        places: the places of each column chunk, by file and row group.
    """
    first = footers[0]
    groups: list[bytes] = []
    for footer, of_file in zip(footers, places, strict=True):
        for group, of_group in zip(footer.row_groups, of_file, strict=True):
            groups.append(_moved(footer, group, of_group, len(groups)))
    rows = zigzag(sum(footer.num_rows for footer in footers))
    listed = b"".join([list_header(len(groups), STRUCT), *groups])
    spans = sorted([(*first._rows_at, rows), (*first._groups_at, listed)])  # noqa: SLF001 - same module
    return _spliced(first._data, 0, len(first._data), spans)  # noqa: SLF001


def _moved(footer: Footer, group: RowGroup, places: Sequence[Place], ordinal: int) -> bytes:
    spans = []
    for number in group.numbers:
        value = _new_value(number, group, places, ordinal)
        if value != number.value:
            spans.append((number.start, number.end, zigzag(value)))
    return _spliced(footer._data, group.start, group.end, spans)  # noqa: SLF001


def _new_value(number: _MovedInteger, group: RowGroup, places: Sequence[Place], ordinal: int) -> int:  # noqa: PLR0911
    if number.name == "ordinal":
        return ordinal
    if number.name == "group_offset":
        return min(place.start for place in places) if number.value and places else 0
    chunk, place = group.chunks[number.column], places[number.column]
    shift = place.start - chunk.start
    match number.name:
        case "file_offset":
            # Deprecated file_offset: 0, the first page, or the metadata that old writers repeat after the chunk.
            return number.value + shift if chunk.start <= number.value < chunk.end else 0
        case "data_page_offset" | "dictionary_page_offset":
            return number.value + shift if number.value else 0
        case "column_index_offset":
            return place.column_index
        case "offset_index_offset":
            return place.offset_index[0]
        case "offset_index_length":
            return place.offset_index[1]
        case "bloom_filter_offset":
            return place.bloom_filter
        case _:
            return number.value


def _spliced(data: bytes, start: int, end: int, spans: Sequence[tuple[int, int, bytes]]) -> bytes:
    """Return a slice with some ascending, disjoint ranges replaced."""
    parts = []
    for first, last, new in spans:
        parts += [data[start:first], new]
        start = last
    parts.append(data[start:end])
    return b"".join(parts)
