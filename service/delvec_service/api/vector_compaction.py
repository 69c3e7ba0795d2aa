"""``…/deletion-vectors/compact``: move the deletion vectors of many small files into few."""

from delvec_kernel.errors import CorruptTable, InvalidTableChange, UnsupportedTable, UnsupportedWriterFeature
from delvec_kernel.wire import RepackRequest, RepackResponse
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.plan import DELETION_VECTOR_ERRORS
from delvec_service.api.problems import CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import Maintenance
from delvec_service.api.resource import resource_router

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
    wanted = body or RepackRequest()
    done = service.vector_compaction.run(table, dry_run=wanted.dry_run, user_metadata=wanted.user_metadata)
    return RepackResponse(
        table=table.name,
        result="dry-run" if wanted.dry_run else "nothing-to-do" if done.version is None else "committed",
        version=done.version,
        num_deletion_vectors=len(done.found.files),
        size_in_bytes=done.found.size,
        num_vector_files=done.found.num_vector_files,
        new_vector_files=done.found.new_vector_files,
        gain_bytes=done.found.gain_bytes,
    )
