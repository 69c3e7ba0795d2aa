"""``…/deletion-vectors/compact``: move the deletion vectors of many small files into few."""

from delvec_contract.maintenance import RepackRequest, RepackResponse
from delvec_errors import CorruptTable, InvalidTableChange, UnsupportedTable, UnsupportedWriterFeature
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.plan_routes import DELETION_VECTOR_ERRORS
from delvec_service.api.problems import CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import Maintenance
from delvec_service.api.resource import resource_router
from delvec_service.logs import bind_log_context

__all__ = ["router"]

router = resource_router("maintenance", Maintenance)


@router.post(
    "/tables/{table}/deletion-vectors/compact",
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        *DELETION_VECTOR_ERRORS,
        InvalidTableChange,
        UnsupportedTable,
        UnsupportedWriterFeature,
        CorruptTable,
        *CONFLICTS,
    ),
)
def compact_deletion_vectors(
    table: Table, service: ServiceState, body: RepackRequest | None = None
) -> RepackResponse:
    """Rewrite the deletion vectors of many small files, or of mostly unused files, into few files.

    No data file is touched and no row changes. Concurrent row changes do not conflict.
    """
    repack_request = body or RepackRequest()
    if repack_request.dry_run:
        bind_log_context(change="dry run")
    repack_result = service.vector_compaction.run(
        table, dry_run=repack_request.dry_run, user_metadata=repack_request.user_metadata
    )
    return RepackResponse(
        table=table.name,
        result="dry-run"
        if repack_request.dry_run
        else "nothing-to-do"
        if repack_result.version is None
        else "committed",
        version=repack_result.version,
        num_deletion_vectors=len(repack_result.found.files),
        size_in_bytes=repack_result.found.size,
        num_vector_files=repack_result.found.num_vector_files,
        new_vector_files=repack_result.found.new_vector_files,
        gain_bytes=repack_result.found.gain_bytes,
    )
