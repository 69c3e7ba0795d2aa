"""Data files and their deletes as ``data_file`` structs of manifests.

Tested in `tests/integration/service/iceberg/test_conversion.py`.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from delvec_iceberg.file_metrics import column_metrics
from delvec_iceberg.manifests import ADDED, DATA, DELETES, ManifestEntry
from delvec_iceberg.partitions import PartitionSpec, partition_tuples
from delvec_iceberg.position_deletes import FILE_PATH_ID, POS_ID
from delvec_iceberg.puffin import Blob
from delvec_iceberg.schema import IcebergSchema
from delvec_kernel.locations import resolve
from delvec_kernel.schema.types import StructType

__all__ = ["Definition", "added", "data_files", "deletion_vector", "file_path", "position_deletes"]

_POS: Final = struct.Struct("<q")


@dataclass(frozen=True)
class Definition:
    """A table's schema and partitioning, in both formats.

    Attributes:
        delta: the Delta schema.
        columns: names of the partition columns.
        schema: the Iceberg schema.
        spec: the Iceberg partition spec.
        row_lineage: whether files have row ids and row commit versions.
    """

    delta: StructType
    columns: Sequence[str]
    schema: IcebergSchema
    spec: PartitionSpec
    row_lineage: bool


def file_path(location: str, path: str) -> str:
    """Return a file's path in Iceberg: a URI with the unencoded name in storage.

    Args:
        location: the table's canonical location.
        path: the path, as in the log.

    Raises:
        LocationNotAllowed: a relative path leads out of the table.
        InvalidLocation: an absolute path has an unknown scheme.
        CorruptLog: it is not a path.
    """
    decoded = unquote(resolve(location, path))
    # In a URI, ``#`` or ``?`` would start a fragment or query; local readers accept plain paths, too.
    return decoded.removeprefix("file://") if "#" in decoded or "?" in decoded else decoded


def data_files(
    files: pa.RecordBatch | pa.Table, location: str, definition: Definition
) -> Iterator[tuple[dict[str, Any], int | None]]:
    """Yield the ``data_file`` of live files, with the Delta version that added their rows, if known.

    Args:
        files: rows of FILES_SCHEMA; every ``num_records`` is known.
        location: the table's canonical location.
        definition: the definition of the table.

    Raises:
        CorruptLog: a path is invalid, or a partition value cannot be parsed as its column's type.
    """
    columns = {name: _array(files.column(name)) for name in files.schema.names}
    metrics = column_metrics(columns["stats"], columns["num_records"], definition.schema.leaves)
    tuples = partition_tuples(
        columns["partition_values"], definition.delta, definition.columns, definition.spec
    )
    rows = zip(
        columns["path"].to_pylist(),
        tuples,
        columns["num_records"].to_pylist(),
        columns["size"].to_pylist(),
        metrics,
        columns["base_row_id"].to_pylist(),
        columns["default_row_commit_version"].to_pylist(),
        strict=True,
    )
    for path, partition, count, size, file_metrics, first_row_id, version in rows:
        yield (
            _data_file(
                DATA,
                file_path(location, path),
                partition,
                count,
                size,
                value_counts=file_metrics.value_counts,
                null_value_counts=file_metrics.null_value_counts,
                lower_bounds=file_metrics.lower_bounds,
                upper_bounds=file_metrics.upper_bounds,
                first_row_id=first_row_id if definition.row_lineage else None,
            ),
            version if definition.row_lineage else None,
        )


def deletion_vector(data_file: dict[str, Any], path: str, size: int, blob: Blob) -> dict[str, Any]:
    """Return the ``data_file`` of a deletion vector in a Puffin file.

    Args:
        data_file: the file with the deleted rows.
        path: the Puffin file's URI.
        size: the Puffin file's, in bytes.
        blob: the location of the deletion vector in it.
    """
    return _data_file(
        DELETES,
        path,
        data_file["partition"],
        blob.cardinality,
        size,
        file_format="PUFFIN",
        referenced_data_file=data_file["file_path"],
        content_offset=blob.offset,
        content_size_in_bytes=blob.length,
    )


def position_deletes(
    of: Sequence[dict[str, Any]], path: str, size: int, count: int, ends: tuple[int, int]
) -> dict[str, Any]:
    """Return the ``data_file`` of a position delete file for one data file, or for several of one partition.

    Args:
        of: the files with the deleted rows, sorted by path.
        path: the position delete file's URI.
        size: the position delete file's, in bytes.
        count: deleted rows.
        ends: the lowest and the highest deleted row.
    """
    first, last = of[0]["file_path"], of[-1]["file_path"]
    # Readers ignore referenced_data_file, and recognize a single-file delete by equal bounds of the path.
    bounds = [
        [{"key": FILE_PATH_ID, "value": name.encode()}, {"key": POS_ID, "value": _POS.pack(end)}]
        for name, end in zip((first, last), ends, strict=True)
    ]
    return _data_file(
        DELETES,
        path,
        of[0]["partition"],
        count,
        size,
        lower_bounds=bounds[0],
        upper_bounds=bounds[1],
        referenced_data_file=first if len(of) == 1 else None,
    )


def added(data_file: dict[str, Any], snapshot_id: int, sequence_number: int | None = None) -> ManifestEntry:
    """Return the manifest entry of a file that a snapshot adds.

    Args:
        data_file: the file.
        snapshot_id: the id of the snapshot.
        sequence_number: the sequence number of the file's rows; None for that of the snapshot.
    """
    return {
        "status": ADDED,
        "snapshot_id": snapshot_id,
        "sequence_number": sequence_number,
        "file_sequence_number": None,
        "data_file": data_file,
    }


def _data_file(
    content: int, path: str, partition: dict[str, Any], count: int, size: int, **optional_fields: Any
) -> dict[str, Any]:
    return {
        "content": content,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": count,
        "file_size_in_bytes": size,
        "value_counts": None,
        "null_value_counts": None,
        "lower_bounds": None,
        "upper_bounds": None,
        "split_offsets": None,
        "equality_ids": None,
        "sort_order_id": None,
        "referenced_data_file": None,
        "first_row_id": None,
        "content_offset": None,
        "content_size_in_bytes": None,
        **optional_fields,
    }


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    )
