"""Transactions that write data files: begun before the first of them, so that the ledger knows whose they are."""

import uuid
from collections.abc import Sequence

from delvec.protocol.wire import WriteChange
from delvec_service.delta.features import check_writable
from delvec_service.delta.snapshot import Snapshot
from delvec_service.operations.commits.write_changes import table_as_written
from delvec_service.operations.snapshots import SnapshotLoader
from delvec_service.operations.tables import OpenTable
from delvec_service.store.ledger import Ledger

__all__ = ["begin"]


def begin(
    table: OpenTable,
    loader: SnapshotLoader,
    ledger: Ledger,
    operation: str,
    table_changes: Sequence[WriteChange] = (),
) -> tuple[str, Snapshot]:
    """Return a new transaction's id, and the newest version, which it reads, as the transaction is to change it.

    Raises:
        InvalidTableChange: or a sibling: the table cannot be changed so.
        UnsupportedWriterFeature: the table must not be written: better known before files are.
        ServiceUnavailable: the database does not answer.
    """
    snapshot = loader.load(table.objects, table.name)
    check_writable(snapshot.protocol, snapshot.metadata, table.name)
    transaction_id = str(uuid.uuid4())
    written = table_as_written(table, snapshot, table_changes, transaction_id)
    ledger.open(table.record.id, transaction_id, operation)
    return transaction_id, written
