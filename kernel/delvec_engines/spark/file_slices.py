"""Reads live rows of file slices with pyarrow, in tasks.

Tasks only need this package and access to storage. Each task reads the deletion vectors of its own files, unless
they are part of the plan.

Tested in `tests/integration/spark/test_spark_source.py` and `tests/integration/spark/test_spark_scan.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from delvec_engines.data_file import DataFile, open_data_file, position_of, to_table_type
from delvec_engines.file_schemas import checked_schema
from delvec_engines.marked_rows import MarkedRows
from delvec_engines.repeated_rows import RepeatedRowsOfFile
from delvec_engines.spark.field_ids import named_as_in
from delvec_engines.spark.row_sets import drop_zip_importers
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, deserialize_bitmap
from delvec_kernel.file_index.file_rows import TEXT_MAP
from delvec_kernel.schema import partition_values
from delvec_kernel.schema.types import StructField, StructType
from delvec_storage.files import read_deletion_vectors
from delvec_storage.roots import Roots

__all__ = ["FileSlice", "TableRead", "read_slices"]

_BATCH_ROWS: Final = 1 << 16


@dataclass(frozen=True)
class FileSlice:
    """The row groups of a file whose midpoints are in a byte range.

    Attributes:
        path: the path, as in the log.
        start: first byte.
        end: end of the range; None for the end of the file.
        values: partition values, serialized, by physical name.
        descriptor: JSON of the deletion vector descriptor, if any.
        deleted: the serialized deletion vector, if the plan has it.
        num_records: physical rows of the file, if known.
        occurrences: how often each row is returned, if not once.
    """

    path: str
    start: int
    end: int | None
    values: Mapping[str, str | None]
    descriptor: Mapping[str, Any] | None
    deleted: bytes | None
    num_records: int | None = None
    occurrences: RepeatedRowsOfFile | None = None


@dataclass(frozen=True)
class TableRead:
    """The common state of all tasks of a scan.

    Attributes:
        location: the location of the table.
        table: its name, for messages.
        version: the version to read.
        schema: the columns to return.
        partition_columns: names.
        mapping: ``delta.columnMapping.mode``.
        marked_only: whether deletion vectors mark the rows to return instead of the deleted ones.
        roots: allowed locations of files.
    """

    location: str
    table: str
    version: int
    schema: StructType
    partition_columns: frozenset[str]
    mapping: str
    marked_only: bool
    roots: Roots


def read_slices(read: TableRead, slices: Sequence[FileSlice]) -> Iterator[pa.RecordBatch]:
    """Yield the live rows in the Arrow form of ``read.schema``.

    Raises:
        CorruptTable: or a subclass: a data file or a deletion vector is damaged or missing.
        StorageError: storage did not answer.
    """
    drop_zip_importers()
    deleted = _deleted(read, slices)
    for each in slices:
        yield from _read_slice(read, each, deleted.get(each.path))


def _deleted(read: TableRead, slices: Sequence[FileSlice]) -> dict[str, BitMap64]:
    descriptors = {
        each.path: Descriptor.from_json(each.descriptor)
        for each in slices
        if each.descriptor is not None and each.deleted is None
    }
    deletion_vectors = read_deletion_vectors(
        read.location,
        list(descriptors.items()),
        table=read.table,
        version=read.version,
        is_allowed=read.roots.allows,
        num_records={each.path: each.num_records for each in slices},
    )
    for each in slices:
        if each.deleted is not None:
            deletion_vectors[each.path] = deserialize_bitmap(each.deleted)
    return deletion_vectors


def _read_slice(read: TableRead, part: FileSlice, deleted: BitMap64 | None) -> Iterator[pa.RecordBatch]:
    marked_rows = MarkedRows(BitMap64() if deleted is None else deleted)
    place = DataFile(read.location, part.path, read.table, read.version, read.roots)
    with open_data_file(place) as file:
        columns = _Columns.of(read, part, file, place)
        for group, first in _row_groups(file.metadata, part):
            position = first
            for batch in file.iter_batches(
                _BATCH_ROWS, row_groups=[group], columns=list(columns.names.values()), use_threads=False
            ):
                rows = columns.convert(batch)
                live = _live(marked_rows, position, batch.num_rows, marked_only=read.marked_only)
                if live is not None:
                    rows = rows.filter(pa.array(live))
                if part.occurrences is not None and live is not None:
                    rows = part.occurrences.repeated(rows, position + np.flatnonzero(live))
                position += batch.num_rows
                if rows.num_rows:
                    yield rows


@dataclass(frozen=True)
class _Columns:
    """Converts one file's columns to the table's.

    Attributes:
        target: the Arrow schema to return.
        stored: the data columns with their names in this file, by table name.
        names: the file's names of the columns that it has.
        partition: values of the partition columns, as arrays of length one.
        mapped: whether names are physical names.
    """

    target: pa.Schema
    stored: Mapping[str, StructField]
    names: Mapping[str, str]
    partition: Mapping[str, pa.Array]
    mapped: bool

    @classmethod
    def of(cls, read: TableRead, part: FileSlice, file: pq.ParquetFile, place: DataFile) -> "_Columns":
        has_mapping = read.mapping != "none"
        values = pa.array([list(part.values.items())], TEXT_MAP)
        log = pa.table({"path": [part.path], "partition_values": values})
        partition = {
            item.name: partition_values.column_of_files(
                log,
                item.physical_name if has_mapping else item.name,
                item,
                table=read.table,
                version=read.version,
            )
            for item in read.schema.fields
            if item.name in read.partition_columns
        }
        varying = part.occurrences.names() if part.occurrences is not None else ()
        absent = {*partition, *varying}
        stored_schema = StructType(tuple(item for item in read.schema.fields if item.name not in absent))
        arrow_schema = file.schema_arrow
        schema = checked_schema(place, file.metadata, stored_schema.fields, read.mapping)
        if read.mapping == "id":
            stored_schema = named_as_in(schema, stored_schema)
        places = {
            item.name: position_of(item, arrow_schema.names, has_mapping=has_mapping)
            for item in stored_schema.fields
        }
        return cls(
            read.schema.to_arrow(),
            {item.name: item for item in stored_schema.fields},
            {name: arrow_schema.names[at] for name, at in places.items() if at is not None},
            partition,
            has_mapping,
        )

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in self.target:
            name = field.name
            if name in self.partition:
                column = self.partition[name].take(pa.array(np.zeros(batch.num_rows, np.int64)))
            elif name in self.names:
                array = batch.column(batch.schema.get_field_index(self.names[name]))
                column = to_table_type(array, self.stored[name].type, field.type, has_mapping=self.mapped)
            else:
                column = pa.nulls(batch.num_rows, field.type)
            columns.append(column)
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(columns, schema=self.target)


def _row_groups(metadata: pq.FileMetaData, part: FileSlice) -> Iterator[tuple[int, int]]:
    """Yield the slice's row groups, and the index of their first row."""
    first = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if _in_slice(group, part):
            yield number, first
        first += group.num_rows


def _in_slice(group: pq.RowGroupMetaData, part: FileSlice) -> bool:
    if not group.num_columns:
        return part.start == 0
    chunks = [group.column(i) for i in range(group.num_columns)]
    start = min(chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks)
    middle = start + sum(chunk.total_compressed_size for chunk in chunks) // 2
    return part.start <= middle and (part.end is None or middle < part.end)


def _live(
    marked_rows: MarkedRows, first: int, count: int, *, marked_only: bool
) -> npt.NDArray[np.bool_] | None:
    """Return which of ``count`` rows from ``first`` are live; None if all are."""
    marked = marked_rows.between(first, count)
    if not len(marked) and not marked_only:
        return None
    live = np.full(count, not marked_only, np.bool_)
    live[(marked - np.uint64(first)).astype(np.int64)] = marked_only
    return live
