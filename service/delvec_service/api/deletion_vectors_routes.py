"""``…/deletion-vectors``: descriptors for deletion vectors that an engine writes itself."""

from fastapi import status

from delvec_contract.commits import AllocateRequest, AllocateResponse
from delvec_errors import InvalidCommit, UnsupportedWriterFeature
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import Mutation
from delvec_service.api.resource import resource_router
from delvec_service.commits.allocation import allocate

__all__ = ["router"]

router = resource_router("deletion vectors", Mutation)


@router.post(
    "/tables/{table}/deletion-vectors",
    status_code=status.HTTP_201_CREATED,
    responses=responses(*MUTATION, *OPENING, *SNAPSHOT, InvalidCommit, UnsupportedWriterFeature),
)
def allocate_deletion_vectors(table: Table, body: AllocateRequest, service: ServiceState) -> AllocateResponse:
    """Reserve files, offsets and UUIDs for deletion vectors.

    Deletion vectors share files of about the configured size.
    """
    return allocate(
        table,
        service.loader,
        service.ledger,
        body,
        target_bytes=service.settings.deletion_vector_target_bytes,
    )
