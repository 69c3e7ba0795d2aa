"""The ledger: transactions that have begun, and files about to be written.

It answers no question about a table's data. It makes a search for orphans cheap, and shows what a crash left behind.

Tested in `tests/integration/contract/test_sql_store.py`.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, cast

from sqlalchemy import (
    ColumnElement,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from delvec_errors import ServiceUnavailable
from delvec_service.store import own_commits
from delvec_service.store.database import Database, Upsert
from delvec_service.store.models import LedgerFileRow, OwnCommitRow, TransactionRow
from delvec_service.store.own_commits import OwnCommit

__all__ = ["Ending", "Ledger", "LedgerFile", "Outcome", "TransactionRecord"]

Outcome = Literal["committed", "nothing-to-do", "conflict", "failed", "unknown"]

_UNFINISHED: Final = ("open", "unknown")
_RETENTION: Final = timedelta(hours=24)
_KEPT_UNFINISHED: Final = timedelta(days=30)
_SWEEP_SECONDS: Final = 600.0
_SWEPT_AT_ONCE: Final = 5_000


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transaction in the ledger; it has a ``version`` once it is committed."""

    id: str
    table_id: str
    operation: str
    state: str
    version: int | None


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """A file about to be written, relative to its table's location."""

    path: str
    transaction_id: str
    kind: str
    state: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How a transaction ended.

    Attributes:
        transaction_id: in the ledger or not.
        operation: Delta's operation name.
        outcome: of the transaction. Its files get the same, except those of earlier attempts, which stay open.
        version: the committed version.
        written: the files that ``outcome`` applies to.
    """

    transaction_id: str
    operation: str
    outcome: Outcome
    version: int | None = None
    written: Sequence[str] = ()


class Ledger:
    """The ledger, in SQL.

    Args:
        database: where it is stored.
        seconds: how long to keep transactions that have ended, and their files; a day at least.
    """

    def __init__(self, database: Database, *, seconds: float = 0.0) -> None:
        self._database = database
        self._kept = max(_RETENTION, timedelta(seconds=seconds))
        self._lock = threading.Lock()
        self._next_sweep = 0.0

    def open(self, table_id: str, transaction_id: str, operation: str) -> None:
        """Record that a transaction begins; a known one is left as it is."""
        with self._database.transaction() as connection:
            connection.execute(_OPEN.on(connection), _opening(table_id, transaction_id, operation))

    def announce(self, table_id: str, transaction_id: str, operation: str, paths: Iterable[str]) -> None:
        """Record the deletion vector files that a transaction is about to write; they may be written once this returns."""
        now = datetime.now(UTC)
        rows = [
            {
                "table_id": table_id,
                "path": path,
                "transaction_id": transaction_id,
                "kind": "deletion-vector",
                "state": "open",
                "created_at": now,
            }
            for path in paths
        ]
        with self._database.transaction() as connection:
            connection.execute(_OPEN.on(connection), _opening(table_id, transaction_id, operation))
            if rows:
                connection.execute(_ADD_FILE, rows)

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
        """Record how a transaction ended; see :class:`Ending`."""
        self.close_all(table_id, [Ending(transaction_id, operation, outcome, version, tuple(written))])

    def close_all(self, table_id: str, endings: Sequence[Ending], own: OwnCommit | None = None) -> None:
        """Record how transactions of one table ended, and the version they created, in one SQL transaction.

        Now and then, old rows of all tables are deleted.
        """
        now = datetime.now(UTC)
        transactions = [
            {
                "table_id": table_id,
                "id": one.transaction_id,
                "operation": one.operation,
                "state": one.outcome,
                "version": one.version,
                "created_at": now,
            }
            for one in endings
        ]
        files = [
            {"in_table": table_id, "at": path, "outcome": one.outcome}
            for one in endings
            for path in one.written
        ]
        with self._database.transaction() as connection:
            connection.execute(_CLOSE.on(connection), transactions)
            if files:
                connection.execute(_CLOSE_FILE, files)
            if own is not None:
                own_commits.record(connection, table_id, own)
        # Here, as no transaction adds rows for good without it.
        with self._lock:
            is_due = time.monotonic() >= self._next_sweep
            if is_due:
                self._next_sweep = time.monotonic() + _SWEEP_SECONDS
        if is_due:
            # The transactions are recorded, and the next sweep does the rest.
            with suppress(ServiceUnavailable):
                self.sweep()

    def transaction(self, table_id: str, transaction_id: str) -> TransactionRecord | None:
        """Return what is recorded of a transaction."""
        return self.transactions(table_id, [transaction_id]).get(transaction_id)

    def transactions(self, table_id: str, ids: Sequence[str]) -> dict[str, TransactionRecord]:
        """Return what is recorded of some transactions, by their ids."""
        transaction_records = {}
        with self._database.connection() as connection:
            for id_ in ids:
                row = connection.execute(_FIND, {"in_table": table_id, "named": id_}).first()
                if row is not None:
                    transaction_records[id_] = TransactionRecord(*row)
        return transaction_records

    def files(self, table_id: str, transaction_id: str | None = None) -> Sequence[LedgerFile]:
        """Return the files of a table, or of one of its transactions, ordered by path."""
        query = select(LedgerFileRow).where(LedgerFileRow.table_id == table_id).order_by(LedgerFileRow.path)
        if transaction_id is not None:
            query = query.where(LedgerFileRow.transaction_id == transaction_id)
        with self._database.read() as session:
            return [
                LedgerFile(row.path, row.transaction_id, row.kind, row.state)
                for row in session.scalars(query)
            ]

    def in_flight(self, table_id: str, since: datetime) -> Sequence[str]:
        """Return the paths of files that may still be committed: recorded since a time, by unfinished transactions."""
        query = select(LedgerFileRow.path).where(
            LedgerFileRow.table_id == table_id,
            LedgerFileRow.state.in_(_UNFINISHED),
            LedgerFileRow.created_at >= since,
        )
        with self._database.read() as session:
            return list(session.scalars(query))

    def sweep(self) -> None:
        """Delete what ended long ago, and what began a month ago and never ended.

        Transactions whose versions are watched stay, to report if another writer replaces such a version.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        now = datetime.now(UTC)
        row, file, own = TransactionRow, LedgerFileRow, OwnCommitRow
        is_open = exists().where(
            row.table_id == file.table_id, row.id == file.transaction_id, row.state.in_(_UNFINISHED)
        )
        is_watched = exists().where(own.table_id == row.table_id, own.version == row.version)
        self._delete(
            file,
            or_(
                and_(file.created_at < now - self._kept, ~is_open),
                file.created_at < now - _KEPT_UNFINISHED,
            ),
        )
        self._delete(
            row,
            or_(
                and_(row.created_at < now - self._kept, row.state.not_in(_UNFINISHED), ~is_watched),
                and_(row.created_at < now - _KEPT_UNFINISHED, row.state.in_(_UNFINISHED)),
            ),
        )

    def _delete(self, kind: type[TransactionRow | LedgerFileRow], condition: ColumnElement[bool]) -> None:
        """Delete rows, a few thousand at once: a transaction that deletes millions would stop all commits."""
        keys = list(cast(Table, kind.__table__).primary_key)
        some = select(*keys).where(condition).limit(_SWEPT_AT_ONCE)
        deletion = delete(kind).where(tuple_(*keys).in_(some)).returning(*keys)
        while True:
            with self._database.write() as session:
                number = len(session.execute(deletion).all())
            if number < _SWEPT_AT_ONCE:
                return


