"""Scans, change feeds and steps of streams as clients ask for them: each plan is an answer, and its files.

Tested in `tests/integration/service/scans/test_plan.py`.
"""

from contextlib import nullcontext

import pyarrow as pa

from delvec_contract.plans import (
    AdditionsRequest,
    AdditionsResponse,
    ChangesRequest,
    ChangesResponse,
    PlanRequest,
    PlanResponse,
    StreamPosition,
)
from delvec_kernel.change_feed.stream_positions import Position
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.scans.change_feed_plan import plan_changes
from delvec_service.scans.plan import PlannedScan, plan
from delvec_service.scans.stream_plan import plan_additions
from delvec_service.scans.vacuumed_versions import check_planned, naming_vacuum
from delvec_service.service import Service
from delvec_service.snapshots.version_marks import read_mark
from delvec_service.store.open_table import OpenTable

__all__ = ["plan_of_additions", "plan_of_changes", "plan_scan"]


def plan_scan(
    service: Service,
    table: OpenTable,
    request: PlanRequest,
    *,
    at: int | None = None,
    offset: int = 0,
    limit: int | None = None,
) -> tuple[PlanResponse, pa.Table]:
    """Plan a scan.

    Args:
        service: the service.
        table: the table.
        request: what to plan; ``page_token`` and ``page_size`` are the caller's business.
        at: the version of the first page, for the others.
        offset: number of files to leave out.
        limit: maximum number of files; None for all.
    """
    loader = service.loader

    def planned_scan(snapshot: Snapshot) -> PlannedScan:
        is_old = request.version is not None or request.timestamp is not None
        with (
            service.observer.plan(table.name),
            naming_vacuum(table, loader, snapshot) if is_old else nullcontext(),
        ):
            planned = plan(
                snapshot,
                table.name,
                predicate=request.predicate,
                columns=request.columns,
                stats=request.stats,
                row_ids=request.row_ids,
                clustering=request.clustering,
                inline_deletion_vectors=request.inline_deletion_vectors,
                offset=offset,
                limit=limit,
                is_allowed=table.roots.allows,
                turns=service.plan_queue,
                observer=service.observer,
            )
        if is_old:
            check_planned(table, loader, snapshot, planned.files["path"])
        return planned

    planned = loader.reading(
        table.objects,
        table.name,
        planned_scan,
        version=request.version if at is None else at,
        timestamp=request.timestamp if at is None else None,
    )
    snapshot = planned.snapshot
    end = offset + planned.files.num_rows
    answer = PlanResponse(
        table_id=table.record.id,
        name=table.name,
        location=table.location,
        version=snapshot.version,
        read_mark=read_mark(loader, snapshot),
        table_schema=snapshot.schema.to_json(),
        partition_columns=list(snapshot.partition_columns),
        configuration=dict(snapshot.configuration),
        protocol=snapshot.protocol.to_json(),
        files=[],
        num_files=planned.num_files,
        num_files_total=planned.num_files_total,
        next_page_token=f"{snapshot.version}.{end}" if end < planned.num_files else None,
    )
    return answer, planned.files


def plan_of_changes(
    service: Service, table: OpenTable, request: ChangesRequest, *, max_files: int | None = None
) -> tuple[ChangesResponse, pa.Table]:
    """Plan a read of the change data feed; see :func:`~delvec_service.scans.change_feed_plan.plan_changes`."""
    planned = plan_changes(service.loader, table, request, max_files=max_files)
    snapshot = planned.snapshot
    answer = ChangesResponse(
        table_id=table.record.id,
        name=table.name,
        location=table.location,
        version=snapshot.version,
        start_version=planned.start,
        end_version=planned.end,
        table_schema=snapshot.schema.to_json(),
        partition_columns=list(snapshot.partition_columns),
        configuration=dict(snapshot.configuration),
        files=[],
        num_files=planned.files.num_rows,
    )
    return answer, planned.files


def plan_of_additions(
    service: Service, table: OpenTable, request: AdditionsRequest
) -> tuple[AdditionsResponse, pa.Table]:
    """Plan a step of a stream; see :func:`~delvec_service.scans.stream_plan.plan_additions`."""
    planned = plan_additions(service.loader, table, request)
    answer = AdditionsResponse(
        table_id=table.record.id,
        name=table.name,
        location=table.location,
        version=planned.version,
        start=_stream_position(planned.start),
        end=_stream_position(planned.end),
        snapshot_timestamp=planned.snapshot_timestamp,
        files=[],
        num_files=planned.files.num_rows,
        num_found=planned.num_found,
    )
    return answer, planned.files


def _stream_position(position: Position) -> StreamPosition:
    return StreamPosition(version=position.version, index=position.index, snapshot=position.snapshot)
