"""All tables at once: sums of their health, and their maintenance and conflicts.

Tested in `tests/integration/service/api/test_fleet.py`.
"""

from datetime import datetime

from pydantic import Field

from delvec_contract.conflicts import CommitConflict, CommitInterval
from delvec_contract.policies import MaintenanceTask
from delvec_contract.shapes import Answer

__all__ = [
    "DamagedTable",
    "FleetConflict",
    "FleetConflictsResponse",
    "FleetPoint",
    "FleetResponse",
    "FleetTask",
    "FleetTasksResponse",
    "FleetTotals",
]


class FleetTotals(Answer):
    """Sums over the newest samples of some tables, and the outcomes of commits to them in this hour and the 23 before it."""

    namespace: str = Field(
        description="The part of the names before the last dot; empty for names without one."
    )
    num_tables: int = Field(description="Registered tables.")
    num_good: int = Field(description="Tables with a score of 80 or more.")
    num_fair: int = Field(description="Tables with a score from 50 to 80.")
    num_poor: int = Field(description="Tables with a lower score, damaged ones included.")
    num_damaged: int = Field(description="Tables with errors in their log or live files.")
    num_unknown: int = Field(description="Tables without a sample.")
    size_in_bytes: int = Field(description="The size of the live data files in bytes.")
    num_files: int = Field(description="The number of live data files.")
    deleted_ratio: float | None = Field(
        description="The share of rows that deletion vectors mark, of tables whose rows are known; absent without rows."
    )
    deleted_bytes: int = Field(description="The estimated bytes of deleted rows in data files.")
    scan_debt_seconds: float = Field(description="Estimated seconds that one full scan of each table wastes.")
    committed: int = Field(description="Commits that took effect.")
    conflicts: int = Field(description="Commits that failed with a conflict.")


class DamagedTable(Answer):
    """A table with errors in its log or live files."""

    id: str
    name: str
    sampled_at: datetime = Field(description="When that was seen; ISO 8601.")


class FleetPoint(Answer):
    """Sums over the tables at a time."""

    at: datetime = Field(description="ISO 8601.")
    num_tables: int = Field(description="The tables registered by then that still are.")
    size_in_bytes: int = Field(description="The size of their data files in bytes.")
    deleted_bytes: int = Field(description="The estimated bytes of deleted rows in them.")
    scan_debt_seconds: float = Field(description="Estimated seconds that one full scan of each wastes.")


class FleetResponse(Answer):
    """The health of all tables that the caller may read."""

    as_of: datetime = Field(
        description="When the sums were made; each table counts as of its newest sample. ISO 8601."
    )
    oldest_sample: datetime | None = Field(description="The oldest of these samples; ISO 8601.")
    totals: FleetTotals = Field(description="Of all tables; its namespace is empty.")
    namespaces: list[FleetTotals] = Field(description="By namespace, the greatest scan debt first.")
    damaged: list[DamagedTable] = Field(description="The damaged tables by name, at most 100.")
    intervals: list[CommitInterval] = Field(
        description="Outcomes of commits in this hour and each of the 23 before it, oldest first."
    )
    points: list[FleetPoint] = Field(
        description="Every other midnight (UTC) of the last 30 days, up to ten minutes old, and now; oldest first."
    )


class FleetTask(MaintenanceTask):
    """Maintenance of a table that runs, or that ended less than a day ago."""

    table: str = Field(description="The table's name.")
    table_id: str


class FleetTasksResponse(Answer):
    """Tasks of all tables, the running ones first, then newest first."""

    tasks: list[FleetTask] = Field(description="At most `limit` tasks.")


class FleetConflict(CommitConflict):
    """A commit that failed because of another one."""

    table: str = Field(description="The table's name.")
    table_id: str


class FleetConflictsResponse(Answer):
    """Conflicts of all tables."""

    conflicts: list[FleetConflict] = Field(description="Newest first.")
