"""Scans, change feeds and steps of streams as clients ask for them, and their plans as answers.

Tested in `tests/integration/service/scans/test_plan.py`.
"""

from contextlib import nullcontext

from delvec_contract.plans import (
    AdditionsResponse,
    ChangedFile,
    ChangesResponse,
    PlanFile,
    PlanRequest,
    PlanResponse,
    StreamPosition,
)
from delvec_kernel.change_feed.stream_positions import Position
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.scans.change_feed_plan import PlannedChanges
from delvec_service.scans.plan import PlannedScan, plan
from delvec_service.scans.plan_queue import PlanQueue
from delvec_service.scans.stream_plan import PlannedAdditions
from delvec_service.scans.vacuumed_versions import check_planned, naming_vacuum
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.version_marks import read_mark
from delvec_service.store.open_table import OpenTable
from delvec_service.telemetry.observer import Observer

__all__ = ["additions_answer", "changes_answer", "plan_answer", "plan_scan"]


def plan_scan(
    loader: SnapshotLoader,
    table: OpenTable,
    asked: PlanRequest,
    *,
    turns: PlanQueue,
    observer: Observer,
    at: int | None = None,
    offset: int = 0,
    limit: int | None = None,
) -> PlannedScan:
    """Plan a scan.

    Args:
        loader: reads snapshots.
        table: the table.
        asked: what to plan; ``page_token`` and ``page_size`` are the caller's business.
        turns: shared by plans of one process.
        observer: notified of the plan.
        at: the version of the first page, for the others.
        offset: number of files to leave out.
        limit: maximum number of files; None for all.
    """

    def planned_scan(snapshot: Snapshot) -> PlannedScan:
        is_old = asked.version is not None or asked.timestamp is not None
        with (
            observer.plan(table.name),
            naming_vacuum(table, loader, snapshot) if is_old else nullcontext(),
        ):
            planned = plan(
                snapshot,
                table.name,
                predicate=asked.predicate,
                columns=asked.columns,
                stats=asked.stats,
                row_ids=asked.row_ids,
                clustering=asked.clustering,
                inline_deletion_vectors=asked.inline_deletion_vectors,
                offset=offset,
                limit=limit,
                allowed=table.roots.allows,
                turns=turns,
                observer=observer,
            )
        if is_old:
            check_planned(table, loader, snapshot, planned.files["path"])
        return planned

    return loader.reading(
        table.objects,
        table.name,
        planned_scan,
        version=asked.version if at is None else at,
        timestamp=asked.timestamp if at is None else None,
    )


def plan_answer(
    loader: SnapshotLoader,
    table: OpenTable,
    planned: PlannedScan,
    *,
    offset: int = 0,
    files: list[PlanFile] | None = None,
) -> PlanResponse:
    """Return a planned scan as an answer, with one page of its files."""
    snapshot = planned.snapshot
    end = offset + len(files or ())
    more = files is not None and end < planned.num_files
    return PlanResponse(
        table_id=table.record.id,
        name=table.name,
        location=table.location,
        version=snapshot.version,
        read_mark=read_mark(loader, snapshot),
        table_schema=snapshot.schema.to_json(),
        partition_columns=list(snapshot.partition_columns),
        configuration=dict(snapshot.configuration),
        protocol=snapshot.protocol.to_json(),
        files=files or [],
        num_files=planned.num_files,
        num_files_total=planned.num_files_total,
        next_page_token=f"{snapshot.version}.{end}" if more else None,
    )


def changes_answer(
    table: OpenTable, planned: PlannedChanges, files: list[ChangedFile] | None = None
) -> ChangesResponse:
    """Return a planned read of the change data feed as an answer."""
    snapshot = planned.snapshot
    return ChangesResponse(
        table_id=table.record.id,
        name=table.name,
        location=table.location,
        version=snapshot.version,
        start_version=planned.start,
        end_version=planned.end,
        table_schema=snapshot.schema.to_json(),
        partition_columns=list(snapshot.partition_columns),
        configuration=dict(snapshot.configuration),
        files=files or [],
        num_files=planned.files.num_rows,
    )


def additions_answer(
    table: OpenTable, planned: PlannedAdditions, files: list[PlanFile] | None = None
) -> AdditionsResponse:
    """Return a planned step of a stream as an answer."""
    return AdditionsResponse(
        table_id=table.record.id,
        name=table.name,
        location=table.location,
        version=planned.version,
        start=_stream_position(planned.start),
        end=_stream_position(planned.end),
        snapshot_timestamp=planned.snapshot_timestamp,
        files=files or [],
        num_files=planned.files.num_rows,
        num_found=planned.num_found,
    )


def _stream_position(position: Position) -> StreamPosition:
    return StreamPosition(version=position.version, index=position.index, snapshot=position.snapshot)
