"""``/v1/transactions`` and ``/v1/snapshots``: several tables, changed or read at one moment.

Tested in `tests/integration/service/commits/test_multi_table.py`.
"""

from typing import Annotated, Final

from fastapi import Path, Response

from delvec_contract.access import Role
from delvec_contract.transactions import (
    CommittedTable,
    SnapshotsRequest,
    SnapshotsResponse,
    TransactionOutcome,
    TransactionRequest,
    TransactionResponse,
)
from delvec_errors import (
    AppendOnlyTable,
    BadRequest,
    CommitOutcomeUnknown,
    ConcurrentTransaction,
    ConstraintViolation,
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
)
from delvec_service.api.commits_routes import CommitRoute
from delvec_service.api.dependencies import Caller, ServiceState
from delvec_service.api.plan_routes import DELETION_VECTOR_ERRORS
from delvec_service.api.problems import COMMON, CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import REPLAYED, IdempotencyKey, replay
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.auth.request_access import Access
from delvec_service.commits import commit_answers
from delvec_service.logs import bind_log_context
from delvec_service.scans.describe import snapshots_answer
from delvec_service.service import Service
from delvec_service.store.answers import StoredAnswer
from delvec_service.store.open_table import OpenTable

__all__ = ["routers"]

_INVALID: Final[tuple[type[DelvecError], ...]] = (InvalidCommit, *InvalidCommit.__subclasses__())


class _TransactionRoute(CommitRoute):
    @staticmethod
    def timeout_error(seconds: float) -> DelvecError:
        return CommitOutcomeUnknown(
            f"The transaction took longer than {seconds:g} seconds and may still succeed. Send it again with the same key, or "
            "look up its outcome with GET /v1/transactions/{id}.",
            seconds=seconds,
        )


_reading = resource_router("commits", Route)
_commits = resource_router("commits", _TransactionRoute)


@_commits.post(
    "/transactions",
    response_model=TransactionResponse,
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        *_INVALID,
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
    if idempotency_key and body.transaction_id and idempotency_key != body.transaction_id:
        raise BadRequest(
            "Idempotency-Key and transaction-id differ; send only one of them, or the same value in both."
        )
    tables = [_opened(service, access, each.table, "writer") for each in body.tables]
    bind_log_context(change=", ".join(table.name for table in tables))
    committed = commit_answers.commit_transaction(
        service.multi_table, service.answers, tables, body, idempotency_key
    )
    if isinstance(committed, StoredAnswer):
        return replay(committed)
    answer, is_replayed = committed
    content = answer.model_dump_json(by_alias=True)
    return Response(content, headers=REPLAYED if is_replayed else None, media_type="application/json")


@_reading.get("/transactions/{transaction}", responses=responses(*COMMON, *SNAPSHOT))
def find_transaction(
    transaction: Annotated[str, Path(max_length=128, description="The transaction's id.")],
    service: ServiceState,
    access: Caller,
) -> TransactionOutcome:
    """Return the outcome of a transaction over several tables. An unknown outcome is also an answer."""
    access.is_decided = True
    decision = service.multi_table.find(transaction)
    committed = [] if decision is None else map(CommittedTable.model_validate, decision.answers)
    return TransactionOutcome(
        transaction_id=transaction,
        result="unknown" if decision is None else "committed" if decision.is_commit else "undone",
        tables=[each for each in committed if access.sees(each.table_id, each.name)],
        # It may name tables.
        reason=None if decision is None or access.is_restricted else decision.reason or None,
    )


@_reading.post("/snapshots", responses=responses(*COMMON, *OPENING, *SNAPSHOT))
def get_snapshots(body: SnapshotsRequest, service: ServiceState, access: Caller) -> SnapshotsResponse:
    """Return several tables at one moment, as versions to read them at."""
    return snapshots_answer(
        service.loader, [_opened(service, access, each, "reader") for each in body.tables]
    )


def _opened(service: Service, access: Access, table: str, role: Role) -> OpenTable:
    record = service.tables.find(table, access)
    access.require(record, role, table)
    return service.tables.opening(record)


routers: Final = (_commits, _reading)
