"""Errors as HTTP answers: one envelope for all of them, and their descriptions in OpenAPI.

Tested in `tests/integration/service/test_http.py`.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from delvec_contract.shapes import ErrorEnvelope
from delvec_errors import (
    AmbiguousTable,
    AtomicCreateUnsupported,
    BadRequest,
    CatalogUnavailable,
    CommitOutcomeUnknown,
    CommitOverwritten,
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentModification,
    ConcurrentWrite,
    CorruptLog,
    CredentialVendingUnsupported,
    DeadlineExceeded,
    DelvecError,
    IdempotencyKeyReused,
    IdentityProviderUnavailable,
    InternalError,
    InvalidCommit,
    LocationNotAllowed,
    MetadataChanged,
    MissingLogFile,
    NamespaceNotFound,
    NotADeltaTable,
    NotFound,
    PermissionDenied,
    ProtocolChanged,
    RequestTimeout,
    RequestTooLarge,
    ServiceUnavailable,
    StorageDenied,
    StorageError,
    StorageFull,
    TableAlreadyExists,
    TableNotFound,
    TooManyRequests,
    Unauthorized,
    UnsupportedReaderFeature,
    UnsupportedTable,
    UnusableFile,
    VersionNotFound,
)
from delvec_service.bad_requests import invalid, printable
from delvec_service.logs import bind_log_context

__all__ = [
    "COMMON",
    "MUTATION",
    "OPENING",
    "SNAPSHOT",
    "UNITY_CATALOG",
    "answer",
    "install",
    "responses",
]

COMMON: tuple[type[DelvecError], ...] = (
    BadRequest,
    Unauthorized,
    RequestTimeout,
    RequestTooLarge,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    IdentityProviderUnavailable,
    DeadlineExceeded,
)
"""Errors of every route under /v1."""

MUTATION: tuple[type[DelvecError], ...] = (*COMMON, IdempotencyKeyReused)
"""Errors of every route that changes something."""

OPENING = (TableNotFound, AmbiguousTable, PermissionDenied, LocationNotAllowed)
"""Further errors of every route for one table."""

CONFLICTS = (
    ConcurrentWrite,
    ConcurrentAppend,
    ConcurrentDeleteRead,
    ConcurrentDeleteDelete,
    MetadataChanged,
    ProtocolChanged,
    CommitOverwritten,
    CommitOutcomeUnknown,
    AtomicCreateUnsupported,
)
"""Further errors of every route that commits rows or files."""

SNAPSHOT = (
    CatalogUnavailable,
    NotADeltaTable,
    VersionNotFound,
    CorruptLog,
    MissingLogFile,
    UnsupportedReaderFeature,
    StorageDenied,
    StorageError,
    StorageFull,
    UnusableFile,
)
"""Further errors of every route that reads a table's log."""


def responses(*errors: type[DelvecError]) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses=`` of a route that may return these errors."""
    by_status: dict[int | str, list[type[DelvecError]]] = {}
    for error in dict.fromkeys(errors):
        by_status.setdefault(error.status, []).append(error)
    declarations: dict[int | str, dict[str, Any]] = {
        status: {
            "model": ErrorEnvelope,
            "description": " ".join(f"`{cls.type}`: {_summary(cls)}" for cls in classes),
        }
        for status, classes in sorted(by_status.items(), key=lambda item: str(item[0]))
    }
    declarations["default"] = {
        "model": ErrorEnvelope,
        "description": "Any other error, in the same envelope.",
    }
    return declarations


def _summary(cls: type[DelvecError]) -> str:
    return (cls.__doc__ or "").partition("\n")[0]


def answer(
    error: DelvecError, *, status: int | None = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Turn an error into an answer."""
    headers = dict(headers or {})
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, RequestTimeout):
        headers["Connection"] = "close"
    if isinstance(error, ServiceUnavailable | DeadlineExceeded | CommitOutcomeUnknown):
        headers["Retry-After"] = "1"
    if isinstance(error, TooManyRequests):  # HTTP allows whole seconds only
        headers["Retry-After"] = str(max(1, math.ceil(float(error.details.get("retry_after", 1)))))
    return _Envelope(error, status or error.status, headers)


_ICEBERG: Final = "/iceberg/"
_ICEBERG_TYPES: Final = {
    TableNotFound: "NoSuchTableException",
    NamespaceNotFound: "NoSuchNamespaceException",
    Unauthorized: "NotAuthorizedException",
    PermissionDenied: "ForbiddenException",
    LocationNotAllowed: "ForbiddenException",
    ServiceUnavailable: "ServiceUnavailableException",
    BadRequest: "BadRequestException",
    NotFound: "NotFoundException",
    InternalError: "InternalServerError",
}


