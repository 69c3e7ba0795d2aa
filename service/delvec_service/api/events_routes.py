"""``/v1/events``: what happens to tables, page by page, or as a stream of server-sent events.

Tested in `tests/integration/service/api/test_events.py`.
"""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from delvec_errors import DelvecError, ServiceUnavailable
from delvec_service.api.authorizer import ACCESS
from delvec_service.api.routes import Route
from delvec_service.events.cloud_events import cursor_of
from delvec_service.store.event_store import EventStore

__all__ = ["EVENT_STREAM", "WaitingRoute"]

EVENT_STREAM: Final = "text/event-stream"
_POLL_SECONDS: Final = 0.25
_BEAT_SECONDS: Final = 15.0
STREAM_SECONDS: Final = 300.0
"""How long a stream lasts until its client has to come back with its token: permissions change."""
_MAX_WAITING: Final = 500

_Fetch = Callable[[Request], Coroutine[Any, Any, Response]]


class WaitingRoute(Route):
    """Repeats a request until there are events. It is in its lane only while it reads the database."""

    def get_route_handler(self) -> _Fetch:
        """Return the handler of one request, which may wait or stream."""
        fetch = super().get_route_handler()

        async def run(request: Request) -> Response:
            streams = EVENT_STREAM in request.headers.get("accept", "")
            position = request.headers.get("last-event-id") if streams else None
            response, page = await _fetched(fetch, request, position)
            seconds = STREAM_SECONDS if streams else float(request.query_params.get("wait", "0"))
            if not seconds or (page["events"] and not streams):
                return response
            follower = _Follower(fetch, request, page, time.monotonic() + seconds)
            if streams:
                headers = {"Cache-Control": "no-store"}
                return StreamingResponse(follower.stream(), media_type=EVENT_STREAM, headers=headers)
            return await follower.response()

        return run


async def _fetched(fetch: _Fetch, request: Request, position: str | None) -> tuple[Response, dict[str, Any]]:
    """Return the answer to a request, from another cursor if one is given, and its content."""
    if position is not None:
        query = [each for each in request.query_params.multi_items() if each[0] != "cursor"]
        scope = {**request.scope, "query_string": urlencode([*query, ("cursor", position)]).encode()}
        request = Request(scope, request.receive)
    response = await fetch(request)
    return response, json.loads(bytes(response.body))


class _Follower:
    """Follows the outbox for one request.

    Attributes:
        page: the newest page.
        end: when it ends, as ``time.monotonic``; others may end it sooner.
    """

    def __init__(self, fetch: _Fetch, request: Request, page: dict[str, Any], end: float) -> None:
        self._fetch, self._request, self.page, self.end = fetch, request, page, end
        self._principal = request.scope[ACCESS].name
        app = request.app
        self._readiness = app.state.readiness
        if not hasattr(app.state, "event_tail"):
            app.state.event_tail = _Tail(app.state.service.events.store)
        self._tail: _Tail = app.state.event_tail
        self._tail.check(self._principal)

    async def response(self) -> Response:
        """Return an answer with events, or at the end one without."""
        with self._tail.followed(self._principal, self):
            while True:
                grown = await self._grown()
                response, self.page = await _fetched(self._fetch, self._request, self.page["cursor"])
                if not grown or self.page["events"]:
                    return response

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield events as server-sent events, and comments while there are none."""
        with self._tail.followed(self._principal, self):
            while True:
                yield b"".join(map(_sent, self.page["events"])) or b":\n\n"
                if self._is_over(self.end):
                    return
                if not self.page["events"]:
                    await self._grown(_BEAT_SECONDS)
                try:
                    _, self.page = await _fetched(self._fetch, self._request, self.page["cursor"])
                except DelvecError:
                    return  # the client comes back, and gets the error

    async def _grown(self, most: float = math.inf) -> bool:
        """Wait until the outbox has grown; False if it has not after so many seconds, or at the end."""
        beat = time.monotonic() + most
        while not self._is_over(min(beat, self.end)):
            if await self._tail.cursor() != self.page["cursor"]:
                return True
            await asyncio.sleep(_POLL_SECONDS)
        return False

    def _is_over(self, end: float) -> bool:
        return self._readiness.draining or time.monotonic() >= end


class _Tail:
    """The end of the outbox: however many requests wait, the database is asked four times a second."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._cursor: str | None = None
        self._due = 0.0
        self._followers: dict[str, list[_Follower]] = {}
        """By principal, in the order in which they came."""

    def check(self, principal: str) -> None:
        """Reject a request if too many others wait, unless another principal's request can make room.

        Raises:
            ServiceUnavailable: it cannot.
        """
        waiting = sum(map(len, self._followers.values()))
        if waiting >= _MAX_WAITING and not self._make_room(principal):
            raise ServiceUnavailable(
                f"The service is busy: {waiting} requests are waiting for events; try again."
            )

    def _make_room(self, principal: str) -> bool:
        """End the first request of the principal with the most, if it has more than this principal would have."""
        greediest = max(self._followers, key=lambda name: len(self._followers[name]))
        own = self._followers[greediest]
        if len(own) <= len(self._followers.get(principal, ())) + 1:
            return False
        self._remove(greediest, own[0])
        return True

    def _remove(self, principal: str, follower: _Follower) -> None:
        own = self._followers.get(principal, [])
        if follower in own:
            follower.end = 0.0
            own.remove(follower)
            if not own:
                del self._followers[principal]

    @contextmanager
    def followed(self, principal: str, follower: _Follower) -> Iterator[None]:
        """Count a request that waits."""
        self._followers.setdefault(principal, []).append(follower)
        try:
            yield
        finally:
            self._remove(principal, follower)

    async def cursor(self) -> str | None:
        """Return the cursor of the end, as of a moment ago."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _POLL_SECONDS
            outbox = await anyio.to_thread.run_sync(self._store.outbox)
            self._cursor = cursor_of(outbox, outbox.position)
        return self._cursor


def _sent(event: dict[str, Any]) -> bytes:
    return f"id: {event['sequence']}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
