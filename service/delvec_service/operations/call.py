"""A call of an operation, and the function that answers it: the same over HTTP and from this process.

Tested in `tests/integration/contract/test_operations.py` and `tests/integration/contract/test_table_service.py`.
"""

import uuid
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from delvec_errors import BadRequest
from delvec_service.auth.request_access import Access
from delvec_service.bad_requests import check_text, invalid
from delvec_service.logs import bind_log_context
from delvec_service.service import Service
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord

__all__ = ["Call", "function_of", "opened", "transaction_id", "validated"]

_Request = TypeVar("_Request")
_Model = TypeVar("_Model", bound=BaseModel)

_FUNCTIONS: Final = {
    "access": "get_access create_token list_tokens revoke_token grant_role list_grants revoke_role vend_credentials list_audit",
    "alterations": "alter_table restore_table repair_table",
    "commits": "begin_transaction allocate_deletion_vectors find_commit commit_transaction find_transaction",
    "conflicts": "list_conflicts list_all_conflicts",
    "copies": "clone_table convert_to_delta",
    "descriptions": "get_snapshot get_snapshots get_history get_detail",
    "dropped_tables": "list_dropped_tables undrop_table delete_dropped_table",
    "events": "list_events",
    "fleet": "get_fleet",
    "health": "get_health list_health_samples list_health",
    "maintenance": "check_table write_checkpoint generate_manifests convert_to_iceberg compact_deletion_vectors",
    "policies": "set_policy list_policies get_policy drop_policy list_applicable_policies lease_table release_table record_run list_runs report_task list_tasks list_all_tasks",
    "tables": "register_table begin_table list_tables get_table forget_table rename_table",
    "vacuum": "vacuum_table list_quarantines undo_vacuum purge_vacuumed",
}
"""The functions of each module of this package, named as the operations that they answer."""
_MODULES: Final = {name: module for module, names in _FUNCTIONS.items() for name in names.split()}


class Call(Generic[_Request]):
    """A call of an operation.

    Args:
        service: the service.
        access: what the caller may do.
        request: the body, or the parameters of the query.
        path: the parameters of the path.
        key: the idempotency key, if there is one.
        record: the record of the table in the path, if that was looked up.
    """

    def __init__(
        self,
        service: Service,
        access: Access,
        request: _Request,
        path: Mapping[str, str],
        key: str | None = None,
        record: TableRecord | None = None,
    ) -> None:
        self.service = service
        self.access = access
        self.request = request
        self.path = path
        self.key = key
        self._record = record

    @cached_property
    def table(self) -> OpenTable:
        """The table in the path."""
        return opened(self.service, self.path["table"], self._record)

    @property
    def table_name(self) -> str:
        """The name or id of the table in the path, which may be missing, or may not be opened."""
        if self._record is not None:
            return self._record.id
        bind_log_context(table=self.path["table"])
        return self.path["table"]

    @cached_property
    def transaction_id(self) -> str:
        """The id of the transaction that the call makes: its key, or a new one."""
        return self.key or str(uuid.uuid4())


def opened(service: Service, name_or_id: str, record: TableRecord | None = None) -> OpenTable:
    """Return a table, opened.

    Args:
        service: the service.
        name_or_id: of the table.
        record: what was looked up for it; the name may refer to another table by now.
    """
    tables = service.tables
    if record is None:
        table = tables.opened(name_or_id) or tables.open(name_or_id)
    else:
        table = tables.opened(record.id) or tables.opening(record)
    bind_log_context(table=table.name, table_id=table.record.id)
    return table


def function_of(operation: str) -> Callable[[Call[Any]], Any]:
    """Return the function of an operation, by its name.

    Its module is imported with the first call: most programs need few of them, and all take as long as a command.
    """
    function: Callable[[Call[Any]], Any] = getattr(
        import_module(f"delvec_service.operations.{_MODULES[operation]}"), operation
    )
    return function


def validated(model: type[_Model], values: Mapping[str, Any], where: str) -> _Model:
    """Return parameters as their class.

    Args:
        model: the class.
        values: by their names on the wire.
        where: in the request: the path or the query.

    Raises:
        BadRequest: one is invalid.
    """
    for name, value in values.items():
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str):
                check_text(text, where if where == "path" else f"{where} field '{name}'")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
    raise invalid([{**each, "loc": (where, *each["loc"])} for each in problems])


def transaction_id(of_body: str | None, key: str | None) -> str | None:
    """Return the id that a transaction has in the body of a request, or its key; None if it has neither.

    Raises:
        BadRequest: it has both, and they differ.
    """
    if key and of_body and key != of_body:
        raise BadRequest(
            "Idempotency-Key and transaction-id differ; send only one of them, or the same value in both."
        )
    return of_body or key
