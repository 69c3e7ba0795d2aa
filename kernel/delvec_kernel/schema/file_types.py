"""Whether a file's values are values of the table's type: the one place that decides it, for every engine.

A file's type is not the table's: annotations may be missing, types of columns are widened, and writers differ. What is accepted
is what the Delta protocol ("Type Widening", "Column Mapping") and Spark's Parquet reader (ParquetVectorUpdaterFactory) accept, as far
as no value changes: Spark also reads a date as a number, or a long number as a short one that it cuts. Beyond Spark, decimals
and half-precision numbers in any layout are accepted, and nanoseconds, which are cut to microseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    GeospatialType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)
from delvec_parquet.file_schema import FileField, FileSchema

__all__ = [
    "FileTypeMismatch",
    "InnerType",
    "Naming",
    "StoredFields",
    "UnsupportedFileType",
    "check_file",
    "holds",
    "inner_types",
    "may_exceed",
    "naming",
]

Naming = Literal["name", "physical-name", "id"]
"""How a table's columns are found in its files, by ``delta.columnMapping.mode``."""

_TEXTS: Final = frozenset({"none", "string", "enum", "json", "bson"})
_BITS: Final = {"int32": 32, "int64": 64}
_TABLE_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}
"""Digits before the point that Spark demands of a decimal which integers of so many bits are widened to."""
_MAX_PRECISION: Final = 38


class FileTypeMismatch(ValueError):
    """A column of a file is not what the table says.

    Attributes:
        column: its path in the table.
    """

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column = column


class UnsupportedFileType(FileTypeMismatch):
    """This engine cannot read a column of a file, and others can."""


def naming(mode: str) -> Naming:
    """Return how columns are found with that ``delta.columnMapping.mode``."""
    by_mode: dict[str, Naming] = {"id": "id", "name": "physical-name"}
    return by_mode.get(mode.lower(), "name")


def holds(file_field: FileField, data_type: DataType) -> bool:
    """Whether every value of a file's field, which is no group, is exactly a value of the table's type.

    Values of wider integers may turn out not to fit, see :func:`may_exceed`; then reading them is an error.
    """
    if data_type == PrimitiveType("void"):
        return True
    if file_field.shape != "value" or not isinstance(data_type, PrimitiveType | DecimalType):
        return False
    if file_field.kind.name == "null":
        return True
    if isinstance(data_type, DecimalType):
        return _holds_decimal(file_field, data_type)
    if isinstance(data_type, GeospatialType):
        return file_field.physical == "binary"
    check = _CHECKS.get(data_type.name)
    return check is not None and check(file_field)


def may_exceed(file_field: FileField, data_type: DataType) -> bool:
    """Whether an integer of a file's field may be too large or too small for the table's integers."""
    most = _TABLE_BITS.get(data_type.name, 0) if isinstance(data_type, PrimitiveType) else 0
    bits = file_field.kind.bits or _BITS.get(file_field.physical, 0)
    if not most or file_field.kind.name not in {"integer", "unsigned"}:
        return False
    return bits > most or (bits == most and file_field.kind.name == "unsigned")


def _holds_integer(file_field: FileField, bits: int) -> bool:
    return file_field.kind.name in {"integer", "unsigned"} and 0 < _BITS.get(file_field.physical, 0) <= bits


def _holds_double(file_field: FileField) -> bool:
    kind = file_field.kind
    is_small = kind.name == "integer" or (kind.name == "unsigned" and kind.bits < _BITS["int32"])
    return (
        file_field.physical in {"float", "double"}
        or _is_half(file_field)
        or (file_field.physical == "int32" and is_small)
    )


def _is_half(file_field: FileField) -> bool:
    return file_field.physical == "fixed" and file_field.kind.name == "float16"


def _is_text(file_field: FileField) -> bool:
    return file_field.physical == "binary" and file_field.kind.name in _TEXTS


def _is_fixed(file_field: FileField) -> bool:
    return file_field.physical == "fixed" and file_field.kind.name in {"none", "uuid"}


def _is_date(file_field: FileField) -> bool:
    return file_field.physical == "int32" and file_field.kind.name == "date"


def _is_moment(file_field: FileField) -> bool:
    is_annotated = file_field.kind.name == "timestamp" and bool(file_field.kind.unit)
    return file_field.physical == "int96" or (file_field.physical == "int64" and is_annotated)


def _is_plain_integer(file_field: FileField) -> bool:
    return file_field.kind.name == "integer" and not file_field.kind.bits


def _holds_decimal(file_field: FileField, data_type: DecimalType) -> bool:
    kind, whole = file_field.kind, data_type.precision - data_type.scale
    match kind.name:
        case "decimal":
            is_known = 0 < kind.precision <= _MAX_PRECISION and 0 <= kind.scale <= kind.precision
            return is_known and kind.scale <= data_type.scale and kind.precision - kind.scale <= whole
        case "integer" if file_field.physical in _BITS:
            bits = kind.bits or _BITS[file_field.physical]
            return whole >= _DIGITS.get(bits, _DIGITS[_BITS[file_field.physical]])
        case "unsigned" if file_field.physical == "int64":
            return data_type == DecimalType(_DIGITS[64], 0)
        case _:
            return False


