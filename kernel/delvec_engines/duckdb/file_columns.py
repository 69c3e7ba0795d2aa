"""Maps table columns to columns of data files: read_parquet's schema, and the expression for the table's value.

DuckDB is asked for the type that a file has wherever its own cast to the table's type could change a value: it writes bytes as
text with escapes, rounds nanoseconds, and takes timestamps without a zone for the session's local time. Other casts are exact or
fail. Columns are found by their names in the file, and get internal names.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from delvec_engines.duckdb.lookup import FILENAME, quoted, string_literal
from delvec_engines.duckdb.variants import BINARIES, VARIANT_IN_FILE, copy_name, variant_value
from delvec_kernel.schema.file_types import (
    Naming,
    StoredFields,
    UnsupportedFileType,
    check_file,
    inner_types,
    may_exceed,
)
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

__all__ = ["BEYOND_TYPE", "NOT_TEXT", "TYPES", "FileColumn", "columns_in", "mapping", "sql_type", "whole"]

NOT_TEXT: Final = "delvec: bytes that are not text are in column "
BEYOND_TYPE: Final = "delvec: a number beyond the type of the table is in column "
_VARIANT: Final = PrimitiveType("variant")

TYPES: Final = {
    "string": "VARCHAR",
    "binary": "BLOB",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    # void occurs only inside other types; DuckDB has no such type.
    "void": "INTEGER",
    "variant": BINARIES,
}
_ZONED, _UNZONED = "TIMESTAMP WITH TIME ZONE", "TIMESTAMP"
_NANOSECONDS: Final = {True: "TIMESTAMPTZ_NS", False: "TIMESTAMP_NS"}
_WIDE: Final = 32
"""Bits of the narrowest unsigned integer whose physical type shows it as negative."""


@dataclass(frozen=True)
class FileColumn:
    """How a column is read from some files.

    Attributes:
        read: entries of read_parquet's ``schema``, in JSON.
        value: SQL of the table's value.
        compared: the same for conditions.
    """

    read: str
    value: str
    compared: str

    @property
    def may_fail(self) -> bool:
        """Whether the value has a check, so that DuckDB allows no reference to its alias in the same SELECT."""
        return NOT_TEXT in self.value or BEYOND_TYPE in self.value


def columns_in(file: FileSchema | None, columns: Sequence[StructField], by: Naming) -> tuple[FileColumn, ...]:
    """Return how columns are read from files of a schema; column number n gets the internal name ``c<n>``.

    Args:
        file: the schema; None if it is unknown, since DuckDB cannot read the file either.
        columns: the columns of the table; a file may lack them.
        by: how they are found in files.

    Raises:
        FileTypeMismatch: a column has values in the file that are not the table's, or that DuckDB would read as others.
    """
    if file is not None:
        check_file(file, columns, by)
        beyond = next(filter(None, map(_beyond_duckdb, file)), None)
        if columns and beyond is not None:
            raise UnsupportedFileType(
                columns[0].name, f"the file has {beyond}, with which DuckDB opens no file"
            )
    file_field = None if file is None else StoredFields(file, by)
    return tuple(_column(file_field, item, f"c{number}", by) for number, item in enumerate(columns))


def _beyond_duckdb(file_field: FileField) -> str | None:
    """Return what keeps DuckDB from opening a file with such a field, or None."""
    if file_field.kind.name == "bson" and file_field.converted:
        return "a column of BSON"
    if file_field.legacy:
        return f"a {file_field} in an older form"
    return next(filter(None, map(_beyond_duckdb, file_field.inside)), None)


def _column(file: StoredFields | None, item: StructField, inner: str, by: Naming) -> FileColumn:
    file_field = None if file is None else file.of(item)
    name = item.name if by == "name" else item.physical_name
    if file_field is not None:
        name = file_field.name
    elif file is not None and file.has(name):
        # Found by id, the column is not in the file; that of its name is another.
        nothing = f"CAST(NULL AS {sql_type(item.type, has_mapping=False)})"
        return FileColumn("", nothing, nothing)
    part = _Reader(item.name, by).part(item.type, file_field, item.name)
    read, value, copy = _entry(name, inner, part.read), f"f.{inner}", "NULL"
    if part.copied is not None:
        # The copy exists where variants are shredded.
        read = f"{read}, {_entry(copy_name(name), f'{inner}copy', part.copied)}"
        copy = f"f.{inner}copy"
        copy = whole(copy) if isinstance(item.type, StructType) else copy
    # TRY has no bounds, which a CASE has, but takes 0.3 us per row.
    compared = value if file_field is None or _is_ordered(file_field) else f"TRY({value})"
    if part.convert is not None:
        value, compared = part.convert(value, copy, 0), part.convert(compared, copy, 0)
    return FileColumn(read, value, compared)


def _is_ordered(file_field: FileField) -> bool:
    """Whether the bounds of a file's column, or of what is inside of it, are in the order of the values.

    Without column orders, they are in that of signed numbers or bytes, whatever the annotations say. DuckDB takes them for bounds
    nevertheless: it finds no row of some values, and takes conditions as true for all rows.
    """
    if file_field.shape != "value":
        return all(map(_is_ordered, file_field.inside))
    is_signed = file_field.physical in {"int32", "int64", "boolean"} and file_field.kind.name != "unsigned"
    return file_field.ordered or is_signed


def whole(value: str) -> str:
    """Return a column in a form that stops DuckDB from pushing expressions into the Parquet reader.

    DuckDB 2.0 pushes the extraction of a struct field by its position in the requested schema, and reads
    another field, or fails, if a file has fewer fields or another order. It also prunes row groups by the bounds of
    floating-point columns, which leave out NaN, although NaN is greater than all other values.
    """
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE {value} END"


def mapping(name: str, inner: str, data_type: DataType) -> str:
    """Return an entry of read_parquet's ``schema`` for a column that no file has."""
    return _entry(name, inner, sql_type(data_type, has_mapping=False))


