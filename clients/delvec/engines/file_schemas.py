"""The schemas of a scan's data files, by which engines decide how to read each of them."""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache

from delvec.engines.data_file import DataFile, reading
from delvec.scan import Scan
from delvec_kernel.errors import CorruptTable, DelvecError, StorageError, UnsupportedTable
from delvec_kernel.parquet.file_schema import FileSchema, schema_of_footer
from delvec_kernel.parquet.file_types import (
    FileTypeMismatch,
    Naming,
    UnsupportedFileType,
    check_file,
    naming,
)
from delvec_kernel.parquet.parquet_file import TRAILER_BYTES
from delvec_kernel.schema.types import StructField
from delvec_kernel.storage.parquet_schemas import SchemaReader

__all__ = ["check_file_types", "checked_schema", "file_schemas", "mismatch"]

_CONCURRENT: Final = 32
_MAX_CACHED: Final = 1 << 16
_UNREAD: Final[Any] = object()

_lock: Final = threading.Lock()
_reader: Final = SchemaReader()
_schemas: Final[LRUCache[tuple[str, int, int], FileSchema | None]] = LRUCache(_MAX_CACHED)
"""By path or URL, size and modification time."""


def file_schemas(scan: Scan, names: Sequence[str | None] = ()) -> list[FileSchema | None]:
    """Return the schema of each file, equal ones as one object; None for a file that is not Parquet.

    Measured on 10,000 local files: 0.25 s, and 0.06 s the next time.

    Args:
        scan: the files.
        names: of each file the local path by which the engine opens it, or None.

    Raises:
        MissingDataFile: a file is not in storage.
        CorruptTable: a footer is damaged.
        StorageError: storage did not answer.
    """
    columns = (scan.files[name].to_pylist() for name in ("path", "size", "modification_time"))
    files = list(zip(*columns, strict=True))
    names = names or [None] * len(files)
    keys = [
        (f"{scan.location}\n{path}", size, time) if name is None else _local_key(name)
        for name, (path, size, time) in zip(names, files, strict=True)
    ]
    with _lock:
        found = [_schemas.get(key, _UNREAD) for key in keys]
    missing = [place for place, schema in enumerate(found) if schema is _UNREAD]
    if not missing:
        return found

    def read(place: int) -> FileSchema | None:
        path, size, _ = files[place]
        with reading(DataFile.of(scan, path)):
            try:
                name = names[place]
                if name is not None:
                    return _reader.read_local(name, path)
                return _reader.read(scan.location, path, size, allowed=scan.roots.allows)
            except (CorruptTable, StorageError) as error:
                facts = {"table": scan.name, "version": scan.version}
                raise type(error)(error.message, **(error.details | facts)) from error

    if scan.location.startswith("file:"):
        # Threads would wait for each other.
        schemas = [read(place) for place in missing]
    else:
        with ThreadPoolExecutor(min(_CONCURRENT, len(missing)), "delvec-schemas") as pool:
            schemas = list(pool.map(read, missing))
    with _lock:
        for place, schema in zip(missing, schemas, strict=True):
            found[place] = _schemas[keys[place]] = schema
    return found


def _local_key(name: str) -> tuple[str, int, int]:
    try:
        found = os.stat(name)  # noqa: PTH116 - for every file of a scan
    except OSError:
        return name, -1, -1
    return name, found.st_size, found.st_mtime_ns


def check_file_types(scan: Scan, columns: Sequence[StructField]) -> None:
    """Check that no file of the scan contradicts the table; see :func:`delvec_kernel.parquet.file_types.check_file`.

    Raises:
        CorruptTable: a file has values of a column that are not the table's; names it.
    """
    checked: set[int] = set()
    by = naming(scan.configuration.get("delta.columnMapping.mode", "none"))
    for path, schema in zip(scan.files["path"].to_pylist(), file_schemas(scan), strict=True):
        if schema is not None and id(schema) not in checked:
            checked.add(id(schema))
            _check(DataFile.of(scan, path), schema, columns, by)


def checked_schema(
    file: DataFile, metadata: pq.FileMetaData, columns: Sequence[StructField], mode: str
) -> FileSchema:
    """Return the schema of a file that Arrow has opened, of which these columns are read.

    Args:
        file: the file.
        metadata: as Arrow has read it.
        columns: of the table.
        mode: ``delta.columnMapping.mode``.

    Raises:
        CorruptTable: the file has values of a column that are not the table's.
    """
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    data = sink.getvalue().to_pybytes()
    start = len(data) - TRAILER_BYTES - int.from_bytes(data[-TRAILER_BYTES:-4], "little")
    schema, _ = schema_of_footer(data[start:])
    _check(file, schema, columns, naming(mode))
    return schema


def _check(file: DataFile, schema: FileSchema, columns: Sequence[StructField], by: Naming) -> None:
    try:
        check_file(schema, columns, by)
    except FileTypeMismatch as error:
        raise mismatch(file, error) from error


def mismatch(file: DataFile, error: FileTypeMismatch) -> DelvecError:
    """Return the error about a file that contradicts the table, or that the engine cannot read."""
    facts = {"table": file.table, "version": file.version, "file": file.path, "column": error.column}
    where = f"The data file '{file.path}' of table '{file.table}' (version {file.version})"
    if isinstance(error, UnsupportedFileType):
        return UnsupportedTable(
            f"{where} cannot be read at column '{error.column}': {error}; read the table with Spark.", **facts
        )
    return CorruptTable(
        f"{where} does not fit column '{error.column}': {error}. Nothing was written; restore the table to a version "
        "without this file, or rewrite it with the table's types.",
        **facts,
    )
