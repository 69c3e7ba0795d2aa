"""The audit log, in SQL: entries are added, read, and deleted when they expire; they never change."""

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Final

from sqlalchemy import delete, or_, select

from delvec_contract.access import AuditOutcome
from delvec_service.store.commit_record import id_prefix
from delvec_service.store.database import Database, insert_into
from delvec_service.store.models import AuditRow, storable

__all__ = ["AuditRecord", "AuditStore"]

_DELETED_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One entry; fields as in :class:`~delvec_service.store.models.AuditRow`, with texts cut to its columns."""

    answered_at: datetime
    request_id: str
    operation: str
    outcome: AuditOutcome
    status: int
    principal: str | None = None
    table_id: str | None = None
    table_name: str | None = None
    change: str | None = None
    transaction_id: str | None = None
    version: int | None = None
    error_code: str | None = None
    id: str = field(default="")

    def __post_init__(self) -> None:
        """Derive its id from its time, so that writing a batch twice adds nothing."""
        if not self.id:
            object.__setattr__(self, "id", f"{id_prefix(self.answered_at)}{secrets.token_hex(8)}")


_FIELDS: Final = tuple(each.name for each in fields(AuditRecord))


class AuditStore:
    """Entries of the audit log; safe to share between threads.

    All methods raise ServiceUnavailable without a database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, records: Sequence[AuditRecord]) -> None:
        """Store entries; existing ones stay as they are."""
        with self._database.write() as session:
            session.execute(
                insert_into(session, AuditRow).on_conflict_do_nothing(),
                [asdict(record) for record in records],
            )

    def page(
        self,
        *,
        table_id: str | None = None,
        table_name: str | None = None,
        principal: str | None = None,
        outcome: AuditOutcome | None = None,
        since: datetime | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Sequence[AuditRecord]:
        """Return entries, newest first.

        Args:
            table_id: only entries about the table with this id.
            table_name: or about tables with this name; matching either is enough.
            principal: only entries of this principal.
            outcome: only entries with this outcome.
            since: only entries at or after this time.
            before: only entries before the one with this id.
            limit: the maximum number of entries.
        """
        row = AuditRow
        query = select(*(getattr(row, name) for name in _FIELDS))
        about = []
        if table_id is not None:
            about.append(row.table_id == table_id)
        if table_name is not None:
            about.append(row.table_name == storable(table_name))
        if about:
            query = query.where(or_(*about))
        if principal is not None:
            query = query.where(row.principal == storable(principal))
        if outcome is not None:
            query = query.where(row.outcome == outcome)
        if since is not None:
            query = query.where(row.id >= id_prefix(since))
        if before is not None:
            query = query.where(row.id < before)
        with self._database.read() as session:
            return [
                AuditRecord(*values) for values in session.execute(query.order_by(row.id.desc()).limit(limit))
            ]

    def expire(self, before: datetime) -> int:
        """Delete the entries from before a time; return how many there were."""
        row, num_deleted = AuditRow, 0
        while True:
            with self._database.write() as session:
                old = select(row.id).where(row.id < id_prefix(before)).order_by(row.id)
                gone = list(session.scalars(old.limit(_DELETED_AT_ONCE)))
                if gone:
                    session.execute(delete(row).where(row.id >= gone[0], row.id <= gone[-1]))
            num_deleted += len(gone)
            if len(gone) < _DELETED_AT_ONCE:
                return num_deleted
