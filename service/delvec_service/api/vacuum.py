"""``…/vacuum``: delete the files that nothing refers to any more."""

from fastapi import APIRouter

from delvec_kernel.errors import (
    AtomicCreateUnsupported,
    CommitOutcomeUnknown,
    ConcurrentModification,
    ConcurrentWrite,
    CorruptDeletionVector,
    CorruptTable,
    RetentionTooShort,
    UnsupportedWriterFeature,
    VacuumIncomplete,
    VacuumLiteImpossible,
)
from delvec_kernel.wire import VacuumRequest, VacuumResponse
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import Maintenance
from delvec_service.vacuum.vacuum import vacuum

__all__ = ["router"]


router = APIRouter(tags=["maintenance"], route_class=Maintenance)


@router.post(
    "/tables/{table}/vacuum",
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        RetentionTooShort,
        VacuumLiteImpossible,
        CorruptTable,
        CorruptDeletionVector,
        UnsupportedWriterFeature,
        VacuumIncomplete,
        ConcurrentModification,
        ConcurrentWrite,
        CommitOutcomeUnknown,
        AtomicCreateUnsupported,
    ),
)
def vacuum_table(table: Table, service: ServiceState, body: VacuumRequest | None = None) -> VacuumResponse:
    """Delete the files that no retained version, tombstone or transaction under way needs."""
    wanted = body or VacuumRequest()
    done = vacuum(table, service.loader, service.ledger, service.clone_store, service.commits, wanted)
    plan = done.plan
    paths = [*done.files[: wanted.limit], *(f"{path}/" for path in done.directories)]
    return VacuumResponse(
        table=table.name,
        result="dry-run" if wanted.dry_run else "deleted" if done.deleted else "nothing-to-delete",
        version=plan.version,
        retention_hours=plan.retention.milliseconds / 3_600_000,
        num_files=len(done.files),
        size_in_bytes=done.size_in_bytes,
        num_empty_directories=len(done.directories),
        num_directories=plan.num_directories,
        files=paths[: wanted.limit],
        start_version=done.start_version,
        end_version=done.end_version,
    )
