"""``…/commits?transaction-id=``: the outcome of a commit whose answer was lost."""

from typing import Annotated

from fastapi import Query

from delvec_contract.commits import CommitOutcome
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.problems import COMMON, OPENING, SNAPSHOT, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.commits import commit_answers

__all__ = ["router"]

router = resource_router("commits", Route)


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
    return commit_answers.find_commit(service.outcomes, table, transaction_id, read_version)
