"""What handlers get: the running service, and the table that a URL names."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import Depends, Path, Query, Request

from delvec_kernel.errors import BadRequest
from delvec_service.api.lanes import Lanes, in_thread
from delvec_service.commits.commit import Commits
from delvec_service.commits.idempotency import Answers
from delvec_service.commits.outcomes import Outcomes
from delvec_service.commits.overwrite_watch import OverwriteWatch
from delvec_service.commits.vector_compaction import VectorCompaction
from delvec_service.config import Settings
from delvec_service.dml import RowCommands
from delvec_service.logs import note
from delvec_service.maintenance.health_watch import HealthWatch
from delvec_service.maintenance.log_upkeep import LogUpkeep
from delvec_service.maintenance.symlink_manifests import SymlinkManifests
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.clones import CloneStore
from delvec_service.store.database import Database
from delvec_service.store.ledger import Ledger
from delvec_service.store.maintenance import MaintenanceStore
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.registry import Tables
from delvec_service.telemetry.observer import Observer

__all__ = ["Moment", "PointInTime", "Service", "ServiceState", "Table"]


@dataclass(frozen=True)
class Service:
    """The parts that live as long as the application."""

    settings: Settings
    database: Database
    ledger: Ledger
    loader: SnapshotLoader
    tables: Tables
    commits: Commits
    manifests: SymlinkManifests
    vector_compaction: VectorCompaction
    upkeep: LogUpkeep
    own_commits: OverwriteWatch
    health: HealthWatch
    clone_store: CloneStore
    maintenance: MaintenanceStore
    answers: Answers
    outcomes: Outcomes
    row_commands: RowCommands
    lanes: Lanes
    observer: Observer


# What does no I/O is a coroutine: each plain function costs a change of thread and back.


async def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)  # noqa: S101 - set by create_app
    return service


ServiceState: TypeAlias = Annotated[Service, Depends(_service)]


async def _table(
    service: ServiceState,
    table: Annotated[str, Path(description="The table's name or id.", max_length=200)],
) -> OpenTable:
    found = service.tables.opened(table)
    if found is None:
        found = await in_thread(service.tables.open, table)
    note(table=found.name)
    return found


Table: TypeAlias = Annotated[OpenTable, Depends(_table)]


@dataclass(frozen=True)
class Moment:
    """Which version a request is about: a number, a time, or neither for the newest."""

    version: int | None
    timestamp: str | None


async def _moment(
    version: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    timestamp: Annotated[
        str | None, Query(max_length=64, description="ISO 8601; without a zone it is UTC.")
    ] = None,
) -> Moment:
    if version is not None and timestamp is not None:
        raise BadRequest("Give a version or a timestamp, not both.")
    return Moment(version, timestamp)


PointInTime: TypeAlias = Annotated[Moment, Depends(_moment)]
