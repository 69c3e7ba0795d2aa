"""The application: assembles its parts, and manages their lifespan.

Tested in `tests/integration/service/test_http.py`.
"""

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI

from delvec_errors import ServiceUnavailable
from delvec_service.api import (
    access,
    additions,
    alter,
    audit,
    changes,
    check,
    checkpoint,
    clone,
    commits,
    conflicts,
    convert,
    credentials,
    deletion_vectors,
    dml,
    generate,
    health,
    history,
    iceberg,
    iceberg_catalog,
    metrics,
    outcomes,
    plan,
    policies,
    probes,
    problems,
    reference,
    repair,
    restore,
    snapshot,
    tables,
    vacuum,
    vector_compaction,
)
from delvec_service.api.authorizer import Authorizer
from delvec_service.api.browsers import BrowserGuard
from delvec_service.api.dependencies import Service
from delvec_service.api.lanes import Lanes
from delvec_service.api.limits import RateLimits, RequestLimits
from delvec_service.api.requests import RequestMiddleware
from delvec_service.auth.audit import AuditLog
from delvec_service.auth.directory import Directory
from delvec_service.commits import fault_points
from delvec_service.commits.commit import Commits
from delvec_service.commits.idempotency import Answers
from delvec_service.commits.outcomes import Outcomes
from delvec_service.commits.overwrite_watch import OverwriteWatch
from delvec_service.commits.vector_compaction import VectorCompaction
from delvec_service.config import Settings
from delvec_service.credentials.aws_sts import AwsSts
from delvec_service.credentials.vending import CredentialVending
from delvec_service.dml import Limits, RowCommands
from delvec_service.iceberg.conversion import IcebergConversion
from delvec_service.iceberg.external_catalogs import ExternalCatalogs
from delvec_service.maintenance.checkpoints import Checkpoints
from delvec_service.maintenance.health_watch import HealthWatch
from delvec_service.maintenance.log_maintenance import LogMaintenance
from delvec_service.maintenance.symlink_manifests import SymlinkManifests
from delvec_service.scans.plan_queue import PlanQueue
from delvec_service.scans.warm_up import warm_up
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.access import AccessStore
from delvec_service.store.answers import AnswerStore
from delvec_service.store.audit import AuditStore
from delvec_service.store.clones import CloneStore
from delvec_service.store.commit_record import CommitRecordStore
from delvec_service.store.database import Database
from delvec_service.store.deletion_locks import DeletionLocks
from delvec_service.store.health_samples import HealthSampleStore
from delvec_service.store.iceberg_conversions import IcebergConversionStore
from delvec_service.store.ledger import Ledger
from delvec_service.store.maintenance import MaintenanceStore
from delvec_service.store.own_commits import OwnCommitStore
from delvec_service.store.registry import Registry
from delvec_service.store.snapshots import SnapshotStore
from delvec_service.tables.namespace_roots import NamespaceRoots
from delvec_service.tables.places import Unattended
from delvec_service.tables.registry import Tables
from delvec_service.telemetry.observer import NO_OBSERVER, Observer

if TYPE_CHECKING:
    from delvec_service.auth.oidc import IdentityProvider

__all__ = ["create_app"]

_ROUTERS: Final = (
    probes.router,
    metrics.router,
    tables.router,
    snapshot.router,
    plan.router,
    changes.router,
    additions.router,
    *commits.routers,
    outcomes.router,
    alter.router,
    dml.router,
    deletion_vectors.router,
    history.router,
    health.router,
    conflicts.router,
    policies.router,
    checkpoint.router,
    vacuum.router,
    check.router,
    restore.router,
    repair.router,
    generate.router,
    iceberg.router,
    clone.router,
    vector_compaction.router,
    convert.router,
    *access.routers,
    credentials.router,
    audit.router,
    probes.config_router,
    *iceberg_catalog.routers,
)
_ROUTES: Final = tuple(route for router in _ROUTERS for route in router.routes)
"""All services of a process share them: include_router() would make each of them again for every application."""
_WARM_SECONDS: Final = 10.0
"""How long shutdown waits for the warm-up: a stuck database must not keep the process alive."""
_CLAIM_SECONDS: Final = 60.0
"""After this long a request with an idempotency key is presumed dead; no harm is done if it is not."""

_DESCRIPTION = """Metadata and transactions for Delta Lake tables with deletion vectors.

Fields of the API use kebab-case; Delta's actions, descriptors and metrics keep Delta's spelling. All errors have the
same envelope: `{"error": {message, type, code, retryable, details}}`."""


