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
from delvec_service.alter_table.alter import alter
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
    return register(call.service, call.access, call.asked, call.key)


def begin_table(call: Call[TableRequest]) -> BeginResponse:
    """Begin the creation of a table with rows: return what a writer needs to know. Nothing is created yet.

    Write the data files, whose names include the transaction id, under the location. Then send the same request to
    `POST /v1/tables`, with `first-rows`.
    """
    service, access, asked = call.service, call.access, call.asked
    bind_log_context(table=asked.name, change=asked.location)
    if asked.table_schema is None or asked.first_rows is not None:
        raise BadRequest("To begin the creation of a table give its schema, and no first-rows yet.")
    access.require_place(service.tables, asked.location, asked.name, creates=True)
    new = _new_table(asked, asked.table_schema, None)
    table, state = first_commit.begin(service.tables, asked.location, asked.name, new, access)
    return BeginResponse(
        **snapshot_fields(table.record, state, service.loader),
        transaction_id=new.transaction_id,
        deletion_vectors_enabled=state.dv_enabled,
    )


def list_tables(call: Call[TablesParameters]) -> TablesResponse:
    """List the registered tables, ordered by name."""
    tables, access, asked = call.service.tables, call.access, call.asked
    if asked.location is not None:
        record = tables.at(asked.location)
        seen = record is not None and access.sees(record.id, record.name)
        access.is_decided = True
        return TablesResponse(tables=[resource(record)] if record is not None and seen else [])
    page = access.page(
        lambda after, limit: tables.page(after, limit, asked.namespace),
        lambda record: (record.name, record.id),
        lambda record: access.sees(record.id, record.name),
        place_of(asked.page_token, _BY_NAME, str, str) if asked.page_token else ("", ""),
        asked.page_size,
    )
    more = len(page) == asked.page_size
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
    drop(call.service, call.table_name, purge=call.asked.purge)


def rename_table(call: Call[RenameRequest]) -> TableResource:
    """Name a table, or rename it.

    Its id, its location and its files stay the same.
    """
    name, table = call.asked.name, call.table_name
    bind_log_context(change=f"to {name}")
    call.access.require_name(name, "maintainer")
    record = call.service.tables.rename(table, name)
    bind_log_context(table_id=record.id)
    return resource(record)


def register(
    service: Service, access: Access, asked: TableRequest, idempotency_key: str | None = None
) -> tuple[TableResource, bool]:
    """Register the table at a location, or create one there; return whether it is new."""
    bind_log_context(table=asked.name, change=asked.location)
    access.require_place(service.tables, asked.location, asked.name, creates=asked.table_schema is not None)
    if asked.table_schema is None:
        record, is_new = service.tables.register(asked.location, asked.name, access)
        bind_log_context(table=record.name, table_id=record.id, change=record.location)
        if asked.managed:
            access.require(record, "maintainer")
            _manage(service, record)
        return resource(record), is_new
    rows = asked.first_rows
    new = _new_table(asked, asked.table_schema, idempotency_key if rows is None else rows.transaction_id)
    if rows is None:
        record, version = service.tables.create(asked.location, asked.name, new, access)
    else:
        record, version = first_commit.create(
            service.tables,
            asked.location,
            asked.name,
            new,
            rows,
            access,
            max_file_age_seconds=service.settings.max_file_age_seconds,
        )
    bind_log_context(table=record.name, table_id=record.id, change=record.location, version=version)
    made = service.tables.open(record.id)
    service.commits.post_commit.notify(made, version, new.transaction_id, new.properties)
    return resource(record, version), True


def _new_table(asked: TableRequest, schema: Mapping[str, Any], transaction_id: str | None) -> NewTable:
    return NewTable(
        schema=schema,
        partition_columns=tuple(asked.partition_columns),
        properties=asked.properties,
        description=asked.description,
        cluster_by=tuple(asked.cluster_by),
        # In the log, where it can be found even if the database is lost.
        transaction_id=transaction_id or str(uuid.uuid4()),
        is_managed=asked.managed,
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
