"""Descriptors for deletion vectors that an engine writes itself."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from delvec.protocol.errors import InvalidCommit
from delvec_service.delta import dv_packing
from delvec_service.delta.dv_packing import AllocatedFile
from delvec_service.delta.features import check_writable
from delvec_service.operations.snapshots import SnapshotLoader
from delvec_service.operations.tables import OpenTable
from delvec_service.store.ledger import Ledger

__all__ = ["Allocated", "allocate"]


@dataclass(frozen=True, slots=True)
class Allocated:
    """Where one deletion vector goes: ``offset`` bytes into ``file``, which is relative to the table's location."""

    path_or_inline_dv: str
    offset: int
    size_in_bytes: int
    file: str


def allocate(
    table: OpenTable,
    loader: SnapshotLoader,
    ledger: Ledger,
    sizes: Sequence[int],
    *,
    files: int = 0,
    transaction_id: str | None,
    target_bytes: int,
) -> tuple[str, list[Allocated], list[AllocatedFile]]:
    """Return the transaction's id, a place for each deletion vector, in order, and files of unknown content.

    Several deletion vectors may share a file.

    The ledger knows of the files when this returns, so the engine may write them.

    Args:
        table: the table.
        loader: reads snapshots.
        ledger: records the files.
        sizes: ``sizeInBytes`` of each deletion vector.
        files: how many files whose content the engine lays out itself.
        transaction_id: from begin; a new one where there is none.
        target_bytes: about how large files get.

    Raises:
        InvalidCommit: the table does not have deletion vectors enabled, or one is too large for the format.
        UnsupportedWriterFeature: the table must not be written.
        ServiceUnavailable: the database does not answer.
    """
    snapshot = loader.load(table.objects, table.name)
    check_writable(snapshot.protocol, snapshot.metadata, table.name)
    if not snapshot.dv_enabled:
        raise InvalidCommit(
            f"Table '{table.name}' does not have deletion vectors enabled: rewrite the files, "
            "or set delta.enableDeletionVectors=true.",
            table=table.name,
            version=snapshot.version,
        )
    transaction_id = transaction_id or str(uuid.uuid4())
    prefix_length = dv_packing.prefix_length(snapshot.configuration)
    packed = dv_packing.allocate(
        ((str(number), size) for number, size in enumerate(sizes)),
        target_size=target_bytes,
        prefix_length=prefix_length,
    )
    plain = dv_packing.new_files(files, prefix_length=prefix_length)
    paths = [file.path for file in (*packed, *plain)]
    ledger.announce(table.record.id, transaction_id, "ALLOCATE", paths, "deletion-vector")
    # Bins are filled in order, so what comes out is in the order of what went in.
    places = [
        Allocated(file.path_or_inline_dv, extent.offset, extent.size_in_bytes, file.path)
        for file in packed
        for extent in file.extents.values()
    ]
    return transaction_id, places, plain
