"""Tables as clients see them: registered, created, listed, renamed and dropped.

Tested in `tests/integration/service/tables/test_tables.py`.
"""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from delvec_contract.alterations import AlterRequest
from delvec_contract.commits import BeginResponse
from delvec_contract.parameters import ForgetParameters, TablesParameters
from delvec_contract.tables import RenameRequest, TableRequest, TableResource, TablesResponse
from delvec_errors import BadRequest
from delvec_kernel.alter_table.change_types import AddFeature
from delvec_kernel.features.managed_tables import MANAGED, is_catalog_managed
from delvec_kernel.transaction.conflict_checker import Conflict
from delvec_service.alter_table.alteration_commit import alter
from delvec_service.auth.request_access import Access
from delvec_service.commits import first_commit
from delvec_service.logs import bind_log_context
from delvec_service.operations.call import Call
from delvec_service.page_tokens import page_token, place_of
from delvec_service.scans.describe import snapshot_fields
from delvec_service.service import Service
from delvec_service.store.registry import TableRecord
from delvec_service.tables.new_table import NewTable

_BY_NAME: Final = "tables by name"


def register_table(call: Call[TableRequest]) -> tuple[TableResource, bool]:
    """Register the Delta table at a location.

    Registering it again has no effect. If you pass a schema, the table is created there first.
    """
    return register(call.service, call.access, call.request, call.key)


def begin_table(call: Call[TableRequest]) -> BeginResponse:
    """Begin the creation of a table with rows: return what a writer needs to know. Nothing is created yet.

    Write the data files, whose names include the transaction id, under the location. Then send the same request to
    `POST /v1/tables`, with `first-rows`.
    """
    service, access, request = call.service, call.access, call.request
    bind_log_context(table=request.name, change=request.location)
    if request.table_schema is None or request.first_rows is not None:
        raise BadRequest("To begin the creation of a table give its schema, and no first-rows yet.")
    access.require_place(service.tables, request.location, request.name, creates=True)
    new = _new_table(request, request.table_schema, None)
    table, state = first_commit.begin(service.tables, request.location, request.name, new, access)
    return BeginResponse(
        **snapshot_fields(table.record, state, service.loader),
        transaction_id=new.transaction_id,
        deletion_vectors_enabled=state.dv_enabled,
    )


def list_tables(call: Call[TablesParameters]) -> TablesResponse:
    """List the registered tables, ordered by name."""
    tables, access, request = call.service.tables, call.access, call.request
    if request.location is not None:
        record = tables.at(request.location)
        seen = record is not None and access.sees(record.id, record.name)
        access.is_decided = True
        return TablesResponse(tables=[resource(record)] if record is not None and seen else [])
    page = access.page(
        lambda after, limit: tables.page(after, limit, request.namespace),
        lambda record: (record.name, record.id),
        lambda record: access.sees(record.id, record.name),
        place_of(request.page_token, _BY_NAME, str, str) if request.page_token else ("", ""),
        request.page_size,
    )
    more = len(page) == request.page_size
    return TablesResponse(
        tables=[resource(record) for record in page],
        next_page_token=page_token(_BY_NAME, page[-1].name, page[-1].id) if more else None,
    )


def get_table(call: Call[None]) -> TableResource:
    """Return one table, by name or id."""
    return resource(call.table.record)


def forget_table(call: Call[ForgetParameters]) -> None:
    """Unregister a table.

    Its policies, grants and health samples are deleted; its files and maintenance runs stay. Registering its location
    again brings it back under the same id. A managed table is dropped with all that the service has of it: it can be
    brought back by name, until its files are deleted; so is any other with `purge=true`.
    """
    drop(call.service, call.table_name, purge=call.request.purge)


def rename_table(call: Call[RenameRequest]) -> TableResource:
    """Name a table, or rename it.

    Its id, its location and its files stay the same.
    """
    name, table = call.request.name, call.table_name
    bind_log_context(change=f"to {name}")
    call.access.require_name(name, "maintainer")
    record = call.service.tables.rename(table, name)
    bind_log_context(table_id=record.id)
    return resource(record)


def register(
    service: Service, access: Access, request: TableRequest, idempotency_key: str | None = None
) -> tuple[TableResource, bool]:
    """Register the table at a location, or create one there; return whether it is new."""
    bind_log_context(table=request.name, change=request.location)
    access.require_place(
        service.tables, request.location, request.name, creates=request.table_schema is not None
    )
    if request.table_schema is None:
        record, is_new = service.tables.register(request.location, request.name, access)
        bind_log_context(table=record.name, table_id=record.id, change=record.location)
        if request.managed:
            access.require(record, "maintainer")
            _manage(service, record)
        return resource(record), is_new
    rows = request.first_rows
    new = _new_table(request, request.table_schema, idempotency_key if rows is None else rows.transaction_id)
    if rows is None:
        record, version = service.tables.create(request.location, request.name, new, access)
    else:
        record, version = first_commit.create(
            service.tables,
            request.location,
            request.name,
            new,
            rows,
            access,
            max_file_age_seconds=service.settings.max_file_age_seconds,
        )
    bind_log_context(table=record.name, table_id=record.id, change=record.location, version=version)
    made = service.tables.open(record.id)
    service.commits.post_commit.notify(made, version, new.transaction_id, new.properties)
    return resource(record, version), True


def _new_table(request: TableRequest, schema: Mapping[str, Any], transaction_id: str | None) -> NewTable:
    return NewTable(
        schema=schema,
        partition_columns=tuple(request.partition_columns),
        properties=request.properties,
        description=request.description,
        cluster_by=tuple(request.cluster_by),
        # In the log, where it can be found even if the database is lost.
        transaction_id=transaction_id or str(uuid.uuid4()),
        is_managed=request.managed,
    )


def _manage(service: Service, record: TableRecord) -> None:
    """Give a table to the catalog, unless it is the catalog's already.

    Raises:
        InvalidTableChange: it cannot be managed.
        ConcurrentModification: or a subclass: others changed the table during every attempt.
    """
    table = service.tables.opening(record)
    if is_catalog_managed(service.loader.load(table.objects, table.name, checkpoints=False).protocol):
        return
    change = AlterRequest(changes=[AddFeature(feature=MANAGED)])
    result = alter(table, service.loader, service.commits, service.log_maintenance, change)
    if isinstance(result, Conflict):
        raise result.error(table.name)


def drop(service: Service, name_or_id: str, *, purge: bool = False) -> None:
    """Unregister a table; one that is managed, or to be purged, can be brought back until its files are deleted."""
    record = service.tables.forget(name_or_id, purge=purge)
    bind_log_context(table=record.name, table_id=record.id)
    closed(service, record)


def closed(service: Service, record: TableRecord) -> None:
    """Note that a table is no longer registered."""
    service.health.forget(record.id)
    service.directory.expire()  # Its grants may be gone.


def resource(record: TableRecord, version: int | None = None) -> TableResource:
    """Return a table in its wire form."""
    return TableResource(
        id=record.id,
        name=record.name,
        location=record.location,
        created_at=record.created_at.isoformat(),
        version=version,
    )
