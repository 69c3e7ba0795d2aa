"""A synchronous httpx transport over an ASGI application: the service without a network.

One background thread runs one event loop, the application's lifespan and all its requests. httpx's own
``ASGITransport`` is not enough: it is asynchronous only, holds whole bodies in memory and runs no lifespan.

A request body is iterated on the thread that sends the request, and only when the application asks for more.
A response body is handed over chunk by chunk, at most ``_WINDOW`` ahead of the reader.

Fork: the background thread does not survive ``fork``. A transport refuses to work in a child process; open a
connection there instead (``multiprocessing`` with the start method ``spawn`` never gets that far).
"""

import asyncio
import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

import httpx

from delvec_errors import DelvecError, InternalError

__all__ = ["AppFailed", "EmbeddedTransport"]

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]

_WINDOW = 8  # chunks of a response body that may wait for the reader
_GRACE_SECONDS = 10.0  # how long close() waits for requests under way
_ASGI = {"version": "3.0", "spec_version": "2.4"}


class AppFailed(httpx.RemoteProtocolError):
    """The application raised, or returned before its response was complete; the cause is chained."""


class EmbeddedTransport(httpx.BaseTransport):
    """Runs an ASGI application; safe to share between threads.

    Args:
        app: the application; its lifespan starts at once and ends with :meth:`close`.
        grace: seconds that :meth:`close` leaves to requests under way before it cancels them.

    Raises:
        DelvecError: what the application's startup raised, or InternalError around anything else.
    """

    def __init__(self, app: ASGIApp, *, grace: float = _GRACE_SECONDS) -> None:
        self._server = _Server(app, grace)
        # Also runs at interpreter exit, so that a connection left open still shuts its application down.
        self._finalizer = weakref.finalize(self, self._server.stop)
        try:
            self._server.start()
        except BaseException:
            self._finalizer.detach()
            raise

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; returns when the response has started.

        Raises:
            httpx.ReadTimeout: the application was silent for longer than the request's read timeout.
            AppFailed: the application raised before it answered.
            httpx.ConnectError: the transport is closed, or belongs to the parent of this process.
        """
        exchange = self._server.open(request)
        try:
            status, headers = exchange.response_start()
        except BaseException:
            exchange.leave()
            raise
        return httpx.Response(status, headers=headers, stream=_Body(exchange), request=request)

    def close(self) -> None:
        """Finish requests under way, end the lifespan, stop the thread. Closing twice is fine."""
        self._finalizer()


class _Body(httpx.SyncByteStream):
    """The body of one response, pulled by the reader."""

    def __init__(self, exchange: "_Exchange") -> None:
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        return self._exchange.response_body()

    def close(self) -> None:
        self._exchange.leave()


_WANT_BODY = object()
_END = object()


class _Exchange:
    """One request and its response, between the caller's thread and the loop.

    The caller waits for events: "the application wants more of the request", "the response starts", a chunk
    of it, its end, or a failure.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, request: httpx.Request) -> None:
        self._loop = loop
        self._request = request
        stream = request.stream
        if not isinstance(stream, httpx.SyncByteStream):
            raise TypeError("an embedded service takes synchronous request bodies")
        self._chunks = iter(stream)
        timeout = request.extensions.get("timeout", {})
        self._timeout: float | None = timeout.get("read") if isinstance(timeout, dict) else None
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Below: touched on the loop only.
        self._credit = asyncio.Semaphore(_WINDOW)
        self._receiving = asyncio.Lock()
        self._wanted: asyncio.Future[bytes | None] | None = None
        self._request_done = False
        self._response_done = asyncio.Event()
        self._gone = False

    # --- on the loop ---

    async def receive(self) -> _Message:
        """ASGI receive: the next piece of the request, later the disconnect."""
        async with self._receiving:
            if not self._request_done and not self._gone:
                self._wanted = self._loop.create_future()
                self._events.put(_WANT_BODY)
                chunk = await self._wanted
                self._wanted = None
                if not self._gone:
                    self._request_done = chunk is None
                    return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}
        await self._response_done.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: _Message) -> None:
        """ASGI send: raises OSError once the reader has left, as ASGI 2.4 asks."""
        if message["type"] == "http.response.start" and not self._gone:
            self._events.put((message["status"], list(message.get("headers", ()))))
        elif message["type"] == "http.response.body":
            body = bytes(message.get("body", b""))
            if body:
                await self._credit.acquire()
            if self._gone:
                raise OSError("the client closed the response")
            if body:
                self._events.put(body)
            if not message.get("more_body", False):
                self._response_done.set()
                self._events.put(_END)

    def finished(self, task: asyncio.Task[None]) -> None:
        """Record that the application returned, raised or was cancelled."""
        failure = None if task.cancelled() else task.exception()
        if self._response_done.is_set():
            return  # the response is complete; the application logs later errors
        self._response_done.set()
        if task.cancelled():
            error: httpx.TransportError = httpx.ReadError("the embedded service was closed")
        elif failure is None:
            error = AppFailed("the embedded service returned before its response was complete")
        else:
            error = AppFailed(f"the embedded service failed: {type(failure).__name__}: {failure}")
            error.__cause__ = failure
        error.request = self._request
        self._events.put(error)

    def _feed(self, chunk: bytes | None) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(chunk)

    def _hang_up(self) -> None:
        self._gone = True
        self._response_done.set()
        self._credit.release()
        self._feed(None)

    # --- on the caller's thread ---

    def response_start(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Wait for status and headers, feeding the request body meanwhile."""
        event = self._next()
        if not isinstance(event, tuple):
            raise AppFailed("the embedded service sent a body before its status", request=self._request)
        return event

    def response_body(self) -> Iterator[bytes]:
        """Yield the chunks of the body."""
        try:
            while (event := self._next()) is not _END:
                yield event
                self._call(self._credit.release)
        finally:
            self.leave()

    def leave(self) -> None:
        """Tell the application that the reader has left; no effect on a complete response."""
        self._call(self._hang_up)

    def _next(self) -> Any:
        while True:
            try:
                event = self._events.get(timeout=self._timeout)
            except queue.Empty:
                self.leave()
                message = f"the embedded service did not answer within {self._timeout} s"
                raise httpx.ReadTimeout(message, request=self._request) from None
            if event is _WANT_BODY:
                self._call(self._feed, next(self._chunks, None))
            elif isinstance(event, BaseException):
                raise event
            else:
                return event

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        # If the loop is closed, the end or failure of this exchange is in its queue already.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)


class _Server:
    """The background thread, its loop, the lifespan, and the requests under way."""

    def __init__(self, app: ASGIApp, grace: float) -> None:
        self._app = app
        self._grace = grace
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._open = False
        self._started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="delvec-embedded", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._state: dict[str, Any] = {}

    def start(self) -> None:
        self._thread.start()
        failure = self._started.get()
        if failure is None:
            self._open = True
            return
        self._thread.join()
        if isinstance(failure, DelvecError):
            raise failure
        raise InternalError(f"the embedded service could not start: {failure}") from failure

    def open(self, request: httpx.Request) -> _Exchange:
        if os.getpid() != self._process:
            raise httpx.ConnectError(
                "this connection was opened before a fork and cannot be used in the child; "
                "call delvec.connect() in the child process",
                request=request,
            )
        if threading.current_thread() is self._thread:
            raise RuntimeError("a request from the service's own event loop would deadlock")
        with self._lock:
            loop = self._loop
            if not self._open or loop is None:
                raise httpx.ConnectError("the embedded service is closed", request=request)
            exchange = _Exchange(loop, request)
            loop.call_soon_threadsafe(self._launch, exchange, _scope(request, self._state))
        return exchange

    def stop(self) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            self._open = False
            loop, stopping = self._loop, self._stopping
            if loop is not None and stopping is not None:
                with contextlib.suppress(RuntimeError):  # already closed
                    loop.call_soon_threadsafe(stopping.set)
        # The garbage collector may finalize a transport on the loop's own thread.
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join()

    # --- on the loop's thread ---

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits in start()
            self._started.put(error)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        lifespan = _Lifespan(self._app, self._state)
        await lifespan.startup()
        self._started.put(None)
        await self._stopping.wait()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await lifespan.shutdown()

    def _launch(self, exchange: _Exchange, scope: dict[str, Any]) -> None:
        async def run() -> None:
            await self._app(scope, exchange.receive, exchange.send)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(exchange.finished)


class _Lifespan:
    """The lifespan protocol; applications that do not support it run without it."""

    def __init__(self, app: ASGIApp, state: dict[str, Any]) -> None:
        self._to_app: asyncio.Queue[_Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[_Message] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": _ASGI, "state": state}

        async def run() -> None:
            await app(scope, self._to_app.get, self._from_app.put)

        self._task = asyncio.get_running_loop().create_task(run())
        self._supported = True

    async def startup(self) -> None:
        answer = await self._tell("lifespan.startup")
        if answer is None:
            self._supported = False
        elif answer["type"] == "lifespan.startup.failed":
            # Starlette re-raises the startup error, which says more than the lifespan message.
            (failure,) = await asyncio.gather(self._task, return_exceptions=True)
            raise failure or InternalError(f"the embedded service could not start: {answer.get('message')}")

    async def shutdown(self) -> None:
        if self._supported:
            await self._tell("lifespan.shutdown")
            await asyncio.gather(self._task, return_exceptions=True)

    async def _tell(self, kind: str) -> _Message | None:
        """Return the answer, or None if the application ended without one."""
        self._to_app.put_nowait({"type": kind})
        answer = asyncio.ensure_future(self._from_app.get())
        await asyncio.wait({answer, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done() or not self._from_app.empty():
            return await answer
        answer.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return None


def _scope(request: httpx.Request, state: Mapping[str, Any]) -> dict[str, Any]:
    url = request.url
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": "1.1",
        "method": request.method,
        "scheme": url.scheme,
        "path": url.path,
        "raw_path": url.raw_path.partition(b"?")[0],
        "query_string": url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "server": (url.host, url.port),
        "client": ("127.0.0.1", 0),
        "state": dict(state),
    }
