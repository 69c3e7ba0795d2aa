"""Maps table columns to columns of data files: the types that Spark's Parquet reader is asked for, and the table's values.

That reader trusts the type that it is asked for. It reads 200 in an unsigned byte as -56 under ``byte``, a date as a number under ``integer``,
and fails without naming the file on an unsigned long under ``long``. So Delvec reads each file's schema first, as for DuckDB, and refuses
the same files. Files with other types that hold the table's values are read in a branch of their own: in a type in which the reader changes
nothing, and back with a check of each value.

Tested in `tests/integration/spark/test_spark_file_types.py` and `tests/interop/test_file_types.py`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from delvec_engines.data_file import DataFile
from delvec_engines.file_schemas import check_schema, mismatch
from delvec_engines.scan import Scan
from delvec_engines.spark.dv_filter import TASK_ERROR
from delvec_engines.spark.field_ids import named_as_in
from delvec_kernel.schema.column_mapping import mapping_mode
from delvec_kernel.schema.file_types import (
    FileTypeMismatch,
    Naming,
    StoredFields,
    UnsupportedFileType,
    inner_types,
    may_exceed,
    naming,
)
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)
from delvec_parquet.file_schema import FileField, FileSchema

__all__ = ["FileColumn", "ScanPart", "parts_of"]

_VOID: Final = PrimitiveType("void")
_INTEGER: Final = PrimitiveType("integer")
_HOLDS_UNSIGNED: Final[tuple[tuple[int, DataType], ...]] = (
    (8, PrimitiveType("short")),
    (16, _INTEGER),
    (32, PrimitiveType("long")),
    (64, DecimalType(20, 0)),
)
_READ_AS_NULL: Final = frozenset({"byte", "short", "integer", "long", "double", "date"})
"""Types as which Spark reads a column that has only NULLs; of others it says that they do not fit."""
_MAX_PRECISION: Final = 38
_DIGITS_OF_INT32: Final = 10
_DIGITS_OF_LONG: Final = 18
"""Up to so many digits Spark keeps decimals in a long, and then does not read them from bytes."""
_FILE: Final = "\N{OBJECT REPLACEMENT CHARACTER}file"
_VALUE: Final = "\N{OBJECT REPLACEMENT CHARACTER}value"


@dataclass(frozen=True)
class FileColumn:
    """How a column is read from some files.

    Attributes:
        item: the column, with its names in the files.
        read: the type to ask Spark's reader for; ``void`` if they have only NULLs.
        convert: makes the table's value from the value read and the file's URL; None if that is the table's value.
    """

    item: StructField
    read: DataType
    convert: Callable[[Column, Column], Column] | None


@dataclass(frozen=True)
class ScanPart:
    """Files of a scan that are read alike.

    Attributes:
        scan: the files.
        columns: in the order of the table's.
    """

    scan: Scan
    columns: Sequence[FileColumn]


_Key = tuple[tuple[StructField, DataType], ...]


def parts_of(scan: Scan, stored_schema: StructType, schemas: Sequence[FileSchema | None]) -> list[ScanPart]:
    """Split a scan by how its files are read; rarely more than one part.

    Args:
        scan: not empty.
        stored_schema: the columns that files hold.
        schemas: the schemas of the files; None where it is unknown, and Spark is asked for the table's types.

    Raises:
        CorruptTable: a file contradicts the table; names file and column.
        UnsupportedTable: Spark cannot read a column of a file.
    """
    by = naming(mapping_mode(scan.configuration))
    paths = scan.files["path"].to_pylist()
    parts: dict[_Key, tuple[Sequence[FileColumn], list[bool]]] = {}
    # One lookup per distinct schema: files of a table rarely differ in more than two ways.
    keys: dict[int, _Key] = {}
    for position, schema in enumerate(schemas):
        key = keys.get(id(schema))
        if key is None:
            columns = _columns(DataFile.of(scan, paths[position]), schema, stored_schema, by)
            key = keys[id(schema)] = tuple((each.item, each.read) for each in columns)
            parts.setdefault(key, (columns, [False] * len(schemas)))
        parts[key][1][position] = True
    if len(parts) == 1:
        return [ScanPart(scan, columns) for columns, _ in parts.values()]
    return [ScanPart(scan.filter(pa.array(mask)), columns) for columns, mask in parts.values()]


def _columns(
    file: DataFile, schema: FileSchema | None, stored_schema: StructType, by: Naming
) -> Sequence[FileColumn]:
    if schema is not None:
        check_schema(file, schema, stored_schema.fields, by)
    if by == "id":
        stored_schema = named_as_in(schema or (), stored_schema)
    if schema is None:
        return [FileColumn(item, item.type, None) for item in stored_schema.fields]
    fields, reader = StoredFields(schema, by), _Reader(file, by)
    try:
        parts = [reader.part(item.type, fields.of(item), item.name) for item in stored_schema.fields]
    except UnsupportedFileType as error:
        raise mismatch(file, error, other="DuckDB") from error
    return [
        FileColumn(item, part.read, part.convert)
        for item, part in zip(stored_schema.fields, parts, strict=True)
    ]


_Convert = Callable[[Column, Column], Column]


@dataclass(frozen=True)
class _Part:
    """How a column, or something inside of it, is read; as a FileColumn."""

    read: DataType
    convert: _Convert | None = None


@dataclass(frozen=True)
class _Reader:
    """Decides how columns are read from a file, or from files like it."""

    file: DataFile
    by: Naming

    def part(self, kind: DataType, file_field: FileField | None, path: str) -> _Part:
        """Return how to read a type from a field of the file; None where the file has none."""
        match kind:
            case _ if file_field is None or kind == _VOID:
                return _Part(kind)
            case StructType() if file_field.shape == "struct":
                return self._struct(kind, file_field, path)
            case ArrayType() if file_field.shape == "list":
                return _list(kind, *self._inside(kind, file_field, path))
            case MapType() if file_field.shape == "map":
                return _map(kind, *self._inside(kind, file_field, path))
            case _:
                return self._leaf(kind, file_field, path) if file_field.shape == "value" else _Part(kind)

    def _inside(self, kind: DataType, file_field: FileField, path: str) -> Iterator[_Part]:
        for each in inner_types(kind, file_field, self.by, path):
            yield self.part(each.kind, each.stored, each.path)

    def _leaf(self, kind: DataType, file_field: FileField, path: str) -> _Part:
        if file_field.kind.name == "null":
            name = kind.name if isinstance(kind, PrimitiveType) else ""
            return _Part(kind) if name in _READ_AS_NULL else _Part(_VOID, lambda *_: F.lit(None))
        read = _exact_type(kind, file_field, path)
        return _Part(kind) if read == kind else _Part(read, self._narrowed(kind, file_field, path))

    def _struct(self, kind: StructType, file_field: FileField, path: str) -> _Part:
        parts = list(self._inside(kind, file_field, path))
        if all(part.convert is None for part in parts):
            return _Part(kind)
        fields = list(zip(kind.fields, parts, strict=True))
        names = [item.name if self.by == "name" else item.physical_name for item in kind.fields]

        def convert(value: Column, file: Column) -> Column:
            packed = [
                _converted(value.getField(name), part, file).alias(item.name)
                for name, (item, part) in zip(names, fields, strict=True)
            ]
            return F.when(value.isNotNull(), F.struct(*packed))

        return _Part(StructType(tuple(replace(item, type=part.read) for item, part in fields)), convert)

    def _narrowed(self, kind: DataType, file_field: FileField, path: str) -> _Convert:
        """Return what makes the table's value of one in a wider type, or fails."""
        reason = f"it has {file_field}, and the table {type_name(kind)}, which cannot hold {_VALUE}"
        error = mismatch(replace(self.file, path=_FILE), FileTypeMismatch(path, reason))
        texts = json.dumps(error.to_wire(), ensure_ascii=False).split(_FILE)

        def convert(value: Column, file: Column) -> Column:
            narrow = value.try_cast(type_name(kind))
            pieces = [F.lit(TASK_ERROR)]
            for number, text in enumerate(texts):
                before, _, after = text.partition(_VALUE)
                pieces += [file] if number else []
                pieces += [F.lit(before), value.cast("string"), F.lit(after)] if after else [F.lit(before)]
            failed = value.isNotNull() & narrow.isNull()
            return F.when(failed, F.raise_error(F.concat(*pieces))).otherwise(narrow)

        return convert


