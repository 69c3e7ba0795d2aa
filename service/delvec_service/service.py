"""The parts of the service, assembled from its settings, however it is reached: over HTTP, or in this process.

Tested in `tests/integration/service/test_http.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delvec_service.auth.audit import AuditLog
from delvec_service.auth.directory import Directory
from delvec_service.catalog.staging import Staging
from delvec_service.catalog_client.catalogs import Catalogs
from delvec_service.commits import fault_points
from delvec_service.commits.commit import Commits
from delvec_service.commits.idempotency import Answers
from delvec_service.commits.multi_table_commit import MultiTableCommits
from delvec_service.commits.outcomes import Outcomes
from delvec_service.commits.overwrite_watch import OverwriteWatch
from delvec_service.commits.post_commit import PostCommit
from delvec_service.commits.ratification import Ratification
from delvec_service.commits.reservations import Reservations
from delvec_service.commits.transaction_records import TransactionRecords
from delvec_service.commits.vector_compaction import VectorCompaction
from delvec_service.config import Settings
from delvec_service.credentials.aws_sts import AwsSts
from delvec_service.credentials.vending import CredentialVending
from delvec_service.events.commit_events import CommitEvents
from delvec_service.events.webhooks import Webhooks
from delvec_service.iceberg.conversion import IcebergConversion
from delvec_service.iceberg.external_catalogs import ExternalCatalogs
from delvec_service.maintenance.checkpoints import Checkpoints
from delvec_service.maintenance.health_watch import HealthWatch
from delvec_service.maintenance.log_maintenance import LogMaintenance
from delvec_service.maintenance.symlink_manifests import SymlinkManifests
from delvec_service.scans.plan_queue import PlanQueue
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.answers import AnswerStore
from delvec_service.store.audit_store import AuditStore
from delvec_service.store.clones import CloneStore
from delvec_service.store.commit_record import CommitRecordStore
from delvec_service.store.database import Database
from delvec_service.store.deletion_locks import DeletionLocks
from delvec_service.store.dropped_tables import DroppedTables
from delvec_service.store.event_store import EventStore
from delvec_service.store.fleet_store import FleetStore
from delvec_service.store.grants import AccessStore
from delvec_service.store.health_samples import HealthSampleStore
from delvec_service.store.iceberg_conversions import IcebergConversionStore
from delvec_service.store.ledger import Ledger
from delvec_service.store.maintenance_store import MaintenanceStore
from delvec_service.store.own_commits import OwnCommitStore
from delvec_service.store.registry import Registry
from delvec_service.store.snapshots import SnapshotStore
from delvec_service.tables.namespace_roots import NamespaceRoots
from delvec_service.tables.places import UnattendedService
from delvec_service.tables.registry import Tables
from delvec_service.telemetry.observer import NO_OBSERVER, Observer

__all__ = ["Service", "assembled"]

_CLAIM_SECONDS: Final = 60.0
"""After this long a request with an idempotency key is presumed dead; no harm is done if it is not."""


@dataclass(frozen=True)
class Service:
    """The parts of the service that live as long as the application."""

    settings: Settings
    database: Database
    ledger: Ledger
    loader: SnapshotLoader
    plan_queue: PlanQueue
    tables: Tables
    catalogs: Catalogs
    commits: Commits
    multi_table: MultiTableCommits
    ratification: Ratification
    staging: Staging
    manifests: SymlinkManifests
    iceberg: IcebergConversion
    iceberg_conversions: IcebergConversionStore
    vector_compaction: VectorCompaction
    log_maintenance: LogMaintenance
    overwrite_watch: OverwriteWatch
    health: HealthWatch
    events: CommitEvents
    webhooks: Webhooks
    commit_record: CommitRecordStore
    fleet: FleetStore
    clone_store: CloneStore
    deletion_locks: DeletionLocks
    maintenance: MaintenanceStore
    answers: Answers
    outcomes: Outcomes
    observer: Observer
    directory: Directory
    credentials: CredentialVending
    audit: AuditLog

    def start(self) -> None:
        """Migrate the database, and read what every request needs."""
        self.database.migrate()
        if self.settings.authentication != "off":
            self.directory.refresh()
        self.events.start()
        self.webhooks.start()

    def close(self) -> None:
        """Stop the background work, and close the database."""
        lasts = not self.database.is_in_memory
        self.log_maintenance.close(samples=lasts)
        self.health.close(save=lasts)
        self.events.close()
        self.webhooks.close()
        self.overwrite_watch.close()
        self.loader.close()
        self.catalogs.close()
        self.audit.close()
        self.database.close()
        self.observer.close()


def _observer(settings: Settings) -> Observer:
    if not settings.metrics:
        return NO_OBSERVER
    from delvec_service.telemetry.metrics import PrometheusMetrics  # takes a tenth of a second
    from delvec_service.telemetry.tracing import tracing

    return PrometheusMetrics(tracing())


def assembled(settings: Settings, *, names_by_folder: bool = False, shared: Sequence[str] = ()) -> Service:
    """Return the parts of a service, wired together; :meth:`Service.start` makes them ready.

    Args:
        settings: the service's settings.
        names_by_folder: whether names belong to the warehouse: names registered for it or folders in it, unknown to
            services with another warehouse on the same database. Otherwise names belong to the database.
        shared: without roots, places whose files the log of any table may name.

    Raises:
        BadRequest: the database URL is for neither SQLite nor PostgreSQL, a fault point is invalid, two namespaces
            share a root, or credentials are to be issued and botocore is not installed.
        InvalidLocation: a root, or the warehouse, is not a location.
    """
    fault_points.arm(settings.fault_points)
    observer = _observer(settings)
    database = Database(settings.database_url.get_secret_value())
    ledger = Ledger(database, seconds=settings.idempotency_seconds)
    roots = NamespaceRoots(
        settings.roots, settings.namespace_roots, settings.warehouse, by_folder=names_by_folder
    )
    loader = SnapshotLoader(
        max_bytes=settings.snapshot_cache_bytes,
        checksums=settings.version_checksums,
        # A database in memory outlives no process, and snapshots are in memory already.
        store=SnapshotStore(database)
        if settings.snapshot_store_bytes and not database.is_in_memory
        else None,
        max_stored_bytes=settings.snapshot_store_bytes,
        observer=observer,
    )
    registry = Registry(database, roots.warehouse if names_by_folder else None)
    stored_answers = AnswerStore(database, seconds=settings.idempotency_seconds, claim_seconds=_CLAIM_SECONDS)
    overwrite_watch = OverwriteWatch(
        loader, OwnCommitStore(database), stored_answers, watch_seconds=settings.commit_watch_seconds
    )
    event_store = EventStore(database, is_enabled=settings.event_days > 0)
    health = HealthWatch(HealthSampleStore(database, event_store), settings.deletion_vector_target_bytes)
    iceberg_conversions = IcebergConversionStore(database)
    directory = Directory(
        AccessStore(database),
        token=settings.token.get_secret_value() if settings.token else None,
        required=settings.authentication == "required" or settings.oidc_issuer is not None,
    )

    def is_open() -> bool:
        return settings.authentication == "off" or not directory.is_required

    clones = CloneStore(database)
    catalogs = Catalogs(settings.catalogs)
    tables = Tables(
        registry,
        DroppedTables(database, registry.catalog),
        roots,
        loader,
        max_commit_bytes=settings.max_commit_bytes,
        by_folder=names_by_folder,
        clones=clones,
        is_open=is_open,
        shared=shared,
        catalogs=catalogs,
        observer=observer,
    )
    iceberg_conversion = IcebergConversion(
        loader,
        iceberg_conversions,
        ExternalCatalogs(settings.iceberg_catalogs),
        places=tables.places,
        unattended=UnattendedService(is_open),
    )
    log_maintenance = LogMaintenance(
        loader,
        Checkpoints(loader),
        health,
        iceberg_conversion,
        alone=database.alone,
        is_on=settings.log_maintenance,
    )
    answers = Answers(stored_answers)
    manifests = SymlinkManifests(loader)
    events = CommitEvents(
        event_store, tables, database.alone, days=settings.event_days, seconds=settings.event_look_seconds
    )
    post_commit = PostCommit(
        loader, ledger, overwrite_watch, log_maintenance, manifests, health, events, observer=observer
    )
    commits = Commits(
        loader,
        ledger,
        overwrite_watch,
        post_commit,
        answers,
        attempts=settings.commit_attempts,
        deletion_vector_target_bytes=settings.deletion_vector_target_bytes,
        max_file_age_seconds=settings.max_file_age_seconds,
        observer=observer,
    )
    records = TransactionRecords(roots.warehouse)
    reservations = Reservations(loader, commits.log, records, patience=settings.transaction_seconds)
    multi_table = MultiTableCommits(loader, commits, records, reservations, attempts=settings.commit_attempts)
    ratification = Ratification(
        loader, commits.log, commits.vectors, commits.validator, post_commit, observer=observer
    )
    return Service(
        settings=settings,
        database=database,
        ledger=ledger,
        loader=loader,
        plan_queue=PlanQueue(),
        tables=tables,
        catalogs=catalogs,
        commits=commits,
        multi_table=multi_table,
        ratification=ratification,
        staging=Staging(tables, ratification),
        manifests=manifests,
        iceberg=iceberg_conversion,
        iceberg_conversions=iceberg_conversions,
        vector_compaction=VectorCompaction(loader, commits, settings.deletion_vector_target_bytes),
        log_maintenance=log_maintenance,
        overwrite_watch=overwrite_watch,
        health=health,
        events=events,
        webhooks=Webhooks(
            event_store, settings.webhooks, tables.catalog, private=settings.webhook_private_addresses
        ),
        commit_record=CommitRecordStore(database),
        fleet=FleetStore(database),
        clone_store=clones,
        deletion_locks=DeletionLocks(database),
        maintenance=MaintenanceStore(database, event_store),
        answers=answers,
        directory=directory,
        credentials=CredentialVending(
            {}
            if settings.credential_role_arn is None
            else {"s3": AwsSts(settings.credential_role_arn, settings.credential_seconds)}
        ),
        audit=AuditLog(AuditStore(database), days=settings.audit_days),
        observer=observer,
        outcomes=Outcomes(loader, commits.log, ledger, answers),
    )
