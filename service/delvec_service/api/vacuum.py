"""``…/vacuum``: delete files that nothing refers to any more.

Tested in `tests/integration/service/vacuum/test_vacuum.py` and
`tests/integration/service/vacuum/test_quarantine.py`.
"""

from typing import Annotated, Final, Literal

from fastapi import Path

from delvec_kernel.errors import (
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
from delvec_kernel.wire import (
    PurgeResponse,
    QuarantinesResponse,
    UndoResponse,
    VacuumRequest,
    VacuumResponse,
)
from delvec_service.api.dependencies import Caller, ServiceState, Table
from delvec_service.api.problems import COMMON, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import Maintenance
from delvec_service.api.resource import resource_router
from delvec_service.logs import note
from delvec_service.vacuum.quarantine import purge_quarantine, quarantines, undo_quarantine
from delvec_service.vacuum.vacuum import Vacuumed, vacuum

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
    wanted = body or VacuumRequest()
    note(change="dry run" if wanted.dry_run else "quarantine" if wanted.quarantine else "delete")
    service.tables.places.check_deletions(table.record, access)
    done = vacuum(
        table,
        service.loader,
        service.ledger,
        service.clone_store,
        service.tables.roots.everywhere,
        service.commits,
        service.deletion_locks,
        wanted,
        user_name=None if access.principal is None else access.principal.name,
        shows=lambda location: service.tables.places.shows(location, access),
    )
    plan = done.plan
    paths = [*done.files[: wanted.limit], *(f"{path}/" for path in done.directories)]
    return VacuumResponse(
        table=table.name,
        result=_result(wanted, done),
        version=plan.version,
        retention_hours=plan.retention.milliseconds / 3_600_000,
        num_files=len(done.files),
        size_in_bytes=done.size_in_bytes,
        num_empty_directories=len(done.directories),
        num_directories=plan.num_directories,
        files=paths[: wanted.limit],
        start_version=done.start_version,
        end_version=done.end_version,
        quarantine=done.quarantine,
    )


def _result(
    wanted: VacuumRequest, done: Vacuumed
) -> Literal["deleted", "quarantined", "nothing-to-delete", "dry-run"]:
    if wanted.dry_run:
        return "dry-run"
    if not done.deleted:
        return "nothing-to-delete"
    return "deleted" if done.quarantine is None else "quarantined"


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
    note(change=quarantine)
    done = undo_quarantine(table, service.loader, quarantine)
    return UndoResponse(
        table=table.name,
        quarantine=done.record,
        num_files=done.num_files,
        size_in_bytes=done.size_in_bytes,
        kept=done.kept[:_NAMED],
    )


@router.post(
    "/tables/{table}/quarantines/{quarantine}/purge",
    responses=responses(*MUTATION, *OPENING, *SNAPSHOT, *_EMPTYING),
)
def purge_vacuumed(table: Table, quarantine: _Name, service: ServiceState) -> PurgeResponse:
    """Delete the files of a quarantine permanently."""
    note(change=quarantine)
    done = purge_quarantine(table, service.loader, quarantine)
    return PurgeResponse(
        table=table.name,
        quarantine=quarantine,
        num_files=done.num_files,
        size_in_bytes=done.size_in_bytes,
    )
