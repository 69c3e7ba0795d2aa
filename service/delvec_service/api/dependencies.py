"""Dependencies of handlers: the running service, and the table that a URL names.

Tested in `tests/integration/service/test_http.py`.
"""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import Depends, Path, Query, Request

from delvec_errors import BadRequest
from delvec_service.api.authorizer import ACCESS, TABLE
from delvec_service.api.lanes import Lanes, in_thread
from delvec_service.auth.access import Access
from delvec_service.auth.audit import AuditLog
from delvec_service.auth.directory import Directory
from delvec_service.commits.commit import Commits
from delvec_service.commits.idempotency import Answers
from delvec_service.commits.outcomes import Outcomes
from delvec_service.commits.overwrite_watch import OverwriteWatch
from delvec_service.commits.vector_compaction import VectorCompaction
from delvec_service.config import Settings
from delvec_service.credentials.vending import CredentialVending
from delvec_service.dml import RowCommands
from delvec_service.iceberg.conversion import IcebergConversion
from delvec_service.logs import bind_log_context
from delvec_service.maintenance.health_watch import HealthWatch
from delvec_service.maintenance.log_maintenance import LogMaintenance
from delvec_service.maintenance.symlink_manifests import SymlinkManifests
from delvec_service.scans.plan_queue import PlanQueue
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.clones import CloneStore
from delvec_service.store.commit_record import CommitRecordStore
from delvec_service.store.database import Database
from delvec_service.store.deletion_locks import DeletionLocks
from delvec_service.store.iceberg_conversions import IcebergConversionStore
from delvec_service.store.ledger import Ledger
from delvec_service.store.maintenance import MaintenanceStore
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord
from delvec_service.tables.registry import Tables
from delvec_service.telemetry.observer import Observer

__all__ = ["Caller", "Moment", "PointInTime", "Service", "ServiceState", "Table", "TableName"]


@dataclass(frozen=True)
class Service:
    """The parts of the service that live as long as the application."""

    settings: Settings
    database: Database
    ledger: Ledger
    loader: SnapshotLoader
    plan_queue: PlanQueue
    tables: Tables
    commits: Commits
    manifests: SymlinkManifests
    iceberg: IcebergConversion
    iceberg_conversions: IcebergConversionStore
    vector_compaction: VectorCompaction
    log_maintenance: LogMaintenance
    overwrite_watch: OverwriteWatch
    health: HealthWatch
    commit_record: CommitRecordStore
    clone_store: CloneStore
    deletion_locks: DeletionLocks
    maintenance: MaintenanceStore
    answers: Answers
    outcomes: Outcomes
    row_commands: RowCommands
    lanes: Lanes
    observer: Observer
    directory: Directory
    credentials: CredentialVending
    audit: AuditLog


# Handlers without I/O are coroutines: a plain function costs two thread switches.


async def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)  # noqa: S101 - set by create_app
    return service


ServiceState: TypeAlias = Annotated[Service, Depends(_service)]


async def _access(request: Request) -> Access:
    access = request.scope.get(ACCESS)
    if access is None:
        # The service's own requests, on behalf of commands already authorized, do not pass through the authorizer.
        assert request.app.state.skips_authorization  # noqa: S101 - set by create_app
        return Access()
    assert isinstance(access, Access)  # noqa: S101 - set by the authorizer
    return access


Caller: TypeAlias = Annotated[Access, Depends(_access)]
"""What the request is allowed to do."""

_TableName: TypeAlias = Annotated[str, Path(description="The table's name or id.", max_length=200)]


async def _table(request: Request, service: ServiceState, table: _TableName) -> OpenTable:
    # The record that the authorizer looked up, not what the name may refer to by now.
    record: TableRecord | None = request.scope.get(TABLE)
    open_table = service.tables.opened(table if record is None else record.id)
    if open_table is None and record is not None:
        open_table = await in_thread(service.tables.opening, record)
    elif open_table is None:
        open_table = await in_thread(service.tables.open, table)
    bind_log_context(table=open_table.name, table_id=open_table.record.id)
    return open_table


Table: TypeAlias = Annotated[OpenTable, Depends(_table)]


async def _table_name(request: Request, table: _TableName) -> str:
    record: TableRecord | None = request.scope.get(TABLE)
    if record is None:
        bind_log_context(table=table)
    return table if record is None else record.id


TableName: TypeAlias = Annotated[str, Depends(_table_name)]
"""A table that may be missing, or that may not be opened."""


@dataclass(frozen=True)
class Moment:
    """The version that a request refers to: by number, by time, or the newest."""

    version: int | None
    timestamp: str | None


async def _moment(
    version: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    timestamp: Annotated[
        str | None, Query(max_length=64, description="ISO 8601; UTC if it has no time zone.")
    ] = None,
) -> Moment:
    if version is not None and timestamp is not None:
        raise BadRequest("Give either a version or a timestamp, not both.")
    return Moment(version, timestamp)


PointInTime: TypeAlias = Annotated[Moment, Depends(_moment)]
