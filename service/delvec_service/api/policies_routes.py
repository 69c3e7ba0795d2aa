"""``/v1/policies``: maintenance policies, their leases, and their runs.

Tested in `tests/integration/service/api/test_policies.py`.
"""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Path, Query, status

from delvec_contract.access import GrantScope, Role
from delvec_contract.fleet import FleetTasksResponse
from delvec_contract.policies import (
    LeaseRequest,
    LeaseResponse,
    MaintenanceRun,
    MaintenanceRunsResponse,
    MaintenanceTasksResponse,
    PoliciesResponse,
    Policy,
    PolicyRequest,
    RunState,
    TaskReport,
)
from delvec_errors import MaintenanceUnderWay, PermissionDenied, PolicyNotFound, TableNotFound
from delvec_maintenance.policies import PolicyType, applicable
from delvec_service.api.dependencies import Caller, ServiceState, Table
from delvec_service.api.problems import COMMON, MUTATION, OPENING, responses
from delvec_service.api.repeats import Mutation
from delvec_service.api.resource import resource_router
from delvec_service.auth.request_access import Access
from delvec_service.logs import bind_log_context
from delvec_service.service import Service
from delvec_service.snapshots.time_travel import moment_of

__all__ = ["router"]

router = resource_router("policies", Mutation)

_Name = Annotated[str, Path(description="The policy's name.", max_length=128)]


@router.post("/policies", responses=responses(*MUTATION, *OPENING))
def set_policy(body: PolicyRequest, service: ServiceState, access: Caller) -> Policy:
    """Create a maintenance policy, or replace the one with the same name."""
    bind_log_context(table=body.table, change=f"policy {body.name}")
    record = None if body.table is None else service.tables.open(body.table, access).record
    if record is not None:
        bind_log_context(table=record.name, table_id=record.id)
        access.require(record, "maintainer", body.table)
    else:
        access.require_scope(*_scope(body.pattern), "maintainer")
    with suppress(PolicyNotFound):
        replaced = service.maintenance.policy(service.tables.catalog, body.name)
        if not _may(access, service, replaced, "maintainer"):
            raise PermissionDenied(
                f"Policy '{body.name}' already exists for tables that '{access.name}' does not maintain; choose "
                "another name.",
                policy=body.name,
            )
    policy = Policy(
        name=body.name,
        type=body.type,
        content=body.content,
        table_id=None if record is None else record.id,
        pattern=body.pattern,
        updated_at=datetime.now(UTC),
    )
    service.maintenance.set_policy(service.tables.catalog, policy)
    return policy


@router.get("/policies", responses=responses(*COMMON))
def list_policies(service: ServiceState, access: Caller) -> PoliciesResponse:
    """List the maintenance policies, by name."""
    found = service.maintenance.policies(service.tables.catalog)
    access.is_decided = True  # There is nothing to authorize without any.
    return PoliciesResponse(policies=[one for one in found if _may(access, service, one, "reader")])


@router.get("/policies/{policy}", responses=responses(*COMMON, PolicyNotFound))
def get_policy(policy: _Name, service: ServiceState, access: Caller) -> Policy:
    """Return one maintenance policy."""
    return _policy(access, service, policy)


@router.delete(
    "/policies/{policy}",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(*MUTATION, PolicyNotFound, PermissionDenied),
)
def drop_policy(policy: _Name, service: ServiceState, access: Caller) -> None:
    """Delete a maintenance policy."""
    bind_log_context(change=f"policy {policy}")
    if not _may(access, service, _policy(access, service, policy), "maintainer"):
        raise PermissionDenied(
            f"'{access.name}' is not a maintainer of all the tables that policy '{policy[:128]}' applies to.",
            policy=policy[:128],
        )
    service.maintenance.drop_policy(service.tables.catalog, policy)


@router.get("/tables/{table}/policies", responses=responses(*COMMON, *OPENING))
def list_applicable_policies(table: Table, service: ServiceState) -> PoliciesResponse:
    """Return the policies that apply to a table, one per type.

    A policy of the table itself takes precedence over one with a pattern, and that over one for all tables.
    """
    found = service.maintenance.policies(service.tables.catalog)
    held = applicable(found, table.record.id, table.record.name)
    return PoliciesResponse(policies=[held[one] for one in sorted(held)])


@router.post(
    "/tables/{table}/maintenance-lease", responses=responses(*MUTATION, *OPENING, MaintenanceUnderWay)
)
def lease_table(table: Table, body: LeaseRequest, service: ServiceState) -> LeaseResponse:
    """Reserve a table for maintenance, or extend the reservation."""
    return service.maintenance.lease(table.record.id, table.name, body.owner, body.seconds)