def create_app(
    settings: Settings, *, names_by_folder: bool = False, listens: bool = False, shared: Sequence[str] = ()
) -> FastAPI:
    """Return the ASGI application. Its lifespan migrates the database on startup and closes it on shutdown.

    Args:
        settings: the service's settings.
        names_by_folder: whether names belong to the warehouse: names registered for it or folders in it, unknown to
            services with another warehouse on the same database. Otherwise names belong to the database.
        listens: whether it will listen on a port, so that the host of a request says how it was reached.
        shared: without roots, places whose files the log of any table may name.

    Raises:
        BadRequest: the database URL is for neither SQLite nor PostgreSQL, a fault point is invalid, two namespaces
            share a root, or credentials are to be issued and botocore is not installed.
        InvalidLocation: a root, or the warehouse, is not a location.
    """
    fault_points.arm(settings.fault_points)
    service = _service(settings, names_by_folder=names_by_folder, shared=shared)
    asks = settings.authentication != "off"
    saves = not service.database.is_in_memory

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        # Nothing else runs on this loop yet, so blocking is fine.
        service.database.migrate()
        if asks:
            service.directory.refresh()
        service.observer.keep_fresh(lambda: metrics.gauges(service))
        warming = threading.Thread(target=_warm, args=(service,), name="delvec-warm-up", daemon=True)
        if settings.roots:  # not when embedded, where the first request can do it
            warming.start()
        try:
            yield
        finally:
            if warming.ident is not None:
                warming.join(_WARM_SECONDS)
            service.row_commands.close()
            service.log_maintenance.close(samples=saves)
            service.health.close(save=saves)
            service.overwrite_watch.close()
            service.loader.close()
            service.audit.close()
            service.database.close()
            service.observer.close()

    app = FastAPI(
        title="Delvec",
        version=version("delvec"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from a CDN; see api.reference
        redoc_url=None,
        redirect_slashes=False,  # a redirect would not have the error envelope
        routes=[*_ROUTES],
    )
    app.state.service = service
    app.state.skips_authorization = False
    app.state.readiness = probes.Readiness(service.database)
    reference.install(app)
    problems.install(app)
    service.row_commands.over(_internal_app(service))
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


def _internal_app(service: Service) -> FastAPI:
    """Return the same routes for the service's own requests, which skip authorization."""
    app = FastAPI(openapi_url=None, redirect_slashes=False, routes=[*_ROUTES])
    app.state.service = service
    app.state.skips_authorization = True
    problems.install(app)
    return app


def _observer(settings: Settings) -> Observer:
    if not settings.metrics:
        return NO_OBSERVER
    from delvec_service.telemetry.metrics import Metrics  # takes a tenth of a second
    from delvec_service.telemetry.tracing import tracing

    return Metrics(tracing())


def _service(settings: Settings, *, names_by_folder: bool, shared: Sequence[str]) -> Service:
    observer = _observer(settings)
    database = Database(settings.database_url.get_secret_value())
    ledger = Ledger(database)
    roots = NamespaceRoots(
        settings.roots, settings.namespace_roots, settings.warehouse, by_folder=names_by_folder
    )
    saves = not database.is_in_memory
    loader = SnapshotLoader(
        max_bytes=settings.snapshot_cache_bytes,
        checksums=settings.version_checksums,
        # A database in memory outlives no process, and snapshots are in memory already.
        store=SnapshotStore(database) if saves and settings.snapshot_store_bytes else None,
        max_stored_bytes=settings.snapshot_store_bytes,
        observer=observer,
    )
    registry = Registry(database, roots.warehouse if names_by_folder else None)
    stored_answers = AnswerStore(database, seconds=settings.idempotency_seconds, claim_seconds=_CLAIM_SECONDS)
    overwrite_watch = OverwriteWatch(
        loader, OwnCommitStore(database), stored_answers, watched=settings.commit_watch_seconds
    )
    health = HealthWatch(HealthSampleStore(database), settings.deletion_vector_target_bytes)
    iceberg_conversions = IcebergConversionStore(database)
    directory = Directory(
        AccessStore(database),
        token=settings.token.get_secret_value() if settings.token else None,
        required=settings.authentication == "required" or settings.oidc_issuer is not None,
    )
    clones = CloneStore(database)
    tables = Tables(
        registry,
        roots,
        loader,
        max_commit_bytes=settings.max_commit_bytes,
        by_folder=names_by_folder,
        sources=clones.above,
        shared=shared,
        observer=observer,
    )
    iceberg_conversion = IcebergConversion(
        loader,
        iceberg_conversions,
        ExternalCatalogs(settings.iceberg_catalogs),
        places=tables.places,
        unattended=Unattended(lambda: settings.authentication == "off" or not directory.is_required),
    )
    log_maintenance = LogMaintenance(
        loader,
        Checkpoints(loader),
        health,
        iceberg_conversion,
        alone=database.alone,
        enabled=settings.log_maintenance,
    )
    answers = Answers(stored_answers)
    manifests = SymlinkManifests(loader)
    commits = Commits(
        loader,
        ledger,
        log_maintenance,
        overwrite_watch,
        manifests,
        health,
        attempts=settings.commit_attempts,
        deletion_vector_target_bytes=settings.deletion_vector_target_bytes,
        max_file_age_seconds=settings.max_file_age_seconds,
        observer=observer,
    )
    return Service(
        settings=settings,
        database=database,
        ledger=ledger,
        loader=loader,
        plan_queue=PlanQueue(),
        tables=tables,
        commits=commits,
        manifests=manifests,
        iceberg=iceberg_conversion,
        iceberg_conversions=iceberg_conversions,
        vector_compaction=VectorCompaction(loader, commits, settings.deletion_vector_target_bytes),
        log_maintenance=log_maintenance,
        overwrite_watch=overwrite_watch,
        health=health,
        commit_record=CommitRecordStore(database),
        clone_store=clones,
        deletion_locks=DeletionLocks(database),
        maintenance=MaintenanceStore(database),
        answers=answers,
        directory=directory,
        credentials=CredentialVending(
            {}
            if settings.credential_role_arn is None
            else {"s3": AwsSts(settings.credential_role_arn, settings.credential_seconds)}
        ),
        audit=AuditLog(AuditStore(database), days=settings.audit_days),
        lanes=Lanes(
            queued=settings.max_queued_requests,
            seconds=settings.request_seconds,
            maintenance_seconds=settings.maintenance_seconds,
            observer=observer,
        ),
        observer=observer,
        outcomes=Outcomes(loader, commits.log, ledger, answers),
        row_commands=RowCommands(
            answers, Limits(settings.dml_max_bytes, settings.dml_memory_bytes, settings.dml_at_once)
        ),
    )
