"""``…/plan``: the files that a scan has to read, as JSON pages or as one Arrow stream.

Tested in `tests/integration/service/scans/test_plan.py`.
"""

import base64
import io
from collections.abc import Iterator
from typing import Annotated, Any, Final

import pyarrow as pa
from fastapi import Header
from fastapi.responses import Response, StreamingResponse

from delvec_contract.plans import AdditionsResponse, ChangesResponse, PlanFile, PlanRequest, PlanResponse
from delvec_errors import (
    BadRequest,
    CorruptDeletionVector,
    DeletionVectorCardinalityMismatch,
    DeletionVectorChecksumMismatch,
    DeletionVectorNotFound,
    DeletionVectorSizeMismatch,
    DeletionVectorTruncated,
    DelvecError,
    InvalidPredicate,
    MissingDataFile,
    UnknownColumn,
    UnsupportedTable,
)
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import COMMON, OPENING, SNAPSHOT, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.operations import plans

__all__ = [
    "ARROW_STREAM",
    "DELETION_VECTOR_ERRORS",
    "MAX_JSON_FILES",
    "arrow_response",
    "descriptor_answer",
    "file_responses",
    "plan_files",
    "router",
]

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
DELETION_VECTOR_ERRORS: Final = (
    CorruptDeletionVector,
    DeletionVectorNotFound,
    DeletionVectorTruncated,
    DeletionVectorSizeMismatch,
    DeletionVectorChecksumMismatch,
    DeletionVectorCardinalityMismatch,
)
MAX_JSON_FILES: Final = 100_000
"""Files of an answer in JSON, each of which takes kilobytes of memory; the largest page of a scan."""
_BATCH_ROWS: Final = 8192

router = resource_router("reading", Route)


def file_responses(what: str, *errors: type[DelvecError]) -> dict[int | str, dict[str, Any]]:
    """Return the documented responses of a route that returns files, and its errors beyond those of reading a table."""
    return {
        200: {
            "description": f"{what}. The JSON omits the files when they come as an Arrow stream.",
            "content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}},
        },
        **responses(*COMMON, *OPENING, *SNAPSHOT, *errors, *DELETION_VECTOR_ERRORS),
    }


@router.post(
    "/tables/{table}/plan",
    response_model=PlanResponse,
    responses=file_responses("The scan", InvalidPredicate, MissingDataFile, UnknownColumn, UnsupportedTable),
)
def plan_scan(
    table: Table,
    body: PlanRequest,
    service: ServiceState,
    accept: Annotated[str, Header()] = "application/json",
) -> Any:
    """Plan a scan: the files of one version that may contain rows matching the predicate.

    As JSON the files come in pages, all of one version. An Arrow stream has all of them, one row per file; the rest
    of the answer is JSON in the schema's metadata under the key `delvec`.
    """
    arrow = ARROW_STREAM in accept
    at, offset = None, 0
    if body.page_token is not None:
        if arrow:
            raise BadRequest("An Arrow stream has no pages; leave out page-token.")
        at, offset = _position(body.page_token, body.version)

    limit = None if arrow else body.page_size
    answer, files = plans.plan_scan(service, table, body, at=at, offset=offset, limit=limit)
    if arrow:
        return arrow_response(answer, files)
    return answer.model_copy(update={"files": plan_files(files)})


def _position(token: str, version: int | None) -> tuple[int, int]:
    """Return version and offset of a page. All pages have the version of the first."""
    of_version, _, offset = token.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (of_version, offset)):  # noqa: PLR2004
        raise BadRequest("The page-token is not valid; use one that this service returned.")
    if version not in (None, int(of_version)):
        raise BadRequest(f"The page-token belongs to version {of_version}, not to version {version}.")
    return int(of_version), int(offset)


def plan_files(files: pa.Table) -> list[PlanFile]:
    """Return the files of one page. Pages are small."""
    return [
        PlanFile(
            path=row["path"],
            partition_values=dict(row["partition_values"] or ()),
            size=row["size"],
            modification_time=row["modification_time"],
            num_records=row["num_records"],
            matches_all=row["matches_all"],
            deletion_vector=descriptor_answer(row["deletion_vector"]),
            # The field takes base64, as it returns it.
            deleted_rows=None if row["deleted_rows"] is None else base64.b64encode(row["deleted_rows"]),
            stats=row["stats"],
            base_row_id=row.get("base_row_id"),
            default_row_commit_version=row.get("default_row_commit_version"),
            tags=dict(row["tags"]) if row.get("tags") is not None else None,
            clustering_provider=row.get("clustering_provider"),
        )
        for row in files.to_pylist()
    ]


def descriptor_answer(value: dict[str, Any] | None) -> Descriptor | None:
    """Convert a descriptor from its Arrow form to its JSON form."""
    return None if value is None else Descriptor.from_json(value)


def arrow_response(answer: PlanResponse | ChangesResponse | AdditionsResponse, files: pa.Table) -> Response:
    """Return files as an Arrow stream, with the rest of the answer in its schema metadata."""
    stream = _stream(answer, files)
    if files.num_rows <= _BATCH_ROWS:
        # Every chunk of a streamed answer costs two thread switches, more than most plans take.
        return Response(b"".join(stream), media_type=ARROW_STREAM)
    return StreamingResponse(stream, media_type=ARROW_STREAM)


def _stream(answer: PlanResponse | ChangesResponse | AdditionsResponse, files: pa.Table) -> Iterator[bytes]:
    """Yield an Arrow stream batch by batch."""
    described = answer.model_dump_json(by_alias=True, exclude={"files"}).encode()
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, files.schema.with_metadata({b"delvec": described})) as writer:
        for batch in files.to_batches(max_chunksize=_BATCH_ROWS):
            writer.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()
