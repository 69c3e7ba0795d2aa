"""Column mapping by field id: resolves the name of each column in each file.

Spark finds columns by field id only if the session's ``spark.sql.parquet.fieldId.read.enabled`` is on when the
query runs, not when it is created; otherwise columns are silently NULL. Even then, filters are pushed into
files by name (Spark 4.1), so that row groups of files from before a rename are skipped by the statistics of another
column. So field ids are resolved here from footers, and Spark reads by name.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import pyarrow as pa

from delvec.engines.data_file import DataFile, open_data_file
from delvec.engines.internal_names import INTERNAL
from delvec.scan import Scan
from delvec_kernel.errors import CorruptTable
from delvec_kernel.schema.types import PARQUET_FIELD_ID, ArrayType, DataType, MapType, StructField, StructType

__all__ = ["maps_by_id", "named_as_in", "named_as_in_files"]

_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_ABSENT: Final = INTERNAL("absent") + "_"
_CONCURRENT_FOOTERS: Final = 32
_MAX_CACHED: Final = 1 << 16

_Key = tuple[str, int, int]
_lock: Final = threading.Lock()
_schemas: Final[OrderedDict[_Key, pa.Schema]] = OrderedDict()


def maps_by_id(scan: Scan) -> bool:
    """Whether the table maps columns by field id."""
    return scan.configuration.get("delta.columnMapping.mode", "none").lower() == "id"


def named_as_in_files(scan: Scan, stored: StructType) -> list[tuple[Scan, StructType]]:
    """Split a scan by the names that its files have for the columns; one part if they are not mapped by id.

    Args:
        scan: not empty.
        stored: the columns that files hold.

    Returns:
        Parts of the scan, each with the columns under their names in its files.

    Raises:
        CorruptTable: or a subclass: a footer cannot be read, or a file has no field ids.
        StorageError: storage did not answer.
    """
    if not maps_by_id(scan) or not stored.fields:
        return [(scan, stored)]
    parts: dict[str, tuple[StructType, list[bool]]] = {}
    schemas = _schemas_of(scan)
    # One lookup per distinct schema: files of a table rarely differ in more than two ways.
    known: dict[int, str] = {}
    for position, schema in enumerate(schemas):
        key = known.get(id(schema))
        if key is None:
            named = StructType(_named(stored.fields, schema))
            key = known[id(schema)] = str(named.to_json())
            parts.setdefault(key, (named, [False] * len(schemas)))
        parts[key][1][position] = True
    return [(scan.filter(pa.array(mask)), named) for named, mask in parts.values()]


def named_as_in(schema: pa.Schema, stored: StructType) -> StructType:
    """Return the columns with their names in a file of this schema; missing columns get unused names."""
    return StructType(_named(stored.fields, schema))


def _named(fields: Sequence[StructField], found: Iterable[pa.Field]) -> tuple[StructField, ...]:
    present = list(found)
    by_id = {number: field for field in present if (number := _field_id(field)) is not None}
    taken = {field.name.lower() for field in present}
    named = []
    for item in fields:
        field = by_id.get(item.field_id) if item.field_id is not None else None
        if field is not None:
            kind, name = _named_type(item.type, field.type), field.name
        else:
            # Missing, even if another column has its name, so use a name that no column has.
            kind, name = item.type, item.physical_name
            if name.lower() in taken:
                name = f"{_ABSENT}{item.field_id}"
        named.append(replace(item, type=kind, metadata={**item.metadata, _PHYSICAL_NAME: name}))
    return tuple(named)


def _named_type(kind: DataType, found: pa.DataType) -> DataType:
    if isinstance(kind, StructType) and pa.types.is_struct(found):
        return StructType(_named(kind.fields, [found.field(i) for i in range(found.num_fields)]))
    if isinstance(kind, ArrayType) and hasattr(found, "value_type"):
        return replace(kind, element=_named_type(kind.element, found.value_type))
    if isinstance(kind, MapType) and pa.types.is_map(found):
        return replace(
            kind, key=_named_type(kind.key, found.key_type), value=_named_type(kind.value, found.item_type)
        )
    return kind


def _field_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(PARQUET_FIELD_ID)
    return None if text is None else int(text)


def _schemas_of(scan: Scan) -> list[pa.Schema]:
    """Return the schema of each file, equal ones as one object; footers are read once."""
    columns = (scan.files[name].to_pylist() for name in ("path", "size", "modification_time"))
    keys = [(f"{scan.location}\n{path}", size, time) for path, size, time in zip(*columns, strict=True)]
    with _lock:
        found = {key: _schemas[key] for key in keys if key in _schemas}
        distinct = {_text(schema): schema for schema in found.values()}
    missing = [
        (key, path)
        for key, path in zip(keys, scan.files["path"].to_pylist(), strict=True)
        if key not in found
    ]

    def read(path: str) -> pa.Schema:
        with open_data_file(DataFile.of(scan, path)) as file:
            return _checked(file.schema_arrow, scan, path)

    if missing:
        with ThreadPoolExecutor(min(_CONCURRENT_FOOTERS, len(missing)), "delvec-footers") as pool:
            for (key, _), schema in zip(missing, pool.map(read, [path for _, path in missing]), strict=True):
                found[key] = distinct.setdefault(_text(schema), schema)
        with _lock:
            _schemas.update((key, found[key]) for key, _ in missing)
            while len(_schemas) > _MAX_CACHED:
                _schemas.popitem(last=False)
    return [found[key] for key in keys]


def _text(schema: pa.Schema) -> bytes:
    # Not schema equality, which ignores field ids.
    return bytes(schema.serialize())


def _checked(schema: pa.Schema, scan: Scan, path: str) -> pa.Schema:
    # Other metadata is dropped, so that schemas with the same names and ids compare equal.
    schema = schema.remove_metadata()
    if len(schema) and all(_field_id(field) is None for field in schema):
        raise CorruptTable(
            f"The data file '{path}' of table '{scan.name}' (version {scan.version}) has no field ids, which the "
            "table's column mapping needs; restore the table to a version without this file.",
            table=scan.name,
            version=scan.version,
            file=path,
        )
    return schema
