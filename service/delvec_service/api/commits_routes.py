"""``…/transactions`` and ``…/commits``: begin a transaction, commit it, and read the actions of one version.

Tested in `tests/integration/service/commits/test_commit.py`.
"""

import json
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Path, Response, status

from delvec_contract.commits import BeginRequest, BeginResponse, Commit, CommitResponse
from delvec_errors import (
    AppendOnlyTable,
    BadRequest,
    CommitOutcomeUnknown,
    ConcurrentTransaction,
    ConstraintViolation,
    CorruptLog,
    CorruptTable,
    DelvecError,
    InvalidCommit,
    InvalidSchema,
    InvalidTableChange,
    MissingDataFile,
    UnknownColumn,
    UnsupportedTable,
    UnsupportedWriterFeature,
    VersionNotFound,
)
from delvec_kernel.log.log_segment import commit_path
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.plan_routes import DELETION_VECTOR_ERRORS
from delvec_service.api.problems import COMMON, CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import REPLAYED, IdempotencyKey, Mutation, replay
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.commits import allocation, commit_answers
from delvec_service.store.answers import StoredAnswer

__all__ = ["CommitRoute", "routers"]

_CHANGING: Final[tuple[type[DelvecError], ...]] = (InvalidTableChange, InvalidSchema, UnknownColumn)
_INVALID: Final[tuple[type[DelvecError], ...]] = (InvalidCommit, *InvalidCommit.__subclasses__())


class CommitRoute(Route):
    """Commits. The log itself records their keys."""

    kind = "commits"
    large = True

    @staticmethod
    def timeout_error(seconds: float) -> DelvecError:
        """Return the error for a commit that takes too long."""
        return CommitOutcomeUnknown(
            f"The commit took longer than {seconds:g} seconds and may still succeed. Send it again with the same "
            "key, or look up its outcome with …/commits?transaction-id=.",
            seconds=seconds,
        )


_reading = resource_router("commits", Route)
_commits = resource_router("commits", CommitRoute)
_mutations = resource_router("commits", Mutation)


@_mutations.post(
    "/tables/{table}/transactions",
    status_code=status.HTTP_201_CREATED,
    responses=responses(*MUTATION, *OPENING, *SNAPSHOT, *_CHANGING, UnsupportedWriterFeature),
)
def begin_transaction(table: Table, body: BeginRequest, service: ServiceState) -> BeginResponse:
    """Begin a transaction before writing data files. The answer has what the writer needs to know."""
    return allocation.begin(table, service.loader, service.ledger, body)


@_commits.post(
    "/tables/{table}/commits",
    response_model=CommitResponse,
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        *_INVALID,
        *_CHANGING,
        ConstraintViolation,
        UnsupportedTable,
        UnsupportedWriterFeature,
        AppendOnlyTable,
        CorruptTable,
        *DELETION_VECTOR_ERRORS,
        MissingDataFile,
        ConcurrentTransaction,
        *CONFLICTS,
    ),
)
def commit(
    table: Table,
    body: Commit,
    service: ServiceState,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Commit one transaction. Its id is the idempotency key.

    A conflict returns status 409 and names the winning commit.
    """
    if idempotency_key and body.transaction_id and idempotency_key != body.transaction_id:
        raise BadRequest(
            "Idempotency-Key and transaction-id differ; send only one of them, or the same value in both."
        )
    asked = replace(body, transaction_id=body.transaction_id or idempotency_key or "")
    committed = commit_answers.commit(service.commits, service.answers, table, asked)
    if isinstance(committed, StoredAnswer):
        return replay(committed)
    answer, is_replayed = committed
    # FastAPI would validate the answer that was just built, field by field.
    content = answer.model_dump_json(by_alias=True)
    return Response(content, headers=REPLAYED if is_replayed else None, media_type="application/json")


@_reading.get(
    "/tables/{table}/commits/{version}",
    responses=responses(*COMMON, *OPENING, VersionNotFound, CorruptLog, *SNAPSHOT),
)
def get_commit(
    table: Table, version: Annotated[int, Path(ge=0, lt=10**20, description="The version.")]
) -> dict[str, Any]:
    """Return the actions of one version as they are in the log."""
    path = commit_path(version)
    try:
        data = table.objects.get(path)
    except FileNotFoundError as error:
        raise VersionNotFound(
            f"The log of table '{table.name}' has no entry for version {version}: it does not exist yet, or was "
            "cleaned up.",
            table=table.name,
            version=version,
        ) from error
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError as error:
        raise CorruptLog(
            f"The log entry '{path}' of table '{table.name}' is not JSON: {error}; restore it from a backup.",
            table=table.name,
            version=version,
            file=path,
        ) from error
    return {"version": version, "actions": actions}


routers: Final = (_mutations, _commits, _reading)