def _entry(name: str, inner: str, kind: str) -> str:
    entry = {"name": inner, "type": kind, "default_value": None}
    return f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(entry, ensure_ascii=False)}"


def sql_type(kind: DataType, *, has_mapping: bool, variant: str = BINARIES) -> str:
    """Return the DuckDB type, with physical names of struct fields if ``has_mapping``, and ``variant`` for variants."""

    def inside(kind: DataType) -> str:
        return sql_type(kind, has_mapping=has_mapping, variant=variant)

    if kind == _VARIANT:
        return variant
    if isinstance(kind, PrimitiveType):
        return TYPES[kind.name]
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if isinstance(kind, ArrayType):
        return f"{inside(kind.element)}[]"
    if isinstance(kind, MapType):
        return f"MAP({inside(kind.key)}, {inside(kind.value)})"
    return _row((item.physical_name if has_mapping else item.name, inside(item.type)) for item in kind.fields)


def _row(fields: Iterable[tuple[str, str]]) -> str:
    return f"STRUCT({', '.join(f'{quoted(name)} {kind}' for name, kind in fields)})"


_Convert = Callable[[str, str, int], str]
"""Makes the SQL of the table's value from that of the file's, that of its place in the column's copy, and the number of
lambda functions around it."""


@dataclass(frozen=True)
class _ReadExpression:
    """How a column, or something inside of it, is read.

    Attributes:
        read: DuckDB's type to ask for.
        convert: None if that is the table's value.
        copied: the type to ask for in the column's copy, if it has variants.
    """

    read: str
    convert: _Convert | None = None
    copied: str | None = None


