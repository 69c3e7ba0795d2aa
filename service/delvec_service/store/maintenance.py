"""Maintenance policies, table leases, and runs, in SQL.

Policies and runs are stored only here: after deleting the database, policies have to be set again. No answer about a
table's data depends on any of it, nor does its safety: a lease keeps two replicas from doing the same work twice.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, or_, select

from delvec_kernel.errors import MaintenanceUnderWay, PolicyNotFound
from delvec_kernel.wire import LeaseResponse, MaintenanceRun, Policy, PolicyContent
from delvec_kernel.wire.policies import PolicyType, RunState
from delvec_service.store.database import Database, insert_into
from delvec_service.store.models import (
    MaintenanceLeaseRow,
    MaintenancePolicyRow,
    MaintenanceRunRow,
    TableRow,
)

__all__ = ["MaintenanceStore"]

_KEPT: Final = timedelta(days=366)
_RUN: Final = tuple(name for name in MaintenanceRun.model_fields if name != "table")


class MaintenanceStore:
    """Policies, leases and runs; safe to share between threads.

    All methods raise ServiceUnavailable without a database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def set_policy(self, catalog: str, policy: Policy) -> None:
        """Store a policy, replacing one with the same name."""
        values = {
            "type": policy.type,
            "table_id": policy.table_id,
            "pattern": policy.pattern,
            "content": json.dumps(policy.content.model_dump(by_alias=True)),
            "updated_at": policy.updated_at,
        }
        with self._database.write() as session:
            statement = insert_into(session, MaintenancePolicyRow).values(
                catalog=catalog, name=policy.name, **values
            )
            session.execute(statement.on_conflict_do_update(index_elements=["catalog", "name"], set_=values))

    def policies(self, catalog: str) -> Sequence[Policy]:
        """Return the policies of a catalog, by name."""
        row = MaintenancePolicyRow
        query = select(row).where(row.catalog == catalog).order_by(row.name)
        with self._database.read() as session:
            return [_policy(found) for found in session.scalars(query)]

    def policy(self, catalog: str, name: str) -> Policy:
        """Return a policy.

        Raises:
            PolicyNotFound: no policy has that name.
        """
        with self._database.read() as session:
            found = session.get(MaintenancePolicyRow, (catalog, name))
        if found is None:
            raise PolicyNotFound(f"Maintenance policy '{name[:128]}' does not exist.", policy=name[:128])
        return _policy(found)

    def drop_policy(self, catalog: str, name: str) -> None:
        """Delete a policy.

        Raises:
            PolicyNotFound: no policy has that name.
        """
        row = MaintenancePolicyRow
        self.policy(catalog, name)
        with self._database.write() as session:
            session.execute(delete(row).where(row.catalog == catalog, row.name == name))

    def lease(self, table_id: str, name: str, owner: str, seconds: float) -> LeaseResponse:
        """Acquire or extend the lease of a table; the name is for the error.

        Raises:
            MaintenanceUnderWay: another holder has the lease.
        """
        row, now = MaintenanceLeaseRow, datetime.now(UTC)
        until = now + timedelta(seconds=seconds)
        with self._database.write() as session:
            statement = insert_into(session, row).values(table_id=table_id, owner=owner, expires_at=until)
            session.execute(
                statement.on_conflict_do_update(
                    index_elements=["table_id"],
                    set_={"owner": owner, "expires_at": until},
                    where=or_(row.owner == owner, row.expires_at <= now),
                )
            )
            found = session.execute(select(row.owner, row.expires_at).where(row.table_id == table_id)).one()
        if found.owner != owner:
            raise MaintenanceUnderWay(
                f"Maintenance of table '{name}' is already running elsewhere, until {found.expires_at:%H:%M:%S} UTC "
                "at the latest.",
                table=name,
                owner=found.owner,
                expires_at=found.expires_at.isoformat(),
            )
        return LeaseResponse(owner=owner, expires_at=found.expires_at)

    def release(self, table_id: str, owner: str) -> None:
        """Release a lease; another holder's lease stays."""
        row = MaintenanceLeaseRow
        with self._database.write() as session:
            session.execute(delete(row).where(row.table_id == table_id, row.owner == owner))

    def record(self, table_id: str, run: MaintenanceRun) -> None:
        """Store a run; storing it again has no effect. Runs older than a year are deleted."""
        row = MaintenanceRunRow
        values: dict[str, Any] = {name: getattr(run, name) for name in _RUN}
        with self._database.write() as session:
            statement = insert_into(session, row).values(table_id=table_id, **values)
            session.execute(statement.on_conflict_do_nothing())
            session.execute(
                delete(row).where(row.table_id == table_id, row.started_at < datetime.now(UTC) - _KEPT)
            )

    def runs(
        self,
        catalog: str,
        *,
        table_id: str | None = None,
        since: datetime | None = None,
        run_type: PolicyType | None = None,
        state: RunState | None = None,
        limit: int = 100,
        visible: Callable[[str, str], bool] | None = None,
    ) -> Sequence[MaintenanceRun]:
        """Return runs on the registered tables of a catalog, or on one of them, newest first.

        ``visible`` decides by id and name whether to show the runs of a table.
        """
        row = MaintenanceRunRow
        query = select(row, TableRow.name, TableRow.folder_name).join(TableRow, TableRow.id == row.table_id)
        query = query.where(TableRow.catalog == catalog)
        if table_id is not None:
            query = query.where(row.table_id == table_id)
        if run_type is not None:
            query = query.where(row.type == run_type)
        if state is not None:
            query = query.where(row.state == state)
        if since is not None:
            query = query.where(row.started_at >= since)
        query = query.order_by(row.started_at.desc(), row.id)
        with self._database.read() as session:
            rows = session.execute(query.limit(limit) if visible is None else query).yield_per(1000)
            shown = (one for one in rows if visible is None or visible(one[0].table_id, one[1] or one[2]))
            return [
                MaintenanceRun(table=name or folder, **{field: getattr(run, field) for field in _RUN})
                for run, name, folder in itertools.islice(shown, limit)
            ]


def _policy(row: MaintenancePolicyRow) -> Policy:
    return Policy.model_validate(
        {
            "name": row.name,
            "type": row.type,
            "content": PolicyContent.model_validate_json(row.content),
            "table_id": row.table_id,
            "pattern": row.pattern,
            "updated_at": row.updated_at,
        }
    )
