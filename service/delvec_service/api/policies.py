"""``/v1/policies``: what is to be done to which tables, when; and what was done."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, status

from delvec_kernel.errors import MaintenanceUnderWay, PolicyNotFound
from delvec_kernel.policies import applicable
from delvec_kernel.wire import (
    LeaseRequest,
    LeaseResponse,
    MaintenanceRun,
    MaintenanceRunsResponse,
    PoliciesResponse,
    Policy,
    PolicyRequest,
)
from delvec_kernel.wire.policies import PolicyType, RunState
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import COMMON, MUTATION, OPENING, responses
from delvec_service.api.repeats import Mutation
from delvec_service.snapshots.time_travel import moment_of

__all__ = ["router"]

router = APIRouter(tags=["policies"], route_class=Mutation)

_Name = Annotated[str, Path(description="The policy's name.", max_length=128)]


@router.post("/policies", responses=responses(*MUTATION, *OPENING))
def set_policy(body: PolicyRequest, service: ServiceState) -> Policy:
    """Set a maintenance policy; it replaces one of the same name."""
    policy = Policy(
        name=body.name,
        type=body.type,
        content=body.content,
        table_id=None if body.table is None else service.tables.open(body.table).record.id,
        pattern=body.pattern,
        updated_at=datetime.now(UTC),
    )
    service.maintenance.set_policy(service.tables.catalog, policy)
    return policy


@router.get("/policies", responses=responses(*COMMON))
def list_policies(service: ServiceState) -> PoliciesResponse:
    """List the maintenance policies, by name."""
    return PoliciesResponse(policies=list(service.maintenance.policies(service.tables.catalog)))


@router.get("/policies/{policy}", responses=responses(*COMMON, PolicyNotFound))
def get_policy(policy: _Name, service: ServiceState) -> Policy:
    """Return one maintenance policy."""
    return service.maintenance.policy(service.tables.catalog, policy)


@router.delete(
    "/policies/{policy}",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(*MUTATION, PolicyNotFound),
)
def drop_policy(policy: _Name, service: ServiceState) -> None:
    """Forget a maintenance policy."""
    service.maintenance.drop_policy(service.tables.catalog, policy)


@router.get("/tables/{table}/policies", responses=responses(*COMMON, *OPENING))
def list_applicable_policies(table: Table, service: ServiceState) -> PoliciesResponse:
    """Return the policies that hold for a table, one per type: its own before a pattern's, and that before those for all."""
    found = service.maintenance.policies(service.tables.catalog)
    held = applicable(found, table.record.id, table.record.name)
    return PoliciesResponse(policies=[held[one] for one in sorted(held)])


@router.post(
    "/tables/{table}/maintenance-lease", responses=responses(*MUTATION, *OPENING, MaintenanceUnderWay)
)
def lease_table(table: Table, body: LeaseRequest, service: ServiceState) -> LeaseResponse:
    """Reserve a table for those who are about to look after it, or extend what they have."""
    return service.maintenance.lease(table.record.id, table.name, body.owner, body.seconds)


@router.delete(
    "/tables/{table}/maintenance-lease",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(*MUTATION, *OPENING),
)
def release_table(
    table: Table,
    service: ServiceState,
    owner: Annotated[str, Query(max_length=128, description="Who had it; another one's lease stays.")],
) -> None:
    """Give a reserved table back."""
    service.maintenance.release(table.record.id, owner)


@router.post("/tables/{table}/maintenance-runs", responses=responses(*MUTATION, *OPENING))
def record_run(table: Table, body: MaintenanceRun, service: ServiceState) -> MaintenanceRun:
    """Keep what was done to a table, and what came of it."""
    run = body.model_copy(update={"table": table.record.name})
    service.maintenance.record(table.record.id, run)
    service.observer.maintained(run.type, run.state)
    return run


@router.get("/maintenance-runs", responses=responses(*COMMON, *OPENING))
def list_runs(
    service: ServiceState,
    table: Annotated[
        str | None, Query(max_length=200, description="Only runs on this table, by name or id.")
    ] = None,
    since: Annotated[
        str | None,
        Query(
            max_length=64,
            description="Only runs that began then or later: ISO 8601; without a zone it is UTC.",
        ),
    ] = None,
    run_type: Annotated[PolicyType | None, Query(alias="type", description="Only runs of this type.")] = None,
    state: Annotated[RunState | None, Query(description="Only what was done, or what failed.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Only the newest so many.")] = 100,
) -> MaintenanceRunsResponse:
    """List what was done to tables by their policies, the newest first."""
    start = None if since is None else moment_of("since", since)
    identifier = None if table is None else service.tables.open(table).record.id
    found = service.maintenance.runs(
        service.tables.catalog, table_id=identifier, since=start, run_type=run_type, state=state, limit=limit
    )
    return MaintenanceRunsResponse(runs=list(found))
