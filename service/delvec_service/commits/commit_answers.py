"""Commits as clients ask for them, and their outcomes as answers, whether stored, repeated or looked up.

Tested in `tests/integration/service/commits/test_commit.py`.
"""

import json
import uuid
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from delvec_contract.codec import canonical_json
from delvec_contract.commits import CommitOutcome, CommitResponse
from delvec_contract.shapes import ErrorBody
from delvec_contract.transactions import CommittedTable, TransactionRequest, TransactionResponse
from delvec_errors import DelvecError
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.commits.commit import AlreadyApplied, Commits, Committed, NothingToDo
from delvec_service.commits.commit_request import accepted
from delvec_service.commits.commit_result import Rebased
from delvec_service.commits.idempotency import Answers, commit_hash, is_final, request_hash
from delvec_service.commits.multi_table_commit import MultiTableCommits, Participant
from delvec_service.commits.outcomes import Outcome, Outcomes
from delvec_service.logs import bind_log_context
from delvec_service.store.answers import StoredAnswer
from delvec_service.store.open_table import OpenTable

__all__ = ["commit", "commit_changes", "commit_transaction", "committed_response", "find_commit"]

_Result: TypeAlias = Literal[
    "committed", "nothing-to-do", "already-applied", "conflict", "refused", "unknown"
]
_OK: Final = 200


def commit(
    commits: Commits,
    answers: Answers,
    table: OpenTable,
    request: Changes,
    text: str | None = None,
) -> tuple[CommitResponse, bool] | StoredAnswer:
    """Commit one transaction. Its id, if it has one, is the idempotency key.

    Args:
        commits: commit to tables.
        answers: those to earlier requests.
        table: the table.
        request: the commit.
        text: its canonical text, if that is known; it tells requests apart.

    Returns:
        The answer, and whether an earlier request with the same key made the commit; or the stored answer to that
        request, if the log does not have it.
    """
    bind_log_context(change=request.operation)
    key = request.transaction_id
    if not key:
        return commit_changes(commits, table, accepted(request, str(uuid.uuid4()), None, table))
    digest = commit_hash(table.record.id, text or canonical_json(request))
    stored_answer = answers.find(key, digest)
    if stored_answer is not None:
        return stored_answer
    try:
        changes = accepted(request, key, digest, table)
        answer, is_replayed = commit_changes(commits, table, changes)
    except DelvecError as error:
        if is_final(error):
            answers.keep(key, digest, error.status, _envelope(error))
        raise
    if answer.version is None:  # it is not in the log
        answers.keep(key, digest, _OK, answer.model_dump_json(by_alias=True).encode())
    return answer, is_replayed


def commit_changes(commits: Commits, table: OpenTable, changes: Changes) -> tuple[CommitResponse, bool]:
    """Commit what is found in the log under its transaction id, but whose answer nobody stores; see :func:`commit`."""
    result = commits.commit(table, changes)
    if isinstance(result, Committed):
        partitions = commits.to_compact(table, changes)
        answer = committed_response(result).model_copy(update={"auto_compact": partitions})
        return answer, result.replayed
    if isinstance(result, NothingToDo | AlreadyApplied):
        answer = CommitResponse(
            result="nothing-to-do" if isinstance(result, NothingToDo) else "already-applied",
            version=None,
            read_version=result.read_version,
            transaction_id=result.transaction_id,
            operation_metrics=dict(result.metrics) if isinstance(result, NothingToDo) else {},
        )
        return answer, False
    raise result.error(table.name)


def committed_response(commit_result: Committed) -> CommitResponse:
    """Return a successful commit in the form of its original answer."""
    return CommitResponse(
        result="rebased" if isinstance(commit_result, Rebased) else "committed",
        version=commit_result.version,
        read_version=commit_result.read_version,
        transaction_id=commit_result.transaction_id,
        winners_passed=list(commit_result.winners_passed),
        operation_metrics=dict(commit_result.metrics),
    )


def commit_transaction(
    multi_table: MultiTableCommits,
    answers: Answers,
    tables: Sequence[OpenTable],
    request: TransactionRequest,
    idempotency_key: str | None = None,
) -> tuple[TransactionResponse, bool] | StoredAnswer:
    """Commit to several tables at one moment; see :func:`commit`.

    Args:
        multi_table: commits to several tables.
        answers: those to earlier requests.
        tables: in the order of the request.
        request: the request.
        idempotency_key: replaces a missing transaction id.
    """
    key = request.transaction_id or idempotency_key or str(uuid.uuid4())
    digest = request_hash("transaction", [table.record.id for table in tables], request.tables)
    stored_answer = answers.find(key, digest)
    if stored_answer is not None:
        return stored_answer
    try:
        participants = [
            Participant(table, accepted(each.commit, key, digest, table))
            for table, each in zip(tables, request.tables, strict=True)
        ]
        decision, is_replayed = multi_table.commit(participants, key, digest)
    except DelvecError as error:
        if is_final(error):
            answers.keep(key, digest, error.status, _envelope(error))
        raise
    committed = [CommittedTable.model_validate(each) for each in decision.answers]
    return TransactionResponse(transaction_id=key, tables=committed), is_replayed


def find_commit(
    outcomes: Outcomes, table: OpenTable, transaction_id: str, read_version: int | None
) -> CommitOutcome:
    """Return the outcome of a commit by its transaction id. An unknown outcome is also an answer."""
    outcome = outcomes.find(table, transaction_id, read_version)
    result, commit_response, error = _outcome_fields(outcome)
    return CommitOutcome(
        transaction_id=transaction_id,
        result=result,
        commit=commit_response,
        error=error,
        searched_from=outcome.searched[0],
        searched_to=outcome.searched[1],
    )


def _outcome_fields(outcome: Outcome) -> tuple[_Result, CommitResponse | None, ErrorBody | None]:
    if outcome.committed is not None:
        return "committed", committed_response(outcome.committed), None
    if outcome.answer is None:
        return "unknown", None, None
    body = json.loads(outcome.answer.body)
    if "error" in body:
        conflict = "conflict" in body["error"].get("details", {})
        return "conflict" if conflict else "refused", None, ErrorBody.model_validate(body["error"])
    response = CommitResponse.model_validate(body)
    if response.result == "already-applied":
        return "already-applied", response, None
    return "nothing-to-do", response, None


def _envelope(error: DelvecError) -> bytes:
    """Return the body of an error's answer. In ASCII: an error may quote a lone surrogate from a log."""
    return json.dumps(error.to_wire(), separators=(",", ":")).encode()
