"""What surrounds every request: its id, log line, authorization, size limit, and the handling of unexpected errors.

Tested in `tests/integration/service/test_http.py` and `tests/integration/service/test_limits.py`.
"""

import re
import time
import uuid
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from delvec_errors import DelvecError, InternalError, RequestTooLarge
from delvec_service.api import problems
from delvec_service.api.authorizer import ACCESS, Authorizer
from delvec_service.api.limits import Permit, RequestLimits
from delvec_service.auth.audit import AuditLog
from delvec_service.auth.request_access import Access
from delvec_service.logs import bind_log_context, logger, of_request
from delvec_service.telemetry.observer import NO_OBSERVER, Observer, RequestObserver

__all__ = ["RequestMiddleware"]

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._\-]{1,128}")
_MAX_LOGGED: Final = 300
"""Maximum length of a path in the log."""
_FIRST_ERROR_STATUS: Final = 400
_DIGITS: Final = 18


class RequestMiddleware:
    """An ASGI middleware around the application.

    The token is checked here and not in a dependency: FastAPI reads the body before dependencies run, and the service
    should not read a body from a stranger.

    Args:
        app: the application.
        authorizer: authorizes requests.
        max_request_bytes: larger bodies are rejected.
        audit: notified of every answer.
        limits: the limits of principals and tables, or None.
        observer: notified of every request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authorizer: Authorizer,
        max_request_bytes: int,
        audit: AuditLog,
        limits: RequestLimits | None = None,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self._app = app
        self._audit = audit
        self._observer = observer
        self._authorizer = authorizer
        self._limit = max_request_bytes
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())
        with of_request(request_id), self._observer.request(scope) as observed:
            answering = _RequestContext(scope, send, request_id, observed, self._audit)
            permit: Permit | None = None
            if observed.trace_id is not None:
                bind_log_context(trace_id=observed.trace_id)
            try:
                answering.access = await self._authorizer.admit(scope, headers)
                if self._limits is not None:
                    permit = self._limits.admit(answering.access.name, scope)
                self._check_length(headers)
                await self._app(scope, self._limited(receive, permit), answering.send)
            except ClientDisconnect:
                pass  # the client is gone
            except DelvecError as error:
                await problems.answer(error)(scope, receive, answering.send)
            except Exception:
                # Not exception(): the standard library would log the traceback a second time, not as JSON.
                logger.error(
                    "request failed", exc_info=True, method=scope["method"], path=scope["path"][:_MAX_LOGGED]
                )
                if answering.status:
                    raise  # Part of the answer is sent: only breaking the connection tells the client.
                failure = InternalError(
                    f"Delvec failed unexpectedly. The service's log has the cause under request id {request_id}.",
                    request_id=request_id,
                )
                await problems.answer(failure)(scope, receive, answering.send)
            finally:
                if permit is not None:
                    permit.end()
                answering.report()

    def _check_length(self, headers: Headers) -> None:
        length = headers.get("content-length", "")
        # Python converts no text with thousands of digits.
        if length.isascii() and length.isdigit() and (len(length) > _DIGITS or int(length) > self._limit):
            raise self._too_large()

    def _limited(self, receive: Receive, permit: Permit | None) -> Receive:
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            size = len(message.get("body", b""))
            received += size
            if permit is not None and size:
                permit.received(size)
            if received > self._limit:
                raise self._too_large()
            return message

        return counted

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(
            f"The request body is larger than {self._limit} bytes; commit in several parts, or raise "
            "DELVEC_MAX_REQUEST_BYTES.",
            limit=self._limit,
        )


class _RequestContext:
    """The answer to one request. It carries the request's id and is reported once to the observer and the log.

    Attributes:
        status: the status of the answer; 0 before it is sent.
        access: what the request is allowed to do, once it is authorized.
    """

    def __init__(
        self, scope: Scope, send: Send, request_id: str, observed: RequestObserver, audit: AuditLog
    ) -> None:
        self.status = 0
        self.access: Access | None = None
        self._scope, self._send, self._request_id, self._observed = scope, send, request_id, observed
        self._audit = audit
        self._begun = time.perf_counter()
        self._is_reported = False

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            if (
                self.access is not None
                and message["status"] < _FIRST_ERROR_STATUS
                and not self.access.is_decided
            ):
                raise RuntimeError(f"{_route(self._scope)} answers without an access check")
            self.status = message["status"]
            MutableHeaders(scope=message)["X-Request-Id"] = self._request_id
        elif not message.get("more_body"):
            self.report()  # before it is sent: a client with the answer finds it counted
        await self._send(message)

    def report(self) -> None:
        """Count the request, write its log line and its audit entry, unless that is done."""
        if self._is_reported:
            return
        self._is_reported = True
        self._observed.answered(self.status, _route(self._scope))
        logger.info(
            "request",
            method=self._scope["method"],
            path=self._scope["path"][:_MAX_LOGGED],
            status=self.status,
            milliseconds=round((time.perf_counter() - self._begun) * 1000, 1),
        )
        self._audit.answered(
            self._scope["method"],
            self._scope["path"],
            self.status,
            self._scope.get(ACCESS),
            is_admitted=self.access is not None,
        )


def _route(scope: Scope) -> str:
    """Return the route's path template, which keeps the number of labels small: strangers may request anything."""
    pattern = getattr(scope.get("route"), "path", None)
    return "none" if pattern is None else str(pattern)
