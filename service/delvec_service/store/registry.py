"""Registered tables: the mapping of names and ids to locations.

Tested in `tests/integration/contract/test_sql_store.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import and_, bindparam, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from delvec_errors import AmbiguousTable, LocationNotAllowed, TableAlreadyExists, TableNotFound
from delvec_kernel.locations import table_id
from delvec_service.store.database import Database
from delvec_service.store.grants import forget_grants
from delvec_service.store.models import (
    CommitConflictRow,
    CommitCountsRow,
    CommitIntervalRow,
    DroppedTableRow,
    EventMarkRow,
    EventRow,
    HealthSampleRow,
    IcebergConversionRow,
    LedgerFileRow,
    MaintenanceLeaseRow,
    MaintenancePolicyRow,
    MaintenanceTaskRow,
    TableRow,
    TransactionRow,
)

__all__ = ["Registry", "TableRecord", "not_found"]

_MAX_SHOWN: Final = 5
_FIND: Final = (
    select(TableRow.id, TableRow.name, TableRow.folder_name, TableRow.location, TableRow.created_at)
    .where(
        TableRow.catalog == bindparam("in_catalog"),
        or_(
            TableRow.id == bindparam("called"),
            TableRow.name == bindparam("called"),
            and_(TableRow.folder_name == bindparam("called"), TableRow.name.is_(None)),
        ),
    )
    .order_by(TableRow.location)
)
"""Every request asks it."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A registered table.

    Attributes:
        name: its own name, or that of its folder.
        location: canonical, without a trailing slash.
        is_named: whether it is its own name, which no other table can have.
    """

    id: str
    name: str
    location: str
    created_at: datetime
    is_named: bool = False


Visible: TypeAlias = Callable[[TableRecord], bool]
"""Whether the caller may know of a table, or may do something with it."""


def _all_visible(_table: TableRecord) -> bool:
    return True


def not_found(name_or_id: str) -> TableNotFound:
    """Return the error for a table that does not exist or may not be seen, which must be indistinguishable."""
    return TableNotFound(
        f"Table '{name_or_id[:200]}' is not registered; create it, or open it by its location, which registers it.",
        table=name_or_id[:200],
    )


class Registry:
    """The names of tables, in SQL.

    A table's own name is unique. A table without one is named after its folder, as long as no other table has that
    name.

    Args:
        database: where they are stored.
        warehouse: the canonical warehouse of the names; None for a service's own. Names of one are unknown in
            another.
    """

    def __init__(self, database: Database, warehouse: str | None = None) -> None:
        self._database = database
        self._catalog = "" if warehouse is None else table_id(warehouse)

    @property
    def catalog(self) -> str:
        """The catalog of the names, as the database spells it."""
        return self._catalog

    def get(self, name_or_id: str) -> TableRecord:
        """Return a table by name or id.

        Raises:
            TableNotFound: no table has that name or id.
            AmbiguousTable: several folders have that name, and no table has it as its own.
        """
        found = self.called(name_or_id)
        if not found:
            raise not_found(name_or_id)
        return self.only(name_or_id, found)

    @staticmethod
    def only(name: str, records: Sequence[TableRecord], visible: Visible = _all_visible) -> TableRecord:
        """Return the only table that a name can refer to; of several, those that the caller sees.

        If the caller sees none of several, one of them is returned: callers check it, as they check the only one.

        Raises:
            AmbiguousTable: the caller sees several.
            TableNotFound: there is none.
        """
        if not records:
            raise not_found(name)
        records = [record for record in records if visible(record)] or records[:1]
        if len(records) == 1:
            return records[0]
        places = [record.location for record in records]
        shown = ", ".join(places[:_MAX_SHOWN]) + (", ..." if len(places) > _MAX_SHOWN else "")
        raise AmbiguousTable(
            f"'{name}' is ambiguous: {len(places)} tables have folders of that name: {shown}. Use the location, or "
            "rename one of them.",
            table=name,
            locations=places[:_MAX_SHOWN],
        )

    def called(self, name_or_id: str) -> Sequence[TableRecord]:
        """Return the tables that a name or an id can refer to; a matching id or own name excludes all others."""
        if "\0" in name_or_id:  # PostgreSQL cannot store such a text
            return ()
        with self._database.connection() as connection:
            rows = connection.execute(_FIND, {"in_catalog": self._catalog, "called": name_or_id})
            found = [_record(row) for row in rows]
        exact = [record for record in found if record.id == name_or_id or record.is_named]
        return exact[:1] or found

    def at(self, location: str) -> TableRecord | None:
        """Return the table at a canonical location, if it is registered."""
        with self._database.read() as session:
            query = select(TableRow).where(TableRow.catalog == self._catalog, TableRow.location == location)
            found = session.scalars(query).first()
        return None if found is None else _record(found)

    def around(self, location: str, above: Sequence[str]) -> Sequence[TableRecord]:
        """Return the tables at a canonical location, below it, and at these folders above it.

        Letter case is ignored, since file systems may: some of the tables returned can be elsewhere.
        """
        lower = func.lower(TableRow.location)
        query = select(TableRow).where(
            TableRow.catalog == self._catalog,
            or_(
                # As spelled, too: some databases do not lower an ASCII letter to the one that Python has for it.
                TableRow.location.in_((location, *above)),
                TableRow.location.startswith(f"{location}/", autoescape=True),
                lower.in_([each.lower() for each in (location, *above)]),
                lower.startswith(f"{location.lower()}/", autoescape=True),
            ),
        )
        with self._database.read() as session:
            return [_record(row) for row in session.scalars(query.order_by(TableRow.location))]

    def page(
        self,
        after: tuple[str, str] = ("", ""),
        limit: int = 100,
        namespace: str | None = None,
        *,
        directly: bool = False,
    ) -> Sequence[TableRecord]:
        """Return tables ordered by name and id, starting after ``after``.

        Args:
            after: the name and id of the last table on the previous page.
            limit: the maximum number of tables.
            namespace: only tables named ``namespace.something``.
            directly: without those of namespaces below; with no namespace, only tables in none.
        """
        name, identifier = after
        name_column = func.coalesce(TableRow.name, TableRow.folder_name)
        query = select(TableRow).where(
            TableRow.catalog == self._catalog,
            or_(name_column > name, and_(name_column == name, TableRow.id > identifier)),
        )
        if namespace is not None:
            query = query.where(name_column.startswith(f"{namespace}.", autoescape=True))
        if directly:
            prefix = 0 if namespace is None else len(namespace) + 1
            query = query.where(func.substr(name_column, prefix + 1).not_like("%.%"))
        with self._database.read() as session:
            rows = session.scalars(query.order_by(name_column, TableRow.id).limit(limit))
            return [_record(row) for row in rows]

    def namespaces(self, within: str | None = None) -> Sequence[str]:
        """Return the namespaces of all tables, each once, in no order; empty for that of tables in none.

        Args:
            within: only of tables named ``within.something``.
        """
        called = func.coalesce(TableRow.name, TableRow.folder_name)
        # Up to the last dot: whatever else the name consists of is cut off its end.
        above = func.rtrim(called, func.replace(called, ".", ""))
        query = select(above).where(TableRow.catalog == self._catalog).distinct()
        if within is not None:
            query = query.where(called.startswith(f"{within}.", autoescape=True))
        with self._database.read() as session:
            return [str(each).removesuffix(".") for each in session.scalars(query)]

    def add(
        self,
        location: str,
        name: str | None,
        folder_name: str,
        *,
        visible: Visible = _all_visible,
        may_name: Visible = _all_visible,
    ) -> tuple[TableRecord, bool]:
        """Register a location. Of several concurrent callers, exactly one creates the row.

        Args:
            location: canonical.
            name: the name that the caller wants for it, or None.
            folder_name: its default name, as long as no other table has it.
            visible: whether the caller may know of a table.
            may_name: whether the caller may name one that is already registered.

        Returns:
            The row, and whether this call created it.

        Raises:
            TableAlreadyExists: ``name`` belongs to another table, or the table already has a different name.
            LocationNotAllowed: the table there is not the caller's, or its files are being deleted.
        """
        record = self.at(location)
        if record is None:
            if name is not None:
                self.check_free(name, location)
            row = TableRow(
                catalog=self._catalog,
                id=table_id(location),
                name=name,
                folder_name=folder_name,
                location=location,
                created_at=datetime.now(UTC),
            )
            try:
                with self._database.write() as session:
                    self._bring_back(session, row)
                    session.add(row)
            except IntegrityError:
                record = self.at(location)  # another caller has just taken the location or the name
            else:
                return _record(row), True
        if record is None:
            assert name is not None  # noqa: S101 - nothing else is unique
            self.check_free(name, location)
            return self.add(location, name, folder_name, visible=visible, may_name=may_name)
        if not visible(record) or not (name in (None, record.name) or may_name(record)):
            raise LocationNotAllowed(
                f"The location {location} belongs to a table that is not yours to name. Use another location.",
                location=location,
            )
        if name is None or (name == record.name and (record.is_named or not may_name(record))):
            return record, False
        if record.is_named and name != record.name:
            raise TableAlreadyExists(
                f"The table at {location} is already registered as '{record.name}'; use that name, or rename the "
                "table.",
                table=record.name,
                location=location,
            )
        return self.rename(record, name), False

    def _bring_back(self, session: Session, row: TableRow) -> None:
        """Take a location that is being registered from the dropped tables.

        Raises:
            LocationNotAllowed: its files are being deleted, on behalf of whatever catalog.
        """
        dropped = select(DroppedTableRow).where(DroppedTableRow.id == row.id).with_for_update()
        for former in session.scalars(dropped):
            if former.is_being_deleted:
                raise LocationNotAllowed(
                    f"The table at {row.location} was dropped, and its files are being deleted. Use another location.",
                    location=row.location,
                )
            if former.catalog == self._catalog:
                session.delete(former)

    def rename(self, record: TableRecord, name: str) -> TableRecord:
        """Name a table, or rename it.

        Raises:
            TableAlreadyExists: the name belongs to another table.
            TableNotFound: the table was unregistered in the meantime.
        """
        self.check_free(name, record.location)
        try:
            with self._database.write() as session:
                session.execute(
                    update(TableRow)
                    .where(TableRow.catalog == self._catalog, TableRow.id == record.id)
                    .values(name=name)
                )
        except IntegrityError:
            self.check_free(name, record.location)
        return self.get(record.id)

    def check_free(self, name: str, location: str) -> None:
        """Reject a name that another table has, its own or its folder's. Whoever may use a name may see that table.

        Raises:
            TableAlreadyExists: another table has it.
        """
        other = next((each for each in self.called(name) if each.location != location), None)
        if other is None:
            return
        called = "is already the name of" if other.is_named else "is the default name (from its folder) of"
        raise TableAlreadyExists(
            f"'{name}' {called} the table at {other.location}, so the table at {location} cannot have it. Choose "
            "another name, or rename or unregister the other table.",
            table=name,
            location=other.location,
            wanted=location,
        )

    def remove(self, identifier: str) -> None:
        """Unregister a table, delete its settings, counts and ledger; its files and maintenance runs stay.

        Another table at its location has the same id, and must not get its policies. Policies of other catalogs stay;
        data stored by id alone is deleted with the last catalog that has the table.
        """
        policy = MaintenancePolicyRow
        with self._database.write() as session:
            for table in (TableRow, DroppedTableRow):
                session.execute(delete(table).where(table.catalog == self._catalog, table.id == identifier))
            session.execute(
                delete(policy).where(policy.catalog == self._catalog, policy.table_id == identifier)
            )
            if session.scalars(select(TableRow.id).where(TableRow.id == identifier).limit(1)).first() is None:
                for row in (
                    HealthSampleRow,
                    CommitCountsRow,
                    CommitIntervalRow,
                    CommitConflictRow,
                    EventMarkRow,
                    EventRow,
                    IcebergConversionRow,
                    LedgerFileRow,
                    MaintenanceLeaseRow,
                    MaintenanceTaskRow,
                    TransactionRow,
                ):
                    session.execute(delete(row).where(row.table_id == identifier))
                forget_grants(session, identifier)


def _record(row: Any) -> TableRecord:
    """Return the record of a mapped row, or of a row of its columns."""
    name = row.name or row.folder_name or row.id
    return TableRecord(row.id, name, row.location, row.created_at, row.name is not None)
