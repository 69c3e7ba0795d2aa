"""The version of each table that was last converted to Iceberg, in SQL: for metrics, which do not read storage.

It may be lost without harm: the Iceberg metadata shows what was converted, and the next conversion records it again.
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
    """A converted table.

    Attributes:
        name: the table's name.
        format_version: 2 or 3.
        delta_version: the version last converted.
        newest_version: the newest known version of the table.
        waiting_since: when a version after the converted one was first seen, or None.
    """

    name: str
    format_version: int
    delta_version: int
    newest_version: int
    waiting_since: datetime | None


class IcebergConversionStore:
    """The converted versions; safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, table_id: str, format_version: int, delta_version: int) -> None:
        """Record that a version was converted.

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
            catalog: the catalog of the names.
            patterns: names; ``*`` stands for any characters.
            limit: the maximum number of conversions.

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
