"""HTTP as the client speaks it: one place for the base URL, the token, retries and typed errors.

Every failure becomes a :class:`~delvec.protocol.errors.DelvecError`: an error envelope becomes the class that
the service raised, an unreachable service becomes ServiceUnavailable, and a commit whose answer was lost
becomes CommitOutcomeUnknown. Only requests that change nothing, or that may safely be made twice, are
repeated, a commit only because its transaction id tells the service that it is the same one: with full jitter,
and after ``Retry-After`` where the service gives one.
"""

import email.utils
import io
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from importlib.metadata import version as distribution_version
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import pyarrow as pa
from pydantic import BaseModel, ValidationError

from delvec._asgi import AppFailed
from delvec.protocol.errors import (
    BadRequest,
    CommitOutcomeUnknown,
    DelvecError,
    InternalError,
    NotFound,
    RequestTooLarge,
    ServiceUnavailable,
    StorageError,
    Unauthorized,
    from_wire,
)
from delvec.protocol.wire import PlanRequest, PlanResponse

__all__ = ["ARROW_STREAM", "ServiceClient", "answer", "request", "table_path"]

_Answer = TypeVar("_Answer")
_Model = TypeVar("_Model", bound=BaseModel)

ARROW_STREAM = "application/vnd.apache.arrow.stream"
_RETRIES = 3
_BACKOFF_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 30.0
_RETRYABLE = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class ServiceClient:
    """A connection to one service, remote or embedded; safe to share between threads.

    Args:
        base_url: the service's root, for example ``http://host:8710``.
        token: sent as a bearer token.
        timeout: seconds to wait for an answer to begin or go on; None waits for as long as it takes.
        transport: replaces the network: the embedded service, or a test's faults.
        sleep: replaces the wait between attempts.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        timeout: float | None = 120.0,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {"User-Agent": f"delvec-python/{distribution_version('delvec')}"}
        if token:
            token = token.strip()  # what a file holds ends in a newline
            if not token.isascii() or not token.isprintable():
                raise BadRequest(
                    "the token has characters that an HTTP header cannot carry: use printable ASCII"
                )
            headers["Authorization"] = f"Bearer {token}"
        try:
            url = httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise BadRequest(f"the service's URL {base_url!r} is not a URL: {error}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise BadRequest(f"the service's URL {base_url!r} must start with http:// or https:// and a host")
        self._sleep = sleep
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=5.0),
            transport=transport,
        )

    @property
    def base_url(self) -> str:
        """The service's root."""
        return str(self._http.base_url).rstrip("/")

    def close(self) -> None:
        """Close the connections; an embedded service shuts down."""
        self._http.close()

    def get(self, path: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """GET a JSON document; parameters that are None are left out."""
        return self._json("GET", path, parameters=parameters, repeatable=True)

    def post(self, path: str, body: BaseModel, *, repeatable: bool = False) -> Any:
        """POST a wire model, by alias and without what is unset; ``repeatable`` where twice is as good as once."""
        return self._json("POST", path, body=body, repeatable=repeatable)

    def commit(self, path: str, body: BaseModel, transaction_id: str) -> Any:
        """POST a commit; again, where its answer was lost: the service knows it by the transaction id.

        Raises:
            CommitOutcomeUnknown: the request was sent, and no answer of the service came back.
        """
        lost: ServiceUnavailable | None = None
        for number in range(_RETRIES + 1):
            try:
                return self._json("POST", path, body=body, headers={"Idempotency-Key": transaction_id})
            except (ServiceUnavailable, StorageError) as error:
                if isinstance(error, ServiceUnavailable) and error.details.pop("answer_lost", False):
                    lost = error
                # Until an answer is lost, a refusal means that nothing was done. Afterwards it says nothing
                # about the request whose answer was lost, which may still be under way.
                elif lost is None:
                    raise
                if self._http.is_closed or number == _RETRIES:
                    break
                self._sleep(_pause(error, number))
        reason = "" if lost is None else lost.message
        raise CommitOutcomeUnknown(
            f"the answer to the commit of transaction {transaction_id} was lost: {reason}; "
            "look for its txnId in the table's history before trying again",
            transaction_id=transaction_id,
        ) from lost

    def delete(self, path: str) -> None:
        """DELETE a resource."""
        with self._send("DELETE", path):
            pass

    def plan(self, path: str, request: PlanRequest) -> tuple[PlanResponse, pa.Table]:
        """POST a plan request; return the answer without files, and the files as an Arrow table.

        Raises:
            ServiceUnavailable: the stream broke off; fewer files than announced are never taken for a scan.
        """

        def read() -> tuple[PlanResponse, pa.Table]:
            with self._send("POST", path, body=request, accept=ARROW_STREAM) as response:
                return _read_plan(response)

        return self._repeat(read)

    def _json(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        body: BaseModel | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> Any:
        def read() -> Any:
            with self._send(method, path, parameters=parameters, body=body, headers=headers) as response:
                try:
                    return response.json()
                except ValueError as error:
                    raise _not_delvec(response) from error

        return self._repeat(read) if repeatable else read()

    @contextmanager
    def _send(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        body: BaseModel | None = None,
        headers: Mapping[str, str] | None = None,
        accept: str = "application/json",
    ) -> Iterator[httpx.Response]:
        """Yield a successful answer; its body is read unless an Arrow stream was asked for."""
        request_id = str(uuid.uuid4())
        sent = {"Accept": accept, "X-Request-Id": request_id, **(headers or {})}
        content: bytes | None = None
        if body is not None:
            content = body.model_dump_json(by_alias=True, exclude_none=True).encode()
            sent["Content-Type"] = "application/json"
        if self._http.is_closed:
            raise ServiceUnavailable("this connection is closed; call delvec.connect() again")
        given = {key: value for key, value in (parameters or {}).items() if value is not None}
        try:
            request = self._http.build_request(method, path, params=given, content=content, headers=sent)
            response = self._http.send(request, stream=True)
            try:
                if accept != ARROW_STREAM or not response.is_success:
                    response.read()
                if not response.is_success:
                    raise _error(response, request_id)
                yield response
            finally:
                response.close()
        except httpx.TransportError as error:
            raise self._unreachable(error, request_id) from error

    def _repeat(self, attempt: Callable[[], _Answer]) -> _Answer:
        for number in range(_RETRIES):
            try:
                return attempt()
            except ServiceUnavailable as error:
                if self._http.is_closed:
                    raise
                pause = _pause(error, number)
            except DelvecError as error:
                if not error.retryable or error.details.get("status") not in _RETRYABLE:
                    raise
                pause = _pause(error, number)
            self._sleep(pause)
        return attempt()

    def _unreachable(self, error: httpx.TransportError, request_id: str) -> DelvecError:
        if isinstance(error, AppFailed):
            if isinstance(error.__cause__, DelvecError):
                return error.__cause__
            return InternalError(f"{error} (request {request_id})", request_id=request_id)
        if isinstance(error, _NOT_SENT):
            return ServiceUnavailable(
                f"the service at {self.base_url} cannot be reached: {error}", request_id=request_id
            )
        what = (
            "did not answer in time" if isinstance(error, httpx.TimeoutException) else "broke the connection"
        )
        return _answer_lost(f"the service at {self.base_url} {what}: {error}", request_id=request_id)


def _answer_lost(message: str, **details: Any) -> ServiceUnavailable:
    """Return the error for a request that was sent, may have been carried out, and got no answer."""
    return ServiceUnavailable(message, answer_lost=True, **details)


def table_path(table: str, *rest: str) -> str:
    """Return the path of a table's resource; ``table`` is a name or an id."""
    return "/".join(["/v1/tables", quote(table, safe=""), *rest])


def request(model: type[_Model], **values: Any) -> _Model:
    """Return the body of a request.

    Raises:
        BadRequest: a value is not what the service takes; in one sentence, not in pydantic's many lines.
    """
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    # Raised out here, unchained: pydantic's error may hold, in a way that the garbage collector cannot follow,
    # the traceback of a validator, and with it everything that the caller's frames refer to.
    field = ".".join(str(part) for part in first["loc"]).replace("_", "-")
    given = "" if not field or isinstance(first["input"], dict) else f" (given: {first['input']!r})"
    reason = first["msg"].removeprefix("Value error, ")
    raise BadRequest(f"{field}: {reason}{given}" if field else reason)


def answer(model: type[_Model], body: Any) -> _Model:
    """Return the answer that a JSON document holds.

    Raises:
        InternalError: the service and this client do not speak the same protocol.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InternalError(
            f"the service's answer is not a {model.__name__} ({field}: {first['msg']}); "
            "compare the versions of service and client"
        ) from error


def _error(response: httpx.Response, request_id: str) -> DelvecError:
    try:
        body = response.json()
    except ValueError:
        body = None
    request_id = response.headers.get("X-Request-Id", request_id)
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        error = from_wire(body)
    else:
        error = _not_delvec(response)
    error.details.setdefault("request_id", request_id)
    if response.status_code in _RETRYABLE:
        error.details.setdefault("status", response.status_code)
    if "Retry-After" in response.headers:
        error.details.setdefault("retry_after", response.headers["Retry-After"])
    return error


def _not_delvec(response: httpx.Response) -> DelvecError:
    """Return the error for an answer without an envelope: a proxy, or another program on that port."""
    status = response.status_code
    text = " ".join(response.text.split())[:200]
    message = (
        f"{response.request.method} {response.request.url.copy_with(query=None)} answered {status} "
        f"{response.reason_phrase or 'without a reason'}, not as a Delvec service would"
        f"{': ' + text if text else ''}"
    )
    if status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT):
        return _answer_lost(message)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return ServiceUnavailable(message)
    classes: dict[int, type[DelvecError]] = {
        HTTPStatus.UNAUTHORIZED: Unauthorized,
        HTTPStatus.FORBIDDEN: Unauthorized,
        HTTPStatus.NOT_FOUND: NotFound,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: RequestTooLarge,
    }
    return classes.get(status, InternalError)(message)


def _pause(error: DelvecError, attempt: int) -> float:
    """Return seconds to wait: what the service asks for, else a random part of a doubling span."""
    asked = _retry_after(error.details.get("retry_after"))
    if asked is not None:
        return min(asked, _LONGEST_WAIT_SECONDS)
    return random.uniform(0, _BACKOFF_SECONDS * 2**attempt)  # noqa: S311 - spreads load, protects nothing


def _retry_after(value: object) -> float | None:
    """Parse ``Retry-After``: seconds, or an HTTP date."""
    if value is None:
        return None
    try:
        return max(0.0, float(str(value)))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(str(value)).timestamp() - time.time())
    except ValueError:
        return None


class _Chunks(io.RawIOBase):
    """A response body as a file, so that Arrow decodes batches as they arrive."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        taken = min(len(buffer), len(self._rest))
        buffer[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken


def _read_plan(response: httpx.Response) -> tuple[PlanResponse, pa.Table]:
    if response.headers.get("Content-Type", "").partition(";")[0] != ARROW_STREAM:
        response.read()
        raise _not_delvec(response)
    url = response.request.url
    try:
        source = io.BufferedReader(_Chunks(response.iter_bytes()), 1 << 20)
        with pa.ipc.open_stream(source) as reader:
            files = reader.read_all()
        plan = PlanResponse.model_validate_json((files.schema.metadata or {}).get(b"delvec", b""))
    except (pa.ArrowInvalid, OSError) as error:  # OSError: within a batch
        raise ServiceUnavailable(
            f"the plan from {url} broke off or is not an Arrow stream: {error}"
        ) from error
    except ValidationError as error:
        raise InternalError(
            f"the plan from {url} lacks its description: {error.errors()[0]['msg']}"
        ) from error
    # Arrow reads a stream that ends between two batches as complete; a file less is rows lost silently.
    if files.num_rows != plan.num_files:
        raise ServiceUnavailable(
            f"the plan from {url} broke off: {files.num_rows} of {plan.num_files} files came"
        )
    return plan, files