UNITY_CATALOG: Final = "/api/2.1/unity-catalog"
"""Where clients of Unity Catalog expect its routes, and its error format."""
_UNITY_TYPES: Final[Mapping[type[DelvecError], tuple[str, int]]] = {
    TableNotFound: ("NoSuchTableException", 404),
    NamespaceNotFound: ("NoSuchSchemaException", 404),
    NotFound: ("NotFoundException", 404),
    Unauthorized: ("NotAuthorizedException", 401),
    PermissionDenied: ("PermissionDeniedException", 403),
    LocationNotAllowed: ("PermissionDeniedException", 403),
    TableAlreadyExists: ("AlreadyExistsException", 409),
    MetadataChanged: ("UpdateRequirementConflictException", 409),
    ConcurrentModification: ("CommitVersionConflictException", 409),
    CommitOutcomeUnknown: ("CommitStateUnknownException", 500),
    TooManyRequests: ("TooManyRequestsException", 429),
    InvalidCommit: ("InvalidParameterValueException", 400),
    UnsupportedTable: ("InvalidParameterValueException", 400),
    # Not 501: clients repeat every request with a status from 500 on.
    CredentialVendingUnsupported: ("NotImplementedException", 400),
    BadRequest: ("BadRequestException", 400),
}
"""The first class that an error is of decides."""


class _Envelope(JSONResponse):
    """JSON in ASCII: an error may quote a lone surrogate from a log, which UTF-8 cannot encode."""

    def __init__(self, error: DelvecError, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(error.to_wire(), status_code=status, headers=headers)
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. Clients of Iceberg's catalog get Iceberg's error format."""
        bind_log_context(error_code=self._error.code)
        path = scope["path"]
        if path.startswith(_ICEBERG):
            self.body = self.render(self._in_icebergs_form())
            self.headers["content-length"] = str(len(self.body))
        elif f"{path}/".startswith(f"{UNITY_CATALOG}/"):
            self.body = self.render(self._in_unity_catalogs_form(is_classic="/delta/v1/" not in path))
            self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)

    def _in_icebergs_form(self) -> dict[str, Any]:
        error = self._error
        kind = next((name for cls, name in _ICEBERG_TYPES.items() if isinstance(error, cls)), error.type)
        return {"error": {"message": error.message, "type": kind, "code": self.status_code}}

    def _in_unity_catalogs_form(self, *, is_classic: bool) -> dict[str, Any]:
        error = self._error
        is_of_server = error.status >= InternalError.status
        kind, status = next(
            (found for cls, found in _UNITY_TYPES.items() if isinstance(error, cls)),
            ("InternalServerErrorException", error.status) if is_of_server else ("BadRequestException", 400),
        )
        if "catalog" in error.details and kind == "NotFoundException":
            kind = "NoSuchCatalogException"
        if self.status_code == error.status:  # otherwise it is one of HTTP, such as 405
            self.status_code = status
        if is_classic:
            return {"error_code": kind, "message": error.message, "details": []}
        return {"error": {"message": error.message, "type": kind, "code": self.status_code}}

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json.dumps(content, separators=(",", ":")).encode()


def install(app: FastAPI) -> None:
    """Install handlers that turn every error of the application into an envelope."""
    app.add_exception_handler(DelvecError, _on_delvec_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)


def _on_delvec_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, DelvecError)  # noqa: S101 - what it was installed for
    return answer(error)


def _on_invalid_request(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - what it was installed for
    return answer(invalid(error.errors()))


def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it was installed for
    if isinstance(error.__cause__, DelvecError):
        return answer(error.__cause__)  # raised while the body was read: FastAPI wraps it
    path = printable(request.url.path[:200])
    where = f"{request.method} {path}"
    kind: type[DelvecError] = BadRequest
    if error.status_code == NotFound.status:
        kind, message = NotFound, f"{where} does not exist; see /openapi.json."
    elif error.status_code == 405:  # noqa: PLR2004
        message = f"{request.method} is not allowed on {path}; see /openapi.json."
    else:
        message = f"{where}: {error.detail}."
    headers = dict(error.headers or {})
    if "Allow" in headers:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return answer(kind(message), status=error.status_code, headers=headers)


def _methods(request: Request) -> set[str]:
    """Return the methods that the path of a request has; Starlette names those of its first route only."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods
    return found
