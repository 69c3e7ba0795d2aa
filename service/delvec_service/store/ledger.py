"""The ledger: transactions that were begun, and files that were about to be written.

It answers no question about a table's data. It makes a search for orphans cheap, and shows what a crash left.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from delvec_service.store.database import Database
from delvec_service.store.models import LedgerFileRow, TransactionRow

__all__ = ["Ledger", "LedgerFile", "Outcome", "TransactionRecord"]

Outcome = Literal["committed", "nothing-to-do", "conflict", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """What the ledger knows of a transaction; ``version`` once it is committed."""

    id: str
    table_id: str
    operation: str
    state: str
    version: int | None


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """A file that was about to be written, relative to its table's location."""

    path: str
    transaction_id: str
    kind: str
    state: str


class Ledger:
    """The ledger, in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, table_id: str, transaction_id: str, operation: str) -> None:
        """Note that a transaction begins; one that is known already is left as it is."""
        with self._database.write() as session:
            session.execute(
                _put_transaction(session.get_bind().dialect.name, table_id, transaction_id, operation)
            )

    def announce(
        self, table_id: str, transaction_id: str, operation: str, paths: Iterable[str], kind: str
    ) -> None:
        """Note the files that a transaction is about to write; they may be written once this returns."""
        now = datetime.now(UTC)
        rows = [
            {
                "table_id": table_id,
                "path": path,
                "transaction_id": transaction_id,
                "kind": kind,
                "state": "open",
                "created_at": now,
            }
            for path in paths
        ]
        with self._database.write() as session:
            session.execute(
                _put_transaction(session.get_bind().dialect.name, table_id, transaction_id, operation)
            )
            session.execute(insert(LedgerFileRow), rows)

    def close(
        self,
        table_id: str,
        transaction_id: str,
        operation: str,
        outcome: Outcome,
        *,
        version: int | None = None,
        written: Iterable[str] = (),
    ) -> None:
        """Note how a transaction ended.

        Args:
            table_id: the table.
            transaction_id: the transaction, known or not.
            operation: Delta's operation name.
            outcome: of the transaction. Its files get the same, but for those of attempts before: they stay open.
            version: the version that it committed.
            written: the files that ``outcome`` is about.
        """
        with self._database.write() as session:
            upsert = _put_transaction(session.get_bind().dialect.name, table_id, transaction_id, operation)
            session.execute(upsert)
            session.execute(
                update(TransactionRow)
                .where(TransactionRow.table_id == table_id, TransactionRow.id == transaction_id)
                # What is committed stays committed, whatever becomes of a second attempt under the same id.
                .where(TransactionRow.state != "committed")
                .values(state=outcome, version=version)
            )
            paths = list(written)
            if paths:
                session.execute(
                    update(LedgerFileRow)
                    .where(LedgerFileRow.table_id == table_id, LedgerFileRow.path.in_(paths))
                    .values(state=outcome)
                )

    def transaction(self, table_id: str, transaction_id: str) -> TransactionRecord | None:
        """Return what is known of a transaction."""
        with self._database.read() as session:
            row = session.get(TransactionRow, (table_id, transaction_id))
        if row is None:
            return None
        return TransactionRecord(row.id, row.table_id, row.operation, row.state, row.version)

    def files(self, table_id: str, transaction_id: str | None = None) -> Sequence[LedgerFile]:
        """Return the files of a table, or of one of its transactions, in the order of their paths."""
        query = select(LedgerFileRow).where(LedgerFileRow.table_id == table_id).order_by(LedgerFileRow.path)
        if transaction_id is not None:
            query = query.where(LedgerFileRow.transaction_id == transaction_id)
        with self._database.read() as session:
            return [
                LedgerFile(row.path, row.transaction_id, row.kind, row.state)
                for row in session.scalars(query)
            ]


def _put_transaction(dialect: str, table_id: str, transaction_id: str, operation: str) -> Any:
    """Return the statement that records a transaction where it is not known yet."""
    upsert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return (
        upsert(TransactionRow)
        .values(
            table_id=table_id,
            id=transaction_id,
            operation=operation,
            state="open",
            created_at=datetime.now(UTC),
        )
        .on_conflict_do_nothing(index_elements=["table_id", "id"])
    )