_CHECKS: Final[dict[str, Callable[[FileField], bool]]] = {
    "boolean": lambda stored: stored.physical == "boolean",
    "byte": lambda stored: _holds_integer(stored, _BITS["int32"]),
    "short": lambda stored: _holds_integer(stored, _BITS["int32"]),
    "integer": lambda stored: _holds_integer(stored, _BITS["int32"]),
    "long": lambda stored: _holds_integer(stored, _BITS["int64"]),
    "float": lambda stored: stored.physical == "float" or _is_half(stored),
    "double": _holds_double,
    "string": _is_text,
    "binary": lambda stored: _is_text(stored) or _is_fixed(stored),
    "date": lambda stored: _is_date(stored) or (stored.physical == "int32" and _is_plain_integer(stored)),
    "timestamp": _is_moment,
    "timestamp_ntz": lambda stored: _is_moment(stored) or _is_date(stored),
}


class StoredFields:
    """The fields of a file, or of a struct in it, by what finds them: field id, or name, ignoring case."""

    def __init__(self, fields: Sequence[FileField], by: Naming) -> None:
        """Index the fields, so that a table of thousands of columns does not go through all of them for each."""
        self._by = by
        self._named: dict[str, list[FileField]] = {}
        self._numbered: dict[int, list[FileField]] = {}
        for each in fields:
            self._named.setdefault(each.name.lower(), []).append(each)
            if each.field_id is not None:
                self._numbered.setdefault(each.field_id, []).append(each)

    def of(self, item: StructField, path: str = "") -> FileField | None:
        """Return the field that has a column's values; None if there is none.

        Args:
            item: the table's column or field.
            path: of ``item``, for messages.

        Raises:
            FileTypeMismatch: several have its field id, or its name, ignoring case.
        """
        if self._by == "id":
            fields = [] if item.field_id is None else self._numbered.get(item.field_id, [])
            shared_key = f"the field id {item.field_id}"
        else:
            fields = self._named.get((item.name if self._by == "name" else item.physical_name).lower(), [])
            shared_key = "that name, which is not case-sensitive"
        if len(fields) > 1:
            names = ", ".join(repr(each.name) for each in fields)
            raise FileTypeMismatch(path or item.name, f"it has several columns of {shared_key}: {names}")
        return fields[0] if fields else None

    def has(self, name: str) -> bool:
        """Return whether a field has a name, ignoring case."""
        return name.lower() in self._named


@dataclass(frozen=True)
class InnerType:
    """A type directly inside of a nested one, and where a file has its values.

    Attributes:
        kind: the type.
        path: for messages.
        stored: the file's field; None if it has none.
        item: the field of the struct; None in arrays and maps.
    """

    kind: DataType
    path: str
    stored: FileField | None
    item: StructField | None = None


def inner_types(kind: DataType, file_field: FileField | None, by: Naming, path: str) -> list[InnerType]:
    """Return the types directly inside of a nested type, in order; none for other types.

    Args:
        kind: the table's type.
        file_field: the file's field, of the same shape; None if it has none.
        by: how fields are found in the file.
        path: of the type, for messages.

    Raises:
        FileTypeMismatch: several fields of the file have the name or field id of one.
    """
    match kind:
        case StructType(fields):
            by_field = StoredFields(() if file_field is None else file_field.inside, by)
            paths = [f"{path}.{item.name}" for item in fields]
            return [
                InnerType(item.type, below, by_field.of(item, below), item)
                for item, below in zip(fields, paths, strict=True)
            ]
        case ArrayType(element):
            return [
                InnerType(element, f"{path}.element", None if file_field is None else file_field.inside[0])
            ]
        case MapType(key, value):
            keys, values = (None, None) if file_field is None else file_field.inside
            return [InnerType(key, f"{path}.key", keys), InnerType(value, f"{path}.value", values)]
        case _:
            return []


def check_file(file: FileSchema, columns: Sequence[StructField], by: Naming) -> None:
    """Check that the columns in a file are what the table says.

    Args:
        file: the file's schema.
        columns: of the table; those that the file does not have are NULL.
        by: how they are found in it.

    Raises:
        FileTypeMismatch: a column has values that are not the table's, or it cannot be told which one has them.
    """
    if by == "id" and file and columns and all(each.field_id is None for each in file):
        raise FileTypeMismatch(columns[0].name, "it has no field ids, which the table's column mapping needs")
    by_column = StoredFields(file, by)
    for item in columns:
        file_field = by_column.of(item, item.name)
        if file_field is not None:
            _check(file_field, item.type, by, item.name)


def _check(file_field: FileField, data_type: DataType, by: Naming, path: str) -> None:
    match data_type, file_field.shape:
        case _ if file_field.shape == "value" and file_field.kind.name == "null":
            pass
        case (StructType(), "struct") | (ArrayType(), "list") | (MapType(), "map") if (
            file_field.shape != "map" or len(file_field.inside) > 1
        ):
            for each in inner_types(data_type, file_field, by, path):
                if each.stored is not None:
                    _check(each.stored, each.kind, by, each.path)
        case PrimitiveType("variant"), "struct" | "variant":
            pass
        case _ if not holds(file_field, data_type):
            raise FileTypeMismatch(path, f"it has {file_field}, and the table {type_name(data_type)}")
