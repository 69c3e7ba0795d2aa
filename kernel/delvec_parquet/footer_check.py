"""Checks a Parquet footer before a native reader sees it: pyarrow aborts the process over some that contradict themselves.

pyarrow's ``RowGroupMetaData.column`` lets C++ exceptions through (a column chunk's type or histograms differ from the
schema), which ends the process, and no ``try`` helps. So a footer is first parsed here, in Python.

The parser is as strict as the code that Thrift generates is lenient: that code believes a list's declared element type
to be the expected one, keeps the last of two equal fields, and truncates numbers. A footer that would be understood in
two ways is refused, so that what is checked here is what pyarrow reads.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from delvec_parquet.thrift import BINARY, STRUCT, CompactReader

__all__ = ["check_footer"]

_BOOLEAN, _BYTE, _I16, _I32, _I64, _DOUBLE, _LIST = 1, 3, 4, 5, 6, 7, 9
_BITS: Final = {_I16: 16, _I32: 32, _I64: 64}
_FALSE: Final = 2
_NUMBERS: Final = (_I64, _I32, _I16)
_WIDTHS: Final = {_BOOLEAN: 0, _BYTE: 1, _DOUBLE: 8}
_LAST_OF_NUMBER, _MAX_BITS, _LONG_LIST, _MAX_KIND, _MAX_NUMBER = 0x80, 64, 15, 15, 32_767
_BYTE_ARRAY, _FIXED = 6, 7
_CODECS: Final = 8
"""Values of ``CompressionCodec``."""
_VALUE_WIDTHS: Final = (1, 4, 8, 12, 4, 8, None, None)
"""Bytes of a value by parquet.thrift's ``Type``."""
_OPTIONAL, _REPEATED = 1, 2
_MAX_DEPTH: Final = 500
"""Native readers recurse into the schema's groups, and a stack is finite."""


class _Field(NamedTuple):
    """The type of a field in parquet.thrift.

    Attributes:
        kind: of Thrift.
        shape: the shape of a struct, or of a list's structs.
        items: the kind of a list's items.
    """

    kind: int
    shape: Mapping[int, "_Field"] | None = None
    items: int = 0


_Shape = Mapping[int, _Field]


def _struct(shape: _Shape) -> _Field:
    return _Field(STRUCT, shape)


def _list(items: int | _Shape) -> _Field:
    return _Field(_LIST, None, items) if isinstance(items, int) else _Field(_LIST, items, STRUCT)


def _scalars(*kinds: int) -> dict[int, _Field]:
    """Return a shape whose fields, numbered from 1, have these kinds."""
    return {number: _Field(kind) for number, kind in enumerate(kinds, start=1)}


_EMPTY: Final[_Shape] = {}
_TIME: Final[_Shape] = {1: _Field(_BOOLEAN), 2: _struct(dict.fromkeys((1, 2, 3), _struct(_EMPTY)))}
_LOGICAL: Final[_Shape] = {
    **dict.fromkeys((1, 2, 3, 4, 6, 11, 12, 13, 14, 15), _struct(_EMPTY)),
    5: _struct(_scalars(_I32, _I32)),
    7: _struct(_TIME),
    8: _struct(_TIME),
    10: _struct(_scalars(_BYTE, _BOOLEAN)),
    16: _struct(_scalars(_BYTE)),
    17: _struct(_scalars(BINARY)),
    18: _struct(_scalars(BINARY, _I32)),
}
_ELEMENT: Final[_Shape] = {
    **_scalars(_I32, _I32, _I32, BINARY, _I32, _I32, _I32, _I32, _I32),
    10: _struct(_LOGICAL),
}
_STATISTICS: Final[_Shape] = _scalars(BINARY, BINARY, _I64, _I64, BINARY, BINARY, _BOOLEAN, _BOOLEAN)
_SIZES: Final[_Shape] = {1: _Field(_I64), 2: _list(_I64), 3: _list(_I64)}
_GEOSPATIAL: Final[_Shape] = {1: _struct(_scalars(*[_DOUBLE] * 8)), 2: _list(_I32)}
_KEY_VALUE: Final[_Shape] = _scalars(BINARY, BINARY)
_CHUNK_METADATA: Final[_Shape] = {
    1: _Field(_I32),
    2: _list(_I32),
    3: _list(BINARY),
    4: _Field(_I32),
    **dict.fromkeys((5, 6, 7, 9, 10, 11, 14), _Field(_I64)),
    8: _list(_KEY_VALUE),
    12: _struct(_STATISTICS),
    13: _list(_scalars(_I32, _I32, _I32)),
    15: _Field(_I32),
    16: _struct(_SIZES),
    17: _struct(_GEOSPATIAL),
}
_CHUNK: Final[_Shape] = {
    1: _Field(BINARY),
    2: _Field(_I64),
    3: _struct(_CHUNK_METADATA),
    4: _Field(_I64),
    5: _Field(_I32),
    6: _Field(_I64),
    7: _Field(_I32),
    8: _struct({1: _struct(_EMPTY), 2: _struct({1: _list(BINARY), 2: _Field(BINARY)})}),
    9: _Field(BINARY),
}
_ROW_GROUP: Final[_Shape] = {
    1: _list(_CHUNK),
    2: _Field(_I64),
    3: _Field(_I64),
    4: _list(_scalars(_I32, _BOOLEAN, _BOOLEAN)),
    5: _Field(_I64),
    6: _Field(_I64),
    7: _Field(_I16),
}
_CIPHER: Final[_Shape] = _scalars(BINARY, BINARY, _BOOLEAN)
_FOOTER: Final[_Shape] = {
    1: _Field(_I32),
    2: _list(_ELEMENT),
    3: _Field(_I64),
    4: _list(_ROW_GROUP),
    5: _list(_KEY_VALUE),
    6: _Field(BINARY),
    7: _list({1: _struct(_EMPTY)}),
    8: _struct({1: _struct(_CIPHER), 2: _struct(_CIPHER)}),
    9: _Field(BINARY),
}
"""parquet.thrift's FileMetaData."""


