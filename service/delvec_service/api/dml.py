"""``…/delete``, ``…/update`` and ``…/optimize``: commands that the service runs itself."""

from typing import Final

from delvec_kernel.errors import (
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
from delvec_kernel.wire import (
    CommitResponse,
    DeleteRequest,
    MaintenancePlanResponse,
    OptimizePlan,
    OptimizeRequest,
    UpdateRequest,
)
from delvec_service.api.dependencies import ServiceState, Table
from delvec_service.api.plan import DELETION_VECTOR_ERRORS
from delvec_service.api.problems import CONFLICTS, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import IdempotencyKey, Mutation
from delvec_service.api.resource import Resource
from delvec_service.logs import note

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


class _Command(Mutation):
    kind = "commands"


router = Resource(tags=["commands"], route_class=_Command)


@router.post("/tables/{table}/delete", responses=responses(*_ERRORS))
def delete_rows(
    table: Table, body: DeleteRequest, service: ServiceState, idempotency_key: IdempotencyKey = None
) -> CommitResponse:
    """Delete the rows of a predicate, with the service's own DuckDB.

    What it would have to read is limited (`DELVEC_DML_MAX_BYTES`); run larger commands on an engine of your own. A lost race
    is run again by itself; one that is lost for good has status 409 and names the winner.
    """
    return _noted(
        service.row_commands.delete(
            table, body.predicate, key=idempotency_key, user_metadata=body.user_metadata
        )
    )


@router.post(
    "/tables/{table}/update",
    responses=responses(*_ERRORS, SchemaMismatch, ConstraintViolation),
)
def update_rows(
    table: Table, body: UpdateRequest, service: ServiceState, idempotency_key: IdempotencyKey = None
) -> CommitResponse:
    """Set columns of the rows of a predicate, with the service's own DuckDB; limits and races as for `delete`."""
    return _noted(
        service.row_commands.update(
            table,
            body.set,
            body.predicate,
            key=idempotency_key,
            user_metadata=body.user_metadata,
        )
    )


@router.post("/tables/{table}/optimize", responses=responses(*_ERRORS))
def optimize_table(
    table: Table, body: OptimizeRequest, service: ServiceState, idempotency_key: IdempotencyKey = None
) -> CommitResponse | OptimizePlan:
    """Write small files together, and files of which many rows are deleted, with the service's own DuckDB.

    The rows stay the same. What is to be written again is limited (`DELVEC_DML_MAX_BYTES`); choose partitions, or optimize
    larger tables on an engine of your own. Rows that others change meanwhile are found in the new files.
    With `dry-run` nothing is written: the answer says what would be written again, and why.
    """
    if body.dry_run:
        note(change="dry run")
        return service.row_commands.plan_optimize(
            table,
            body.predicate,
            purge=body.purge,
            zorder_by=body.zorder_by,
            full=body.full,
            target_size=body.target_size,
            limit=body.limit,
        )
    return _noted(
        service.row_commands.optimize(
            table,
            body.predicate,
            purge=body.purge,
            zorder_by=body.zorder_by,
            full=body.full,
            target_size=body.target_size,
            key=idempotency_key,
            user_metadata=body.user_metadata,
        )
    )


@router.get("/tables/{table}/maintenance-plan", responses=responses(*_ERRORS))
def plan_maintenance(table: Table, service: ServiceState) -> MaintenancePlanResponse:
    """Return what the policies that hold for the table would do to it now, and why: a dry run of `delvec maintain`.

    Nothing is changed. Storage is listed where a policy of VACUUM holds.
    """
    return MaintenancePlanResponse(table=table.name, planned=service.row_commands.plan_maintenance(table))


def _noted(done: CommitResponse) -> CommitResponse:
    """Note for the log what the command's own requests committed: theirs have other lines."""
    note(transaction=done.transaction_id, version=done.version)
    return done
