"""Changes of tables that are computed from their newest version: ALTER TABLE, RESTORE and repairs.

Tested in `tests/integration/service/alter_table/test_alteration_commit.py` and `tests/integration/service/alter_table/test_restore.py`.
"""

from typing import Final

from delvec_contract.alterations import AlterRequest, AlterResponse
from delvec_contract.maintenance import (
    RepairedFinding,
    RepairRequest,
    RepairResponse,
    RestoreRequest,
    RestoreResponse,
    UnrepairedFinding,
)
from delvec_service.alter_table.alteration_commit import Altered, Unchanged, alter
from delvec_service.alter_table.repair import Repaired, repair
from delvec_service.alter_table.restore import NotRestored, Restored, restore
from delvec_service.commits.commit import Rebased
from delvec_service.logs import bind_log_context
from delvec_service.operations.call import Call, transaction_id

_MAX_SHOWN: Final = 1000


def alter_table(call: Call[AlterRequest]) -> AlterResponse:
    """Apply changes in order and commit them together. A conflict returns status 409 and names the winning commit."""
    table, service, request = call.table, call.service, call.request
    key = transaction_id(request.transaction_id, call.key)
    bind_log_context(change=", ".join(each.change for each in request.changes))
    result = alter(table, service.loader, service.commits, service.log_maintenance, request, key)
    if isinstance(result, Altered):
        commit = result.committed
        return AlterResponse(
            result="rebased" if isinstance(commit, Rebased) else "committed",
            version=commit.version,
            read_version=commit.read_version,
            transaction_id=commit.transaction_id,
            winners_passed=list(commit.winners_passed),
            operation=result.operation,
        )
    if isinstance(result, Unchanged):
        return AlterResponse(
            result="nothing-to-do",
            version=None,
            read_version=result.read_version,
            transaction_id=result.transaction_id,
        )
    raise result.error(table.name)


def restore_table(call: Call[RestoreRequest]) -> RestoreResponse:
    """Restore the table to an earlier version, in one commit. The history stays."""
    table, service, request = call.table, call.service, call.request
    target = f"to {request.timestamp if request.version is None else f'version {request.version}'}"
    bind_log_context(change=f"dry run {target}" if request.dry_run else target)
    result = restore(
        table,
        service.loader,
        service.commits,
        service.deletion_locks,
        service.clone_store,
        request,
        call.key,
    )
    if isinstance(result, Restored):
        commit = result.committed
        return RestoreResponse(
            result="rebased" if isinstance(commit, Rebased) else "committed",
            version=commit.version,
            read_version=commit.read_version,
            restored_version=result.restored_version,
            transaction_id=commit.transaction_id,
            winners_passed=list(commit.winners_passed),
            operation_metrics=dict(commit.metrics),
        )
    if isinstance(result, NotRestored):
        restore_plan = result.restoration
        return RestoreResponse(
            result="nothing-to-do" if restore_plan is None else "dry-run",
            version=None,
            read_version=result.read_version,
            restored_version=result.restored_version,
            transaction_id=call.transaction_id,
            operation_metrics={} if restore_plan is None else dict(restore_plan.metrics),
        )
    raise result.error(table.name)


def repair_table(call: Call[RepairRequest]) -> RepairResponse:
    """Repair the findings that have exactly one right fix, in one commit. Returns what is left to do, and why."""
    table, service, request = call.table, call.service, call.request
    if request.dry_run:
        bind_log_context(change="dry run")
    repair_result = repair(table, service.loader, service.commits, request, call.transaction_id)
    if not isinstance(repair_result, Repaired):
        raise repair_result.error(table.name)
    left = sorted(repair_result.left, key=lambda each: each.finding.severity)
    return RepairResponse(
        table=table.name,
        result="committed"
        if repair_result.versions
        else "dry-run"
        if request.dry_run and repair_result.repairs
        else "nothing-to-do",
        version=repair_result.versions[-1] if repair_result.versions else None,
        versions=repair_result.versions,
        read_version=repair_result.read_version,
        num_repaired=len(repair_result.repairs),
        num_unrepaired=len(left),
        num_lost_rows=repair_result.lost_rows,
        repaired=[
            RepairedFinding(
                invariant=each.finding.invariant,
                version=each.finding.version,
                file=each.file,
                message=each.finding.message,
                action=each.action,
                repair=each.what,
                reason=each.why,
            )
            for each in repair_result.repairs[:_MAX_SHOWN]
        ],
        unrepaired=[
            UnrepairedFinding(
                invariant=each.finding.invariant,
                severity=each.finding.severity,
                version=each.finding.version,
                file=each.finding.file,
                message=each.finding.message,
                reason=each.reason,
            )
            for each in left[:_MAX_SHOWN]
        ],
        operation_metrics=dict(repair_result.metrics),
    )
