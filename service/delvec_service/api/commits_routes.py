"""``…/commits`` and ``/v1/transactions``: commit to a table, or to several, and read the actions of one version.

Tested in `tests/integration/service/commits/test_commit.py` and
`tests/integration/service/commits/test_multi_table_commit.py`.
"""

import json
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Path, Response
from pydantic import BaseModel

from delvec_contract.commits import Commit, CommitResponse
from delvec_contract.transactions import TransactionRequest, TransactionResponse
from delvec_errors import (
    AppendOnlyTable,
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
    UnsupportedOperation,
    UnsupportedTable,
    UnsupportedWriterFeature,
    VersionNotFound,
)
from delvec_kernel.log.log_segment import commit_path
from delvec_service.api.dependencies import Caller, ServiceState, Table
from delvec_service.api.plan_routes import DELETION_VECTOR_ERRORS
from delvec_service.api.problems import COMMON, CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import REPLAYED, IdempotencyKey, replay
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.commits import commit_answers
from delvec_service.operations import commits
from delvec_service.operations.call import Call, transaction_id
from delvec_service.store.answers import StoredAnswer

__all__ = ["INVALID", "commit_router", "reading_router", "transaction_router"]

_TABLE_CHANGE_ERRORS: Final[tuple[type[DelvecError], ...]] = (
    InvalidTableChange,
    InvalidSchema,
    UnknownColumn,
)
INVALID: Final[tuple[type[DelvecError], ...]] = (InvalidCommit, *InvalidCommit.__subclasses__())


class _CommitRoute(Route):
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


class _TransactionRoute(_CommitRoute):
    @staticmethod
    def timeout_error(seconds: float) -> DelvecError:
        return CommitOutcomeUnknown(
            f"The transaction took longer than {seconds:g} seconds and may still succeed. Send it again with the same key, or "
            "look up its outcome with GET /v1/transactions/{id}.",
            seconds=seconds,
        )


commit_router = resource_router("commits", _CommitRoute)
reading_router = resource_router("commits", Route)
transaction_router = resource_router("commits", _TransactionRoute)


@commit_router.post(
    "/tables/{table}/commits",
    response_model=CommitResponse,
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        *INVALID,
        *_TABLE_CHANGE_ERRORS,
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
    key = transaction_id(body.transaction_id, idempotency_key)
    asked = replace(body, transaction_id=key or "")
    return _answer(commit_answers.commit(service.commits, service.answers, table, asked))


@reading_router.get(
    "/tables/{table}/commits/{version}",
    response_model=dict[str, Any],
    responses=responses(*COMMON, *OPENING, VersionNotFound, CorruptLog, *SNAPSHOT),
)
def get_commit(
    table: Table, version: Annotated[int, Path(ge=0, lt=10**20, description="The version.")]
) -> Response:
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
        # Line by line: as objects, a large commit takes ten times as much memory. JSON in ASCII: a log may contain a lone
        # surrogate, which UTF-8 cannot encode.
        actions = ", ".join(json.dumps(json.loads(line)) for line in data.splitlines() if line.strip())
    except (ValueError, RecursionError) as error:
        raise CorruptLog(
            f"The log entry '{path}' of table '{table.name}' is not JSON: {error}; restore it from a backup.",
            table=table.name,
            version=version,
            file=path,
        ) from error
    return Response(f'{{"version": {version}, "actions": [{actions}]}}', media_type="application/json")


@transaction_router.post(
    "/transactions",
    response_model=TransactionResponse,
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        *INVALID,
        InvalidTableChange,
        InvalidSchema,
        UnknownColumn,
        ConstraintViolation,
        UnsupportedOperation,
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
def commit_transaction(
    body: TransactionRequest,
    service: ServiceState,
    access: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Commit to several managed tables at one moment, or to none. The transaction's id is the idempotency key.

    A conflict in one table returns status 409, and nothing is committed to any.
    """
    call = Call(service, access, body, {}, idempotency_key)
    return _answer(commits.commit_transaction(call))


def _answer(committed: tuple[BaseModel, bool] | StoredAnswer) -> Response:
    if isinstance(committed, StoredAnswer):
        return replay(committed)
    answer, is_replayed = committed
    # FastAPI would validate the answer that was just built, field by field.
    content = answer.model_dump_json(by_alias=True)
    return Response(content, headers=REPLAYED if is_replayed else None, media_type="application/json")
