"""``/v1/tables``: register, create, list, find and unregister tables.

Tested in `tests/integration/service/tables/test_tables.py`.
"""

from typing import Annotated

from fastapi import Query, Response, status

from delvec_contract.tables import RenameRequest, TableRequest, TableResource, TablesResponse
from delvec_errors import (
    AtomicCreateUnsupported,
    InvalidLocation,
    InvalidPredicate,
    InvalidSchema,
    InvalidTableChange,
    LocationNotAllowed,
    PermissionDenied,
    TableAlreadyExists,
    TableNotFound,
    UnknownColumn,
)
from delvec_service.api.dependencies import Caller, ServiceState, Table, TableName
from delvec_service.api.problems import COMMON, MUTATION, OPENING, SNAPSHOT, responses
from delvec_service.api.repeats import IdempotencyKey, Mutation
from delvec_service.api.resource import resource_router
from delvec_service.logs import bind_log_context
from delvec_service.page_tokens import LONGEST_TOKEN
from delvec_service.registration import drop, register, resource, tables

__all__ = ["router"]

router = resource_router("tables", Mutation)


@router.post(
    "/tables",
    status_code=status.HTTP_201_CREATED,
    responses={
        200: {"model": TableResource, "description": "The table was already registered."},
        **responses(
            *MUTATION,
            *SNAPSHOT,
            InvalidLocation,
            InvalidSchema,
            InvalidTableChange,
            InvalidPredicate,
            UnknownColumn,
            LocationNotAllowed,
            PermissionDenied,
            TableNotFound,
            TableAlreadyExists,
            AtomicCreateUnsupported,
        ),
    },
)
def register_table(
    body: TableRequest,
    service: ServiceState,
    access: Caller,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> TableResource:
    """Register the Delta table at a location.

    Registering it again has no effect. If you pass a schema, the table is created there first.
    """
    registered, is_new = register(service, access, body, idempotency_key)
    if not is_new:
        response.status_code = status.HTTP_200_OK
    return registered


@router.get("/tables", responses=responses(*COMMON, InvalidLocation, LocationNotAllowed))
def list_tables(
    service: ServiceState,
    access: Caller,
    location: Annotated[
        str | None,
        Query(
            description=("Only the table at this location: one or none. The request does not register it.")
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        Query(max_length=128, description="Only tables with names of the form `<namespace>.<something>`."),
    ] = None,
    page_size: Annotated[int, Query(alias="page-size", ge=1, le=1000)] = 100,
    token: Annotated[str, Query(alias="page-token", max_length=LONGEST_TOKEN)] = "",
) -> TablesResponse:
    """List the registered tables, ordered by name."""
    if location is not None:
        found = service.tables.at(location)
        seen = found is not None and access.sees(found.id, found.name)
        access.is_decided = True
        return TablesResponse(tables=[resource(found)] if found is not None and seen else [])
    return tables(service, access, namespace, page_size, token)


@router.get("/tables/{table}", responses=responses(*COMMON, *OPENING))
def get_table(table: Table) -> TableResource:
    """Return one table, by name or id."""
    return resource(table.record)


@router.delete(
    "/tables/{table}", status_code=status.HTTP_204_NO_CONTENT, responses=responses(*MUTATION, *OPENING)
)
def forget_table(service: ServiceState, table: TableName) -> None:
    """Unregister a table.

    Its policies, grants and health samples are deleted; its files and maintenance runs stay. Registering its location
    again brings it back under the same id. A managed table is dropped with all that the service has of it: it can be
    brought back by name, until its files are deleted.
    """
    drop(service, table)


@router.post("/tables/{table}/rename", responses=responses(*MUTATION, *OPENING, TableAlreadyExists))
def rename_table(
    service: ServiceState, table: TableName, body: RenameRequest, access: Caller
) -> TableResource:
    """Name a table, or rename it.

    Its id, its location and its files stay the same.
    """
    bind_log_context(change=f"to {body.name}")
    access.require_name(body.name, "maintainer")
    record = service.tables.rename(table, body.name)
    bind_log_context(table_id=record.id)
    return resource(record)
