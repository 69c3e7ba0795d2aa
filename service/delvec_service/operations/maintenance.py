"""Maintenance of a table's log and files, apart from VACUUM and OPTIMIZE: checks, checkpoints, manifests, Iceberg metadata.

Tested in `tests/integration/service/maintenance/test_check.py`.
"""

from typing import Final

from delvec_contract.maintenance import (
    CheckFinding,
    CheckpointRequest,
    CheckpointResponse,
    CheckResponse,
    GenerateRequest,
    GenerateResponse,
    IcebergChecked,
    IcebergRequest,
    IcebergResponse,
    LogCleanUp,
    OrphanFile,
    RepackRequest,
    RepackResponse,
)
from delvec_contract.parameters import CheckParameters
from delvec_kernel.symlink_manifest import MANIFESTS
from delvec_service.iceberg.published_check import check_published
from delvec_service.logs import bind_log_context
from delvec_service.maintenance.check import check
from delvec_service.operations.call import Call

_MAX_SHOWN: Final = 1000


def check_table(call: Call[CheckParameters]) -> CheckResponse:
    """Check the log version by version, and the live files in storage. The check changes nothing."""
    table, service, request = call.table, call.service, call.request
    check_result = check(
        service.loader,
        table.objects,
        table.name,
        is_allowed=table.roots.allows,
        data_files=request.data_files,
        ledgered=service.ledger.files(table.record.id),
        overwritten=service.overwrite_watch.compare(table.objects, table.name),
    )
    published = check_published(service.loader, table) if request.iceberg else []
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
            for finding in [*errors, *warnings][:_MAX_SHOWN]
        ],
        orphans=[
            OrphanFile(
                path=orphan.path,
                size_in_bytes=orphan.size,
                transaction_id=orphan.transaction_id,
                state=orphan.state,
            )
            for orphan in check_result.orphans[:_MAX_SHOWN]
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


def write_checkpoint(call: Call[CheckpointRequest]) -> CheckpointResponse:
    """Write a checkpoint of the newest version unless it has one. Returns once the checkpoint is durable."""
    table, service, request = call.table, call.service, call.request
    if request.dry_run:
        bind_log_context(change="dry run")
    written, cleaned = service.log_maintenance.checkpoint(
        table, cleaning=request.clean_up, dry_run=request.dry_run
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


def generate_manifests(call: Call[GenerateRequest]) -> GenerateResponse:
    """Write manifests of the newest version's data files, for readers that cannot read the Delta log."""
    table, service, request = call.table, call.service, call.request
    generate_result = service.manifests.generate(table)
    return GenerateResponse(
        table=table.name,
        mode=request.mode,
        version=generate_result.version,
        path=f"{table.location}/{MANIFESTS}",
        num_manifests=generate_result.num_manifests,
        num_files=generate_result.num_files,
        num_deleted_manifests=generate_result.num_deleted,
    )


def convert_to_iceberg(call: Call[IcebergRequest]) -> IcebergResponse:
    """Update the table's Iceberg metadata to its newest version. Deleted rows become Iceberg deletes."""
    table, service, request = call.table, call.service, call.request
    iceberg_table = service.iceberg.publish(
        table,
        format_version=request.format_version,
        squash=request.squash,
        catalog=request.catalog,
        requester=call.access,
    )
    return IcebergResponse(
        table=table.name,
        format_version=request.format_version,
        metadata_location=iceberg_table.metadata_location,
        delta_version=iceberg_table.delta_version,
        snapshot_id=iceberg_table.snapshot_id,
        catalog=iceberg_table.catalog,
        warning=iceberg_table.directory.warning,
    )


def compact_deletion_vectors(call: Call[RepackRequest]) -> RepackResponse:
    """Rewrite the deletion vectors of many small files, or of mostly unused files, into few files.

    No data file is touched and no row changes. Concurrent row changes do not conflict.
    """
    table, service, request = call.table, call.service, call.request
    if request.dry_run:
        bind_log_context(change="dry run")
    repack_result = service.vector_compaction.run(
        table, dry_run=request.dry_run, user_metadata=request.user_metadata
    )
    return RepackResponse(
        table=table.name,
        result="dry-run"
        if request.dry_run
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
