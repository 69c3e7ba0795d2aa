"""``…/check``: verify the consistency of a table.

Tested in `tests/integration/service/maintenance/test_check.py`.
"""

from typing import Annotated, Final

from fastapi import Query

from delvec_contract.maintenance import CheckFinding, CheckResponse, IcebergChecked, OrphanFile
from delvec_errors import NotADeltaTable, StorageError
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import COMMON, OPENING, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.iceberg.published_check import check_published
from delvec_service.maintenance.check import check

__all__ = ["router"]

_SHOWN: Final = 1000


class _Maintenance(Route):
    kind = "maintenance"


router = resource_router("maintenance", _Maintenance)


@router.get("/tables/{table}/check", responses=responses(*COMMON, *OPENING, NotADeltaTable, StorageError))
def check_table(
    table: Table,
    service: ServiceState,
    data_files: Annotated[
        bool, Query(alias="data-files", description="Also look up every live data file in storage.")
    ] = True,
    iceberg: Annotated[
        bool,
        Query(
            description=(
                "Also check the published Iceberg metadata against the files and deleted rows of the Delta table."
            )
        ),
    ] = False,
) -> CheckResponse:
    """Check the log version by version, and the live files in storage. The check changes nothing."""
    check_result = check(
        service.loader,
        table.objects,
        table.name,
        allowed=table.roots.allows,
        data_files=data_files,
        ledgered=service.ledger.files(table.record.id),
        overwritten=service.overwrite_watch.compare(table.objects, table.name),
    )
    published = check_published(service.loader, table) if iceberg else []
    findings = [*check_result.findings, *(one for each in published for one in each.findings)]
    errors = [finding for finding in findings if finding.severity == "error"]
    warnings = [finding for finding in findings if finding.severity == "warning"]
    service.health.damage.checked(
        table.record.id, [one for one in check_result.findings if one.severity == "error"]
    )
    if any(one.invariant == "readable-table" for one in errors):
        service.health.unreadable(table.record.id)
    return CheckResponse(
        table=table.name,
        version=check_result.version,
        first_version=check_result.first_version,
        num_commits=check_result.commits,
        num_data_files=check_result.data_files,
        num_deletion_vectors=check_result.vectors,
        num_errors=len(errors),
        num_warnings=len(warnings),
        num_orphans=len(check_result.orphans),
        findings=[
            CheckFinding(
                invariant=finding.invariant,
                severity=finding.severity,
                version=finding.version,
                file=finding.file,
                message=finding.message,
                fixed_in=finding.fixed_in,
            )
            for finding in [*errors, *warnings][:_SHOWN]
        ],
        orphans=[
            OrphanFile(
                path=orphan.path,
                size_in_bytes=orphan.size,
                transaction_id=orphan.transaction_id,
                state=orphan.state,
            )
            for orphan in check_result.orphans[:_SHOWN]
        ],
        iceberg=[
            IcebergChecked(
                format_version=one.format_version,
                metadata_location=one.metadata_location,
                delta_version=one.delta_version,
                num_data_files=one.data_files,
                num_delete_files=one.delete_files,
            )
            for one in published
        ],
    )
