"""``…/credentials``: short-lived credentials for a table's data files, where the store can issue them."""

from typing import Annotated

from fastapi import Query, Response

from delvec_contract.access import CredentialsResponse, StorageCredential, StorageOperation
from delvec_errors import CredentialVendingUnsupported, StorageDenied, StorageError
from delvec_service.api.dependencies import Caller, ServiceState, Table
from delvec_service.api.problems import COMMON, OPENING, responses
from delvec_service.api.resource import resource_router
from delvec_service.api.routes import Route
from delvec_service.logs import bind_log_context

__all__ = ["router"]

router = resource_router("access", Route)  # Answers are not stored under a key: they contain a secret.


@router.get(
    "/tables/{table}/credentials",
    response_model=CredentialsResponse,
    responses=responses(*COMMON, *OPENING, CredentialVendingUnsupported, StorageDenied, StorageError),
)
def vend_credentials(
    table: Table,
    service: ServiceState,
    access: Caller,
    operation: Annotated[
        StorageOperation,
        Query(
            description="`READ` for readers of the table; `READ_WRITE`, which can write data files, for its writers."
        ),
    ] = "READ",
) -> Response:
    """Issue short-lived object store credentials for the files of this table only.

    Commits still go through the service: no credentials allow writing to the log.
    """
    bind_log_context(change=operation)
    if operation == "READ_WRITE":
        access.require(table.record, "writer")
    service.tables.places.check_table(table.record, access)
    credentials = service.credentials.vend(table.location, operation, access.name)
    answer = CredentialsResponse(
        storage_credentials=[
            StorageCredential(
                prefix=f"{table.location}/",
                operation=operation,
                expiration_time_ms=int(credentials.expires_at.timestamp() * 1000),
                config=dict(credentials.config),
            )
        ]
    )
    return Response(
        answer.model_dump_json(by_alias=True),
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
