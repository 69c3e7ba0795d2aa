"""Which version of a table was converted to Iceberg last, in SQL: for metrics, which read no storage.

All of it can be lost: what was converted is in the Iceberg metadata, and the next conversion notes it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import and_, func, or_, select

from delvec_service.store.database import Database, insert_into
from delvec_service.store.health_samples import name_patterns
from delvec_service.store.models import HealthSampleRow, IcebergConversionRow, TableRow

__all__ = ["IcebergConversionStore", "ObservedConversion"]


@dataclass(frozen=True, slots=True)
class ObservedConversion:
    """A table that was converted.

    Attributes:
        name: the table's.
        format_version: 2 or 3.
        delta_version: that was converted last.
        newest_version: that is known of the table.
        waiting_since: when a version after the converted one was first seen; None where there is none.
    """

    name: str
    format_version: int
    delta_version: int
    newest_version: int
    waiting_since: datetime | None


class IcebergConversionStore:
    """Versions that were converted; safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, table_id: str, format_version: int, delta_version: int) -> None:
        """Note that a version was converted.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row = IcebergConversionRow
        values = {"delta_version": delta_version, "converted_at": datetime.now(UTC)}
        with self._database.write() as session:
            statement = insert_into(session, row).values(
                table_id=table_id, format_version=format_version, **values
            )
            session.execute(
                statement.on_conflict_do_update(index_elements=["table_id", "format_version"], set_=values)
            )

    def observed(self, catalog: str, patterns: Sequence[str], limit: int) -> Sequence[ObservedConversion]:
        """Return the conversions of tables whose names match one of some patterns, by name.

        Args:
            catalog: whose names these are.
            patterns: names; ``*`` stands for any characters.
            limit: how many conversions at most.

        Raises:
            ServiceUnavailable: the database does not answer.
        """
        row, sample = IcebergConversionRow, HealthSampleRow
        name = func.coalesce(TableRow.name, TableRow.folder_name)
        newer = and_(sample.table_id == row.table_id, sample.version > row.delta_version)
        query = (
            select(
                name,
                row.format_version,
                row.delta_version,
                select(func.max(sample.version)).where(newer).scalar_subquery(),
                select(func.min(sample.sampled_at)).where(newer).scalar_subquery(),
            )
            .select_from(TableRow)
            .join(row, row.table_id == TableRow.id)
            .where(TableRow.catalog == catalog, or_(*name_patterns(name, patterns)))
            .order_by(name, TableRow.id, row.format_version)
            .limit(limit)
        )
        with self._database.read() as session:
            return [
                ObservedConversion(table, form, version, version if newest is None else newest, since)
                for table, form, version, newest, since in session.execute(query)
            ]