@dataclass(frozen=True)
class _Reader:
    """Decides how a column is read."""

    column: str
    by: Naming

    def part(self, kind: DataType, file_field: FileField | None, path: str) -> _ReadExpression:
        """Return how to read a type from a field of the file; None where the file has none, or is unknown."""
        if file_field is not None and file_field.shape == "value" and file_field.kind.name == "null":
            file_field = None
        if file_field is not None and file_field.shape in {"list", "map"} and not file_field.converted:
            raise UnsupportedFileType(
                path, f"its {file_field} is annotated in a form that DuckDB does not know"
            )
        match kind:
            case StructType():
                return self._struct(kind, file_field, path)
            case ArrayType():
                return _list(*self._inside(kind, file_field, path))
            case MapType():
                return _map(*self._inside(kind, file_field, path))
            case PrimitiveType("variant"):
                column = self.column
                return _ReadExpression(
                    VARIANT_IN_FILE, lambda value, copy, _: variant_value(value, copy, column), "VARIANT"
                )
            case _:
                return _leaf(kind, file_field, path)

    def _inside(self, kind: DataType, file_field: FileField | None, path: str) -> Iterator[_ReadExpression]:
        for each in inner_types(kind, file_field, self.by, path):
            yield self.part(each.kind, each.stored, each.path)

    def _struct(self, kind: StructType, file_field: FileField | None, path: str) -> _ReadExpression:
        fields: list[tuple[StructField, str, _ReadExpression]] = []
        inside = () if file_field is None else file_field.inside
        by_column = StoredFields(inside, self.by)
        is_shared = file_field is None
        for item in kind.fields:
            below = f"{path}.{item.name}"
            found = by_column.of(item, below)
            name = item.name if self.by == "name" else item.physical_name
            part = self.part(item.type, found, below)
            if found is not None:
                name, is_shared = found.name, True
            elif by_column.has(name):
                # Found by id, it is not in the file; that of its name is another.
                name = ""
            fields.append((item, name, part))
        if not is_shared and inside:
            # DuckDB reads no struct without any of its fields, and another one tells which structs are NULL.
            fields = [(item, "", part) for item, _, part in fields]
            return _ReadExpression(_row([(_simplest(inside).name, "VARCHAR")]), _packed(fields))
        read = [(name, part.read) for _, name, part in fields if name]
        copied = [(name, part.copied) for _, name, part in fields if name and part.copied is not None]
        differs = any(name != item.name or part.convert is not None for item, name, part in fields)
        return _ReadExpression(
            _row(read), _packed(fields) if differs else None, _row(copied) if copied else None
        )


def _simplest(fields: Sequence[FileField]) -> FileField:
    return next((each for each in fields if each.shape == "value"), fields[0])


def _packed(fields: Sequence[tuple[StructField, str, _ReadExpression]]) -> _Convert:
    """Return what makes the table's struct; of each field it takes the name in the file, empty if it is NULL."""

    def convert(value: str, copy: str, depth: int) -> str:
        members = []
        for item, name, part in fields:
            inner = f"{value}.{quoted(name)}"
            if not name:
                inner = f"CAST(NULL AS {sql_type(item.type, has_mapping=False)})"
            elif part.convert is not None:
                below = f"({copy}).{quoted(name)}" if part.copied is not None else "NULL"
                inner = part.convert(inner, below, depth)
            members.append(f"{quoted(item.name)} := {inner}")
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({', '.join(members)}) END"

    return convert


def _list(element: _ReadExpression) -> _ReadExpression:
    inner = element.convert

    def convert(value: str, copy: str, depth: int) -> str:
        item, place = f"e{depth}", f"i{depth}"
        below = "NULL" if element.copied is None else f"({copy})[{place}]"
        assert inner is not None  # noqa: S101 - as asked for below
        return f"list_transform({value}, lambda {item}, {place}: {inner(item, below, depth + 1)})"

    copied = None if element.copied is None else f"{element.copied}[]"
    return _ReadExpression(f"{element.read}[]", None if inner is None else convert, copied)


def _map(key: _ReadExpression, value: _ReadExpression) -> _ReadExpression:
    def convert(whole_map: str, copy: str, depth: int) -> str:
        item, place = f"e{depth}", f"i{depth}"
        keys, values = f"{item}.key", f"{item}.value"
        if key.convert is not None:
            keys = key.convert(keys, "NULL", depth + 1)
        if value.convert is not None:
            below = "NULL" if value.copied is None else f"map_values({copy})[{place}]"
            values = value.convert(values, below, depth + 1)
        pair = f"struct_pack(key := {keys}, value := {values})"
        pairs = f"list_transform(map_entries({whole_map}), lambda {item}, {place}: {pair})"
        return f"CASE WHEN {whole_map} IS NULL THEN NULL ELSE map_from_entries({pairs}) END"

    copied = None if value.copied is None else f"MAP({key.read}, {value.copied})"
    is_plain = key.convert is None and value.convert is None
    return _ReadExpression(f"MAP({key.read}, {value.read})", None if is_plain else convert, copied)


# --- values ---------------------------------------------------------------------------------------------------