class _Leaf(NamedTuple):
    """A column with values.

    Attributes:
        type: physical.
        width: the width of its values in bytes, or None if they vary.
        definition: its maximum definition level.
        repetition: its maximum repetition level.
    """

    type: int
    width: int | None
    definition: int
    repetition: int


def check_footer(data: bytes) -> None:
    """Check that a footer is well-formed and that its column chunks agree with its schema.

    Args:
        data: parquet.thrift's FileMetaData, in Thrift's compact protocol.

    Raises:
        ValueError: it does not hold.
        IndexError: the footer is truncated.
    """
    footer, _ = _read_struct(data, 0, _FOOTER)
    leaves = list(_leaves(footer.get(2, [])))
    for number, group in enumerate(footer.get(4, [])):
        chunks = group.get(1, [])
        if len(chunks) != len(leaves):
            raise ValueError(f"row group {number} has {len(chunks):,} columns, the schema {len(leaves):,}")
        for column, (chunk, leaf) in enumerate(zip(chunks, leaves, strict=True)):
            if (fault := _fault(chunk, leaf)) is not None:
                raise ValueError(f"column {column} of row group {number} {fault}")


def _fault(chunk: Mapping[int, Any], leaf: _Leaf) -> str | None:
    """Return what is wrong with a column chunk."""
    if 8 in chunk or 9 in chunk:  # noqa: PLR2004 - numbers of parquet.thrift
        return "is encrypted"
    metadata = chunk.get(3)
    if metadata is None:
        return "has no metadata"
    if metadata.get(1) != leaf.type:
        return f"has the physical type {metadata.get(1)}, the schema {leaf.type}"
    if not 0 <= metadata.get(4, 0) < _CODECS:
        return f"has the unknown codec {metadata[4]}"
    return _fault_of_bounds(metadata.get(12, {}), leaf) or _fault_of_sizes(metadata.get(16, {}), leaf)


def _fault_of_bounds(bounds: Mapping[int, int], leaf: _Leaf) -> str | None:
    """Return what is wrong with ``Statistics``, of which pyarrow decodes both the old bounds and the new ones."""
    if leaf.width is not None:
        for number in (1, 2, 5, 6):
            if bounds.get(number, leaf.width) < leaf.width:
                return f"has a bound of {bounds[number]} bytes, less than a value"
    return None


def _fault_of_sizes(sizes: Mapping[int, Any], leaf: _Leaf) -> str | None:
    """Return what is wrong with ``SizeStatistics``."""
    for number, most in ((2, leaf.repetition), (3, leaf.definition)):
        if len(sizes.get(number, ())) not in (0, most + 1):
            return "has a histogram of levels that the schema does not have"
    if 1 in sizes and leaf.type != _BYTE_ARRAY:
        return "has the size of byte arrays, which its type does not have"
    return None


