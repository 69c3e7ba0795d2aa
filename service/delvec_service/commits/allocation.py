"""Transactions that write data files.

They begin before the first file, so that the ledger knows which files are theirs.

Tested in `tests/integration/service/commits/test_commit.py`.
"""

import uuid

from delvec_contract.commits import (
    AllocatedDeletionVector,
    AllocatedVectorFile,
    AllocateRequest,
    AllocateResponse,
    BeginRequest,
    BeginResponse,
)
from delvec_errors import InvalidCommit
from delvec_kernel.deletion_vectors import dv_packing
from delvec_kernel.features.table_features import check_writable
from delvec_service.commits.metadata_changes import table_as_written
from delvec_service.scans.describe import snapshot_fields
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.ledger import Ledger
from delvec_service.store.open_table import OpenTable

__all__ = ["allocate", "begin"]


def begin(
    table: OpenTable,
    loader: SnapshotLoader,
    ledger: Ledger,
    request: BeginRequest,
) -> BeginResponse:
    """Begin a transaction: return its id, and the newest version as changed by its table changes.

    Raises:
        InvalidTableChange: or a sibling: the table cannot be changed this way.
        UnsupportedWriterFeature: Delvec cannot write the table; reported before files are written.
        ServiceUnavailable: the database does not answer.
    """
    snapshot = loader.load(table.objects, table.name)
    by_vector = request.operation == "DELETE" and snapshot.dv_enabled
    check_writable(snapshot.protocol, snapshot.metadata, table.name, writes_rows=not by_vector)
    transaction_id = str(uuid.uuid4())
    written = table_as_written(table, snapshot, request.table_changes, transaction_id)
    ledger.open(table.record.id, transaction_id, request.operation)
    return BeginResponse(
        **snapshot_fields(table.record, written, loader),
        transaction_id=transaction_id,
        deletion_vectors_enabled=written.dv_enabled,
    )


def allocate(
    table: OpenTable,
    loader: SnapshotLoader,
    ledger: Ledger,
    request: AllocateRequest,
    *,
    target_bytes: int,
) -> AllocateResponse:
    """Return the transaction's id, a place for each deletion vector in order, and files for the engine to lay out.

    Several deletion vectors may share a file. The files are in the ledger on return, so the engine may write them.

    Args:
        table: the table.
        loader: reads snapshots.
        ledger: records the files.
        request: the sizes of the deletion vectors, and how many files the engine lays out itself.
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
    transaction_id = request.transaction_id or str(uuid.uuid4())
    prefix_length = dv_packing.prefix_length(snapshot.configuration)
    packed_files = dv_packing.allocate(
        ((str(number), size) for number, size in enumerate(request.sizes)),
        target_size=target_bytes,
        prefix_length=prefix_length,
    )
    plain = dv_packing.new_files(request.files, prefix_length=prefix_length)
    paths = [file.path for file in (*packed_files, *plain)]
    ledger.announce(table.record.id, transaction_id, "ALLOCATE", paths)
    # Bins are filled in order, so the result has the order of the input.
    places = [
        AllocatedDeletionVector(
            path_or_inline_dv=file.path_or_inline_dv,
            offset=extent.offset,
            size_in_bytes=extent.size_in_bytes,
            file=file.path,
        )
        for file in packed_files
        for extent in file.extents.values()
    ]
    return AllocateResponse(
        transaction_id=transaction_id,
        deletion_vectors=places,
        files=[
            AllocatedVectorFile(path_or_inline_dv=file.path_or_inline_dv, file=file.path) for file in plain
        ],
    )
