"""The service over HTTP: base URL, token and typed errors in one place.

Every failure becomes a :class:`~delvec_errors.DelvecError`: an error envelope becomes the class that the service
raised, an unreachable service becomes ServiceUnavailable, and a commit whose response was lost becomes
CommitOutcomeUnknown.
"""

import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version as distribution_version
from types import NoneType
from typing import Any, Final, TypeVar, cast
from urllib.request import getproxies

import httpx
import pyarrow as pa
from pydantic import BaseModel, ValidationError

from delvec.http.error_answers import answer_lost, error_of, not_delvec
from delvec.http.plan_stream import ARROW_STREAM, read_plan
from delvec_commands.service_adapter import Plan, ServiceAdapter
from delvec_commands.vended_credentials import TableCredentials
from delvec_contract.codec import as_json
from delvec_contract.operations import Operation
from delvec_contract.tables import TableResource
from delvec_errors import BadRequest, DelvecError, InternalError, ServiceUnavailable
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_storage.roots import Roots
from delvec_storage.table_credentials import forget_credentials, use_credentials

__all__ = ["ServiceClient"]

_Answer = TypeVar("_Answer")

_CONNECT_SECONDS: Final = 5.0
_LONG_SECONDS: Final = 3700.0
"""More than the service's own limit for maintenance, which answers with the reason."""
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Balancers and gateways forget a connection that is silent for some minutes, and then no answer arrives."""
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class ServiceClient(ServiceAdapter):
    """A connection to one running service; safe to share between threads.

    Args:
        base_url: the service's root, for example ``http://host:8710``.
        token: sent as a bearer token.
        timeout: seconds to wait for the response to start or continue, an hour at least for what takes long; None for
            no limit.
        transport: replaces the network.
        sleep: replaces the wait between attempts.
        roots: locations that tables and files of plans must be under; if empty, any location is allowed.
        vends_credentials: open data files in this process with credentials issued by the service.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        timeout: float | None = 120.0,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        roots: Roots | None = None,
        vends_credentials: bool = False,
    ) -> None:
        super().__init__(sleep=sleep, roots=roots)
        headers = {"User-Agent": f"delvec-python/{distribution_version('delvec')}"}
        if token:
            token = token.strip()  # a token from a file ends in a newline
            if not token.isascii() or not token.isprintable():
                raise BadRequest(
                    "the token has characters that are not allowed in an HTTP header; use printable ASCII only"
                )
            headers["Authorization"] = f"Bearer {token}"
        try:
            url = httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise BadRequest(f"the service's URL {base_url!r} is invalid: {error}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise BadRequest(f"the service's URL {base_url!r} must start with http:// or https:// and a host")
        # The state for pickle.
        self._given: dict[str, Any] = {"base_url": base_url, "token": token, "timeout": timeout}
        self._given["roots"] = self.roots
        self.vends_credentials = vends_credentials
        self._credentials: dict[str, TableCredentials] = {}
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=_CONNECT_SECONDS),
            transport=transport or _kept_alive(),
        )
        self._long_timeout = httpx.Timeout(
            None if timeout is None else max(timeout, _LONG_SECONDS), connect=_CONNECT_SECONDS
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ServiceClient, **self._given), ()

    @property
    def url(self) -> str:
        """The service's root."""
        return str(self._http.base_url).rstrip("/")

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed."""
        return self._http.is_closed

    def close(self) -> None:
        """Close the connections."""
        for location, credentials in self._credentials.items():
            forget_credentials(location, credentials)
        self._http.close()

    def opens(self, resource: TableResource) -> None:
        """Use vended credentials for the files of a table from now on, if the service issues them."""
        location = resource.location
        if self.vends_credentials and location.startswith("s3:") and location not in self._credentials:
            provider = self._credentials.setdefault(location, TableCredentials(self, resource.id))
            use_credentials(location, provider)

    def _attempt(
        self,
        operation: Operation[_Answer],
        body: BaseModel | Changes | None,
        parameters: Mapping[str, Any],
        path: Mapping[str, str],
        key: str | None,
    ) -> _Answer:
        with self._send(operation, path, parameters=parameters, body=body, key=key) as response:
            if operation.answer is NoneType:
                return cast("_Answer", None)
            try:
                content = response.json()
            except ValueError as error:
                raise not_delvec(response) from error
        return _parsed(operation.answer, content)

    def _attempt_plan(self, operation: Operation[Plan], table: str, body: BaseModel) -> tuple[Plan, pa.Table]:
        """Call an operation whose answer has files, once.

        Raises:
            ServiceUnavailable: the stream ended early; a truncated list of files is never returned.
        """
        with self._send(operation, {"table": table}, body=body, accept=ARROW_STREAM) as response:
            return read_plan(response, operation.answer)

    @contextmanager
    def _send(
        self,
        operation: Operation[Any],
        path: Mapping[str, str],
        *,
        parameters: Mapping[str, Any] | None = None,
        body: BaseModel | Changes | None = None,
        key: str | None = None,
        accept: str = "application/json",
    ) -> Iterator[httpx.Response]:
        """Yield a successful response; its body is read unless it is an Arrow stream."""
        request_id = str(uuid.uuid4())
        headers = {"Accept": accept, "X-Request-Id": request_id}
        if key is not None:
            headers["Idempotency-Key"] = key
        content: bytes | None = None
        if body is not None:
            content = as_json(body, exclude_none=True).encode()
            headers["Content-Type"] = "application/json"
        if self._http.is_closed:
            raise ServiceUnavailable("this connection is closed; call delvec.connect() again")
        try:
            request = self._http.build_request(
                operation.method,
                operation.filled(path),
                params=parameters,
                content=content,
                headers=headers,
                # Sent again, it would only wait for its first copy, in another of the service's places for maintenance.
                timeout=self._long_timeout if operation.takes_long else httpx.USE_CLIENT_DEFAULT,
            )
            response = self._http.send(request, stream=True)
            try:
                if accept != ARROW_STREAM or not response.is_success:
                    response.read()
                if not response.is_success:
                    raise error_of(response, request_id)
                yield response
            finally:
                response.close()
        except httpx.TransportError as error:
            raise self._unreachable(error, request_id) from error

    def _unreachable(self, error: httpx.TransportError, request_id: str) -> DelvecError:
        if isinstance(error, _NOT_SENT):
            return ServiceUnavailable(
                f"the service at {self.url} cannot be reached: {error}", request_id=request_id
            )
        what = (
            "did not answer in time" if isinstance(error, httpx.TimeoutException) else "closed the connection"
        )
        return answer_lost(f"the service at {self.url} {what}: {error}", request_id=request_id)


def _kept_alive() -> httpx.HTTPTransport | None:
    """Return a transport that notices a dead service while it waits; None if a proxy's settings need httpx's own."""
    if getproxies():
        return None
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not on every platform
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return httpx.HTTPTransport(socket_options=options)


def _parsed(model: type[_Answer], content: Any) -> _Answer:
    """Parse a JSON response.

    Raises:
        InternalError: it does not match the model: service and client have incompatible versions.
    """
    assert issubclass(model, BaseModel)  # noqa: S101 - of every operation with an answer
    try:
        return cast("_Answer", model.model_validate(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InternalError(
            f"the service's response is not a valid {model.__name__} ({field}: {first['msg']}); "
            "compare the versions of service and client"
        ) from error
