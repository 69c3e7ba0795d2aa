"""Transactions: begun, committed to several tables at one moment, and looked up.

Commits to one table are in :mod:`delvec_service.commits.commit_answers`.

Tested in `tests/integration/service/commits/test_commit.py` and
`tests/integration/service/commits/test_multi_table_commit.py`.
"""

from delvec_contract.commits import (
    AllocateRequest,
    AllocateResponse,
    BeginRequest,
    BeginResponse,
    CommitOutcome,
)
from delvec_contract.parameters import OutcomeParameters
from delvec_contract.transactions import (
    CommittedTable,
    TransactionOutcome,
    TransactionRequest,
    TransactionResponse,
)
from delvec_service.commits import allocation, commit_answers
from delvec_service.logs import bind_log_context
from delvec_service.operations.call import Call, transaction_id
from delvec_service.operations.descriptions import opened_for
from delvec_service.store.answers import StoredAnswer


def begin_transaction(call: Call[BeginRequest]) -> BeginResponse:
    """Begin a transaction before writing data files. The answer has what the writer needs to know."""
    return allocation.begin(call.table, call.service.loader, call.service.ledger, call.request)


def allocate_deletion_vectors(call: Call[AllocateRequest]) -> AllocateResponse:
    """Reserve files, offsets and UUIDs for deletion vectors.

    Deletion vectors share files of about the configured size.
    """
    target_bytes = call.service.settings.deletion_vector_target_bytes
    return allocation.allocate(
        call.table, call.service.loader, call.service.ledger, call.request, target_bytes=target_bytes
    )


def find_commit(call: Call[OutcomeParameters]) -> CommitOutcome:
    """Return the outcome of a commit by its transaction id. An unknown outcome is also an answer."""
    return commit_answers.find_commit(
        call.service.outcomes, call.table, call.request.transaction_id, call.request.read_version
    )


def commit_transaction(call: Call[TransactionRequest]) -> tuple[TransactionResponse, bool] | StoredAnswer:
    """Commit to several managed tables at one moment, or to none. The transaction's id is the idempotency key.

    A conflict in one table returns status 409, and nothing is committed to any.
    """
    key = transaction_id(call.request.transaction_id, call.key)
    tables = [opened_for(call, each.table, "writer") for each in call.request.tables]
    bind_log_context(change=", ".join(table.name for table in tables))
    return commit_answers.commit_transaction(
        call.service.multi_table, call.service.answers, tables, call.request, key
    )


def find_transaction(call: Call[None]) -> TransactionOutcome:
    """Return the outcome of a transaction over several tables. An unknown outcome is also an answer."""
    access, transaction = call.access, call.path["transaction"]
    access.is_decided = True
    decision = call.service.multi_table.find(transaction)
    committed = [] if decision is None else map(CommittedTable.model_validate, decision.answers)
    return TransactionOutcome(
        transaction_id=transaction,
        result="unknown" if decision is None else "committed" if decision.is_commit else "undone",
        tables=[each for each in committed if access.sees(each.table_id, each.name)],
        # It may name tables.
        reason=None if decision is None or access.is_restricted else decision.reason or None,
    )
