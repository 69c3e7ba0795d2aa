"""Managed tables that were dropped: their names and locations, until their files are deleted.

This is the only list of them: if the database is lost, their folders stay, and their locations can be registered.

Tested in `tests/integration/service/catalog/test_dropped_tables.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import and_, delete, or_, select

from delvec_errors import TableInUse, TableNotFound
from delvec_service.store.database import Database
from delvec_service.store.models import DroppedTableRow, TableRow
from delvec_service.store.registry import TableRecord

__all__ = ["DroppedTable", "DroppedTables"]


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A dropped table.

    Attributes:
        record: of when it was registered; several can have one name.
        dropped_at: when.
        is_being_deleted: whether the deletion of its files has begun.
    """

    record: TableRecord
    dropped_at: datetime
    is_being_deleted: bool


class DroppedTables:
    """The dropped tables of one catalog. All methods raise ServiceUnavailable without a database.

    Args:
        database: where they are stored.
        catalog: the catalog of their names, as the database spells it.
    """

    def __init__(self, database: Database, catalog: str) -> None:
        self._database = database
        self._catalog = catalog

    def add(self, record: TableRecord) -> None:
        """Turn a registered table into a dropped one, which keeps its policies and grants."""
        row = DroppedTableRow
        with self._database.write() as session:
            registered = session.get(TableRow, (self._catalog, record.id), with_for_update=True)
            if registered is None:
                return  # another request has dropped it, and recorded that
            session.delete(registered)
            session.execute(delete(row).where(row.catalog == self._catalog, row.id == record.id))
            session.add(
                row(
                    catalog=self._catalog,
                    id=record.id,
                    name=record.name,
                    location=record.location,
                    created_at=record.created_at,
                    dropped_at=datetime.now(UTC),
                    is_being_deleted=False,
                )
            )

    def get(self, name_or_id: str) -> DroppedTable:
        """Return a dropped table by id, or the one of that name that was dropped last.

        Raises:
            TableNotFound: there is none.
        """
        row = DroppedTableRow
        query = (
            select(row)
            .where(row.catalog == self._catalog, or_(row.id == name_or_id, row.name == name_or_id))
            .order_by(row.is_being_deleted, row.dropped_at.desc())
        )
        with self._database.read() as session:
            newest = None if "\0" in name_or_id else session.scalars(query).first()
        if newest is None:
            raise not_dropped(name_or_id)
        return _dropped(newest)

    def has(self, table_id: str) -> bool:
        """Whether the table with an id was dropped, and its files are not deleted yet."""
        with self._database.read() as session:
            return session.get(DroppedTableRow, (self._catalog, table_id)) is not None

    def page(self, after: tuple[str, str], limit: int) -> Sequence[DroppedTable]:
        """Return dropped tables ordered by name and id, starting after ``after``."""
        row = DroppedTableRow
        name, identifier = after
        later = or_(row.name > name, and_(row.name == name, row.id > identifier))
        query = select(row).where(row.catalog == self._catalog, later).order_by(row.name, row.id).limit(limit)
        with self._database.read() as session:
            return [_dropped(found) for found in session.scalars(query)]

    def begin_deletion(self, record: TableRecord) -> None:
        """Record that the files of a table are about to be deleted: from now on nothing brings it back.

        Raises:
            TableNotFound: it was brought back meanwhile.
            TableInUse: another catalog of the database has registered it.
        """
        row = DroppedTableRow
        with self._database.write() as session:
            dropped = session.get(row, (self._catalog, record.id), with_for_update=True)
            if dropped is None:
                raise not_dropped(record.name)
            dropped.is_being_deleted = True
            if session.scalars(select(TableRow.id).where(TableRow.id == record.id).limit(1)).first():
                raise TableInUse(
                    f"The dropped table '{record.name}' at {record.location} is registered with another warehouse of "
                    "the same database, so its files were not deleted. Unregister it there first.",
                    table=record.name,
                    location=record.location,
                )


def not_dropped(name_or_id: str) -> TableNotFound:
    """Return the error for a dropped table that does not exist or may not be seen."""
    return TableNotFound(
        f"No table '{name_or_id[:200]}' was dropped that can be brought back: only managed tables can, until their files "
        "are deleted. Register the location of any other.",
        table=name_or_id[:200],
    )


def _dropped(row: DroppedTableRow) -> DroppedTable:
    record = TableRecord(row.id, row.name, row.location, row.created_at, is_named=True)
    return DroppedTable(record, row.dropped_at, row.is_being_deleted)
