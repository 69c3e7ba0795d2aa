"""The service for clients in its own process: the operations of the HTTP handlers, without HTTP.

Bodies and answers are those of the contract, files are Arrow tables, and errors are raised as they are. Every connection
of :func:`delvec.connect` without a URL has one, and so has every command that the service runs itself.

Tested in `tests/integration/contract/test_table_service.py`.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

import pyarrow as pa
from pydantic import BaseModel

from delvec_commands.service_adapter import Plan, ServiceAdapter
from delvec_contract import operations
from delvec_contract.operations import Operation
from delvec_contract.tables import TablesResponse
from delvec_errors import DelvecError, InternalError, ServiceUnavailable, from_wire
from delvec_service import operations as operated
from delvec_service.auth.access import Access
from delvec_service.bad_requests import check_text, check_texts
from delvec_service.handler_calls import call_handler
from delvec_service.logs import bind_log_context, log_context, logger, of_request
from delvec_service.scans.change_feed_plan import plan_changes
from delvec_service.scans.stream_plan import plan_additions
from delvec_service.service import Service
from delvec_service.store.answers import StoredAnswer
from delvec_service.store.open_table import OpenTable
from delvec_storage.roots import Roots

__all__ = ["Handlers", "InProcessService"]

_Answer = TypeVar("_Answer")
Handlers = Callable[[str], Callable[..., Any]]
"""Returns what handles an operation, by its name."""

_GRACE_SECONDS: Final = 10.0
"""How long close() waits for operations under way."""
_ERRORS: Final = 400


class InProcessService(ServiceAdapter):
    """The port to a service in this process; safe to share between threads.

    Args:
        service: the service.
        handlers: handle the operations that are not on every command's way.
        roots: locations that tables and files of plans must be under, in addition to the service's own checks.
        sleep: replaces the wait between attempts.
    """

    def __init__(
        self,
        service: Service,
        handlers: Handlers,
        *,
        roots: Roots | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(sleep=sleep, roots=roots)
        self.service = service
        self._handlers = handlers
        self._changed = threading.Condition()
        self._num_running = 0
        self._is_closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "this connection's service runs in this process, so other processes cannot use it; start `delvec "
            "serve`, and connect to its URL"
        )

    @property
    def url(self) -> None:
        """None: there is no URL."""

    @property
    def is_closed(self) -> bool:
        """Whether it accepts no more operations."""
        return self._is_closed

    def close(self) -> None:
        """Accept no more operations, and wait for those under way, but not for ever."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._num_running, _GRACE_SECONDS)

    def _attempt(
        self,
        operation: Operation[_Answer],
        body: BaseModel | None,
        parameters: Mapping[str, Any],
        path: Mapping[str, str],
        key: str | None,
    ) -> _Answer:
        def run() -> Any:
            _check_path(path)
            parsed = _checked(body)
            method = _OPERATIONS.get((operation.name, frozenset(parameters)))
            if method is not None:
                return getattr(self, method)(body, {**parameters, **path}, key, parsed)
            handler = self._handlers(operation.name)
            return call_handler(self.service, handler, self._table, body, {**parameters, **path}, key)

        answer = self._run(operation, path, run)
        if answer is None or isinstance(answer, operation.answer):
            return cast("_Answer", answer)
        assert issubclass(operation.answer, BaseModel)  # noqa: S101 - of every operation with an answer
        return cast("_Answer", operation.answer.model_validate_json(answer.body))

    def _attempt_plan(self, operation: Operation[Plan], table: str, body: BaseModel) -> tuple[Plan, pa.Table]:
        def run() -> Any:
            _check_path({"table": table})
            _checked(body)
            return getattr(self, _PLANS[operation.name])(self._table(table), body)

        return cast("tuple[Plan, pa.Table]", self._run(operation, {"table": table}, run))

    def _run(
        self, operation: Operation[Any], path: Mapping[str, str], work: Callable[[], _Answer]
    ) -> _Answer:
        """Run an operation.

        Raises:
            ServiceUnavailable: the connection is closed.
            InternalError: around any error that is not a DelvecError.
        """
        with self._entered(), of_request(log_context().get("request_id") or str(uuid.uuid4())):
            try:
                answer = work()
            except DelvecError as error:
                bind_log_context(error_code=error.code)
                self._answered(operation, path, error.status)
                raise
            except Exception as error:
                logger.error("operation failed", exc_info=True, operation=operation.name)
                self._answered(operation, path, InternalError.status)
                raise InternalError(
                    f"Delvec failed unexpectedly in {operation.name}: {type(error).__name__}: {error}"
                ) from error
            self._answered(operation, path, operated.OK)
            return answer

    def _answered(self, operation: Operation[Any], path: Mapping[str, str], status: int) -> None:
        """Record that an operation ended; for subclasses."""

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._changed:
            if self._is_closed:
                raise ServiceUnavailable("this connection is closed; call delvec.connect() again")
            self._num_running += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_running -= 1
                self._changed.notify_all()

    def _table(self, name_or_id: str) -> OpenTable:
        tables = self.service.tables
        table = tables.opened(name_or_id) or tables.open(name_or_id)
        bind_log_context(table=table.name, table_id=table.record.id)
        return table

    # --- operations on every command's way ----------------------------------------------------------------

    def _begin(self, body: Any, values: Mapping[str, Any], _key: str | None, _parsed: Any) -> Any:
        return operated.begin(self.service, self._table(values["table"]), body)

    def _allocate(self, body: Any, values: Mapping[str, Any], _key: str | None, _parsed: Any) -> Any:
        return operated.allocate(self.service, self._table(values["table"]), body)

    def _commit(self, body: Any, values: Mapping[str, Any], key: str | None, parsed: Any) -> Any:
        committed = operated.commit(self.service, self._table(values["table"]), body, parsed, key)
        if not isinstance(committed, StoredAnswer):
            return committed[0]
        if committed.status >= _ERRORS:
            raise from_wire(json.loads(committed.body))
        return operations.COMMIT.answer.model_validate_json(committed.body)

    def _find_commit(self, _body: Any, values: Mapping[str, Any], _key: str | None, _parsed: Any) -> Any:
        table = self._table(values["table"])
        return operated.find_commit(self.service, table, values["transaction-id"], values.get("read-version"))

    def _register(self, body: Any, _values: Mapping[str, Any], key: str | None, _parsed: Any) -> Any:
        return operated.register(self.service, Access(), body, key)[0]

    def _resolve(self, _body: Any, values: Mapping[str, Any], _key: str | None, _parsed: Any) -> Any:
        check_text(values["location"], "query field 'location'")
        record = self.service.tables.at(values["location"])
        return TablesResponse(tables=[] if record is None else [operated.resource(record)])

    def _tables(self, _body: Any, values: Mapping[str, Any], _key: str | None, _parsed: Any) -> Any:
        return operated.tables(self.service, Access(), None, values["page-size"])

    def _get_table(self, _body: Any, values: Mapping[str, Any], _key: str | None, _parsed: Any) -> Any:
        return operated.resource(self._table(values["table"]).record)

    def _snapshot(self, _body: Any, values: Mapping[str, Any], _key: str | None, _parsed: Any) -> Any:
        return operated.snapshot(self.service, self._table(values["table"]))

    def _detail(self, _body: Any, values: Mapping[str, Any], _key: str | None, _parsed: Any) -> Any:
        return operated.detail(self.service, self._table(values["table"]))

    def _history(self, _body: Any, values: Mapping[str, Any], _key: str | None, _parsed: Any) -> Any:
        return operated.history(self._table(values["table"]))

    def _health(self, _body: Any, values: Mapping[str, Any], _key: str | None, _parsed: Any) -> Any:
        return operated.health(self.service, self._table(values["table"]))

    def _plan(self, table: OpenTable, body: Any) -> Any:
        planned = operated.plan_scan(self.service, table, body)
        return operated.plan_answer(table, planned, self.service.loader), planned.files

    def _plan_changes(self, table: OpenTable, body: Any) -> Any:
        planned = plan_changes(self.service.loader, table, body)
        return operated.changes_answer(table, planned), planned.files

    def _plan_additions(self, table: OpenTable, body: Any) -> Any:
        planned = plan_additions(self.service.loader, table, body)
        return operated.additions_answer(table, planned), planned.files