@router.delete(
    "/tables/{table}/maintenance-lease",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(*MUTATION, *OPENING),
)
def release_table(
    table: Table,
    service: ServiceState,
    owner: Annotated[
        str, Query(max_length=128, description="Who holds the lease; another holder's lease stays.")
    ],
) -> None:
    """Release a reserved table."""
    service.maintenance.release(table.record.id, owner)


@router.post("/tables/{table}/maintenance-runs", responses=responses(*MUTATION, *OPENING))
def record_run(table: Table, body: MaintenanceRun, service: ServiceState) -> MaintenanceRun:
    """Record a maintenance run and its result."""
    run = body.model_copy(update={"table": table.record.name})
    service.maintenance.record(table.record.id, run)
    service.observer.maintained(run.type, run.state)
    return run


@router.post(
    "/tables/{table}/maintenance-tasks",
    responses=responses(*MUTATION, *OPENING),
)
def report_task(table: Table, body: TaskReport, service: ServiceState, access: Caller) -> TaskReport:
    """Report how far a task is: for engines, every second or two while they rewrite files, and when they end."""
    principal = access.principal
    service.maintenance.report(table.record.id, body, None if principal is None else principal.name)
    return body


@router.get("/tables/{table}/maintenance-tasks", responses=responses(*COMMON, *OPENING))
def list_tasks(table: Table, service: ServiceState) -> MaintenanceTasksResponse:
    """List the table's running OPTIMIZE and PURGE, wherever they run, and those that ended less than a day ago.

    Those that take less than a second are not listed; what they did is in the history.
    """
    return MaintenanceTasksResponse(tasks=list(service.maintenance.tasks(table.record.id)))


@router.get("/maintenance-tasks", responses=responses(*COMMON))
def list_all_tasks(
    service: ServiceState,
    access: Caller,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many tasks to return.")] = 100,
) -> FleetTasksResponse:
    """List OPTIMIZE and PURGE of all tables, wherever they run: those that run first, then those that ended within a day."""
    visible = access.sees if access.is_restricted else None
    tasks = service.maintenance.all_tasks(service.tables.catalog, limit, visible)
    access.is_decided = True
    return FleetTasksResponse(tasks=list(tasks))


@router.get("/maintenance-runs", responses=responses(*COMMON, *OPENING))
def list_runs(
    service: ServiceState,
    access: Caller,
    table: Annotated[
        str | None, Query(max_length=200, description="Only runs on this table, by name or id.")
    ] = None,
    since: Annotated[
        str | None,
        Query(
            max_length=64,
            description="Only runs that began at or after this time, in ISO 8601; UTC if it has no time zone.",
        ),
    ] = None,
    run_type: Annotated[PolicyType | None, Query(alias="type", description="Only runs of this type.")] = None,
    state: Annotated[RunState | None, Query(description="Only runs that succeeded, or that failed.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many runs to return, newest first.")] = 100,
) -> MaintenanceRunsResponse:
    """List the maintenance runs of policies, newest first."""
    start = None if since is None else moment_of("since", since)
    identifier = None
    if table is not None:
        record = service.tables.open(table, access).record
        access.require(record, "reader", table)
        identifier = record.id
    runs = service.maintenance.runs(
        service.tables.catalog,
        table_id=identifier,
        since=start,
        run_type=run_type,
        state=state,
        limit=limit,
        visible=access.sees if access.is_restricted else None,
    )
    access.is_decided = True
    return MaintenanceRunsResponse(runs=list(runs))


def _scope(pattern: str | None) -> tuple[GrantScope, str]:
    return ("all", "") if pattern is None else ("pattern", pattern)


def _policy(access: Access, service: Service, name: str) -> Policy:
    """Return a policy that the principal may see.

    Raises:
        PolicyNotFound: the policy does not exist, or the principal may not see it.
    """
    found = service.maintenance.policy(service.tables.catalog, name)
    if not _may(access, service, found, "reader"):
        access.was_denied = True
        raise PolicyNotFound(f"Maintenance policy '{name[:128]}' does not exist.", policy=name[:128])
    return found


def _may(access: Access, service: Service, policy: Policy, role: Role) -> bool:
    """Whether the principal has a role on all the tables that a policy applies to."""
    if policy.table_id is None or not access.is_restricted:
        return access.covers(*_scope(policy.pattern), role)
    try:
        record = service.tables.find(policy.table_id, access)
        access.require(record, role)
    except (TableNotFound, PermissionDenied):
        return False
    return True
