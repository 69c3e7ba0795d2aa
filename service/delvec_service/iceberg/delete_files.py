"""The deletes of data files: Puffin files with copied deletion vectors (v3), or Parquet files of positions (v2).

Only some of the deletion vectors are in memory at a time, and never more than about a million positions of one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from pyroaring import BitMap64

from delvec_kernel.deletion_vectors.deletion_vector import FRAME_OVERHEAD, Descriptor, Where
from delvec_kernel.errors import IcebergUnsupported
from delvec_kernel.iceberg.data_files import deletion_vector, position_deletes
from delvec_kernel.iceberg.position_deletes import write_position_deletes
from delvec_kernel.iceberg.puffin import PuffinWriter
from delvec_kernel.iceberg.schema import V3
from delvec_kernel.storage import files as storage
from delvec_service.iceberg.directory import IcebergDirectory
from delvec_service.store.open_table import OpenTable

__all__ = ["DeletedRows", "write_deletes"]

_PUFFIN_BYTES: Final = 16 * 1024 * 1024
"""Readers load a Puffin file as a whole."""
_AT_ONCE: Final = 8
_MAX_BLOB: Final = 2**31 - 1


@dataclass(frozen=True)
class DeletedRows:
    """Deleted rows of one data file: what is known before reading them.

    Attributes:
        path: the data file, as in the log.
        data_file: its entry in the manifest.
        descriptor: of the Delta deletion vector, with size, count, file and offset.
    """

    path: str
    data_file: dict[str, Any]
    descriptor: Descriptor


def write_deletes(
    table: OpenTable, directory: IcebergDirectory, wanted: Iterable[DeletedRows], version: int, tag: str
) -> Iterator[dict[str, Any]]:
    """Write the deletes of data files; yield the ``data_file`` of each in the form of manifests.

    Args:
        table: the Delta table.
        directory: where to write.
        wanted: the deletion vectors; empty ones produce no deletes.
        version: the Delta version, for errors.
        tag: a unique part of the file names.

    Raises:
        CorruptDeletionVector: or a subclass: one cannot be read.
        IcebergUnsupported: one is larger than Iceberg allows.
        LocationNotAllowed: a descriptor points outside the table.
        StorageError: storage did not answer.
    """
    write = _write_puffin if directory.format_version >= V3 else _write_parquet
    for number, part in enumerate(_parts(one for one in wanted if one.descriptor.cardinality)):
        yield from write(table, directory, part, version, f"deletes/{tag}-{number:05d}")


def _parts(wanted: Iterable[DeletedRows]) -> Iterator[list[DeletedRows]]:
    part: list[DeletedRows] = []
    size = 0
    for one in wanted:
        if part and size + one.descriptor.size_in_bytes > _PUFFIN_BYTES:
            yield part
            part, size = [], 0
        part.append(one)
        size += one.descriptor.size_in_bytes + FRAME_OVERHEAD
    if part:
        yield part


# --- v3: the bytes as they are ------------------------------------------------------------------------------


def _write_puffin(
    table: OpenTable, directory: IcebergDirectory, part: Sequence[DeletedRows], version: int, name: str
) -> list[dict[str, Any]]:
    blobs = []
    with directory.stage(f"{name}.puffin") as staged:
        writer = PuffinWriter(staged.file)
        records = _records(table, part, version)
        for one in part:
            path = one.data_file["file_path"]
            blobs.append((one, writer.add(records[one.path], path, one.descriptor.cardinality)))
        size = writer.finish({"created-by": "delvec"})
        staged.publish()
    uri = directory.uri(f"{name}.puffin")
    return [deletion_vector(one.data_file, uri, size, blob) for one, blob in blobs]


def _records(table: OpenTable, part: Sequence[DeletedRows], version: int) -> Mapping[str, bytes | memoryview]:
    """Return deletion vectors as they are in files, verified but not decoded, by the data file's path."""
    for one in part:
        if one.descriptor.size_in_bytes + FRAME_OVERHEAD > _MAX_BLOB:
            where = Where(table.name, version, one.path)
            raise IcebergUnsupported(
                f"The deletion vector of {where} has {one.descriptor.size_in_bytes:,} bytes, more than Iceberg "
                "allows; purge the file (REORG TABLE … APPLY (PURGE)).",
                table=table.name,
                version=version,
                file=one.path,
            )
    vectors = [(one.path, one.descriptor) for one in part]
    return storage.read_deletion_vector_records(
        table.location, vectors, table=table.name, version=version, allowed=table.roots.allows
    )


# --- v2: positions ------------------------------------------------------------------------------------------


def _write_parquet(
    table: OpenTable, directory: IcebergDirectory, part: Sequence[DeletedRows], version: int, name: str
) -> list[dict[str, Any]]:
    vectors = [(one.path, one.descriptor) for one in part]
    rows = storage.read_deletion_vectors(
        table.location, vectors, table=table.name, version=version, allowed=table.roots.allows
    )

    def write(numbered: tuple[int, DeletedRows]) -> dict[str, Any]:
        number, one = numbered
        return _write_one(directory, one, rows[one.path], f"{name}-{number:05d}.parquet")

    with ThreadPoolExecutor(_AT_ONCE, "delvec-iceberg") as pool:
        return list(pool.map(write, enumerate(part)))


def _write_one(directory: IcebergDirectory, one: DeletedRows, rows: BitMap64, name: str) -> dict[str, Any]:
    with directory.stage(name) as staged:
        write_position_deletes(staged.file, one.data_file["file_path"], rows)
        size = staged.size
        staged.publish()
    ends = (rows.min(), rows.max())
    return position_deletes(one.data_file, directory.uri(name), size, len(rows), ends)
