"""How answers in JSON are sent: compressed if they are large, or not again to a client that has them.

Arrow streams are sent as they are: they are compressed already, and must not wait for their end.

Tested in `tests/integration/service/api/test_encodings.py`.
"""

import hashlib
import re
import zlib
from typing import Final

import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["AnswerEncoding"]

_MIN_BYTES: Final = 1024
_INLINE_BYTES: Final = 64 * 1024
"""Compressing this many bytes takes less time than switching threads."""
_LEVEL: Final = 1
"""Level 6 makes a plan a tenth smaller, and takes twice as long."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_OK: Final = 200
_POLLED: Final = frozenset(
    {
        "/v1/tables",
        "/v1/tables/{table}",
        "/v1/tables/{table}/health",
        "/v1/tables/{table}/policies",
        "/v1/health",
        "/v1/policies",
        "/v1/policies/{policy}",
    }
)
"""Paths of resources that clients read again and again."""
_CLOCK: Final = re.compile(rb'"(?:(?:checkpoint-age|lag)-seconds":\d+|sampled-at":"[^"]*"),?')
"""Fields that change with the clock alone: an answer in which only they have changed counts as the same."""


class AnswerEncoding:
    """An ASGI middleware inside the one that authorizes: it sees only answers that the caller may have.

    Args:
        app: the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def encoded(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_json(message):
                start = message  # sent with the body, which its headers depend on
                return
            if start is not None:
                first, start = start, None
                if not message.get("more_body"):
                    first, message = await _encoded(scope, first, message)
                await send(first)
            await send(message)

        await self._app(scope, receive, encoded)


def _is_json(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    return "content-encoding" not in headers and headers.get("content-type", "").startswith(
        "application/json"
    )


async def _encoded(scope: Scope, start: Message, message: Message) -> tuple[Message, Message]:
    request = Headers(scope=scope)
    headers = MutableHeaders(raw=[*start["headers"]])  # a copy: some answers are made once, and sent again
    body: bytes = message.get("body", b"")
    is_polled = getattr(scope.get("route"), "path", None) in _POLLED
    if is_polled or len(body) >= _MIN_BYTES:
        headers.add_vary_header("Accept-Encoding")
    if is_polled and scope["method"] == "GET" and start["status"] == _OK:
        # Weak: it is the same with and without compression.
        tag = f'W/"{hashlib.blake2b(_CLOCK.sub(b"", body), digest_size=16).hexdigest()}"'
        headers["ETag"] = tag
        headers["Cache-Control"] = "private, no-cache"  # may be kept, and must be asked about
        if _has(request, tag):
            del headers["content-length"]
            del headers["content-type"]
            return {**start, "status": 304, "headers": headers.raw}, {**message, "body": b""}
    if len(body) >= _MIN_BYTES and _takes_gzip(request):
        body = _gzip(body) if len(body) <= _INLINE_BYTES else await anyio.to_thread.run_sync(_gzip, body)
        headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(body))
    return {**start, "headers": headers.raw}, {**message, "body": body}


def _has(request: Headers, tag: str) -> bool:
    """Whether the client has the answer (RFC 9110, section 13.1.2: the comparison is weak)."""
    tags = {one.strip().removeprefix("W/") for one in request.get("if-none-match", "").split(",")}
    return "*" in tags or tag.removeprefix("W/") in tags


def _takes_gzip(request: Headers) -> bool:
    """Whether the client accepts gzip (RFC 9110, section 12.5.3)."""
    weights: dict[str, bool] = {}
    for one in request.get("accept-encoding", "").lower().split(","):
        coding, _, parameters = one.partition(";")
        weights[coding.strip()] = re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters) is None
    return weights.get("gzip", weights.get("*", False))


def _gzip(body: bytes) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return compressor.compress(body) + compressor.flush()