_NONE: Final[frozenset[str]] = frozenset()
_OPERATIONS: Final = {
    (operations.BEGIN.name, _NONE): "_begin",
    (operations.ALLOCATE.name, _NONE): "_allocate",
    (operations.COMMIT.name, _NONE): "_commit",
    (
        operations.FIND_COMMIT.name,
        frozenset({"transaction-id", "read-version"}),
    ): "_find_commit",
    (operations.REGISTER_TABLE.name, _NONE): "_register",
    (operations.LIST_TABLES.name, frozenset({"location"})): "_resolve",
    (operations.LIST_TABLES.name, frozenset({"page-size"})): "_tables",
    (operations.GET_TABLE.name, _NONE): "_get_table",
    (operations.GET_SNAPSHOT.name, _NONE): "_snapshot",
    (operations.GET_DETAIL.name, _NONE): "_detail",
    (operations.GET_HISTORY.name, _NONE): "_history",
    (operations.GET_HEALTH.name, _NONE): "_health",
}
"""By the names of their operations and parameters; with any others, operations are left to their handlers."""
_PLANS: Final = {
    operations.PLAN_SCAN.name: "_plan",
    operations.PLAN_CHANGES.name: "_plan_changes",
    operations.PLAN_ADDITIONS.name: "_plan_additions",
}


def _check_path(path: Mapping[str, str]) -> None:
    for value in path.values():
        check_text(value, "path")


def _checked(body: BaseModel | None) -> Any:
    """Return a body as JSON values, as a client over HTTP would send them: they identify a request.

    Raises:
        BadRequest: it has text that cannot be kept.
    """
    if body is None:
        return None
    parsed = body.model_dump(mode="json", by_alias=True, exclude_none=True)
    check_texts(parsed)
    return parsed
