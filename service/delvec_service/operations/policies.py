"""Maintenance policies, their leases and runs, and the tasks under way.

Tested in `tests/integration/service/api/test_policies.py`.
"""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from delvec_contract.access import GrantScope, Role
from delvec_contract.fleet import FleetTasksResponse
from delvec_contract.parameters import AllTasksParameters, LeaseParameters, RunsParameters
from delvec_contract.policies import (
    LeaseRequest,
    LeaseResponse,
    MaintenanceRun,
    MaintenanceRunsResponse,
    MaintenanceTasksResponse,
    PoliciesResponse,
    Policy,
    PolicyRequest,
    TaskReport,
)
from delvec_errors import PermissionDenied, PolicyNotFound, TableNotFound
from delvec_maintenance.policies import applicable
from delvec_service.logs import bind_log_context
from delvec_service.operations.call import Call
from delvec_service.snapshots.time_travel import since_of


def set_policy(call: Call[PolicyRequest]) -> Policy:
    """Create a maintenance policy, or replace the one with the same name."""
    service, access, request = call.service, call.access, call.request
    bind_log_context(table=request.table, change=f"policy {request.name}")
    record = None if request.table is None else service.tables.find(request.table, access)
    if record is not None:
        bind_log_context(table=record.name, table_id=record.id)
        access.require(record, "maintainer", request.table)
    else:
        access.require_scope(*_scope(request.pattern), "maintainer")
    with suppress(PolicyNotFound):
        replaced = service.maintenance.policy(service.tables.catalog, request.name)
        if not _may(call, replaced, "maintainer"):
            raise PermissionDenied(
                f"Policy '{request.name}' already exists for tables that '{access.name}' does not maintain; choose "
                "another name.",
                policy=request.name,
            )
    policy = Policy(
        name=request.name,
        type=request.type,
        content=request.content,
        table_id=None if record is None else record.id,
        pattern=request.pattern,
        updated_at=datetime.now(UTC),
    )
    service.maintenance.set_policy(service.tables.catalog, policy)
    return policy


def list_policies(call: Call[None]) -> PoliciesResponse:
    """List the maintenance policies, by name."""
    policies = call.service.maintenance.policies(call.service.tables.catalog)
    call.access.is_decided = True  # There is nothing to authorize without any.
    return PoliciesResponse(policies=[one for one in policies if _may(call, one, "reader")])


def get_policy(call: Call[None]) -> Policy:
    """Return one maintenance policy."""
    name = call.path["policy"]
    policy = call.service.maintenance.policy(call.service.tables.catalog, name)
    if not _may(call, policy, "reader"):
        call.access.was_denied = True
        raise PolicyNotFound(f"Maintenance policy '{name[:128]}' does not exist.", policy=name[:128])
    return policy


def drop_policy(call: Call[None]) -> None:
    """Delete a maintenance policy."""
    name = call.path["policy"]
    bind_log_context(change=f"policy {name}")
    if not _may(call, get_policy(call), "maintainer"):
        raise PermissionDenied(
            f"'{call.access.name}' is not a maintainer of all the tables that policy '{name[:128]}' applies to.",
            policy=name[:128],
        )
    call.service.maintenance.drop_policy(call.service.tables.catalog, name)


def list_applicable_policies(call: Call[None]) -> PoliciesResponse:
    """Return the policies that apply to a table, one per type.

    A policy of the table itself takes precedence over one with a pattern, and that over one for all tables.
    """
    record = call.table.record
    policies = call.service.maintenance.policies(call.service.tables.catalog)
    held = applicable(policies, record.id, record.name)
    return PoliciesResponse(policies=[held[one] for one in sorted(held)])


def lease_table(call: Call[LeaseRequest]) -> LeaseResponse:
    """Reserve a table for maintenance, or extend the reservation."""
    table, request = call.table, call.request
    return call.service.maintenance.lease(table.record.id, table.name, request.owner, request.seconds)


def release_table(call: Call[LeaseParameters]) -> None:
    """Release a reserved table."""
    call.service.maintenance.release(call.table.record.id, call.request.owner)


def record_run(call: Call[MaintenanceRun]) -> MaintenanceRun:
    """Record a maintenance run and its result."""
    record, service = call.table.record, call.service
    run = call.request.model_copy(update={"table": record.name})
    service.maintenance.record(record.id, run)
    service.observer.maintained(run.type, run.state)
    return run


def list_runs(call: Call[RunsParameters]) -> MaintenanceRunsResponse:
    """List the maintenance runs of policies, newest first."""
    service, access, request = call.service, call.access, call.request
    start = since_of(request.since)
    identifier = None
    if request.table is not None:
        record = service.tables.find(request.table, access)
        access.require(record, "reader", request.table)
        identifier = record.id
    runs = service.maintenance.runs(
        service.tables.catalog,
        table_id=identifier,
        since=start,
        run_type=request.type,
        state=request.state,
        limit=request.limit,
        visible=access.sees if access.is_restricted else None,
    )
    access.is_decided = True
    return MaintenanceRunsResponse(runs=list(runs))


def report_task(call: Call[TaskReport]) -> TaskReport:
    """Report how far a task is: for engines, every second or two while they rewrite files, and when they end."""
    principal = call.access.principal
    who = None if principal is None else principal.name
    call.service.maintenance.report(call.table.record.id, call.request, who)
    return call.request


def list_tasks(call: Call[None]) -> MaintenanceTasksResponse:
    """List the table's running OPTIMIZE and PURGE, wherever they run, and those that ended less than a day ago.

    Those that take less than a second are not listed; what they did is in the history.
    """
    return MaintenanceTasksResponse(tasks=list(call.service.maintenance.tasks(call.table.record.id)))


def list_all_tasks(call: Call[AllTasksParameters]) -> FleetTasksResponse:
    """List OPTIMIZE and PURGE of all tables, wherever they run: those that run first, then those that ended within a day."""
    service, access = call.service, call.access
    visible = access.sees if access.is_restricted else None
    tasks = service.maintenance.all_tasks(service.tables.catalog, call.request.limit, visible)
    access.is_decided = True
    return FleetTasksResponse(tasks=list(tasks))


def _scope(pattern: str | None) -> tuple[GrantScope, str]:
    return ("all", "") if pattern is None else ("pattern", pattern)


def _may(call: Call[Any], policy: Policy, role: Role) -> bool:
    """Whether the caller has a role on all the tables that a policy applies to."""
    access = call.access
    if policy.table_id is None or not access.is_restricted:
        return access.covers(*_scope(policy.pattern), role)
    try:
        record = call.service.tables.find(policy.table_id, access)
        access.require(record, role)
    except (TableNotFound, PermissionDenied):
        return False
    return True