def _leaf(kind: DataType, file_field: FileField | None, path: str) -> _ReadExpression:
    read = sql_type(kind, has_mapping=False)
    if file_field is None or isinstance(kind, GeospatialType):
        return _ReadExpression(read)
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    annotation = file_field.kind.name
    if not file_field.converted and (
        annotation == "decimal" or (annotation == "unsigned" and file_field.kind.bits >= _WIDE)
    ):
        raise UnsupportedFileType(path, f"its {file_field} is annotated in a form that DuckDB does not know")
    if may_exceed(file_field, kind):
        wide = "BIGINT" if file_field.physical == "int32" else "UBIGINT"
        return _ReadExpression(wide, _narrowed(kind, file_field, path))
    if name == "void":
        return _ReadExpression("VARCHAR", lambda *_: f"CAST(NULL AS {read})")
    if name in {"string", "binary"}:
        return _text(name, file_field, path)
    return _number_or_time(name, read, file_field)


def _number_or_time(name: str, read: str, file_field: FileField) -> _ReadExpression:
    if name in {"date", "timestamp_ntz"} and file_field.physical == "int32" and not file_field.converted:
        return _ReadExpression("INTEGER", lambda value, *_: f"CAST(make_date({value}) AS {read})")
    if name in {"timestamp", "timestamp_ntz"} and file_field.physical != "int32":
        return _moment(read, file_field)
    return _ReadExpression(read)


def _text(name: str, file_field: FileField, path: str) -> _ReadExpression:
    """Return how to read text or bytes, either of which a file may have as the other."""
    is_text = file_field.kind.name in {"string", "enum", "json"} and file_field.converted
    if name == "string":
        return _ReadExpression("VARCHAR") if is_text else _ReadExpression("BLOB", _decoded(path))
    if is_text:
        return _ReadExpression("VARCHAR", lambda value, *_: f"encode({value})")
    if file_field.kind.name == "uuid":
        return _ReadExpression("UUID", lambda value, *_: f"CAST({value} AS BLOB)")
    return _ReadExpression("BLOB")


def _decoded(path: str) -> _Convert:
    """Return what makes text of bytes without annotation."""
    message = string_literal(f"{NOT_TEXT}'{path}' of ")

    def convert(value: str, _copy: str, _depth: int) -> str:
        failed = f"CASE WHEN {value} IS NOT NULL THEN error({message} || f.{FILENAME}) END"
        return f"coalesce(TRY(decode({value})), {failed})"

    return convert


def _narrowed(kind: DataType, file_field: FileField, path: str) -> _Convert:
    """Return what makes the table's integer of a wider one."""
    start = string_literal(f"{BEYOND_TYPE}'{path}' of ")
    end = string_literal(f"; it has {file_field}, and the table {type_name(kind)}, which cannot hold ")
    narrow = sql_type(kind, has_mapping=False)

    def convert(value: str, _copy: str, _depth: int) -> str:
        failed = f"CASE WHEN {value} IS NOT NULL THEN error({start} || f.{FILENAME} || {end} || {value}) END"
        return f"coalesce(TRY_CAST({value} AS {narrow}), {failed})"

    return convert


def _moment(timestamp_type: str, file_field: FileField) -> _ReadExpression:
    """Return how to read a timestamp.

    Infinity, for which DuckDB takes the greatest and least numbers, has no epoch.
    """
    make = "make_timestamptz" if timestamp_type == _ZONED else "make_timestamp"
    # DuckDB does not know the zone of INT96 and of the older annotation.
    is_zoned = file_field.logical and file_field.kind.is_utc
    if file_field.kind.unit == "ns":

        def cut(value: str, _copy: str, _depth: int) -> str:
            number = f"epoch_ns({value})"
            # Division rounds towards zero.
            return f"{make}({number} // 1000 - CAST({number} % 1000 < 0 AS BIGINT))"

        return _ReadExpression(_NANOSECONDS[is_zoned], cut)
    read = _ZONED if is_zoned else _UNZONED
    if read == timestamp_type:
        return _ReadExpression(read)
    return _ReadExpression(
        read, lambda value, *_: f"coalesce({make}(epoch_us({value})), CAST({value} AS {timestamp_type}))"
    )
