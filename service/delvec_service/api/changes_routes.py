"""``…/changes``: the rows that a range of versions changed, and the files that hold them."""

import base64
from typing import Annotated, Any, Final

import pyarrow as pa
from fastapi import Header

from delvec_contract.plans import ChangedFile, ChangesRequest, ChangesResponse
from delvec_errors import (
    ChangeDataNotRecorded,
    IncompatibleSchemaChange,
    InvalidPredicate,
    MissingDataFile,
    ReadLimitExceeded,
    UnknownColumn,
    UnsupportedTable,
)
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.plan_routes import (
    ARROW_STREAM,
    MAX_JSON_FILES,
    arrow_response,
    descriptor_answer,
    file_responses,
)
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.operations import plans

__all__ = ["router"]

router = resource_router("reading", Route)

_MAX_FILES: Final = 1_000_000


@router.post(
    "/tables/{table}/changes",
    response_model=ChangesResponse,
    responses=file_responses(
        "The changes",
        ChangeDataNotRecorded,
        IncompatibleSchemaChange,
        InvalidPredicate,
        UnknownColumn,
        UnsupportedTable,
        MissingDataFile,
        ReadLimitExceeded,
    ),
)
def plan_of_changes(
    table: Table,
    body: ChangesRequest,
    service: ServiceState,
    accept: Annotated[str, Header()] = "application/json",
) -> Any:
    """Plan a read of the change data feed: the files with the rows that a range of versions changed.

    If a version has change files, they alone describe its changes. Otherwise the rows of added files are inserts and
    those of removed files are deletes. Where a file's deletion vector was replaced, newly marked rows are deletes and
    rows that are no longer marked are inserts. An Arrow stream has one row per file; the rest of the answer is JSON
    in the schema's metadata under the key `delvec`. The versions of a request may have changed a million files, for an
    answer in JSON 100,000.
    """
    arrow = ARROW_STREAM in accept
    answer, files = plans.plan_of_changes(
        service, table, body, max_files=_MAX_FILES if arrow else MAX_JSON_FILES
    )
    if arrow:
        return arrow_response(answer, files)
    return answer.model_copy(update={"files": _files(files)})


def _files(files: pa.Table) -> list[ChangedFile]:
    changed_files = []
    for row in files.to_pylist():
        row["partition_values"] = dict(row["partition_values"])
        row["deletion_vector"] = descriptor_answer(row["deletion_vector"])
        if row["deleted_rows"] is not None:
            # The field takes base64, as it returns it.
            row["deleted_rows"] = base64.b64encode(row["deleted_rows"])
        changed_files.append(ChangedFile(**row))
    return changed_files
