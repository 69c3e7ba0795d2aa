"""Dependencies of handlers: the running service, and the table that a URL names.

Tested in `tests/integration/service/test_http.py`.
"""

from typing import Annotated, TypeAlias

from fastapi import Depends, Path, Request

from delvec_service.api.authorizer import ACCESS, TABLE
from delvec_service.api.lanes import in_thread
from delvec_service.auth.request_access import Access
from delvec_service.dml import RowCommands
from delvec_service.logs import bind_log_context
from delvec_service.service import Service
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord

__all__ = ["Caller", "CommandRunner", "ServiceState", "Table", "TableName"]


# Handlers without I/O are coroutines: a plain function costs two thread switches.


async def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)  # noqa: S101 - set by create_app
    return service


ServiceState: TypeAlias = Annotated[Service, Depends(_service)]


async def _row_commands(request: Request) -> RowCommands:
    row_commands = request.app.state.row_commands
    assert isinstance(row_commands, RowCommands)  # noqa: S101 - set by create_app
    return row_commands


CommandRunner: TypeAlias = Annotated[RowCommands, Depends(_row_commands)]
"""What runs the commands of clients without an engine."""


async def _access(request: Request) -> Access:
    access = request.scope.get(ACCESS)
    assert isinstance(access, Access)  # noqa: S101 - set by the authorizer
    return access


Caller: TypeAlias = Annotated[Access, Depends(_access)]
"""What the request is allowed to do."""

TableName: TypeAlias = Annotated[str, Path(description="The table's name or id.", max_length=200)]


async def _table(request: Request, service: ServiceState, table: TableName) -> OpenTable:
    # The record that the authorizer looked up, not what the name may refer to by now.
    record: TableRecord | None = request.scope.get(TABLE)
    open_table = service.tables.opened(table if record is None else record.id)
    if open_table is None and record is not None:
        open_table = await in_thread(service.tables.opening, record)
    elif open_table is None:
        open_table = await in_thread(service.tables.open, table)
    bind_log_context(table=open_table.name, table_id=open_table.record.id)
    return open_table


Table: TypeAlias = Annotated[OpenTable, Depends(_table)]
