"""``…/commits?transaction-id=``: the outcome of a commit whose answer was lost."""

import json
from typing import Annotated, Literal, TypeAlias

from fastapi import Query

from delvec_contract import CommitOutcome, CommitResponse, ErrorBody
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import COMMON, OPENING, SNAPSHOT, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.commits.commit_result import Committed, Rebased
from delvec_service.commits.outcomes import Outcome

__all__ = ["committed_response", "router"]

router = resource_router("commits", Route)

_Result: TypeAlias = Literal[
    "committed", "nothing-to-do", "already-applied", "conflict", "refused", "unknown"
]


@router.get("/tables/{table}/commits", responses=responses(*COMMON, *OPENING, *SNAPSHOT))
def find_commit(
    table: Table,
    service: ServiceState,
    transaction_id: Annotated[str, Query(alias="transaction-id", min_length=1, max_length=128)],
    read_version: Annotated[
        int | None,
        Query(
            alias="read-version",
            ge=0,
            lt=2**63,
            description="The version that the commit read; without it, the newest 10,000 versions are searched.",
        ),
    ] = None,
) -> CommitOutcome:
    """Return the outcome of a commit by its transaction id. An unknown outcome is also an answer."""
    outcome = service.outcomes.find(table, transaction_id, read_version)
    result, commit, error = _outcome_fields(outcome)
    return CommitOutcome(
        transaction_id=transaction_id,
        result=result,
        commit=commit,
        error=error,
        searched_from=outcome.searched[0],
        searched_to=outcome.searched[1],
    )


def committed_response(committed: Committed) -> CommitResponse:
    """Return a successful commit in the form of its original answer."""
    return CommitResponse(
        result="rebased" if isinstance(committed, Rebased) else "committed",
        version=committed.version,
        read_version=committed.read_version,
        transaction_id=committed.transaction_id,
        winners_passed=list(committed.winners_passed),
        operation_metrics=dict(committed.metrics),
    )


def _outcome_fields(outcome: Outcome) -> tuple[_Result, CommitResponse | None, ErrorBody | None]:
    done = outcome.committed
    if done is not None:
        return "committed", committed_response(done), None
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
