"""``…/alter``: change a table's schema, properties or protocol in one commit."""

from delvec_contract.alterations import AlterRequest, AlterResponse
from delvec_errors import (
    AtomicCreateUnsupported,
    BadRequest,
    CommitOutcomeUnknown,
    ConcurrentAppend,
    ConcurrentTransaction,
    ConcurrentWrite,
    CorruptTable,
    ExpressionNotAllowed,
    InvalidPredicate,
    InvalidSchema,
    InvalidTableChange,
    MetadataChanged,
    ProtocolChanged,
    UnknownColumn,
    UnsupportedTable,
    UnsupportedWriterFeature,
    VersionFromFuture,
)
from delvec_service.alter_table.alter import Altered, Unchanged, alter
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import IdempotencyKey, Mutation
from delvec_service.api.resource import resource_router
from delvec_service.commits.commit import Rebased
from delvec_service.logs import bind_log_context

__all__ = ["router"]

router = resource_router("tables", Mutation)


@router.post(
    "/tables/{table}/alter",
    responses=responses(
        *MUTATION,
        *OPENING,
        *SNAPSHOT,
        InvalidTableChange,
        InvalidSchema,
        InvalidPredicate,
        UnknownColumn,
        VersionFromFuture,
        UnsupportedTable,
        UnsupportedWriterFeature,
        ExpressionNotAllowed,
        CorruptTable,
        MetadataChanged,
        ProtocolChanged,
        ConcurrentAppend,
        ConcurrentTransaction,
        ConcurrentWrite,
        CommitOutcomeUnknown,
        AtomicCreateUnsupported,
    ),
)
def alter_table(
    table: Table, body: AlterRequest, service: ServiceState, idempotency_key: IdempotencyKey = None
) -> AlterResponse:
    """Apply changes in order and commit them together. A conflict returns status 409 and names the winning commit."""
    if idempotency_key and body.transaction_id and idempotency_key != body.transaction_id:
        raise BadRequest(
            "Idempotency-Key and transaction-id differ; send only one of them, or the same value in both."
        )
    bind_log_context(change=", ".join(each.change for each in body.changes))
    key = body.transaction_id or idempotency_key
    result = alter(table, service.loader, service.commits, service.log_maintenance, body, key)
    if isinstance(result, Altered):
        commit = result.committed
        return AlterResponse(
            result="rebased" if isinstance(commit, Rebased) else "committed",
            version=commit.version,
            read_version=commit.read_version,
            transaction_id=commit.transaction_id,
            winners_passed=list(commit.winners_passed),
            operation=result.operation,
        )
    if isinstance(result, Unchanged):
        return AlterResponse(
            result="nothing-to-do",
            version=None,
            read_version=result.read_version,
            transaction_id=result.transaction_id,
        )
    raise result.error(table.name)