def _list(kind: ArrayType, element: _Part) -> _Part:
    if element.convert is None:
        return _Part(kind)

    def convert(value: Column, file: Column) -> Column:
        return F.transform(value, lambda item: _converted(item, element, file))

    return _Part(replace(kind, element=element.read), convert)


def _map(kind: MapType, key: _Part, value: _Part) -> _Part:
    if key.convert is None and value.convert is None:
        return _Part(kind)

    def convert(whole: Column, file: Column) -> Column:
        return F.map_from_arrays(
            F.transform(F.map_keys(whole), lambda item: _converted(item, key, file)),
            F.transform(F.map_values(whole), lambda item: _converted(item, value, file)),
        )

    return _Part(replace(kind, key=key.read, value=value.read), convert)


def _converted(value: Column, part: _Part, file: Column) -> Column:
    return value if part.convert is None else part.convert(value, file)


def _exact_type(kind: DataType, file_field: FileField, path: str) -> DataType:
    """Return a type as which Spark's reader reads a file's values without changing one.

    Raises:
        UnsupportedFileType: there is none.
    """
    if file_field.kind.name == "float16" or file_field.kind.unit == "ns":
        raise UnsupportedFileType(path, f"it has {file_field}, which Spark does not read")
    if may_exceed(file_field, kind):
        is_signed = file_field.kind.name == "integer"
        return (
            _INTEGER
            if is_signed
            else next(wide for bits, wide in _HOLDS_UNSIGNED if file_field.kind.bits <= bits)
        )
    if isinstance(kind, DecimalType):
        return _exact_decimal(kind, file_field, path)
    return kind


def _exact_decimal(kind: DecimalType, file_field: FileField, path: str) -> DecimalType:
    is_integer = file_field.kind.name == "integer"
    if is_integer and kind.precision - kind.scale < _DIGITS_OF_INT32:
        precision = _DIGITS_OF_INT32 + kind.scale
        if precision > _MAX_PRECISION:
            raise UnsupportedFileType(
                path, f"it has {file_field}, which Spark does not read as {type_name(kind)}"
            )
        return DecimalType(precision, kind.scale)
    if file_field.physical == "binary" and kind.precision <= _DIGITS_OF_LONG:
        return DecimalType(_DIGITS_OF_LONG + 1, kind.scale)
    return kind
