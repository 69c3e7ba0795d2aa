"""The deletes of data files: Puffin files with copied deletion vectors (v3), or Parquet files of positions (v2).

A Parquet file holds the deletes of one data file or, where asked, those of several of a partition. Only some of the deletion vectors are in memory at a time, and never more than about a million positions of one.

Tested in `tests/integration/service/iceberg/test_conversion.py` and
`tests/integration/service/iceberg/test_shared_deletes.py`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from pyroaring import BitMap64

from delvec_errors import IcebergUnsupported
from delvec_iceberg.data_files import deletion_vector, position_deletes
from delvec_iceberg.position_deletes import CoveredFile, write_position_deletes
from delvec_iceberg.puffin import PuffinWriter
from delvec_iceberg.schema import V3
from delvec_kernel.deletion_vectors.deletion_vector import FRAME_OVERHEAD, Descriptor, Where
from delvec_service.iceberg.metadata_directory import IcebergDirectory
from delvec_service.store.open_table import OpenTable
from delvec_storage import files as storage

__all__ = ["DeletedRows", "write_deletes"]

_PUFFIN_BYTES: Final = 16 * 1024 * 1024
"""Readers load a Puffin file as a whole."""
_SHARED_FILES: Final = 100
_SHARED_ROWS: Final = 1_000_000
"""Limits of a shared delete file: a change of one of its data files rewrites all of it."""
_AT_ONCE: Final = 8
_MAX_BLOB: Final = 2**31 - 1


@dataclass(frozen=True)
class DeletedRows:
    """Deleted rows of one data file: what is known before reading them.

    Attributes:
        path: the data file, as in the log.
        data_file: its entry in the manifest; at least ``file_path`` and ``partition``.
        descriptor: the descriptor of the Delta deletion vector, with size, count, file and offset.
    """

    path: str
    data_file: dict[str, Any]
    descriptor: Descriptor


def write_deletes(
    table: OpenTable,
    directory: IcebergDirectory,
    deleted_rows: Iterable[DeletedRows],
    version: int,
    tag: str,
    *,
    may_share: bool = False,
) -> Iterator[tuple[dict[str, Any], Sequence[DeletedRows]]]:
    """Write the deletes of data files; yield the ``data_file`` of each in the form of manifests, and what it covers.

    Args:
        table: the Delta table.
        directory: where to write.
        deleted_rows: the deletion vectors; empty ones produce no deletes.
        version: the Delta version, for errors.
        tag: a unique part of the file names.
        may_share: whether data files of a partition share delete files; format version 2 only.

    Raises:
        CorruptDeletionVector: or a subclass: one cannot be read.
        IcebergUnsupported: one is larger than Iceberg allows.
        LocationNotAllowed: a descriptor points outside the table.
        StorageError: storage did not answer.
    """
    found = (one for one in deleted_rows if one.descriptor.cardinality)
    puffin = directory.format_version >= V3
    groups = _by_partition(found) if may_share and not puffin else ([one] for one in found)
    write = _write_puffin if puffin else _write_parquet
    for number, part in enumerate(_parts(groups)):
        yield from write(table, directory, part, version, f"deletes/{tag}-{number:05d}")


def _by_partition(wanted: Iterable[DeletedRows]) -> Iterator[list[DeletedRows]]:
    """Yield the data files that share a delete file, sorted by path."""
    partitions: defaultdict[str, list[DeletedRows]] = defaultdict(list)
    for one in wanted:
        partitions[repr(sorted(one.data_file["partition"].items()))].append(one)
    for files in partitions.values():
        group: list[DeletedRows] = []
        rows = size = 0
        for one in sorted(files, key=lambda one: one.data_file["file_path"].encode()):
            rows += one.descriptor.cardinality
            size += one.descriptor.size_in_bytes
            if group and (len(group) == _SHARED_FILES or rows > _SHARED_ROWS or size > _PUFFIN_BYTES):
                yield group
                group, rows, size = [], one.descriptor.cardinality, one.descriptor.size_in_bytes
            group.append(one)
        yield group


def _parts(groups: Iterable[list[DeletedRows]]) -> Iterator[list[list[DeletedRows]]]:
    """Yield groups whose deletion vectors fit into memory together."""
    part: list[list[DeletedRows]] = []
    size = 0
    for group in groups:
        more = sum(one.descriptor.size_in_bytes + FRAME_OVERHEAD for one in group)
        if part and size + more > _PUFFIN_BYTES:
            yield part
            part, size = [], 0
        part.append(group)
        size += more
    if part:
        yield part


# --- v3: the bytes as they are ------------------------------------------------------------------------------


def _write_puffin(
    table: OpenTable,
    directory: IcebergDirectory,
    groups: Sequence[Sequence[DeletedRows]],
    version: int,
    name: str,
) -> list[tuple[dict[str, Any], Sequence[DeletedRows]]]:
    part = [one for group in groups for one in group]
    blobs = []
    with directory.stage(f"{name}.puffin") as staged_file:
        writer = PuffinWriter(staged_file.file)
        records = _records(table, part, version)
        for one in part:
            path = one.data_file["file_path"]
            blobs.append((one, writer.add(records[one.path], path, one.descriptor.cardinality)))
        size = writer.finish({"created-by": "delvec"})
        staged_file.publish()
    uri = directory.uri(f"{name}.puffin")
    return [(deletion_vector(one.data_file, uri, size, blob), [one]) for one, blob in blobs]


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
        table.location, vectors, table=table.name, version=version, is_allowed=table.roots.allows
    )


# --- v2: positions ------------------------------------------------------------------------------------------


def _write_parquet(
    table: OpenTable,
    directory: IcebergDirectory,
    groups: Sequence[Sequence[DeletedRows]],
    version: int,
    name: str,
) -> list[tuple[dict[str, Any], Sequence[DeletedRows]]]:
    vectors = [(one.path, one.descriptor) for group in groups for one in group]
    rows = storage.read_deletion_vectors(
        table.location, vectors, table=table.name, version=version, is_allowed=table.roots.allows
    )

    def write(
        numbered: tuple[int, Sequence[DeletedRows]],
    ) -> tuple[dict[str, Any], Sequence[DeletedRows]]:
        number, group = numbered
        return _write_one(directory, group, rows, f"{name}-{number:05d}.parquet"), group

    with ThreadPoolExecutor(_AT_ONCE, "delvec-iceberg") as pool:
        return list(pool.map(write, enumerate(groups)))


def _write_one(
    directory: IcebergDirectory, group: Sequence[DeletedRows], rows: Mapping[str, BitMap64], name: str
) -> dict[str, Any]:
    deleted_rows = {one.data_file["file_path"]: rows[one.path] for one in group}
    covered = [CoveredFile(one.data_file["file_path"], one.path, one.descriptor) for one in group]
    with directory.stage(name) as staged_file:
        write_position_deletes(staged_file.file, deleted_rows, covered if len(group) > 1 else ())
        size = staged_file.size
        staged_file.publish()
    ends = (
        min(each.min() for each in deleted_rows.values()),
        max(each.max() for each in deleted_rows.values()),
    )
    count = sum(map(len, deleted_rows.values()))
    return position_deletes([one.data_file for one in group], directory.uri(name), size, count, ends)
