"""HTTP requests to another catalog: the Unity Catalog Delta API v1, and the classic routes that list names.

What a catalog answers is not believed: answers are bounded and parsed, redirects are not followed, and the token goes to the
catalog's own host only, over TLS unless that is this machine.

Tested in `tests/integration/service/catalog_client/test_unity_catalog.py`.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from delvec_contract.unity_catalog import (
    ListedName,
    ListedNames,
    LoadedTable,
    StagedTable,
    StorageCredentialsAnswer,
)
from delvec_errors import (
    BadRequest,
    CatalogUnavailable,
    DelvecError,
    PermissionDenied,
    TableAlreadyExists,
    TableNotFound,
)
from delvec_service import VERSION

if TYPE_CHECKING:
    import httpx  # every command starts with this module, and few reach another catalog

__all__ = ["CatalogAnswer", "RemoteName", "UnityCatalog", "attempts", "taken"]

_BASE: Final = "/api/2.1/unity-catalog"
_DELTA: Final = f"{_BASE}/delta/v1"
_TIMEOUT_SECONDS: Final = 20.0
_LONGEST: Final = 32 * 1024 * 1024
_LONGEST_MESSAGE: Final = 500
_ATTEMPTS: Final = 3
_PAUSE_SECONDS: Final = 0.2
_MAX_PAGES: Final = 1000
_BUSY: Final = 429
_NOT_IMPLEMENTED: Final = 501
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_Parsed = TypeVar("_Parsed", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class RemoteName:
    """A table's name in its catalog."""

    catalog: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """What came back of one request.

    Attributes:
        status: of HTTP; 0 if there was no answer, and -1 if the request was not even sent.
        body: of the answer.
        said: the error in it, or why there was no answer.
    """

    status: int
    body: bytes = b""
    said: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether the request was done."""
        return self.status in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT)

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        is_failure = self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return self.status <= 0 or self.status == _BUSY or (is_failure and self.status != _NOT_IMPLEMENTED)


class UnityCatalog:
    """One catalog server. Safe to share between threads.

    Args:
        name: for errors.
        url: the server's root, or that of its API.
        token: returns the bearer token, or None; asked for each request, since files with tokens are renewed.
        transport: replaces the network.

    Raises:
        BadRequest: the URL is no URL, or would send the token unencrypted.
    """

    def __init__(
        self,
        name: str,
        url: str,
        token: Callable[[], str | None],
        *,
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        import httpx

        root = _root(name, url)
        self.name = name
        self.url = str(root).rstrip("/")
        self._token = token
        self._http = httpx.Client(
            base_url=root,
            headers={
                "User-Agent": f"delvec/{VERSION}",
                "Accept": "application/json",
            },
            timeout=httpx.Timeout(_TIMEOUT_SECONDS, connect=5.0),
            follow_redirects=False,
            transport=transport,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def load(self, table: RemoteName) -> LoadedTable:
        """Return a table.

        Raises:
            TableNotFound: there is none.
            PermissionDenied: the token does not allow it.
            CatalogUnavailable: the catalog does not answer, or not as a catalog does.
        """
        return self.parsed(LoadedTable, self._read(_path(table), f"table '{table}'"))

    def update(self, table: RemoteName, body: Mapping[str, Any]) -> CatalogAnswer:
        """Send an update once, and return what came back; nothing is raised."""
        return self._send("POST", _path(table), json=body)

    def stage(self, table: RemoteName) -> StagedTable:
        """Return a place for a new table; nothing has the name yet.

        Raises:
            TableAlreadyExists: a table has it.
            DelvecError: as :meth:`load`.
        """
        answer = self._repeated("POST", f"{_schema(table)}/staging-tables", json={"name": table.table})
        if answer.status == HTTPStatus.CONFLICT:
            raise taken(self.name, table)
        if not answer.is_ok:
            raise self.error(answer, f"a place for table '{table}'")
        return self.parsed(StagedTable, answer.body)

    def create(self, table: RemoteName, body: Mapping[str, Any]) -> CatalogAnswer:
        """Send the request that creates a table once, and return what came back; nothing is raised."""
        return self._send("POST", f"{_schema(table)}/tables", json=body)

    def drop(self, table: RemoteName) -> CatalogAnswer:
        """Send the request that drops a table once, and return what came back; nothing is raised."""
        return self._send("DELETE", _path(table))

    def staging_credentials(self, table_id: str, what: str) -> StorageCredentialsAnswer:
        """Return credentials for the files of a table that is staged. Raises as :meth:`load`."""
        body = self._read(f"{_DELTA}/staging-tables/{quote(table_id, safe='')}/credentials", what)
        return self.parsed(StorageCredentialsAnswer, body)

    def credentials(self, table: RemoteName, operation: str) -> StorageCredentialsAnswer:
        """Return credentials for a table's files. Raises as :meth:`load`."""
        body = self._read(
            f"{_path(table)}/credentials", f"credentials of table '{table}'", operation=operation
        )
        return self.parsed(StorageCredentialsAnswer, body)

    def catalogs(self) -> list[str]:
        """Return the names of the server's catalogs. Raises as :meth:`load`."""
        return [each.name for each in self._listed("catalogs")]

    def schemas(self, catalog: str) -> list[str]:
        """Return the names of a catalog's schemas. Raises as :meth:`load`."""
        return [each.name for each in self._listed("schemas", catalog_name=catalog)]

    def tables(self, catalog: str, schema: str) -> Iterator[ListedName]:
        """Yield the tables of a schema. Raises as :meth:`load`."""
        return self._listed("tables", catalog_name=catalog, schema_name=schema)

    def error(self, answer: CatalogAnswer, what: str) -> DelvecError:
        """Return the error for an answer that is none.

        Args:
            answer: the answer.
            what: was requested.
        """
        where = f"The catalog '{self.name}' ({self.url})"
        if answer.status == HTTPStatus.NOT_FOUND:
            return TableNotFound(f"{where} does not have {what}. {answer.said}".rstrip())
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return PermissionDenied(
                f"{where} does not allow the owner of the token that it was given to use {what}: {answer.said}"
            )
        if answer.status <= 0:
            return CatalogUnavailable(f"{where} does not answer about {what}: {answer.said}")
        return CatalogUnavailable(
            f"{where} answered with status {answer.status} about {what} ({answer.said}); try again."
        )

    def parsed(self, shape: type[_Parsed], body: bytes) -> _Parsed:
        """Return an answer in its shape.

        Raises:
            CatalogUnavailable: it has another.
        """
        try:
            return shape.model_validate_json(body)
        except (ValidationError, RecursionError) as error:
            problem = "too deeply nested"
            if isinstance(error, ValidationError):
                first = error.errors(include_url=False, include_input=False, include_context=False)[0]
                problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise CatalogUnavailable(
                f"The answer of the catalog '{self.name}' ({self.url}) is not one of the Unity Catalog Delta API: "
                f"{problem[:_LONGEST_MESSAGE]}. Check its URL."
            ) from None

    def _listed(self, kind: str, **parameters: str) -> Iterator[ListedName]:
        page: str | None = None
        for _ in range(_MAX_PAGES):
            token = {"page_token": page} if page else {}
            answer = self.parsed(
                ListedNames, self._read(f"{_BASE}/{kind}", f"its {kind}", **parameters, **token)
            )
            yield from answer.names
            if not answer.next_page_token or answer.next_page_token == page:
                return
            page = answer.next_page_token

    def _read(self, path: str, what: str, **parameters: str) -> bytes:
        answer = self._repeated("GET", path, params=parameters)
        if not answer.is_ok:
            raise self.error(answer, what)
        return answer.body

    def _repeated(self, method: str, path: str, **request: Any) -> CatalogAnswer:
        """Send a request that changes nothing until it is answered for good, or often enough."""
        answer = CatalogAnswer(0)
        for _ in attempts(_ATTEMPTS, _PAUSE_SECONDS):
            answer = self._send(method, path, **request)
            if answer.is_ok or not answer.is_passing:
                break
        return answer

    def _send(self, method: str, path: str, **request: Any) -> CatalogAnswer:
        import httpx

        token = self._token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        body = b""
        try:
            with self._http.stream(method, path, headers=headers, **request) as response:
                for part in response.iter_bytes():
                    body += part
                    if len(body) > _LONGEST:
                        return CatalogAnswer(0, said=f"the answer has more than {_LONGEST} bytes")
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            return CatalogAnswer(-1, said=f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE])
        except httpx.HTTPError as error:
            return CatalogAnswer(0, said=f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE])
        return CatalogAnswer(response.status_code, body, _said(body))


