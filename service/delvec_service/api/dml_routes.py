"""``…/delete``, ``…/update`` and ``…/optimize``: commands that the service runs itself.

Tested in `tests/integration/service/test_dml.py`.
"""

from typing import Final

from delvec_contract.commands import DeleteRequest, OptimizePlan, OptimizeRequest, UpdateRequest
from delvec_contract.commits import CommitResponse
from delvec_contract.policies import MaintenancePlanResponse
from delvec_errors import (
    AppendOnlyTable,
    ConstraintViolation,
    CorruptTable,
    DelvecError,
    EngineUnavailable,
    InvalidPredicate,
    MissingDataFile,
    ReadLimitExceeded,
    SchemaMismatch,
    UnknownColumn,
    UnsupportedTable,
    UnsupportedWriterFeature,
)
from delvec_service.api.dependencies import CommandRunner, Table
from delvec_service.api.plan_routes import DELETION_VECTOR_ERRORS
from delvec_service.api.problems import CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import IdempotencyKey, MutationRoute
from delvec_service.api.resource import resource_router
from delvec_service.logs import bind_log_context

__all__ = ["router"]

_ERRORS: Final[tuple[type[DelvecError], ...]] = (
    *MUTATION,
    *OPENING,
    *SNAPSHOT,
    InvalidPredicate,
    UnknownColumn,
    ReadLimitExceeded,
    EngineUnavailable,
    UnsupportedTable,
    UnsupportedWriterFeature,
    AppendOnlyTable,
    CorruptTable,
    *DELETION_VECTOR_ERRORS,
    MissingDataFile,
    *CONFLICTS,
)


class _Command(MutationRoute):
    kind = "commands"


router = resource_router("commands", _Command)


@router.post("/tables/{table}/delete", responses=responses(*_ERRORS))
def delete_rows(
    table: Table, body: DeleteRequest, commands: CommandRunner, idempotency_key: IdempotencyKey = None
) -> CommitResponse:
    """Delete the rows that match a predicate, with the service's own DuckDB.

    The amount of data to read is limited (`DELVEC_DML_MAX_BYTES`); run larger commands on your own engine. The
    service retries after a conflict; if the conflict persists, the status is 409 and the error names the winning
    commit.
    """
    return _noted(commands.delete(table, body, idempotency_key))


@router.post(
    "/tables/{table}/update",
    responses=responses(*_ERRORS, SchemaMismatch, ConstraintViolation),
)
def update_rows(
    table: Table, body: UpdateRequest, commands: CommandRunner, idempotency_key: IdempotencyKey = None
) -> CommitResponse:
    """Update columns of the rows that match a predicate, with the service's own DuckDB.

    Limits and conflicts are the same as for `delete`.
    """
    return _noted(commands.update(table, body, idempotency_key))


@router.post("/tables/{table}/optimize", responses=responses(*_ERRORS))
def optimize_table(
    table: Table, body: OptimizeRequest, commands: CommandRunner, idempotency_key: IdempotencyKey = None
) -> CommitResponse | OptimizePlan:
    """Compact small files, and files with many deleted rows, with the service's own DuckDB.

    The table's rows stay the same. The amount of data to rewrite is limited (`DELVEC_DML_MAX_BYTES`); select
    partitions, or optimize larger tables on your own engine. Row changes that others commit meanwhile are carried
    over to the new files. With `dry-run` nothing is written: the answer says which files would be rewritten, and why.
    """
    if body.dry_run:
        bind_log_context(change="dry run")
        return commands.plan_optimize(table, body)
    return _noted(commands.optimize(table, body, idempotency_key))


@router.get("/tables/{table}/maintenance-plan", responses=responses(*_ERRORS))
def plan_maintenance(table: Table, commands: CommandRunner) -> MaintenancePlanResponse:
    """Return what the table's policies would do now, and why: a dry run of `delvec maintain`.

    Nothing changes. If the table has a VACUUM policy, its storage is listed.
    """
    return MaintenancePlanResponse(table=table.name, planned=commands.plan_maintenance(table))


def _noted(done: CommitResponse) -> CommitResponse:
    """Record what the command's own requests committed: they have log lines of their own."""
    bind_log_context(transaction=done.transaction_id, version=done.version)
    return done
