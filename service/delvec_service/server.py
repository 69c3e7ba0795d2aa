"""The service as listening processes: one or several workers, and a shutdown without failed requests.

Tested in `tests/chaos/test_rolling_restart.py` and `tests/integration/client/cli/test_cli.py`.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.supervisors import Multiprocess

from delvec_service import logs
from delvec_service.api.connections import BoundedProtocol
from delvec_service.api.probes_routes import Readiness
from delvec_service.app import create_app
from delvec_service.config import Settings, check_servable
from delvec_service.startup import hide_pandas

__all__ = ["run"]

_GRACE_SECONDS: Final = 30
_WORKER_SECONDS: Final = 60
"""A worker that is silent for this long is replaced; a new one that is silent for this long has failed to start."""
_STARTUP_FAILURE: Final = 3
_SHARED: Final = "PROMETHEUS_MULTIPROC_DIR"


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; with several workers, SIGHUP replaces them one by one.

    After SIGTERM, ``/readyz`` reports not ready for ``drain_seconds`` while other requests are served normally. Then
    no connections are accepted, running requests get 30 seconds, and the process ends.

    Raises:
        BadRequest: a setting is invalid, or the workers would not share a database.
        ServiceUnavailable: the database does not answer, or a newer Delvec has migrated it.
        SystemExit: the port is in use, or a worker does not start.
    """
    check_servable(settings)
    logs.configure(settings.log_level)
    config = uvicorn.Config(
        partial(_application, settings),  # pickled: each worker builds its own
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_config=None,
        access_log=False,
        http=BoundedProtocol,
        ws="none",
        log_level=settings.log_level,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_worker_healthcheck=_WORKER_SECONDS,
    )
    if settings.workers == 1:
        server = uvicorn.Server(config)
        server.run()
        if not server.started:
            sys.exit(_STARTUP_FAILURE)
        return
    _check(settings)
    workers = Multiprocess(config, sockets=[config.bind_socket()])
    with _shared_metrics(settings):
        workers.run()
    if any(process.exitcode == _STARTUP_FAILURE for process in workers.processes):
        sys.exit(_STARTUP_FAILURE)


def _check(settings: Settings) -> None:
    """Validate the settings once instead of in every worker, and migrate the database."""
    database = create_app(settings.model_copy(update={"metrics": False})).state.service.database
    try:
        database.migrate()
    finally:
        database.close()


@contextmanager
def _shared_metrics(settings: Settings) -> Iterator[None]:
    """Give the workers a shared directory for metrics, so that whichever is scraped answers for all."""
    if not settings.metrics or os.environ.get(_SHARED):
        yield
        return
    with TemporaryDirectory(prefix="delvec-metrics-", ignore_cleanup_errors=True) as directory:
        os.environ[_SHARED] = directory
        try:
            yield
        finally:
            del os.environ[_SHARED]


def _application(settings: Settings) -> ASGIApp:
    """Return the application of one process."""
    logs.configure(settings.log_level)
    hide_pandas()
    app = create_app(settings, listens=True)
    gc.freeze()  # imported objects stay: a full garbage collection of them stops all threads for a tenth of a second
    readiness: Readiness = app.state.readiness
    _drain_first(app, readiness, settings.drain_seconds)
    return _ConnectionDrainer(app, readiness) if settings.drain_seconds else app


def _drain_first(app: FastAPI, readiness: Readiness, seconds: float) -> None:
    """Make SIGTERM first announce the shutdown, through ``/readyz`` and to requests that wait for events."""
    serve = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        end = signal.getsignal(signal.SIGTERM)  # by now the server's own handler, which stops listening

        def drain(number: int, frame: FrameType | None) -> None:
            if not callable(end):
                return
            if readiness.draining:
                end(number, frame)  # sent twice: at once
                return
            readiness.drain()
            if not seconds:
                end(number, frame)
                return
            timer = threading.Timer(seconds, end, (number, frame))
            timer.daemon = True
            timer.start()

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, drain)
        async with serve(application):
            yield

    app.router.lifespan_context = lifespan


class _ConnectionDrainer:
    """During shutdown, closes connections after their next answer, so that clients reconnect elsewhere."""

    def __init__(self, app: ASGIApp, readiness: Readiness) -> None:
        self._app = app
        self._readiness = readiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def last(message: Message) -> None:
            if message["type"] == "http.response.start" and self._readiness.draining:
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        await self._app(scope, receive, last if scope["type"] == "http" else send)
