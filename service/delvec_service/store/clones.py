"""Shallow clones in SQL: the tables whose files they may need, for VACUUM of those tables.

Tested in `tests/integration/client/test_clone.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import delete, select

from delvec_kernel.locations import table_id
from delvec_service.store.database import Database, insert_into
from delvec_service.store.models import CloneRow, TableRow

__all__ = ["CloneRecord", "CloneStore"]


@dataclass(frozen=True, slots=True)
class CloneRecord:
    """A shallow clone.

    Attributes:
        location: the canonical location of the clone.
        source_location: the location of the cloned table.
        source_version: the cloned version.
        created_at: shortly before the clone was created.
    """

    location: str
    source_location: str
    source_version: int
    created_at: datetime


class CloneStore:
    """The shallow clones that this service made.

    Args:
        database: where they are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, location: str, source_location: str, source_version: int) -> CloneRecord:
        """Record a clone before it is created: for its source, and for all tables of which the source is a clone.

        Args:
            location: the canonical location of the clone.
            source_location: the location of the table to clone.
            source_version: the version to clone.

        Returns:
            The record.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row, source = CloneRow, table_id(source_location)
        record = CloneRecord(location, source_location, source_version, datetime.now(UTC))
        with self._database.write() as session:
            above = session.scalars(select(row.table_id).where(row.clone_id == source))
            values = [
                {
                    "table_id": each,
                    "clone_id": table_id(location),
                    "location": location,
                    "source_location": source_location,
                    "source_version": source_version,
                    "created_at": record.created_at,
                }
                for each in {source, *above}
                if each != table_id(location)
            ]
            statement = insert_into(session, row).values(values)
            session.execute(
                statement.on_conflict_do_update(
                    index_elements=["table_id", "clone_id"],
                    set_={
                        name: statement.excluded[name]
                        for name in ("location", "source_location", "source_version", "created_at")
                    },
                )
            )
        return record

    def of(self, location: str) -> Sequence[CloneRecord]:
        """Return the clones that may need files of the table at a location, ordered by their locations.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = CloneRow
        query = (
            select(row.location, row.source_location, row.source_version, row.created_at)
            .where(row.table_id == table_id(location))
            .order_by(row.location)
        )
        with self._database.read() as session:
            return [CloneRecord(*values) for values in session.execute(query)]

    def above(self, location: str) -> Sequence[str]:
        """Return the locations of the tables whose files a clone may need, including its source.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row, pending = CloneRow, [location]
        source_locations: list[str] = []
        with self._database.read() as session:
            while pending:
                clone = row.clone_id == table_id(pending.pop())
                # A clone between them may be gone and forgotten, but its source has a record of its own.
                registered = select(TableRow.location).join(row, row.table_id == TableRow.id).where(clone)
                query = select(row.source_location).where(clone).union_all(registered)
                new = [each for each in session.scalars(query) if each not in source_locations]
                source_locations += dict.fromkeys(new)
                pending += dict.fromkeys(new)
        return source_locations

    def forget(self, record: CloneRecord) -> None:
        """Delete the record of a clone that is gone, but not of one that has replaced it.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        with self._database.write() as session:
            session.execute(
                delete(CloneRow).where(
                    CloneRow.clone_id == table_id(record.location), CloneRow.created_at <= record.created_at
                )
            )
