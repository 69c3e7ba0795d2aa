"""``…/checkpoint``: write a checkpoint of the newest version now, and clean up the log."""

from delvec_contract.maintenance import CheckpointRequest, CheckpointResponse, LogCleanUp
from delvec_errors import ConcurrentWrite, CorruptTable, UnsupportedWriterFeature
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import Maintenance
from delvec_service.api.resource import resource_router
from delvec_service.logs import bind_log_context

__all__ = ["router"]


router = resource_router("maintenance", Maintenance)


@router.post(
    "/tables/{table}/checkpoint",
    responses=responses(
        *MUTATION, *OPENING, *SNAPSHOT, CorruptTable, UnsupportedWriterFeature, ConcurrentWrite
    ),
)
def write_checkpoint(
    table: Table, service: ServiceState, body: CheckpointRequest | None = None
) -> CheckpointResponse:
    """Write a checkpoint of the newest version unless it has one. Returns once the checkpoint is durable."""
    wanted = body or CheckpointRequest()
    if wanted.dry_run:
        bind_log_context(change="dry run")
    written, cleaned = service.log_maintenance.checkpoint(
        table, cleaning=wanted.clean_up, dry_run=wanted.dry_run
    )
    return CheckpointResponse(
        table=table.name,
        result="dry-run" if written is None else "written" if written.written else "exists",
        version=None if written is None else written.version,
        form=None if written is None else written.form,
        num_files=None if written is None else written.num_add_files,
        num_actions=None if written is None else written.num_actions,
        size_in_bytes=None if written is None else written.size_in_bytes,
        num_sidecars=None if written is None else written.sidecars,
        clean_up=None
        if cleaned is None
        else LogCleanUp(
            deleted=list(cleaned.deleted),
            oldest_version=cleaned.oldest_version,
            kept_because=cleaned.kept_because,
        ),
    )
