"""Transactions that write data files.

They begin before the first file, so that the ledger knows which files are theirs.

Tested in `tests/integration/service/commits/test_commit.py`.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from delvec_errors import InvalidCommit
from delvec_kernel.alter_table.changes import WriteChange
from delvec_kernel.deletion_vectors import dv_packing
from delvec_kernel.deletion_vectors.dv_packing import AllocatedFile
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.commits.metadata_changes import table_as_written
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable

__all__ = ["Allocated", "allocate", "begin"]


def begin(
    table: OpenTable,
    loader: SnapshotLoader,
    ledger: Ledger,
    operation: str,
    table_changes: Sequence[WriteChange] = (),
) -> tuple[str, Snapshot]:
    """Return a new transaction's id, and the newest version as changed by the transaction's table changes.

    Raises:
        InvalidTableChange: or a sibling: the table cannot be changed this way.
        UnsupportedWriterFeature: Delvec cannot write the table; reported before files are written.
        ServiceUnavailable: the database does not answer.
    """
    snapshot = loader.load(table.objects, table.name)
    by_vector = operation == "DELETE" and snapshot.dv_enabled
    check_writable(snapshot.protocol, snapshot.metadata, table.name, writes_rows=not by_vector)
    transaction_id = str(uuid.uuid4())
    written = table_as_written(table, snapshot, table_changes, transaction_id)
    ledger.open(table.record.id, transaction_id, operation)
    return transaction_id, written


@dataclass(frozen=True, slots=True)
class Allocated:
    """The position of a deletion vector: ``offset`` bytes into ``file``, a path relative to the table's location."""

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
    """Return the transaction's id, a place for each deletion vector in order, and files for the engine to lay out.

    Several deletion vectors may share a file. The files are in the ledger on return, so the engine may write them.

    Args:
        table: the table.
        loader: reads snapshots.
        ledger: records the files.
        sizes: ``sizeInBytes`` of each deletion vector.
        files: how many files the engine lays out itself.
        transaction_id: from begin; None for a new one.
        target_bytes: the approximate size of the files.

    Raises:
        InvalidCommit: the table does not have deletion vectors enabled, or one is too large for the format.
        UnsupportedWriterFeature: Delvec cannot write the table.
        ServiceUnavailable: the database does not answer.
    """
    snapshot = loader.load(table.objects, table.name)
    check_writable(snapshot.protocol, snapshot.metadata, table.name, writes_rows=False)
    if not snapshot.dv_enabled:
        raise InvalidCommit(
            f"Table '{table.name}' does not have deletion vectors enabled. Rewrite the files instead, or set "
            "delta.enableDeletionVectors=true.",
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
    # Bins are filled in order, so the result has the order of the input.
    places = [
        Allocated(file.path_or_inline_dv, extent.offset, extent.size_in_bytes, file.path)
        for file in packed
        for extent in file.extents.values()
    ]
    return transaction_id, places, plain
