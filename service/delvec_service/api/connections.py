"""Limits of a connection before it becomes a request: time, header size, and number of connections; and no upgrades.

Tested in `tests/integration/service/api/test_connections.py`.
"""

import asyncio
import json
import re
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from delvec_errors import BadRequest

__all__ = ["BoundedProtocol"]

_HEADER_SECONDS: Final = 20.0
_HEADER_BYTES: Final = 64 * 1024
_CONNECTIONS: Final = 2000
_REQUEST_LINE: Final = re.compile(rb"[A-Z]+ [^\r\n]* HTTP/1\.\d\r\n")
_UPGRADE: Final = re.compile(
    rb"\r\n(?:upgrade:[ \t]*h2c[ \t]*|http2-settings:[^\r\n]*)(?=\r\n)", re.IGNORECASE
)
_END: Final = b"\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with limits: by default, it waits for headers forever and accepts any number of them.

    The request line and headers must arrive within a time limit and may be no larger than common proxies accept.
    Connections beyond the maximum are closed at once.

    The offer to continue in HTTP/2, which Java's client makes with every first request, is ignored, as HTTP allows: the
    parser would take the end of the headers for the end of the request, and the body would be lost.
    """

    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _head = b""
    _is_in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Open the connection and start the timer for its first headers."""
        super().connection_made(transport)
        if len(self.connections) > _CONNECTIONS:
            transport.close()
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._headers_are_here()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle bytes; those of headers once they are complete."""
        if self._is_in_body:
            super().data_received(data)
            return
        self._head += data
        if (
            _END not in self._head
            and len(self._head) <= _HEADER_BYTES
            and _REQUEST_LINE.match(self._head) is not None
        ):
            self._unset_keepalive_if_required()
            if self._timer is None:
                self._expect_headers()
            return
        head, end, rest = self._head.partition(_END)
        self._head = b""
        super().data_received(_UPGRADE.sub(b"", head + end[:2]) + end[2:] + rest)

    def on_message_begin(self) -> None:
        """Handle the first byte of a request."""
        self._header_bytes = 0
        if self._timer is None:
            self._expect_headers()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Handle a part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle a header."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Handle the end of the headers."""
        self._headers_are_here()
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Handle the end of a request."""
        self._is_in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP with the usual error body."""
        if self.transport.is_closing():
            return
        body = json.dumps(
            BadRequest(
                f"{msg.rstrip('.')}: the request is not HTTP/1.1, or its headers are too large."
            ).to_wire()
        )
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[400] + head.encode() + body.encode())
        self.transport.close()

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _HEADER_BYTES:
            raise ValueError("the headers are too large")  # the parser wraps it in an error of its own

    def _expect_headers(self) -> None:
        self._timer = self.loop.call_later(_HEADER_SECONDS, self._give_up)

    def _headers_are_here(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        self.transport.abort()
