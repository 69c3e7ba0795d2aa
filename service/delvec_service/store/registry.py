"""Registered tables: which name and id stand for which location."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import delete, or_, select
from sqlalchemy.exc import IntegrityError

from delvec.protocol.errors import TableAlreadyExists, TableNotFound
from delvec_service.store.database import Database
from delvec_service.store.models import TableRow

__all__ = ["Registry", "TableRecord", "table_id"]

_NAMESPACE: Final = uuid.UUID("6f0f7d1c-4a52-4b0e-9d0b-3a54ad6f9a31")


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A registered table.

    Attributes:
        location: canonical, without a trailing slash.
    """

    id: str
    name: str
    location: str
    created_at: datetime


def table_id(location: str) -> str:
    """Return the id of the table at a canonical location.

    It follows from the location, so that a client's ids survive the loss of the database, and two replicas
    that register the same table at once agree.
    """
    return str(uuid.uuid5(_NAMESPACE, location))


class Registry:
    """The names of tables, in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name_or_id: str) -> TableRecord:
        """Return a table by name or id.

        Raises:
            TableNotFound: there is none.
        """
        found = None
        if "\0" not in name_or_id:  # PostgreSQL has no such text
            with self._database.read() as session:
                query = select(TableRow).where(or_(TableRow.id == name_or_id, TableRow.name == name_or_id))
                found = session.scalars(query).first()
        if found is None:
            raise TableNotFound(
                f"No table '{name_or_id[:200]}' is registered; register its location first.",
                table=name_or_id[:200],
            )
        return _record(found)

    def at(self, location: str) -> TableRecord | None:
        """Return the table at a canonical location, if it is registered."""
        with self._database.read() as session:
            found = session.scalars(select(TableRow).where(TableRow.location == location)).first()
        return None if found is None else _record(found)

    def page(self, after: str = "", limit: int = 100) -> Sequence[TableRecord]:
        """Return tables in the order of their names, from the one after ``after``."""
        with self._database.read() as session:
            query = select(TableRow).where(TableRow.name > after).order_by(TableRow.name).limit(limit)
            return [_record(row) for row in session.scalars(query)]

    def add(self, location: str, name: str | None, default_name: str) -> tuple[TableRecord, bool]:
        """Register a location; of several callers at once exactly one creates the row.

        Args:
            location: canonical.
            name: what the caller wants it to be called, or None.
            default_name: used without ``name`` where it is free; else with a part of the id.

        Returns:
            The row, and whether this call created it.

        Raises:
            TableAlreadyExists: ``name`` belongs to another table, or the table has another name.
        """
        identifier = table_id(location)
        for candidate in (name,) if name else (default_name, f"{default_name[:119]}-{identifier[:8]}"):
            found = self.at(location)
            if found is not None:
                break
            row = TableRow(id=identifier, name=candidate, location=location, created_at=datetime.now(UTC))
            try:
                with self._database.write() as session:
                    session.add(row)
            except IntegrityError:
                continue  # the location or the name was taken, maybe just now
            return _record(row), True
        else:
            found = self.at(location)
        if found is None:
            raise TableAlreadyExists(
                f"Another table is called '{name or default_name}'; give this one another name.",
                table=name or default_name,
            )
        if name and found.name != name:
            raise TableAlreadyExists(
                f"The table at {location} is registered already, as '{found.name}'; use that name, or drop it first.",
                table=found.name,
                location=location,
            )
        return found, False

    def remove(self, identifier: str) -> None:
        """Forget a table; its files stay."""
        with self._database.write() as session:
            session.execute(delete(TableRow).where(TableRow.id == identifier))


def _record(row: TableRow) -> TableRecord:
    return TableRecord(row.id, row.name, row.location, row.created_at)
