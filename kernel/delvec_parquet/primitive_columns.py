"""The primitive top-level columns of a Parquet file, with the types by which their bounds can be understood.

parquet.thrift, SchemaElement; https://github.com/apache/parquet-format/blob/master/LogicalTypes.md

Tested in `tests/unit/parquet/test_page_index.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from delvec_parquet.footer import Footer
from delvec_parquet.thrift import BINARY, INTEGERS, STRUCT, CompactReader

__all__ = ["Column", "ColumnKind", "Physical", "SchemaElement", "flat_columns", "schema_elements"]

_SCHEMA, _COLUMN_ORDERS = 2, 7
_TRUE, _FALSE, _BYTE = 1, 2, 3
_MAX_SCHEMA_ELEMENTS: Final = 100_000
"""Maximum elements of a schema."""

Physical = Literal["boolean", "int32", "int64", "int96", "float", "double", "binary", "fixed", "other"]
_PHYSICAL: Final[dict[int, Physical]] = {
    0: "boolean",
    1: "int32",
    2: "int64",
    3: "int96",
    4: "float",
    5: "double",
    6: "binary",
    7: "fixed",
}


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """What a column's annotation says about its values.

    Attributes:
        name: ``integer`` (signed; also without annotation), ``unsigned``, ``string``, ``date``, ``decimal``, ``timestamp``,
            ``time``, ``enum``, ``json``, ``bson``, ``uuid``, ``float16``, ``interval``, ``null`` (only NULLs), ``none`` (other
            values without annotation), or ``other``.
        bits: the bits of an integer, if annotated.
        precision: the precision of a decimal.
        scale: the scale of a decimal.
        unit: the unit of a timestamp: ``ms``, ``us`` or ``ns``.
        is_utc: whether a timestamp is an instant.
    """

    name: str
    bits: int = 0
    precision: int = 0
    scale: int = 0
    unit: str = ""
    is_utc: bool = False


_OTHER: Final = ColumnKind("other")
_CONVERTED: Final = {
    0: ColumnKind("string"),
    4: ColumnKind("enum"),
    6: ColumnKind("date"),
    7: ColumnKind("time"),
    8: ColumnKind("time"),
    9: ColumnKind("timestamp", unit="ms", is_utc=True),
    10: ColumnKind("timestamp", unit="us", is_utc=True),
    11: ColumnKind("unsigned", bits=8),
    12: ColumnKind("unsigned", bits=16),
    13: ColumnKind("unsigned", bits=32),
    14: ColumnKind("unsigned", bits=64),
    15: ColumnKind("integer", bits=8),
    16: ColumnKind("integer", bits=16),
    17: ColumnKind("integer", bits=32),
    18: ColumnKind("integer", bits=64),
    19: ColumnKind("json"),
    20: ColumnKind("bson"),
    21: ColumnKind("interval"),
}
_LOGICAL: Final = {
    1: "string",
    4: "enum",
    6: "date",
    7: "time",
    11: "null",
    12: "json",
    13: "bson",
    14: "uuid",
    15: "float16",
}
_CONVERTED_DECIMAL: Final = 5


@dataclass(frozen=True, slots=True)
class Column:
    """A top-level column that is neither a group nor repeated.

    Attributes:
        name: in the file.
        number: the number of its chunk in a row group.
        field_id: or None.
        physical: its physical type.
        length: the length of fixed-size values in bytes.
        kind: what its annotation says.
        is_ordered: whether the footer says that bounds follow the order of its type.
    """

    name: str
    number: int
    field_id: int | None
    physical: Physical
    length: int
    kind: ColumnKind
    is_ordered: bool


@dataclass(slots=True)
class SchemaElement:
    """An entry of a schema: a group or a column, as it is in the footer.

    Attributes:
        name: in the file.
        physical: number of its physical type; None for a group.
        length: the length of fixed-size values in bytes.
        repetition: 0 required, 1 optional, 2 repeated.
        children: number of entries directly below it.
        converted: number of its older annotation, or None.
        scale: the scale of a decimal.
        precision: the precision of a decimal.
        field_id: or None.
        logical: its newer annotation, of a column; or None.
        logical_number: the number of its newer annotation, or None.
    """

    name: str = ""
    physical: int | None = None
    length: int = 0
    repetition: int = 0
    children: int = 0
    converted: int | None = None
    scale: int = 0
    precision: int = 0
    field_id: int | None = None
    logical: ColumnKind | None = None
    logical_number: int | None = None

    @property
    def stored_as(self) -> Physical:
        """Its physical type."""
        return "other" if self.physical is None else _PHYSICAL.get(self.physical, "other")

    @property
    def kind(self) -> ColumnKind:
        """What its annotations say about its values; the newer one counts."""
        if self.logical is not None:
            return self.logical
        if self.converted is None:
            return ColumnKind("integer" if self.stored_as in {"int32", "int64"} else "none")
        if self.converted == _CONVERTED_DECIMAL:
            return ColumnKind("decimal", precision=self.precision, scale=self.scale)
        return _CONVERTED.get(self.converted, _OTHER)


_NUMBERS: Final = {
    1: "physical",
    2: "length",
    3: "repetition",
    5: "children",
    6: "converted",
    7: "scale",
    8: "precision",
    9: "field_id",
}
_REPEATED: Final = 2


def flat_columns(footer: Footer) -> tuple[list[Column], list[str]]:
    """Return a file's primitive top-level columns, and the names of all top-level columns.

    Raises:
        ValueError: the schema is missing or contradicts itself.
        IndexError: it is truncated.
    """
    parts = dict(footer.same)
    if _SCHEMA not in parts:
        raise ValueError("the footer has no schema")
    elements = schema_elements(CompactReader(parts[_SCHEMA]))
    orders = _orders(parts.get(_COLUMN_ORDERS))
    columns: list[Column] = []
    names: list[str] = []
    place, number = 1, 0
    for _ in range(elements[0].children):
        element = elements[place]
        names.append(element.name)
        end, leaves = _end(elements, place)
        is_flat = not element.children and element.physical is not None and element.repetition != _REPEATED
        if is_flat:
            ordered = number < len(orders) and orders[number]
            columns.append(_column(element, number, is_ordered=ordered))
        place, number = end, number + leaves
    if place != len(elements) or (orders and len(orders) != number):
        raise ValueError("the schema's groups do not add up")
    return columns, names


def schema_elements(reader: CompactReader) -> list[SchemaElement]:
    """Read the entries of a schema, depth-first from the root.

    Raises:
        ValueError: it is malformed.
        IndexError: it is truncated.
    """
    count, inner = reader.list_header()
    if inner != STRUCT or not 0 < count <= _MAX_SCHEMA_ELEMENTS:
        raise ValueError("the schema is malformed")
    return [_element(reader) for _ in reader.items(count)]


def _end(elements: Sequence[SchemaElement], start: int) -> tuple[int, int]:
    """Return the place after an element and all below it, and the number of leaves."""
    place, left, leaves = start, 1, 0
    while left:
        children = elements[place].children
        if children < 0:
            raise ValueError("a group has a negative number of fields")
        leaves += not children
        left += children - 1
        place += 1
    return place, leaves


def _column(element: SchemaElement, number: int, *, is_ordered: bool) -> Column:
    return Column(
        element.name,
        number,
        element.field_id,
        element.stored_as,
        element.length,
        element.kind,
        is_ordered,
    )


def _element(reader: CompactReader) -> SchemaElement:
    element = SchemaElement()
    for number, kind in reader.fields():
        if number == 4 and kind == BINARY:  # noqa: PLR2004 - numbers of parquet.thrift
            element.name = reader.take(reader.varint()).decode()
        elif number in _NUMBERS and kind in INTEGERS:
            setattr(element, _NUMBERS[number], reader.integer())
        elif number == 10 and kind == STRUCT:  # noqa: PLR2004
            element.logical, element.logical_number = _logical(reader)
        else:
            reader.skip(kind)
    return element


def _logical(reader: CompactReader) -> tuple[ColumnKind, int | None]:
    logical_types: list[tuple[ColumnKind, int]] = []
    for number, kind in reader.fields():
        if kind != STRUCT:
            raise ValueError("a logical type is malformed")
        facts = _facts(reader)
        logical_types.append((_annotated(number, facts), number))
    return logical_types[0] if len(logical_types) == 1 else (_OTHER, None)


def _annotated(number: int, facts: dict[int, int]) -> ColumnKind:
    match number:
        case 5:
            return ColumnKind("decimal", precision=facts.get(2, 0), scale=facts.get(1, 0))
        case 8:
            unit = {1: "ms", 2: "us", 3: "ns"}.get(facts.get(2, 0), "")
            return ColumnKind("timestamp", unit=unit, is_utc=facts.get(1, 0) == 1)
        case 10:
            signed = facts.get(2, 0) == 1
            return ColumnKind("integer" if signed else "unsigned", bits=facts.get(1, 0))
        case _:
            return ColumnKind(_LOGICAL.get(number, "other"))


def _facts(reader: CompactReader) -> dict[int, int]:
    """Read a logical type's parameters: numbers, Booleans as 0 or 1, and of a union the number of its member."""
    parameters: dict[int, int] = {}
    for number, kind in reader.fields():
        if kind in {_TRUE, _FALSE}:
            parameters[number] = int(kind == _TRUE)
        elif kind == _BYTE:
            parameters[number] = reader.byte()
        elif kind in INTEGERS:
            parameters[number] = reader.integer()
        elif kind == STRUCT:
            for member, inner in reader.fields():
                parameters[number] = member
                reader.skip(inner)
        else:
            reader.skip(kind)
    return parameters


def _orders(data: bytes | None) -> list[bool]:
    """Return for each leaf whether its order is that of its type."""
    if data is None:
        return []
    reader = CompactReader(data)
    count, inner = reader.list_header()
    if inner != STRUCT and count:
        raise ValueError("the column orders are malformed")
    has_type_order = []
    for _ in reader.items(count):
        members = []
        for number, kind in reader.fields():
            members.append(number)
            reader.skip(kind)
        has_type_order.append(members == [1])
    return has_type_order
