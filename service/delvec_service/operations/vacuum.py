"""VACUUM: delete files that nothing refers to any more, and the quarantines that it may move them into.

Tested in `tests/integration/service/vacuum/test_vacuum.py` and
`tests/integration/service/vacuum/test_quarantine.py`.
"""

from typing import Final, Literal

from delvec_contract.maintenance import (
    PurgeResponse,
    QuarantinesResponse,
    UndoResponse,
    VacuumRequest,
    VacuumResponse,
)
from delvec_service.logs import bind_log_context
from delvec_service.operations.call import Call
from delvec_service.vacuum.quarantine import purge_quarantine, quarantines, undo_quarantine
from delvec_service.vacuum.vacuum import VacuumResult, vacuum

_MAX_NAMED: Final = 1000


def vacuum_table(call: Call[VacuumRequest]) -> VacuumResponse:
    """Delete the files that no retained version, tombstone or running transaction needs."""
    table, service, request = call.table, call.service, call.request
    bind_log_context(
        change="dry run" if request.dry_run else "quarantine" if request.quarantine else "delete"
    )
    service.tables.places.check_deletions(table.record, call.access)
    vacuum_result = vacuum(
        table,
        service.loader,
        service.ledger,
        service.clone_store,
        service.tables.roots.everywhere,
        service.commits,
        service.deletion_locks,
        request,
        user_name=None if call.access.principal is None else call.access.principal.name,
        shows=lambda location: service.tables.places.shows(location, call.access),
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


def list_quarantines(call: Call[None]) -> QuarantinesResponse:
    """List the quarantines of a table, newest first."""
    return QuarantinesResponse(quarantines=quarantines(call.table))


def undo_vacuum(call: Call[None]) -> UndoResponse:
    """Move the files of a quarantine back."""
    table, service, quarantine = call.table, call.service, call.path["quarantine"]
    bind_log_context(change=quarantine)
    emptied_quarantine = undo_quarantine(table, service.loader, quarantine)
    return UndoResponse(
        table=table.name,
        quarantine=emptied_quarantine.record,
        num_files=emptied_quarantine.num_files,
        size_in_bytes=emptied_quarantine.size_in_bytes,
        kept=emptied_quarantine.kept[:_MAX_NAMED],
    )


def purge_vacuumed(call: Call[None]) -> PurgeResponse:
    """Delete the files of a quarantine permanently."""
    table, service, quarantine = call.table, call.service, call.path["quarantine"]
    bind_log_context(change=quarantine)
    done = purge_quarantine(table, service.loader, quarantine)
    return PurgeResponse(
        table=table.name,
        quarantine=quarantine,
        num_files=done.num_files,
        size_in_bytes=done.size_in_bytes,
    )
