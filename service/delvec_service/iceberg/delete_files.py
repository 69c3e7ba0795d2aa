"""The deletes of data files: Puffin files of copied deletion vectors (v3), or Parquet files of positions (v2).

At most a part of the deletion vectors is in memory, and of the ordinals of one never more than about a million.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from pyroaring import BitMap64

from delvec_kernel.deletion_vectors import z85
from delvec_kernel.deletion_vectors.deletion_vector import (
    FRAME_OVERHEAD,
    Descriptor,
    Where,
    check_size,
    decode_inline,
    encode,
    frame,
    unframe,
)
from delvec_kernel.errors import (
    CorruptDeletionVector,
    DeletionVectorChecksumMismatch,
    DeletionVectorNotFound,
    DeletionVectorTruncated,
    IcebergUnsupported,
)
from delvec_kernel.iceberg.data_files import deletion_vector, position_deletes
from delvec_kernel.iceberg.position_deletes import write_position_deletes
from delvec_kernel.iceberg.puffin import PuffinWriter
from delvec_kernel.locations import canonical_log_path
from delvec_kernel.storage import files as storage
from delvec_service.iceberg.directory import IcebergDirectory
from delvec_service.store.open_table import OpenTable

__all__ = ["DeletedRows", "write_deletes"]

_V3: Final = 3
_PUFFIN_BYTES: Final = 16 * 1024 * 1024
"""Readers load a Puffin file as a whole."""
_AT_ONCE: Final = 8
_MAGIC: Final = b"\xd1\xd3\x39\x64"
_MAX_BLOB: Final = 2**31 - 1


@dataclass(frozen=True)
class DeletedRows:
    """Deleted rows of one data file: what is known of them before any is read.

    Attributes:
        path: the data file's, as in the log.
        data_file: as its manifest describes it.
        descriptor: of the Delta deletion vector, which says size, count, file and offset.
    """

    path: str
    data_file: dict[str, Any]
    descriptor: Descriptor


def write_deletes(
    table: OpenTable, directory: IcebergDirectory, wanted: Iterable[DeletedRows], version: int, tag: str
) -> Iterator[dict[str, Any]]:
    """Write the deletes of data files; yield the ``data_file`` of each as manifests have it.

    Args:
        table: the Delta table.
        directory: where to.
        wanted: deletion vectors; empty ones have no deletes.
        version: Delta's, for errors.
        tag: names the files, unlike any others.

    Raises:
        CorruptDeletionVector: or a subclass: one cannot be read.
        IcebergUnsupported: one is larger than Iceberg allows.
        LocationNotAllowed: a descriptor points outside the table.
        StorageError: storage did not answer.
    """
    write = _write_puffin if directory.format_version >= _V3 else _write_parquet
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
        for one, record in _records(table, part, version):
            path = one.data_file["file_path"]
            blobs.append((one, writer.add(record, path, one.descriptor.cardinality)))
        size = writer.finish({"created-by": "delvec"})
        staged.publish()
    uri = directory.uri(f"{name}.puffin")
    return [deletion_vector(one.data_file, uri, size, blob) for one, blob in blobs]


def _records(
    table: OpenTable, part: Sequence[DeletedRows], version: int
) -> Iterator[tuple[DeletedRows, bytes | memoryview]]:
    """Yield deletion vectors as they are in files, checked but not decoded."""
    by_file: dict[str, list[DeletedRows]] = {}
    for one in part:
        where = Where(table.name, version, one.path)
        if one.descriptor.size_in_bytes + FRAME_OVERHEAD > _MAX_BLOB:
            raise IcebergUnsupported(
                f"The deletion vector of {where} has {one.descriptor.size_in_bytes:,} bytes, more than Iceberg allows; "
                "purge the file (REORG TABLE … APPLY (PURGE)).",
                table=table.name,
                version=version,
                file=one.path,
            )
        if one.descriptor.is_inline:
            yield one, _inline_record(one.descriptor, where)
            continue
        name = one.descriptor.relative_path()
        if name is None:
            name = canonical_log_path(one.descriptor.path_or_inline_dv, table.location)
        by_file.setdefault(name, []).append(one)
    for name, members in by_file.items():
        ranges = [one.descriptor.byte_range for one in members]
        try:
            found = storage.read_ranges(table.location, name, ranges, allowed=table.roots.allows)
        except FileNotFoundError:
            where = Where(table.name, version, members[0].path)
            raise DeletionVectorNotFound(
                f"The deletion vector of {where} should be in '{name}', which is not in storage; restore that file from "
                "a backup, or restore the table to a version before it.",
                table=table.name,
                version=version,
                file=members[0].path,
                deletion_vector=name,
            ) from None
        for one, data in zip(members, found, strict=True):
            yield one, _record(data, one.descriptor, Where(table.name, version, one.path))


def _record(data: memoryview, descriptor: Descriptor, where: Where) -> bytes | memoryview:
    view = check_size(data, descriptor, where)
    size = descriptor.size_in_bytes
    if len(view) < size + FRAME_OVERHEAD:
        raise DeletionVectorTruncated(
            f"The file of the deletion vector of {where} ends before it does; restore the file from a backup, or restore "
            "the table to a version before it.",
            table=where.table,
            version=where.version,
            file=where.file,
        )
    record = view[: size + FRAME_OVERHEAD]
    payload = record[4:-4]
    if zlib.crc32(payload) != int.from_bytes(record[-4:], "big"):
        raise DeletionVectorChecksumMismatch(
            f"The deletion vector of {where} is damaged: its CRC-32 is not the one in its file; restore the file from a "
            "backup, or restore the table to a version before it.",
            table=where.table,
            version=where.version,
            file=where.file,
        )
    # Another magic number is an older layout, or none at all.
    return record if bytes(payload[:4]) == _MAGIC else frame(encode(unframe(data, descriptor, where)))


def _inline_record(descriptor: Descriptor, where: Where) -> bytes:
    try:
        payload = z85.decode(descriptor.path_or_inline_dv)[: descriptor.size_in_bytes]
    except ValueError as error:
        raise CorruptDeletionVector(
            f"The deletion vector of {where} is not in base 85; restore the table to a version before that log entry.",
            table=where.table,
            version=where.version,
            file=where.file,
        ) from error
    if len(payload) == descriptor.size_in_bytes and payload[:4] == _MAGIC:
        return frame(payload)
    return frame(encode(decode_inline(descriptor, where)))


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