def _root(name: str, url: str) -> "httpx.URL":
    import httpx

    try:
        root = httpx.URL(url.strip().rstrip("/").removesuffix(_BASE))
    except httpx.InvalidURL as error:
        raise BadRequest(f"The URL of the catalog '{name}' is invalid: {error}") from None
    if root.scheme not in ("http", "https") or not root.host or root.userinfo or root.query or root.fragment:
        raise BadRequest(
            f"The URL of the catalog '{name}' must have the form https://host, without a user, a query or a fragment."
        )
    if root.scheme == "http" and root.host not in _LOCAL:
        raise BadRequest(
            f"The URL of the catalog '{name}' must start with https://: the token would be sent to {root.host} "
            "unencrypted, and anybody on the way could answer."
        )
    return root


def attempts(most: int, pause_seconds: float) -> Iterator[int]:
    """Yield the number of each attempt; before all but the first wait, longer each time and never as long as others do."""
    for number in range(most):
        if number:
            time.sleep(random.uniform(0.5, 1) * pause_seconds * 2**number)  # noqa: S311 - spreads load
        yield number


def taken(catalog: str, table: RemoteName) -> TableAlreadyExists:
    """Return the error for a name that a table of a catalog has."""
    return TableAlreadyExists(
        f"The catalog '{catalog}' has a table '{table}' already; open it, or choose another name.",
        table=str(table),
    )


def _schema(table: RemoteName) -> str:
    return f"{_DELTA}/catalogs/{quote(table.catalog, safe='')}/schemas/{quote(table.schema, safe='')}"


def _path(table: RemoteName) -> str:
    return f"{_schema(table)}/tables/{quote(table.table, safe='')}"


def _said(body: bytes) -> str:
    """Return the type and message of an error envelope, whatever its spelling, as one short line."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = found.get("error", found) if isinstance(found, dict) else {}
    if not isinstance(error, dict):
        return ""
    parts = [error.get(key) for key in ("type", "error_code", "message")]
    text = ": ".join(part for part in parts if isinstance(part, str))
    return "".join(each if each.isprintable() else " " for each in text)[:_LONGEST_MESSAGE]
