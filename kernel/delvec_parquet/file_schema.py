"""A Parquet file's schema as a tree of fields: which columns, structs, lists and maps it has.

parquet.thrift, SchemaElement; https://github.com/apache/parquet-format/blob/master/LogicalTypes.md, "Nested Types"
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from delvec_parquet.primitive_columns import ColumnKind, Physical, SchemaElement, schema_elements
from delvec_parquet.thrift import LISTS, CompactReader

__all__ = ["END_BYTES", "FileField", "FileSchema", "has_column_orders", "schema_of_footer"]

Shape = Literal["value", "struct", "list", "map", "variant"]

_SCHEMA: Final = 2
_REPEATED: Final = 2
_PAIR: Final = 2
_MAP, _MAP_KEY_VALUE, _LIST = 1, 2, 3
"""Numbers of the older annotations of groups."""
_LOGICAL_MAP, _LOGICAL_LIST, _LOGICAL_VARIANT = 2, 3, 16
"""Numbers of the newer ones."""
_MAX_DEPTH: Final = 64
_COLUMN_ORDERS: Final = (b"\x1c\0\0\0", b"\x2c\0\0\0")
"""The end of a footer whose last field is column_orders, a list of ColumnOrder: one of TYPE_ORDER or IEEE_754_TOTAL_ORDER for the
last column, and the end of FileMetaData."""
END_BYTES: Final = 4
"""How much of a footer's end :func:`has_column_orders` needs."""


_NO_COLUMN: Final = ColumnKind("none")


@dataclass(frozen=True, slots=True)
class FileField:
    """A column of a file, or what is inside of one.

    Attributes:
        name: in the file; of a list's element and of a map's key and value it is arbitrary.
        shape: the shape of its values.
        field_id: or None.
        physical: the physical type of values.
        kind: what the annotations of values say.
        converted: whether it has an annotation of the older form, which some readers need.
        logical: whether values have one of the newer form.
        inside: the fields of a struct; the element of a list; key and value of a map.
        ordered: whether the bounds of values, in the rest of the footer, are in the order of the values.
        legacy: whether it is a map whose entries are annotated outside, as Hive writes it, or have no values, so that some readers do
            not open the file.
    """

    name: str
    shape: Shape
    field_id: int | None = None
    physical: Physical = "other"
    kind: ColumnKind = _NO_COLUMN
    converted: bool = False
    logical: bool = False
    inside: "tuple[FileField, ...]" = ()
    ordered: bool = True
    legacy: bool = False

    def __str__(self) -> str:
        """Return its type, for messages."""
        if self.shape != "value":
            return "map without values" if self.shape == "map" and len(self.inside) == 1 else self.shape
        match self.kind.name:
            case "decimal":
                return f"decimal({self.kind.precision},{self.kind.scale})"
            case "timestamp":
                zone = "UTC" if self.kind.is_utc else "no time zone"
                return f"{self.physical} (timestamp in {self.kind.unit}, {zone})"
            case "integer" | "unsigned" if self.kind.bits:
                return f"{self.physical} ({self.kind.name}, {self.kind.bits} bits)"
            case "integer" | "none":
                return self.physical
            case name:
                return f"{self.physical} ({name})"


FileSchema = tuple[FileField, ...]
"""The columns of a file, in order."""


def has_column_orders(end: bytes) -> bool:
    """Whether a footer says how the bounds of its columns are ordered; parquet.thrift, ``ColumnOrder``.

    Writers that do not, such as Impala, Hive and parquet-mr before 1.10, compared text, decimals in bytes and unsigned numbers as
    signed bytes or numbers.

    Args:
        end: the last :data:`END_BYTES` of the footer, or more.
    """
    return end.endswith(_COLUMN_ORDERS)


def schema_of_footer(data: bytes, *, has_orders: bool = True) -> tuple[FileSchema, int]:
    """Return the schema in a footer, and the offset at which it ends.

    The schema precedes nearly everything else, so a footer that begins with the same bytes has the same schema.

    Args:
        data: FileMetaData in Thrift's compact protocol.
        has_orders: whether the footer has column orders.

    Raises:
        ValueError: the schema is missing, or contradicts itself.
        IndexError: it is truncated.
    """
    reader = CompactReader(data)
    for number, kind in reader.fields():
        if number == _SCHEMA and kind in LISTS:
            elements = schema_elements(reader)
            return _fields(elements, has_orders=has_orders), reader.at
        reader.skip(kind)
    raise ValueError("the footer has no schema")


