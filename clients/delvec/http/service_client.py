"""The client's HTTP: base URL, token, retries and typed errors in one place.

Every failure becomes a :class:`~delvec_errors.DelvecError`: an error envelope becomes the class that the service
raised, an unreachable service becomes ServiceUnavailable, and a commit whose response was lost becomes
CommitOutcomeUnknown. Requests are repeated with full jitter, and after ``Retry-After`` where the service gives one.
Requests that change something carry an idempotency key, the same on each attempt, so that the service recognises them;
for a commit it is the transaction id, which is also in the table's log.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version as distribution_version
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ValidationError

from delvec.http.asgi import AppFailed
from delvec.http.backoff import pause
from delvec.http.error_answers import RETRYABLE, answer_lost, error_of, not_delvec
from delvec.http.plan_stream import ARROW_STREAM, Plan, read_plan
from delvec.http.vended_credentials import TableCredentials
from delvec_contract import (
    AdditionsRequest,
    AdditionsResponse,
    ChangesRequest,
    ChangesResponse,
    CommitOutcome,
    CommitRequest,
    PlanRequest,
    PlanResponse,
    TableRequest,
    TableResource,
)
from delvec_errors import (
    AtomicCreateUnsupported,
    BadRequest,
    CommitOutcomeUnknown,
    ConcurrentWrite,
    DelvecError,
    InternalError,
    ServiceUnavailable,
    StaleReadVersion,
    StorageError,
    TableNotFound,
    TooManyRequests,
    from_wire,
)
from delvec_storage.roots import Roots
from delvec_storage.table_credentials import forget_credentials, use_credentials

__all__ = ["ServiceClient", "answer", "listed", "request", "table_path"]

_Answer = TypeVar("_Answer")
_Entry = TypeVar("_Entry")
_Model = TypeVar("_Model", bound=BaseModel)

_TABLES = "/v1/tables"
_PAGE = 1000
_RETRIES = 3
_COMMIT_RETRIES = 6
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_NOT_RETRIED = (AtomicCreateUnsupported, TableNotFound, ConcurrentWrite, StaleReadVersion)
_OUTCOME_UNKNOWN = (
    ServiceUnavailable,
    TooManyRequests,
    StorageError,
    CommitOutcomeUnknown,
    InternalError,
    *_NOT_RETRIED,
)


class ServiceClient:
    """A connection to one service, remote or embedded; safe to share between threads.

    Args:
        base_url: the service's root, for example ``http://host:8710``.
        token: sent as a bearer token.
        timeout: seconds to wait for the response to start or continue; None for no limit.
        transport: replaces the network: the embedded service, or a test's faults.
        sleep: replaces the wait between attempts.
        roots: locations that tables and files of plans must be under; if empty, any location is allowed.
        roots_of_files: where an embedded service without roots says what the log of the table at a location may name.
        vended: open data files in this process with credentials issued by the service.
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
        roots_of_files: Callable[[str], Roots] | None = None,
        vended: bool = False,
    ) -> None:
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
        self.roots = roots or Roots()
        self._roots_of_files = roots_of_files
        self._given: dict[str, Any] = {"base_url": base_url, "token": token, "timeout": timeout}
        self._given["roots"] = self.roots
        self.task_id: str | None = None
        self._in_process = transport is not None
        self._vended = vended
        self._credentials: dict[str, TableCredentials] = {}
        self._sleep = sleep
        self._opened: dict[str, tuple[TableResource, TableRequest]] = {}
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=5.0),
            transport=transport,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._in_process:
            raise TypeError(
                "this connection's service runs in this process, so other processes cannot use it; start `delvec "
                "serve`, and connect to its URL"
            )
        return partial(ServiceClient, **self._given), ()

    @property
    def base_url(self) -> str:
        """The service's root."""
        return str(self._http.base_url).rstrip("/")

    def roots_of(self, location: str) -> Roots:
        """Return the locations that engines may open for a scan of the table at a canonical location; if empty, any."""
        if self.roots or self._roots_of_files is None:
            return self.roots
        return self._roots_of_files(location)

    def close(self) -> None:
        """Close the connections; an embedded service shuts down."""
        for location, credentials in self._credentials.items():
            forget_credentials(location, credentials)
        self._http.close()

    def register(self, body: TableRequest) -> TableResource:
        """Register the table at a location."""
        found = answer(TableResource, self.post(_TABLES, body))
        self.opened_by_location(found, body)
        return found

    def opened_by_location(self, resource: TableResource, body: TableRequest) -> None:
        """Register a table with this request if the service later does not find it: its database may be lost."""
        self._opened[resource.id] = resource, body

    def opens(self, resource: TableResource) -> None:
        """Use vended credentials for the files of a table from now on, if the service issues them."""
        location = resource.location
        if self._vended and location.startswith("s3:") and location not in self._credentials:
            provider = self._credentials.setdefault(location, TableCredentials(self, resource.id))
            use_credentials(location, provider)

    def wait(self, seconds: float) -> None:
        """Wait between two attempts."""
        self._sleep(seconds)

    def get(self, path: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """GET a JSON document; parameters that are None are left out."""
        return self._json("GET", path, parameters=parameters, repeatable=True)

    def post(self, path: str, body: BaseModel, *, harmless: bool = False) -> Any:
        """POST a wire model, by alias and without unset fields; takes effect once even if it is sent repeatedly.

        Args:
            path: the resource.
            body: the request.
            harmless: repeating is harmless, so the service need not remember the response.
        """
        headers = None if harmless else _new_key()
        return self._json("POST", path, body=body, headers=headers, repeatable=True)

    def commit(self, path: str, body: CommitRequest, transaction_id: str) -> Any:
        """POST a commit; if the response is lost, ask for the outcome before sending it again.

        The service recognises its transaction id, so it takes effect once.

        Raises:
            CommitOutcomeUnknown: the request was sent, but no response came back.
        """
        lost: DelvecError | None = None
        headers = {"Idempotency-Key": transaction_id}
        for number in range(_COMMIT_RETRIES + 1):
            try:
                return self._json("POST", path, body=body, headers=headers)
            except _OUTCOME_UNKNOWN as error:
                failure = error
            if _is_lost(failure):
                lost = failure
            # While no response was lost, an error means that nothing was done. Afterwards, it says nothing about
            # the request whose response was lost, which may still be running. Not even TableNotFound does,
            # as the service may have lost its database.
            if lost is None and isinstance(failure, _NOT_RETRIED):
                raise failure
            if self._http.is_closed or (lost is None and number == _COMMIT_RETRIES):
                break
            self._sleep(pause(failure, number))
            if lost is not None:
                known = self._outcome(path, body.read_version, transaction_id)
                if known is not None:
                    return known
                if isinstance(lost, InternalError):
                    raise lost
        raise failure if lost is None else _outcome_unknown(lost, transaction_id)

    def _outcome(self, path: str, read_version: int, transaction_id: str) -> Any:
        """Return the response of a commit that took effect, or None if its outcome is unknown.

        Raises:
            DelvecError: the error of a refused commit.
        """
        parameters = {"transaction-id": transaction_id, "read-version": read_version}
        try:
            found = answer(CommitOutcome, self._json("GET", path, parameters=parameters))
        except DelvecError:
            return None
        if found.error is not None and found.error.type != StaleReadVersion.type:
            raise from_wire({"error": found.error.model_dump(by_alias=True)})
        return None if found.commit is None else found.commit.model_dump(by_alias=True)

    def delete(self, path: str, parameters: Mapping[str, Any] | None = None) -> None:
        """DELETE a resource; takes effect once even if it is sent repeatedly."""

        def send() -> None:
            with self._send("DELETE", path, parameters=parameters, headers=headers):
                pass

        headers = _new_key()
        for table_id, (resource, _) in list(self._opened.items()):
            if path in (table_path(table_id), table_path(resource.name)):
                self._opened.pop(table_id, None)
        self._repeat(send)

    def plan(self, path: str, request: PlanRequest) -> tuple[PlanResponse, pa.Table]:
        """POST a plan request; return the plan, and its files as an Arrow table.

        Raises:
            ServiceUnavailable: the stream ended early; a truncated list of files is never returned.
        """
        return self._files(path, request, PlanResponse)

    def changes(self, path: str, request: ChangesRequest) -> tuple[ChangesResponse, pa.Table]:
        """POST a request for changes; as :meth:`plan`."""
        return self._files(path, request, ChangesResponse)

    def additions(self, path: str, request: AdditionsRequest) -> tuple[AdditionsResponse, pa.Table]:
        """POST a request for a step of a stream; as :meth:`plan`."""
        return self._files(path, request, AdditionsResponse)

    def _files(self, path: str, request: BaseModel, kind: type[Plan]) -> tuple[Plan, pa.Table]:
        def read() -> tuple[Plan, pa.Table]:
            with self._send("POST", path, body=request, accept=ARROW_STREAM) as response:
                return read_plan(response, kind)

        plan, files = self._registered(path, lambda: self._repeat(read))
        if self.roots:
            vectors = files["deletion_vector"].combine_chunks()
            absolute = vectors.filter(pc.equal(pc.struct_field(vectors, "storageType"), "p"))
            self.roots.check(plan.location)
            for paths in (files["path"], pc.struct_field(absolute, "pathOrInlineDv")):
                self.roots.check_files(
                    plan.location, paths.to_pylist(), table=plan.name, version=plan.version
                )
        return plan, files

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
                    raise not_delvec(response) from error

        return self._registered(path, lambda: self._repeat(read) if repeatable else read())

    def _registered(self, path: str, ask: Callable[[], _Answer]) -> _Answer:
        """Return an answer; if a table that was opened by location is not found, register it and ask once more."""
        try:
            return ask()
        except TableNotFound:
            if not self._register_again(path.removeprefix(f"{_TABLES}/").partition("/")[0]):
                raise
        return ask()

    def _register_again(self, table_id: str) -> bool:
        """Return whether the table was opened by location and could be registered."""

        def send() -> None:
            with self._send("POST", _TABLES, body=body, headers=headers):
                pass

        if table_id not in self._opened:
            return False
        (_, body), headers = self._opened[table_id], _new_key()
        try:
            self._repeat(send)
        except DelvecError:  # that the table is not found says more than why it cannot be registered
            return False
        return True

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
        """Yield a successful response; its body is read unless it is an Arrow stream."""
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
                    raise error_of(response, request_id)
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
                failure: DelvecError = error
            except DelvecError as error:
                if not error.retryable or error.details.get("status") not in RETRYABLE:
                    raise
                failure = error
            self._sleep(pause(failure, number))
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
            "did not answer in time" if isinstance(error, httpx.TimeoutException) else "closed the connection"
        )
        return answer_lost(f"the service at {self.base_url} {what}: {error}", request_id=request_id)


