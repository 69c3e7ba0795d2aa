"""``…/additions``: the files that versions added, in order, for streams."""

from typing import Annotated, Any

from fastapi import Header

from delvec_contract import AdditionsRequest, AdditionsResponse, PlanFile, StreamPosition
from delvec_errors import (
    ChangeDataNotRecorded,
    IncompatibleSchemaChange,
    SourceRowsChanged,
    StreamSchemaChanged,
)
from delvec_kernel.change_feed.stream_positions import Position
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.plan import ARROW_STREAM, arrow_response, file_responses, plan_files
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.scans.stream_plan import PlannedAdditions, plan_additions
from delvec_service.store.open_table import OpenTable

__all__ = ["router"]


class _Large(Route):
    """The answer includes the schema to read the rows with."""

    large = True


router = resource_router("reading", _Large)


@router.post(
    "/tables/{table}/additions",
    response_model=AdditionsResponse,
    responses=file_responses(
        "The step",
        SourceRowsChanged,
        StreamSchemaChanged,
        IncompatibleSchemaChange,
        ChangeDataNotRecorded,
    ),
)
def plan_of_additions(
    table: Table,
    body: AdditionsRequest,
    service: ServiceState,
    accept: Annotated[str, Header()] = "application/json",
) -> Any:
    """Plan one step of a stream: the files with rows that versions added, starting at a position, up to the limits.

    The same start and end return the same files every time; the service keeps no state of a stream. An Arrow stream
    has one row per file; the rest of the answer is JSON in the schema's metadata under the key `delvec`.
    """
    planned = plan_additions(service.loader, table, body)
    if ARROW_STREAM in accept:
        return arrow_response(_answer(table, planned), planned.files)
    return _answer(table, planned, plan_files(planned.files))


def _answer(
    table: OpenTable, planned: PlannedAdditions, files: list[PlanFile] | None = None
) -> AdditionsResponse:
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