def _opening(table_id: str, transaction_id: str, operation: str) -> dict[str, Any]:
    """Return the record of a new transaction."""
    return {
        "table_id": table_id,
        "id": transaction_id,
        "operation": operation,
        "state": "open",
        "version": None,
        "created_at": datetime.now(UTC),
    }


_TRANSACTIONS: Final = cast(Table, TransactionRow.__table__)
_FILES: Final = cast(Table, LedgerFileRow.__table__)


def _opened(upsert: Any) -> Any:
    return upsert(_TRANSACTIONS).on_conflict_do_nothing(index_elements=["table_id", "id"])


def _closed(upsert: Any) -> Any:
    statement = upsert(_TRANSACTIONS)
    return statement.on_conflict_do_update(
        index_elements=["table_id", "id"],
        set_={"state": statement.excluded.state, "version": statement.excluded.version},
        # A committed transaction stays committed, whatever happens to a second attempt with the same id.
        where=TransactionRow.state != "committed",
    )


_OPEN: Final = Upsert(_opened)
_CLOSE: Final = Upsert(_closed)
_ADD_FILE: Final = insert(_FILES)
_CLOSE_FILE: Final = (
    update(_FILES)
    .where(LedgerFileRow.table_id == bindparam("in_table"), LedgerFileRow.path == bindparam("at"))
    .values(state=bindparam("outcome"))
)
_FIND: Final = select(
    TransactionRow.id,
    TransactionRow.table_id,
    TransactionRow.operation,
    TransactionRow.state,
    TransactionRow.version,
).where(TransactionRow.table_id == bindparam("in_table"), TransactionRow.id == bindparam("named"))
