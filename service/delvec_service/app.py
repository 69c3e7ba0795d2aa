"""The application: assembles its parts, and manages their lifespan.

Tested in `tests/integration/service/test_http.py`.
"""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI

from delvec_errors import ServiceUnavailable
from delvec_service import VERSION
from delvec_service.api import metrics_routes, probes_routes, problems, reference
from delvec_service.api.all_routes import ROUTES
from delvec_service.api.authorizer import Authorizer
from delvec_service.api.browsers import BrowserGuard
from delvec_service.api.encodings import AnswerEncoding
from delvec_service.api.lanes import Lanes
from delvec_service.api.limits import RateLimits, RequestLimits
from delvec_service.api.requests import RequestMiddleware
from delvec_service.config import Settings
from delvec_service.dml import Limits, RowCommands
from delvec_service.scans.warm_up import warm_up
from delvec_service.service import Service, assembled
from delvec_service.telemetry.observer import Observer

if TYPE_CHECKING:
    from delvec_service.auth.oidc import IdentityProvider

__all__ = ["create_app"]

_WARM_SECONDS: Final = 10.0
"""How long shutdown waits for the warm-up: a stuck database must not keep the process alive."""

_DESCRIPTION = """Metadata and transactions for Delta Lake tables with deletion vectors.

Fields of the API use kebab-case; Delta's actions, descriptors and metrics keep Delta's spelling. All errors have the
same envelope: `{"error": {message, type, code, retryable, details}}`."""


def create_app(settings: Settings, *, listens: bool = False) -> FastAPI:
    """Return the ASGI application. Its lifespan migrates the database on startup and closes it on shutdown.

    Args:
        settings: the service's settings.
        listens: whether it will listen on a port, so that the host of a request says how it was reached.

    Raises:
        BadRequest: the database URL is for neither SQLite nor PostgreSQL, a fault point is invalid, two namespaces
            share a root, or credentials are to be issued and botocore is not installed.
        InvalidLocation: a root, or the warehouse, is not a location.
    """
    service = assembled(settings)
    lanes = Lanes(
        max_queued=settings.max_queued_requests,
        seconds=settings.request_seconds,
        maintenance_seconds=settings.maintenance_seconds,
        observer=service.observer,
    )
    limits = Limits(settings.dml_max_bytes, settings.dml_memory_bytes, settings.dml_at_once)
    row_commands = RowCommands(service, limits)
    asks = settings.authentication != "off"

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        # Nothing else runs on this loop yet, so blocking is fine.
        service.start()
        service.observer.keep_fresh(lambda: metrics_routes.gauges(service, lanes))
        warming = threading.Thread(target=_warm, args=(service,), name="delvec-warm-up", daemon=True)
        if settings.roots:  # not when embedded, where the first request can do it
            warming.start()
        try:
            yield
        finally:
            if warming.ident is not None:
                warming.join(_WARM_SECONDS)
            row_commands.close()
            service.close()

    app = FastAPI(
        title="Delvec",
        version=VERSION,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from a CDN; see api.reference
        redoc_url=None,
        redirect_slashes=False,  # a redirect would not have the error envelope
        routes=[*ROUTES],
    )
    app.state.service = service
    app.state.lanes = lanes
    app.state.has_console = settings.dashboard
    app.state.row_commands = row_commands
    app.state.readiness = probes_routes.Readiness(service.database)
    reference.install(app)
    problems.install(app)
    app.add_middleware(AnswerEncoding)
    app.add_middleware(
        RequestMiddleware,
        authorizer=Authorizer(
            service.directory if asks else None,
            service.tables,
            lambda: app.router.routes,
            settings.request_seconds,
            _provider(settings),
        ),
        max_request_bytes=settings.max_request_bytes,
        audit=service.audit,
        limits=_limits(settings, service.observer),
        observer=service.observer,
    )
    if settings.dashboard:
        from delvec_service.dashboard.pages import Dashboard  # with its templates

        app.add_middleware(
            Dashboard
        )  # outside the authorization middleware: it calls the service as any client does
    app.add_middleware(
        BrowserGuard,
        is_open=lambda: not asks or not service.directory.is_required,
        hosts=(settings.host,) if listens else None,
        names=settings.allowed_hosts,
    )
    return app


def _warm(service: Service) -> None:
    """Warm up in the background, so that the first requests do not wait."""
    with suppress(ServiceUnavailable):  # the service should run even if the database fails now
        warm_up(service.loader.store)


def _limits(settings: Settings, observer: Observer) -> RequestLimits | None:
    principals = RateLimits(
        settings.principal_requests_per_second,
        settings.principal_commits_per_second,
        settings.principal_bytes_per_second,
        settings.principal_plans_at_once,
    )
    tables = RateLimits(
        settings.table_requests_per_second,
        settings.table_commits_per_second,
        settings.table_bytes_per_second,
        settings.table_plans_at_once,
    )
    return RequestLimits(principals, tables, observer) if principals or tables else None


def _provider(settings: Settings) -> "IdentityProvider | None":
    if settings.oidc_issuer is None:
        return None
    from delvec_service.auth.oidc import IdentityProvider, OidcSettings  # with cryptography

    wanted = OidcSettings.of(settings)
    return None if wanted is None else IdentityProvider(wanted)
