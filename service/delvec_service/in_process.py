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
from typing import Annotated, Any, Final, TypeVar, cast

import pyarrow as pa
from pydantic import BaseModel, Field

from delvec_commands.service_adapter import Plan, ServiceAdapter
from delvec_contract import operations
from delvec_contract.commits import CommitResponse
from delvec_contract.operations import Operation
from delvec_contract.tables import HistoryResponse, TablesResponse
from delvec_errors import DelvecError, InternalError, ServiceUnavailable, from_wire
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service import registration
from delvec_service.auth.request_access import Access
from delvec_service.bad_requests import check_body, check_text
from delvec_service.commits import allocation, commit_answers
from delvec_service.handler_calls import call_handler
from delvec_service.logs import bind_log_context, log_context, logger, of_request
from delvec_service.maintenance.health import health_answer
from delvec_service.scans import describe, scan_answers
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
_OK: Final = 200
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
        body: BaseModel | Changes | None,
        parameters: Mapping[str, Any],
        path: Mapping[str, str],
        key: str | None,
    ) -> _Answer:
        def run() -> Any:
            _check_path(path)
            text = check_body(body)
            if isinstance(body, Changes):
                return self._commit(self._table(path["table"]), body, text)
            direct = _DIRECT.get((operation.name, *sorted(parameters)))
            if direct is not None:
                table = self._table(path["table"]) if "table" in path else None
                return direct(self.service, table, body, parameters, key)
            handler = self._handlers(operation.name)
            return call_handler(self.service, handler, self._table, body, {**parameters, **path}, key)

        answer = self._run(operation, path, run)
        if answer is None or isinstance(answer, operation.answer):
            return cast("_Answer", answer)
        assert issubclass(operation.answer, BaseModel)  # noqa: S101 - of every operation with an answer
        return cast("_Answer", operation.answer.model_validate_json(answer.body))

    def _attempt_plan(self, operation: Operation[Plan], table: str, body: BaseModel) -> tuple[Plan, pa.Table]:
        def run() -> tuple[Plan, pa.Table]:
            _check_path({"table": table})
            check_body(body)
            return _PLANS[operation.name](self.service, self._table(table), body)

        return self._run(operation, {"table": table}, run)

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
            self._answered(operation, path, _OK)
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

    def _commit(self, table: OpenTable, asked: Changes, text: str) -> CommitResponse:
        committed = commit_answers.commit(self.service.commits, self.service.answers, table, asked, text)
        if not isinstance(committed, StoredAnswer):
            return committed[0]
        if committed.status >= _ERRORS:
            raise from_wire(json.loads(committed.body))
        return operations.COMMIT.answer.model_validate_json(committed.body)


def _resolved(service: Service, location: str) -> TablesResponse:
    check_text(location, "query field 'location'")
    record = service.tables.at(location)
    return TablesResponse(tables=[] if record is None else [registration.resource(record)])


def _newest_commits(table: OpenTable, limit: Annotated[int, Field(ge=1, lt=2**31)]) -> HistoryResponse:
    """Return the newest commits, with the limit that the handler over HTTP takes."""
    return describe.history_answer(table, limit)


_DIRECT: Final[
    Mapping[tuple[str, ...], Callable[[Service, Any, Any, Mapping[str, Any], str | None], Any]]
] = {
    (operations.BEGIN.name,): lambda service, table, body, *_: allocation.begin(
        table, service.loader, service.ledger, body
    ),
    (operations.ALLOCATE.name,): lambda service, table, body, *_: allocation.allocate(
        table,
        service.loader,
        service.ledger,
        body,
        target_bytes=service.settings.deletion_vector_target_bytes,
    ),
    (operations.FIND_COMMIT.name, "read-version", "transaction-id"): (
        lambda service, table, _body, values, _key: commit_answers.find_commit(
            service.outcomes, table, values["transaction-id"], values["read-version"]
        )
    ),
    (operations.REGISTER_TABLE.name,): lambda service, _table, body, _values, key: registration.register(
        service, Access(), body, key
    )[0],
    (operations.LIST_TABLES.name, "location"): lambda service, _table, _body, values, _key: _resolved(
        service, values["location"]
    ),
    (operations.LIST_TABLES.name, "page-size"): lambda service, _table, _body, values, _key: (
        registration.tables(service, Access(), None, values["page-size"])
    ),
    (operations.GET_TABLE.name,): lambda _service, table, *_: registration.resource(table.record),
    (operations.GET_SNAPSHOT.name,): lambda service, table, *_: describe.snapshot_answer(
        service.loader, table
    ),
    (operations.GET_DETAIL.name,): lambda service, table, *_: describe.detail_answer(service.loader, table),
    (operations.GET_HISTORY.name,): lambda _service, table, *_: describe.history_answer(table),
    (operations.GET_HISTORY.name, "limit"): lambda service, table, _body, values, _key: call_handler(
        service, _newest_commits, lambda _: table, None, {"table": table.name, **values}, None
    ),
    (operations.GET_HEALTH.name,): lambda service, table, *_: health_answer(
        service.loader, service.health, table, service.overwrite_watch.overwritten(table.location)
    ),
}
"""What is on every command's way, by operation and parameters; with any others, operations are left to their handlers."""


def _scan(service: Service, table: OpenTable, body: Any) -> tuple[Any, pa.Table]:
    planned = scan_answers.plan_scan(
        service.loader, table, body, turns=service.plan_queue, observer=service.observer
    )
    return scan_answers.plan_answer(service.loader, table, planned), planned.files


def _changes(service: Service, table: OpenTable, body: Any) -> tuple[Any, pa.Table]:
    planned = plan_changes(service.loader, table, body)
    return scan_answers.changes_answer(table, planned), planned.files


def _additions(service: Service, table: OpenTable, body: Any) -> tuple[Any, pa.Table]:
    planned = plan_additions(service.loader, table, body)
    return scan_answers.additions_answer(table, planned), planned.files


_PLANS: Final = {
    operations.PLAN_SCAN.name: _scan,
    operations.PLAN_CHANGES.name: _changes,
    operations.PLAN_ADDITIONS.name: _additions,
}


def _check_path(path: Mapping[str, str]) -> None:
    for value in path.values():
        check_text(value, "path")
