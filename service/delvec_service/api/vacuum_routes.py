"""``…/vacuum``: delete files that nothing refers to any more.

Tested in `tests/integration/service/vacuum/test_vacuum.py` and
`tests/integration/service/vacuum/test_quarantine.py`.
"""

from typing import Annotated, Final, Literal

from fastapi import Path

from delvec_contract.maintenance import (
    PurgeResponse,
    QuarantinesResponse,
    UndoResponse,
    VacuumRequest,
    VacuumResponse,
)
from delvec_errors import (
    AtomicCreateUnsupported,
    CommitOutcomeUnknown,
    ConcurrentModification,
    ConcurrentWrite,
    CorruptDeletionVector,
    CorruptTable,
    LocationNotAllowed,
    QuarantineNotFound,
    RetentionTooShort,
    UnsupportedWriterFeature,
    VacuumIncomplete,
    VacuumLiteImpossible,
)
from delvec_service.api.dependencies import Caller, ServiceState, Table
from delvec_service.api.problems import COMMON, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import Maintenance
from delvec_service.api.resource import resource_router
from delvec_service.logs import bind_log_context
from delvec_service.vacuum.quarantine import purge_quarantine, quarantines, undo_quarantine
from delvec_service.vacuum.vacuum import VacuumResult, vacuum

__all__ = ["router"]


class _Vacuuming(Maintenance):
    """The answer contains lists of files."""

    large = True


router = resource_router("maintenance", _Vacuuming)

_EMPTYING: Final = (CorruptTable, QuarantineNotFound, UnsupportedWriterFeature)
_NAMED: Final = 1000
_Name = Annotated[
    str,
    Path(description="The name of the quarantine.", max_length=64, pattern=r"^[0-9A-Za-z][0-9A-Za-z-]*$"),
]


@router.post(
    "/tables/{table}/vacuum",
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        LocationNotAllowed,
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
def vacuum_table(
    table: Table, service: ServiceState, access: Caller, body: VacuumRequest | None = None
) -> VacuumResponse:
    """Delete the files that no retained version, tombstone or running transaction needs."""
    request = body or VacuumRequest()
    bind_log_context(
        change="dry run" if request.dry_run else "quarantine" if request.quarantine else "delete"
    )
    service.tables.places.check_deletions(table.record, access)
    vacuum_result = vacuum(
        table,
        service.loader,
        service.ledger,
        service.clone_store,
        service.tables.roots.everywhere,
        service.commits,
        service.deletion_locks,
        request,
        user_name=None if access.principal is None else access.principal.name,
        shows=lambda location: service.tables.places.shows(location, access),
    )
    plan = vacuum_result.plan
    paths = [*vacuum_result.files[: request.limit], *(f"{path}/" for path in vacuum_result.directories)]
    return VacuumResponse(
        table=table.name,
        result=_result(request, vacuum_result),
        version=plan.version,
        retention_hours=plan.retention.milliseconds / 3_600_000,
        num_files=len(vacuum_result.files),
        size_in_bytes=vacuum_result.size_in_bytes,
        num_empty_directories=len(vacuum_result.directories),
        num_directories=plan.num_directories,
        files=paths[: request.limit],
        start_version=vacuum_result.start_version,
        end_version=vacuum_result.end_version,
        quarantine=vacuum_result.quarantine,
    )


def _result(
    wanted: VacuumRequest, vacuum_result: VacuumResult
) -> Literal["deleted", "quarantined", "nothing-to-delete", "dry-run"]:
    if wanted.dry_run:
        return "dry-run"
    if not vacuum_result.deleted:
        return "nothing-to-delete"
    return "deleted" if vacuum_result.quarantine is None else "quarantined"


@router.get("/tables/{table}/quarantines", responses=responses(*COMMON, *OPENING, CorruptTable))
def list_quarantines(table: Table) -> QuarantinesResponse:
    """List the quarantines of a table, newest first."""
    return QuarantinesResponse(quarantines=quarantines(table))


@router.post(
    "/tables/{table}/quarantines/{quarantine}/undo",
    responses=responses(*MUTATION, *OPENING, *SNAPSHOT, *_EMPTYING),
)
def undo_vacuum(table: Table, quarantine: _Name, service: ServiceState) -> UndoResponse:
    """Move the files of a quarantine back."""
    bind_log_context(change=quarantine)
    emptied_quarantine = undo_quarantine(table, service.loader, quarantine)
    return UndoResponse(
        table=table.name,
        quarantine=emptied_quarantine.record,
        num_files=emptied_quarantine.num_files,
        size_in_bytes=emptied_quarantine.size_in_bytes,
        kept=emptied_quarantine.kept[:_NAMED],
    )


@router.post(
    "/tables/{table}/quarantines/{quarantine}/purge",
    responses=responses(*MUTATION, *OPENING, *SNAPSHOT, *_EMPTYING),
)
def purge_vacuumed(table: Table, quarantine: _Name, service: ServiceState) -> PurgeResponse:
    """Delete the files of a quarantine permanently."""
    bind_log_context(change=quarantine)
    done = purge_quarantine(table, service.loader, quarantine)
    return PurgeResponse(
        table=table.name,
        quarantine=quarantine,
        num_files=done.num_files,
        size_in_bytes=done.size_in_bytes,
    )
