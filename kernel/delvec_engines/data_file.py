"""Opens a data file with pyarrow; errors name table, version and file.

Tested in `tests/unit/engines/test_data_file.py` and `tests/integration/contract/test_refused_reads.py`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec_engines.arrow_conversion import decoded, plain_list
from delvec_engines.scan import Scan
from delvec_errors import CorruptTable, MissingDataFile
from delvec_kernel.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    all_types,
)
from delvec_parquet.parquet_file import open_parquet
from delvec_storage import files as storage
from delvec_storage.roots import Roots

__all__ = ["DataFile", "open_data_file", "position_of", "reading", "to_table_type"]


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    Attributes:
        location: the location of the table.
        path: the path, as in the log.
        table: the table's name, for messages.
        version: the table's version, for messages.
        roots: allowed locations.
    """

    location: str
    path: str
    table: str
    version: int
    roots: Roots

    @classmethod
    def of(cls, scan: Scan, path: str) -> "DataFile":
        """Return a file of a scan."""
        return cls(scan.location, path, scan.name, scan.version, scan.roots)


@contextmanager
def open_data_file(file: DataFile) -> Iterator[pq.ParquetFile]:
    """Open a data file; errors inside the block are attributed to the file.

    Raises:
        MissingDataFile: it is not in storage.
        CorruptTable: it is damaged or not a Parquet file.
        UnusableFile: its footer has more than 256 MiB.
        LocationNotAllowed: it lies outside the roots.
        StorageError: storage did not answer.
    """
    with (
        reading(file),
        storage.open_input(file.location, file.path, is_allowed=file.roots.allows) as source,
        open_parquet(source, file.path, coerce_int96_timestamp_unit="us") as opened,
    ):
        yield opened


@contextmanager
def reading(file: DataFile) -> Iterator[None]:
    """Translate errors of reading a file into errors that name it."""
    facts = {"table": file.table, "version": file.version, "file": file.path}
    where = f"The data file '{file.path}' of table '{file.table}' (version {file.version})"
    try:
        yield
    except FileNotFoundError as error:
        raise MissingDataFile(
            f"{where} does not exist; restore it from a backup, or restore the table to a version that does not "
            "need it.",
            **facts,
        ) from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise CorruptTable(f"{where} cannot be read: {reason}", **facts) from error


_MAX_DIGITS: Final = 38


def position_of(item: StructField, names: Sequence[str], *, has_mapping: bool) -> int | None:
    """Return a column's position in a file: by exact name, else by the only name that differs in case."""
    name = item.physical_name if has_mapping else item.name
    if name in names:
        return names.index(name)
    alike = [position for position, each in enumerate(names) if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def to_table_type(array: pa.Array, kind: DataType, target: pa.DataType, *, has_mapping: bool) -> pa.Array:
    """Return the values as ``target``, the Arrow form of ``kind``.

    Args:
        array: as in the file, whose type has been checked (:mod:`delvec_kernel.schema.file_types`).
        kind: the table's type; with physical names if column mapping is on.
        target: from :meth:`StructType.to_arrow`.
        has_mapping: whether fields are found by physical name.

    Raises:
        pyarrow.ArrowException: a value does not fit, or the types have nothing in common.
    """
    array = _stored(array)
    if array.type == target and not _has_structs(kind):
        return array
    match kind:
        case StructType():
            return _struct(array, kind, target, has_mapping=has_mapping)
        case ArrayType():
            _expect(array, kind, fits=hasattr(array.type, "value_type") and not pa.types.is_map(array.type))
            array = plain_list(array)
            values = to_table_type(array.values, kind.element, target.value_type, has_mapping=has_mapping)
            return _rebuilt(array, target, values)
        case MapType():
            _expect(array, kind, fits=pa.types.is_map(array.type))
            keys = to_table_type(array.keys, kind.key, target.key_type, has_mapping=has_mapping)
            items = to_table_type(array.items, kind.value, target.item_type, has_mapping=has_mapping)
            fields = [target.key_field, target.item_field]
            return _rebuilt(array, target, pa.StructArray.from_arrays([keys, items], fields=fields))
        case _:
            return _leaf(array, kind, target)


def _stored(array: pa.Array) -> pa.Array:
    """Return the values as the file has them: Arrow notes in the footer how the writer had them in memory."""
    if pa.types.is_dictionary(array.type):
        array = decoded(array)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.string() if pa.types.is_string_view(kind) else pa.binary())
    elif pa.types.is_duration(kind):
        array = array.view(pa.int64())
    return array


def _has_structs(kind: DataType) -> bool:
    """Whether a type has structs, whose fields may be swapped although the Arrow types are equal."""
    return any(isinstance(each, StructType) for each in all_types(kind))


def _struct(array: pa.Array, kind: StructType, target: pa.DataType, *, has_mapping: bool) -> pa.Array:
    _expect(array, kind, fits=pa.types.is_struct(array.type))
    names = [field.name for field in array.type]
    children = []
    for item, field in zip(kind.fields, target, strict=True):
        position = position_of(item, names, has_mapping=has_mapping)
        children.append(
            pa.nulls(len(array), field.type)
            if position is None
            else to_table_type(array.field(position), item.type, field.type, has_mapping=has_mapping)
        )
    mask = array.is_null() if array.null_count else None
    fields = [field.with_nullable(True) for field in target]
    if not fields:
        return pa.array([None if null else {} for null in array.is_null().to_pylist()], target)
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask).cast(target)


def _rebuilt(array: pa.Array, target: pa.DataType, values: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, array.offset, [values]
    )


def _leaf(array: pa.Array, kind: DataType, target: pa.DataType) -> pa.Array:
    source = array.type
    if pa.types.is_null(source) or pa.types.is_null(target):
        _expect(array, kind, fits=array.null_count == len(array))
        return pa.nulls(len(array), target)
    if pa.types.is_timestamp(target):
        _expect(array, kind, fits=pa.types.is_timestamp(source) or pa.types.is_date(source))
        # Time zones in files are always UTC, so only the label changes.
        moments = array if pa.types.is_timestamp(source) else array.cast(pa.timestamp("us"))
        if moments.type.unit == "ns":
            # As Spark cuts INT96; a cast would round towards 1970.
            moments = pc.floor_temporal(moments, unit="microsecond")
        moments = moments.cast(pa.timestamp("us", moments.type.tz))
        return moments.view(target)
    _expect(array, kind, fits=_may_become(source, kind))
    if isinstance(kind, DecimalType) and pa.types.is_integer(source):
        # Arrow demands a precision for any 64-bit value, so convert by the values.
        array = array.cast(pa.decimal128(_MAX_DIGITS, 0))
    return array.cast(target)


def _may_become(source: pa.DataType, kind: DataType) -> bool:
    if isinstance(kind, DecimalType):
        return bool(pa.types.is_decimal(source) or pa.types.is_integer(source))
    checks = _SOURCES.get(kind.name if isinstance(kind, PrimitiveType) else "", ())
    return any(check(source) for check in checks)


_TEXT: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
_SOURCES: Final = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (pa.types.is_integer,)),
    "float": (pa.types.is_floating,),
    "double": (pa.types.is_floating, pa.types.is_integer),
    "boolean": (pa.types.is_boolean,),
    "date": (pa.types.is_date, pa.types.is_int32),
    "string": _TEXT,
    "binary": _TEXT,
}


def _expect(array: pa.Array, kind: DataType, *, fits: bool) -> None:
    if not fits:
        shown = kind.to_json()
        name = shown if isinstance(shown, str) else shown["type"]
        raise pa.ArrowTypeError(f"the file has {array.type} instead of the table's type {name}")
