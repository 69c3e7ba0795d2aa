"""Deletion vectors that an engine wrote itself: read, and compared with the engine's descriptors.

Tested in `tests/integration/service/commits/test_written_vectors.py`.
"""

from collections.abc import Mapping
from dataclasses import replace

from pyroaring import BitMap64

from delvec_errors import (
    CorruptDeletionVector,
    DeletionVectorNotFound,
    DeletionVectorSizeMismatch,
    DeletionVectorTruncated,
    FileNotInStorage,
    FileSizeMismatch,
    InvalidDeletionVector,
)
from delvec_kernel.deletion_vectors.deletion_vector import FRAME_OVERHEAD, Descriptor
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits.dv_cache import DeletionVectorCache, StoredRows
from delvec_service.store.open_table import OpenTable

__all__ = ["check_holds", "read", "read_one"]


def read(
    table: OpenTable, changes: Changes, vectors: DeletionVectorCache, before: Mapping[str, Descriptor]
) -> Changes:
    """Return the request with the rows of the deletion vectors that the engine has written.

    Each is read once, and only the most recent ones are cached: together they may exceed memory. Size, CRC-32 and
    cardinality are checked, and that they include the rows deleted before. Row indexes beyond the file are checked
    later, when its number of rows is known.

    Args:
        table: the table.
        changes: the request.
        vectors: reads them.
        before: the deletion vectors that the files had when they were read, of those that had one.

    Raises:
        FileNotInStorage: a deletion vector file does not exist.
        FileSizeMismatch: it ends too early, or has another size at the offset.
        InvalidDeletionVector: its checksum or cardinality differs, it cannot be decoded, or it lacks rows.
        CorruptDeletionVector: or a subclass: a deletion vector of the table cannot be read.
        StorageError: storage did not answer.
    """
    written = changes.written_vectors
    sent = {path: rows for path, rows in changes.row_deletes.items() if path not in written}
    row_deletes = StoredRows(vectors, table, written, changes.read_version, sent)
    earlier = StoredRows(vectors, table, before, changes.read_version)
    for path, vector in written.items():
        try:
            rows = row_deletes[path]
        except CorruptDeletionVector:  # this one, or a neighbour
            rows = read_one(table, path, vector, changes.read_version, vectors)
        if path in before:
            check_holds(table, path, vector, rows, earlier[path])
    return replace(changes, row_deletes=row_deletes)


def read_one(
    table: OpenTable, path: str, vector: Descriptor, version: int, vectors: DeletionVectorCache
) -> BitMap64:
    """Return the rows of a deletion vector that a client has written, after checking size, CRC-32 and cardinality.

    Raises:
        FileNotInStorage: or a sibling, see :func:`read`.
    """
    try:
        return vectors.load(table, [(path, vector)], version)[path]
    except DeletionVectorNotFound as error:
        raise FileNotInStorage(
            f"The deletion vector of file '{path}' (table '{table.name}') does not exist in storage. Write its "
            "file, then commit.",
            table=table.name,
            file=path,
        ) from error
    except (DeletionVectorTruncated, DeletionVectorSizeMismatch) as error:
        raise FileSizeMismatch(
            f"The deletion vector of file '{path}' (table '{table.name}') does not have "
            f"{vector.size_in_bytes + FRAME_OVERHEAD} bytes at offset {vector.offset}, as its descriptor says. "
            "Write it again under a new descriptor.",
            table=table.name,
            file=path,
        ) from error
    except CorruptDeletionVector as error:
        raise _invalid(table, path, f"cannot be read: {error.message}") from error


def check_holds(table: OpenTable, path: str, vector: Descriptor, rows: BitMap64, before: BitMap64) -> None:
    """Reject a deletion vector that would bring rows back.

    Args:
        table: the table.
        path: path of the data file.
        vector: the engine's deletion vector.
        rows: its rows.
        before: the rows deleted in the version that was read.

    Raises:
        InvalidDeletionVector: it lacks rows.
    """
    lost = len(before) - before.intersection_cardinality(rows)
    if lost:
        raise _invalid(
            table,
            path,
            f"lacks {lost} of the {len(before)} rows that were already deleted (it has {vector.cardinality} rows)",
        )


def _invalid(table: OpenTable, path: str, what: str) -> InvalidDeletionVector:
    return InvalidDeletionVector(
        f"The deletion vector that was written for file '{path}' of table '{table.name}' {what}. Write it again, "
        "including the rows deleted in the version that was read.",
        table=table.name,
        file=path,
    )
