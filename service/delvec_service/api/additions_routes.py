"""``…/additions``: the files that versions added, in order, for streams."""

from typing import Annotated, Any

from fastapi import Header

from delvec_contract.plans import AdditionsRequest, AdditionsResponse
from delvec_errors import (
    ChangeDataNotRecorded,
    IncompatibleSchemaChange,
    SourceRowsChanged,
    StreamSchemaChanged,
)
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.plan_routes import (
    ARROW_STREAM,
    MAX_JSON_FILES,
    arrow_response,
    file_responses,
    plan_files,
)
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.operations import plans

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
    has one row per file; the rest of the answer is JSON in the schema's metadata under the key `delvec`. A step in JSON
    has at most 100,000 files.
    """
    arrow = ARROW_STREAM in accept
    if not arrow:
        body = body.model_copy(update={"max_files": min(body.max_files or MAX_JSON_FILES, MAX_JSON_FILES)})
    answer, files = plans.plan_of_additions(service, table, body)
    if arrow:
        return arrow_response(answer, files)
    return answer.model_copy(update={"files": plan_files(files)})
