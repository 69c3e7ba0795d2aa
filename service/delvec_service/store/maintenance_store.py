"""Maintenance policies, table leases, and runs, in SQL.

Policies and runs are stored only here: after deleting the database, policies have to be set again. No answer about a
table's data depends on any of it, nor does its safety: a lease keeps two replicas from doing the same work twice.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import and_, delete, func, or_, select

from delvec_contract.fleet import FleetTask
from delvec_contract.policies import (
    LeaseResponse,
    MaintenanceRun,
    MaintenanceTask,
    Policy,
    PolicyContent,
    RunState,
    TaskReport,
)
from delvec_errors import MaintenanceUnderWay, PolicyNotFound
from delvec_maintenance.policies import PolicyType
from delvec_service.store.database import Database, insert_into, visible_rows
from delvec_service.store.event_store import Event, EventStore, event_id
from delvec_service.store.models import (
    MaintenanceLeaseRow,
    MaintenancePolicyRow,
    MaintenanceRunRow,
    MaintenanceTaskRow,
    TableRow,
)

__all__ = ["MaintenanceStore"]

_RETENTION: Final = timedelta(days=366)
_TASKS_KEPT: Final = timedelta(days=1)
_SILENCE: Final = timedelta(minutes=1)
"""Reports come every second or two; after this long without one a task is lost."""
_MAX_TASKS: Final = 20
_MAX_TASKS_KEPT: Final = 200
"""Of a table: anybody who writes it may report tasks."""
_TASK: Final = tuple(
    name for name in MaintenanceTask.model_fields if name not in ("bytes_per_second", "seconds_left")
)
_RUN: Final = tuple(name for name in MaintenanceRun.model_fields if name != "table")


class MaintenanceStore:
    """Policies, leases and runs; safe to share between threads.

    All methods raise ServiceUnavailable without a database.

    Args:
        database: where they are stored.
        events: records runs as events.
    """

    def __init__(self, database: Database, events: EventStore | None = None) -> None:
        self._database = database
        self._events = events or EventStore(database, is_enabled=False)

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
            lease = session.execute(select(row.owner, row.expires_at).where(row.table_id == table_id)).one()
        if lease.owner != owner:
            raise MaintenanceUnderWay(
                f"Maintenance of table '{name}' is already running elsewhere, until {lease.expires_at:%H:%M:%S} UTC "
                "at the latest.",
                table=name,
                owner=lease.owner,
                expires_at=lease.expires_at.isoformat(),
            )
        return LeaseResponse(owner=owner, expires_at=lease.expires_at)

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
                delete(row).where(row.table_id == table_id, row.started_at < datetime.now(UTC) - _RETENTION)
            )
            self._events.add(session, [_event(table_id, run)])

    def report(self, table_id: str, report: TaskReport, principal: str | None) -> None:
        """Store how far a task is; those not heard of for a day are deleted, and all but the newest 200 of the table.

        A report that arrives after the one of the task's end has no effect.
        """
        row, now = MaintenanceTaskRow, datetime.now(UTC)
        changing = {
            "state": report.state,
            "updated_at": now,
            "num_files": report.num_files,
            "files_done": report.files_done,
            "size_in_bytes": report.size_in_bytes,
            "bytes_done": report.bytes_done,
        }
        with self._database.write() as session:
            statement = insert_into(session, row).values(
                table_id=table_id,
                id=report.id,
                operation=report.operation,
                engine=report.engine,
                principal=principal,
                started_at=now - timedelta(seconds=report.elapsed_seconds),
                **changing,
            )
            session.execute(
                statement.on_conflict_do_update(
                    index_elements=["table_id", "id"], set_=changing, where=row.state == "running"
                )
            )
            session.execute(delete(row).where(row.table_id == table_id, row.updated_at < now - _TASKS_KEPT))
        newest = select(row.id).where(row.table_id == table_id).order_by(row.updated_at.desc(), row.id)
        surplus = newest.offset(_MAX_TASKS_KEPT)
        with self._database.read() as session:
            gone = list(session.scalars(surplus))
        if gone:
            # In a transaction of its own, or two that report at once could wait for each other.
            with self._database.write() as session:
                session.execute(delete(row).where(row.table_id == table_id, row.id.in_(gone)))

    def tasks(self, table_id: str, limit: int = _MAX_TASKS) -> Sequence[MaintenanceTask]:
        """Return the tasks of a table, newest first: those that run, and those that ended less than a day ago.

        If there are more than ``limit``, those that run come before those that ended.
        """
        row, now = MaintenanceTaskRow, datetime.now(UTC)
        query = select(row).where(row.table_id == table_id, row.updated_at >= now - _TASKS_KEPT)
        runs = and_(row.state == "running", row.updated_at >= now - _SILENCE)
        query = query.order_by(runs.desc(), row.started_at.desc(), row.id).limit(limit)
        with self._database.read() as session:
            found = [_task(one, now) for one in session.scalars(query)]
        return sorted(found, key=lambda task: task.started_at, reverse=True)

    def all_tasks(
        self, catalog: str, limit: int, visible: Callable[[str, str], bool] | None
    ) -> Sequence[FleetTask]:
        """Return tasks of all registered tables of a catalog: those that run first, then the newest first.

        ``visible`` decides by id and name whether to show the tasks of a table.
        """
        row, now = MaintenanceTaskRow, datetime.now(UTC)
        runs = and_(row.state == "running", row.updated_at >= now - _SILENCE)
        query = (
            select(row.table_id, func.coalesce(TableRow.name, TableRow.folder_name), row)
            .join(TableRow, TableRow.id == row.table_id)
            .where(TableRow.catalog == catalog, row.updated_at >= now - _TASKS_KEPT)
            .order_by(runs.desc(), row.started_at.desc(), row.table_id, row.id)
        )
        with self._database.read() as session:
            return [
                FleetTask(**_task(task, now).model_dump(), table=name, table_id=table_id)
                for table_id, name, task in visible_rows(session, query, limit, visible)
            ]

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
        name = func.coalesce(TableRow.name, TableRow.folder_name)
        query = select(row.table_id, name, row).join(TableRow, TableRow.id == row.table_id)
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
            return [
                MaintenanceRun(table=table, **{field: getattr(run, field) for field in _RUN})
                for _, table, run in visible_rows(session, query, limit, visible)
            ]


def _event(table_id: str, run: MaintenanceRun) -> Event:
    data = run.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"table"})
    id_ = event_id("maintenance", table_id, run.id)
    return Event(id_, table_id, "delvec.maintenance", run.ended_at, data)


def _task(row: MaintenanceTaskRow, now: datetime) -> MaintenanceTask:
    is_lost = row.state == "running" and now - row.updated_at > _SILENCE
    seconds = (row.updated_at - row.started_at).total_seconds()
    rate = row.bytes_done / seconds if row.bytes_done and seconds > 0 else None
    runs = row.state == "running" and not is_lost
    facts = {name: getattr(row, name) for name in _TASK}
    return MaintenanceTask.model_validate(
        {
            **facts,
            "state": "lost" if is_lost else row.state,
            "bytes_per_second": rate,
            "seconds_left": (row.size_in_bytes - row.bytes_done) / rate if runs and rate else None,
        }
    )


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
