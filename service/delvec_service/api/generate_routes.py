"""``…/generate``: manifests that list a table's data files, for readers that cannot read the Delta log."""

from delvec_contract.maintenance import GenerateRequest, GenerateResponse
from delvec_errors import CorruptTable, ManifestUnsupported
from delvec_kernel.symlink_manifest import MANIFESTS
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import Maintenance
from delvec_service.api.resource import resource_router

__all__ = ["router"]


router = resource_router("maintenance", Maintenance)


@router.post(
    "/tables/{table}/generate",
    responses=responses(*MUTATION, *OPENING, *SNAPSHOT, ManifestUnsupported, CorruptTable),
)
def generate_manifests(
    table: Table, service: ServiceState, body: GenerateRequest | None = None
) -> GenerateResponse:
    """Write manifests of the newest version's data files, for readers that cannot read the Delta log."""
    wanted = body or GenerateRequest()
    generate_result = service.manifests.generate(table)
    return GenerateResponse(
        table=table.name,
        mode=wanted.mode,
        version=generate_result.version,
        path=f"{table.location}/{MANIFESTS}",
        num_manifests=generate_result.num_manifests,
        num_files=generate_result.num_files,
        num_deleted_manifests=generate_result.num_deleted,
    )