def _is_lost(failure: DelvecError) -> bool:
    """Whether a commit may have taken effect although it failed."""
    is_definite = not isinstance(failure, CommitOutcomeUnknown | InternalError)
    return bool(failure.details.pop("answer_lost", False)) or not is_definite


def _outcome_unknown(lost: DelvecError, transaction_id: str) -> CommitOutcomeUnknown:
    if isinstance(lost, CommitOutcomeUnknown):
        return lost
    unknown = CommitOutcomeUnknown(
        f"the response to the commit of transaction {transaction_id} was lost: {lost.message}; look for its txnId in "
        "the table's history before you retry",
        transaction_id=transaction_id,
    )
    unknown.__cause__ = lost
    return unknown


def _new_key() -> dict[str, str]:
    return {"Idempotency-Key": str(uuid.uuid4())}


def table_path(table: str, *rest: str) -> str:
    """Return the path of a table's resource; ``table`` is a name or an id."""
    return "/".join([_TABLES, quote(table, safe=""), *rest])


def request(model: type[_Model], **values: Any) -> _Model:
    """Return the body of a request.

    Raises:
        BadRequest: a value is invalid; one sentence instead of pydantic's report.
    """
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    # Raised outside the except block, unchained: pydantic's error may keep, invisible to the garbage collector,
    # a validator's traceback alive, and with it all objects of the caller's frames.
    field = ".".join(str(part) for part in first["loc"]).replace("_", "-")
    given = "" if not field or isinstance(first["input"], dict) else f" (given: {first['input']!r})"
    reason = first["msg"].removeprefix("Value error, ")
    raise BadRequest(f"{field}: {reason}{given}" if field else reason)


def answer(model: type[_Model], body: Any) -> _Model:
    """Parse a JSON response.

    Raises:
        InternalError: it does not match the model: service and client have incompatible versions.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InternalError(
            f"the service's response is not a valid {model.__name__} ({field}: {first['msg']}); "
            "compare the versions of service and client"
        ) from error


def listed(
    service: ServiceClient,
    path: str,
    model: type[_Model],
    entries: Callable[[Any], Iterable[_Entry]],
    parameters: Mapping[str, Any],
    *,
    limit: int | None = None,
) -> list[_Entry]:
    """Return the entries of a paginated resource.

    Args:
        service: to ask.
        path: of the resource.
        model: of a page; has ``next_page_token``.
        entries: of a page.
        parameters: query parameters, except those for pagination.
        limit: maximum number of entries; None for all.

    Raises:
        DelvecError: the service's error.
    """
    listed_entries: list[_Entry] = []
    token: str | None = None
    while limit is None or len(listed_entries) < limit:
        size = _PAGE if limit is None else min(_PAGE, limit - len(listed_entries))
        page: Any = answer(model, service.get(path, {**parameters, "page-size": size, "page-token": token}))
        listed_entries.extend(entries(page))
        token = page.next_page_token
        if not token:
            break
    return listed_entries
