"""The service for clients in its own process: its operations, without HTTP.

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
from delvec_contract.commits import CommitResponse
from delvec_contract.operations import Operation
from delvec_contract.parameters import PathParameters
from delvec_errors import DelvecError, InternalError, ServiceUnavailable, from_wire
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.auth.request_access import Access
from delvec_service.bad_requests import check_body
from delvec_service.commits import commit_answers
from delvec_service.logs import bind_log_context, log_context, logger, of_request
from delvec_service.operations import plans
from delvec_service.operations.call import Call, function_of, opened, validated
from delvec_service.service import Service
from delvec_service.store.answers import StoredAnswer
from delvec_service.store.open_table import OpenTable
from delvec_storage.roots import Roots

__all__ = ["InProcessService"]

_Answer = TypeVar("_Answer")

_GRACE_SECONDS: Final = 10.0
"""How long close() waits for operations under way."""
_OK: Final = 200
_ERRORS: Final = 400


class InProcessService(ServiceAdapter):
    """The port to a service in this process; safe to share between threads.

    Args:
        service: the service.
        roots: locations that tables and files of plans must be under, in addition to the service's own checks.
        sleep: replaces the wait between attempts.
    """

    def __init__(
        self,
        service: Service,
        *,
        roots: Roots | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(sleep=sleep, roots=roots)
        self.service = service
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
        def run() -> _Answer:
            validated(PathParameters, path, "path")
            text = check_body(body)
            if isinstance(body, Changes):
                return _plain(operation, self._commit(opened(self.service, path["table"]), body, text))
            request: Any = body
            if request is None and operation.request is not None:
                request = validated(operation.request, parameters, "query")
            call = Call(self.service, Access(), request, path, key)
            return _plain(operation, function_of(operation.name)(call))

        return self._run(operation, path, run)

    def _attempt_plan(self, operation: Operation[Plan], table: str, body: BaseModel) -> tuple[Plan, pa.Table]:
        path = {"table": table}

        def run() -> tuple[Plan, pa.Table]:
            validated(PathParameters, path, "path")
            check_body(body)
            planned: tuple[Plan, pa.Table] = getattr(plans, operation.name)(
                self.service, opened(self.service, table), body
            )
            return planned

        return self._run(operation, path, run)

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

    def _commit(
        self, table: OpenTable, request: Changes, text: str
    ) -> tuple[CommitResponse, bool] | StoredAnswer:
        return commit_answers.commit(self.service.commits, self.service.answers, table, request, text)


def _plain(operation: Operation[_Answer], answer: Any) -> _Answer:
    """Return an answer that the service may have stored, or that comes with whether it is new or repeated."""
    if isinstance(answer, StoredAnswer):
        if answer.status >= _ERRORS:
            raise from_wire(json.loads(answer.body))
        assert issubclass(operation.answer, BaseModel)  # noqa: S101 - only commits have stored answers
        return cast("_Answer", operation.answer.model_validate_json(answer.body))
    return cast("_Answer", answer[0] if isinstance(answer, tuple) else answer)
