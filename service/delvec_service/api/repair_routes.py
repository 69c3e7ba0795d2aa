"""``…/repair``: fix what a check finds, where a fix is known."""

import uuid
from typing import Final

from delvec_contract.maintenance import RepairedFinding, RepairRequest, RepairResponse, UnrepairedFinding
from delvec_errors import (
    AppendOnlyTable,
    ConcurrentTransaction,
    CorruptTable,
    InvalidCommit,
    UnsupportedTable,
    UnsupportedWriterFeature,
)
from delvec_service.alter_table.repair import Repaired, repair
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import IdempotencyKey, Maintenance
from delvec_service.api.resource import resource_router
from delvec_service.logs import bind_log_context

__all__ = ["router"]

_SHOWN: Final = 1000

router = resource_router("maintenance", Maintenance)


@router.post(
    "/tables/{table}/repair",
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        AppendOnlyTable,
        UnsupportedTable,
        UnsupportedWriterFeature,
        CorruptTable,
        InvalidCommit,
        ConcurrentTransaction,
        *CONFLICTS,
    ),
)
def repair_table(
    table: Table,
    service: ServiceState,
    body: RepairRequest | None = None,
    idempotency_key: IdempotencyKey = None,
) -> RepairResponse:
    """Repair the findings that have exactly one right fix, in one commit. Returns what is left to do, and why."""
    request = body or RepairRequest()
    if request.dry_run:
        bind_log_context(change="dry run")
    repair_result = repair(
        table, service.loader, service.commits, request, idempotency_key or str(uuid.uuid4())
    )
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
            for each in repair_result.repairs[:_SHOWN]
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
            for each in left[:_SHOWN]
        ],
        operation_metrics=dict(repair_result.metrics),
    )
