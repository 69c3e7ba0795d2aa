"""Recent commits of this service and its replicas, and which of them were replaced, in SQL.

Put-if-absent only protects against writers that use it. One that checks and then renames can replace a version that
Delvec has acknowledged; this record reveals it. A wiped store cannot, but no answer about a table's data depends on
it.

Tested in `tests/integration/contract/test_own_commit_store.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select

from delvec_service.store.database import Database, Upsert, insert_into
from delvec_service.store.models import OverwrittenCommitRow, OwnCommitRow, TransactionRow

__all__ = ["Overwritten", "OwnCommit", "OwnCommitStore", "record"]

KEPT: Final = 128
"""Approximately how many own commits of a table to keep; the newest."""

_PRUNED_EVERY: Final = 16
_EVENTS: Final = 100
_LONGEST_ID: Final = 64
_PRUNE: Final = delete(OwnCommitRow).where(
    OwnCommitRow.table_id == bindparam("table"), OwnCommitRow.version <= bindparam("oldest")
)


@dataclass(frozen=True, slots=True)
class OwnCommit:
    """A version that Delvec created.

    Attributes:
        key: its commitInfo.txnId; of a group of commits, the group's.
        size: bytes of the log entry.
        metadata_id: the id of the table's metadata at the time: a different one means another table, created in its place.
    """

    version: int
    key: str
    size: int
    metadata_id: str


@dataclass(frozen=True, slots=True)
class Overwritten:
    """An own commit that another one in the log has replaced.

    Attributes:
        key: the key of the replaced commit.
        by_operation: of the commit in its place, if it says, as are ``by_engine`` and ``by_key``.
        newest_version: the newest version of the table when this was detected.
    """

    version: int
    key: str
    by_operation: str | None
    by_engine: str | None
    by_key: str | None
    newest_version: int
    found_at: datetime


def record(connection: Connection, table_id: str, commit: OwnCommit) -> None:
    """Record a commit in an open transaction; commits far behind it are deleted."""
    row = {
        "table_id": table_id,
        "version": commit.version,
        "key": commit.key,
        "size": commit.size,
        "metadata_id": commit.metadata_id[:_LONGEST_ID],
    }
    connection.execute(_UPSERT.on(connection), row)
    if commit.version % _PRUNED_EVERY == 0:
        connection.execute(_PRUNE, {"table": table_id, "oldest": commit.version - KEPT})


class OwnCommitStore:
    """Own commits and the replaced ones; safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self, table_id: str) -> Sequence[OwnCommit]:
        """Return the known own commits of a table, oldest first.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = OwnCommitRow
        columns = (row.version, row.key, row.size, row.metadata_id)
        query = select(*columns).where(row.table_id == table_id).order_by(row.version)
        with self._database.read() as session:
            return [OwnCommit(*values) for values in session.execute(query)]

    def transactions(self, table_id: str, version: int) -> Sequence[str]:
        """Return the transactions that the ledger lists as committed in a version.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = TransactionRow
        query = select(row.id).where(
            row.table_id == table_id, row.version == version, row.state == "committed"
        )
        with self._database.read() as session:
            return list(session.scalars(query))

    def note(self, table_id: str, overwritten_commits: Overwritten) -> bool:
        """Store a replaced commit; return whether it is new.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = OverwrittenCommitRow
        values = {
            "table_id": table_id,
            "version": overwritten_commits.version,
            "key": overwritten_commits.key,
            "by_operation": _short(overwritten_commits.by_operation, 64),
            "by_engine": _short(overwritten_commits.by_engine, 256),
            "by_key": _short(overwritten_commits.by_key, 128),
            "newest_version": overwritten_commits.newest_version,
            "found_at": overwritten_commits.found_at,
        }
        with self._database.write() as session:
            done = session.execute(
                insert_into(session, row).values(**values).on_conflict_do_nothing().returning(row.version)
            )
            return done.first() is not None

    def overwritten(self, table_id: str, limit: int = _EVENTS) -> Sequence[Overwritten]:
        """Return the replaced commits found so far, latest first.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = OverwrittenCommitRow
        query = (
            select(
                row.version,
                row.key,
                row.by_operation,
                row.by_engine,
                row.by_key,
                row.newest_version,
                row.found_at,
            )
            .where(row.table_id == table_id)
            .order_by(row.found_at.desc(), row.version.desc())
            .limit(limit)
        )
        with self._database.read() as session:
            return [Overwritten(*values) for values in session.execute(query)]


def _upsert(insert: Any) -> Any:
    statement = insert(OwnCommitRow)
    # A version that was committed again: the log was restored from a backup, or another writer replaced it earlier.
    return statement.on_conflict_do_update(
        index_elements=["table_id", "version"],
        set_={name: statement.excluded[name] for name in ("key", "size", "metadata_id")},
    )


_UPSERT: Final = Upsert(_upsert)


def _short(text: str | None, length: int) -> str | None:
    # PostgreSQL limits the size, and anybody may have written the log.
    return None if text is None else text[:length]
