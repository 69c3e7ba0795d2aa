"""Converts error responses to typed errors."""

from http import HTTPStatus
from typing import Any

import httpx

from delvec_commands.service_adapter import RETRYABLE
from delvec_errors import (
    DelvecError,
    InternalError,
    NotFound,
    RequestTooLarge,
    ServiceUnavailable,
    Unauthorized,
    from_wire,
)

__all__ = ["answer_lost", "error_of", "not_delvec"]


def error_of(response: httpx.Response, request_id: str) -> DelvecError:
    """Return the error in an error response whose body has been read."""
    try:
        body = response.json()
    except ValueError:
        body = None
    request_id = response.headers.get("X-Request-Id", request_id)
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        error = from_wire(body)
    else:
        error = not_delvec(response)
    error.details.setdefault("request_id", request_id)
    if response.status_code in RETRYABLE:
        error.details.setdefault("status", response.status_code)
    if "Retry-After" in response.headers:
        error.details.setdefault("retry_after", response.headers["Retry-After"])
    return error


def not_delvec(response: httpx.Response) -> DelvecError:
    """Return the error for a response without an error envelope: from a proxy, or another program on that port."""
    status = response.status_code
    text = " ".join(response.text.split())[:200]
    message = (
        f"{response.request.method} {response.request.url.copy_with(query=None)} answered {status} "
        f"{response.reason_phrase or 'without a reason'}, not as a Delvec service would"
        f"{': ' + text if text else ''}"
    )
    if status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT):
        return answer_lost(message)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return ServiceUnavailable(message)
    classes: dict[int, type[DelvecError]] = {
        HTTPStatus.UNAUTHORIZED: Unauthorized,
        HTTPStatus.FORBIDDEN: Unauthorized,
        HTTPStatus.NOT_FOUND: NotFound,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: RequestTooLarge,
    }
    return classes.get(status, InternalError)(message)


def answer_lost(message: str, **details: Any) -> ServiceUnavailable:
    """Return the error for a request that was sent, may have been carried out, and got no answer."""
    return ServiceUnavailable(message, answer_lost=True, **details)