def _leaves(elements: list[Mapping[int, Any]]) -> Iterator[_Leaf]:
    """Yield the columns of a schema in order."""
    if not elements:
        raise ValueError("the footer has no schema")
    # For each enclosing group: its fields still to come, and its levels.
    groups: list[tuple[int, int, int]] = []
    for place, element in enumerate(elements):
        while groups and not groups[-1][0]:
            groups.pop()
        children, physical = element.get(5, 0), element.get(1)
        if children < 0 or (place and not groups):
            raise ValueError("the groups of the schema do not add up")
        definition = repetition = 0
        if place:
            left, definition, repetition = groups[-1]
            groups[-1] = left - 1, definition, repetition
            definition += element.get(3) in (_OPTIONAL, _REPEATED)
            repetition += element.get(3) == _REPEATED
        if physical is None or children or not place:
            groups.append((children, definition, repetition))
            if len(groups) > _MAX_DEPTH:
                raise ValueError(f"the schema is nested more than {_MAX_DEPTH} levels deep")
        elif 0 <= physical < len(_VALUE_WIDTHS):
            width = element.get(2, 0) if physical == _FIXED else _VALUE_WIDTHS[physical]
            yield _Leaf(physical, width, definition, repetition)
        else:
            raise ValueError(f"the schema has a column of the unknown physical type {physical}")
    if any(left for left, _, _ in groups):
        raise ValueError("the groups of the schema do not add up")


def _read_struct(data: bytes, at: int, shape: _Shape) -> tuple[dict[int, Any], int]:  # noqa: C901, PLR0912 - for speed
    """Read a struct; return its fields by number, and the position after it.

    Of values, only numbers are kept, and the lengths of binaries and of lists of values. Written out, without an object that
    holds the position: a footer has thousands of fields, and this takes a third of the time.
    """
    field_values: dict[int, Any] = {}
    number = 0
    while header := data[at]:
        at += 1
        kind = header & 15
        if header > _MAX_KIND:
            number += header >> 4
        else:
            number, at = _number(data, at, _I16)
        field = shape.get(number)
        if field is None:
            at = _after_unknown(data, at, kind, number)
            continue
        if number in field_values:
            raise ValueError(f"field {number} occurs twice")
        if kind == _FALSE:
            kind = _BOOLEAN
        expected, shape_of_value, _ = field
        if kind != expected:
            raise ValueError(f"field {number} has the type {kind}, not {expected}")
        if kind in _NUMBERS:
            byte = data[at]
            if byte < _LAST_OF_NUMBER:
                field_values[number] = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                field_values[number], at = _number(data, at, kind)
        elif kind == BINARY:
            start, at = _binary(data, at)
            field_values[number] = at - start
        elif kind == STRUCT:
            field_values[number], at = _read_struct(data, at, shape_of_value or _EMPTY)
        elif kind == _LIST:
            field_values[number], at = _read_list(data, at, field)
        else:
            field_values[number] = True
            at += _WIDTHS[kind]
    return field_values, at + 1


def _read_list(data: bytes, at: int, field: _Field) -> tuple[Any, int]:
    """Read a list; return its structs or the range of its other items, and the position after it."""
    header = data[at]
    at += 1
    count, items = header >> 4, header & 15
    if count == _LONG_LIST:
        count, at = _unsigned(data, at)
    if count and items != field.items:
        raise ValueError(f"a list has items of the type {items}, not {field.items}")
    if count > len(data) - at:
        raise IndexError("a list is longer than the remaining data")
    if field.shape is None:
        for _ in range(count):
            at = (_binary if items == BINARY else _unsigned)(data, at)[1]
        return range(count), at
    found = []
    for _ in range(count):
        item, at = _read_struct(data, at, field.shape)
        found.append(item)
    return found, at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _LAST_OF_NUMBER:
            return value, at
        shift += 7
        if shift >= _MAX_BITS:
            raise ValueError("an integer exceeds 64 bits")


def _number(data: bytes, at: int, kind: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    if value >> _BITS[kind]:
        raise ValueError("a number is too large for its type")
    return (value >> 1) ^ -(value & 1), at


def _binary(data: bytes, at: int) -> tuple[int, int]:
    """Return the positions of a binary's first byte and after its last."""
    length = data[at]
    at += 1
    if length >= _LAST_OF_NUMBER:
        length, at = _unsigned(data, at - 1)
    if length > len(data) - at:
        raise IndexError("the data ends in the middle of a value")
    return at, at + length


def _after_unknown(data: bytes, at: int, kind: int, number: int) -> int:
    """Return the position after a field of a newer parquet.thrift, which pyarrow skips, too."""
    if not 0 < number <= _MAX_NUMBER:
        raise ValueError(f"{number} is not the number of a field")
    reader = CompactReader(data, at)
    reader.skip(kind)
    return reader.at