def _fields(elements: Sequence[SchemaElement], *, has_orders: bool) -> FileSchema:
    tree = _SchemaReader(elements, has_orders)
    found = tuple(tree.next(elements[0], 0) for _ in range(elements[0].children))
    if elements[0].children < 0 or tree.place != len(elements):
        raise ValueError("the schema's groups do not add up")
    return found


@dataclass(slots=True)
class _SchemaReader:
    """Reads fields from a list of elements."""

    elements: Sequence[SchemaElement]
    ordered: bool
    place: int = 1

    def next(self, parent: SchemaElement, depth: int) -> FileField:
        """Return the next field and all below it."""
        if depth > _MAX_DEPTH:
            raise ValueError("the schema is nested too deeply")
        element = self.elements[self.place]
        self.place += 1
        if element.children < 0:
            raise ValueError("a group has a negative number of fields")
        inside = tuple(self.next(element, depth + 1) for _ in range(element.children))
        file_field = replace(_field(element, inside, parent), ordered=self.ordered)
        if element.repetition == _REPEATED and not _is_entries(element, parent):
            inner = replace(file_field, field_id=None)
            # Some readers take the only field of such a struct for the element.
            is_known = file_field.inside is not inside or len(inside) != 1
            return FileField(element.name, "list", element.field_id, converted=is_known, inside=(inner,))
        return file_field


def _field(element: SchemaElement, inside: tuple[FileField, ...], parent: SchemaElement) -> FileField:
    is_converted = element.converted is not None
    if element.physical is not None and not inside:
        return FileField(
            element.name,
            "value",
            element.field_id,
            element.stored_as,
            element.kind,
            is_converted,
            element.logical is not None,
        )
    whole = FileField(element.name, "struct", element.field_id, converted=is_converted, inside=inside)
    if element.logical_number == _LOGICAL_VARIANT:
        return replace(whole, shape="variant")
    is_repeated = element.repetition == _REPEATED
    if _is_entries(element, parent):
        if not is_repeated or len(inside) not in {1, _PAIR}:
            raise ValueError(f"the map '{parent.name}' has no pairs of key and value")
        legacy = len(inside) != _PAIR or not (_is_map(parent) or _is_annotated_entry(element, parent))
        return replace(
            whole, shape="map", converted=is_converted or parent.converted is not None, legacy=legacy
        )
    if len(inside) == 1 and (_is_list(element) or _holds_entries(element) or _is_entry(element, parent)):
        # The group around a list's or map's entries, and the group of an entry, hold nothing of their own.
        is_converted = inside[0].converted and (is_converted or is_repeated)
        return replace(inside[0], name=element.name, field_id=element.field_id, converted=is_converted)
    return whole


def _is_entries(element: SchemaElement, parent: SchemaElement) -> bool:
    """Return whether a group holds the keys and values of a map."""
    is_group = element.physical is None or element.children > 0
    is_alone = _holds_entries(parent) and parent.children == 1
    return is_group and (is_alone or _is_annotated_entry(element, parent))


def _is_annotated_entry(element: SchemaElement, parent: SchemaElement) -> bool:
    is_repeated = element.repetition == _REPEATED
    return element.converted == _MAP_KEY_VALUE and (is_repeated or _is_map(parent))


def _is_entry(element: SchemaElement, parent: SchemaElement) -> bool:
    """Whether a repeated group is around a list's element, and not the element itself; LogicalTypes.md, "Lists"."""
    is_inside = element.repetition == _REPEATED and _is_list(parent)
    return is_inside and element.name not in {"array", f"{parent.name}_tuple"}


def _is_list(element: SchemaElement) -> bool:
    return element.converted == _LIST or element.logical_number == _LOGICAL_LIST


def _holds_entries(element: SchemaElement) -> bool:
    """Whether a group is annotated as a map, or with the annotation of its entries instead; LogicalTypes.md, "Maps"."""
    return _is_map(element) or (element.converted == _MAP_KEY_VALUE and element.repetition != _REPEATED)


def _is_map(element: SchemaElement) -> bool:
    return element.converted == _MAP or element.logical_number == _LOGICAL_MAP
