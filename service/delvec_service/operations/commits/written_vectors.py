"""Deletion vectors that an engine has written itself: read, and compared with what the engine says of them."""

from dataclasses import replace
from typing import Final

from pyroaring import BitMap64

from delvec.protocol.deletion_vector import FRAME_OVERHEAD, Descriptor
from delvec.protocol.errors import (
    CorruptDeletionVector,
    DeletionVectorNotFound,
    DeletionVectorSizeMismatch,
    DeletionVectorTruncated,
    FileNotInStorage,
    FileSizeMismatch,
    InvalidDeletionVector,
)
from delvec_service.delta.changes import Changes
from delvec_service.operations.commits.vectors import VectorCache
from delvec_service.operations.tables import OpenTable

__all__ = ["check_holds", "read"]

_AT_ONCE: Final = 64
"""Deletion vectors that are read at a time: neighbours share a request."""


def read(table: OpenTable, changes: Changes, vectors: VectorCache) -> Changes:
    """Return the request with the rows of the deletion vectors that the engine has written.

    Size, CRC-32 and cardinality are checked; rows beyond the file, and rows of its earlier deletion vector that are
    missing, show once the file is known.

    Raises:
        FileNotInStorage: a file of deletion vectors is not there.
        FileSizeMismatch: it ends too early, or has another size at the offset.
        InvalidDeletionVector: its checksum or its cardinality is another, or it cannot be decoded.
        StorageError: storage did not answer.
    """
    if not changes.written_vectors:
        return changes
    rows: dict[str, BitMap64] = {}
    wanted = list(changes.written_vectors.items())
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        try:
            rows.update(vectors.load(table, some, changes.read_version))
        except CorruptDeletionVector:
            for path, vector in some:  # which of them?
                rows.update(_read_one(table, path, vector, changes.read_version, vectors))
    return replace(changes, row_deletes={**changes.row_deletes, **rows})


def _read_one(
    table: OpenTable, path: str, vector: Descriptor, version: int, vectors: VectorCache
) -> dict[str, BitMap64]:
    try:
        return vectors.load(table, [(path, vector)], version)
    except DeletionVectorNotFound as error:
        raise FileNotInStorage(
            f"The deletion vector of file '{path}' (table '{table.name}') is not in storage; write its file, "
            "then commit.",
            table=table.name,
            file=path,
        ) from error
    except (DeletionVectorTruncated, DeletionVectorSizeMismatch) as error:
        raise FileSizeMismatch(
            f"The deletion vector of file '{path}' (table '{table.name}') does not have the "
            f"{vector.size_in_bytes + FRAME_OVERHEAD} bytes at offset {vector.offset} that its descriptor says; "
            "write it again under a new descriptor.",
            table=table.name,
            file=path,
        ) from error
    except CorruptDeletionVector as error:
        raise _invalid(table, path, f"cannot be read: {error.message}") from error


def check_holds(table: OpenTable, path: str, vector: Descriptor, rows: BitMap64, before: BitMap64) -> None:
    """Refuse a deletion vector that would bring rows back.

    Args:
        table: the table.
        path: of the data file.
        vector: what the engine has written.
        rows: those in it.
        before: those that were gone in the version that was read.

    Raises:
        InvalidDeletionVector: it lacks rows.
    """
    lost = len(before) - before.intersection_cardinality(rows)
    if lost:
        raise _invalid(
            table,
            path,
            f"lacks {lost} of the {len(before)} rows that were gone already ({vector.cardinality} are in it)",
        )


def _invalid(table: OpenTable, path: str, what: str) -> InvalidDeletionVector:
    return InvalidDeletionVector(
        f"The deletion vector that was written for file '{path}' of table '{table.name}' {what}; write it again, with "
        "the rows that were gone in the version that was read.",
        table=table.name,
        file=path,
    )
