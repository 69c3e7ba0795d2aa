"""All routes of the service.

Tested in `tests/integration/contract/test_operations.py`.
"""

from typing import Any, Final

from fastapi import Response, status

from delvec_contract import operations
from delvec_contract.access import CredentialsResponse
from delvec_contract.events import EventsResponse
from delvec_contract.tables import TableResource
from delvec_errors import (
    AmbiguousTable,
    AppendOnlyTable,
    AtomicCreateUnsupported,
    CommitOutcomeUnknown,
    ConcurrentAppend,
    ConcurrentModification,
    ConcurrentTransaction,
    ConcurrentWrite,
    ConstraintViolation,
    CorruptDeletionVector,
    CorruptIcebergMetadata,
    CorruptTable,
    CredentialVendingUnsupported,
    EngineUnavailable,
    ExpressionNotAllowed,
    FileNotInTable,
    GrantNotFound,
    IcebergCatalogError,
    IcebergUnsupported,
    InvalidCommit,
    InvalidLocation,
    InvalidPredicate,
    InvalidSchema,
    InvalidTableChange,
    LocationNotAllowed,
    MaintenanceUnderWay,
    ManifestUnsupported,
    MetadataChanged,
    MissingCloneFiles,
    MissingRestoreFiles,
    NotADeltaTable,
    PermissionDenied,
    PolicyNotFound,
    ProtocolChanged,
    QuarantineNotFound,
    RetentionTooShort,
    StorageDenied,
    StorageError,
    TableAlreadyExists,
    TableInUse,
    TableNotFound,
    TokenAlreadyExists,
    TokenNotFound,
    UnknownColumn,
    UnsupportedOperation,
    UnsupportedTable,
    UnsupportedWriterFeature,
    VacuumIncomplete,
    VacuumLiteImpossible,
    VersionFromFuture,
)
from delvec_service.api import (
    additions_routes,
    changes_routes,
    commits_routes,
    dml_routes,
    iceberg_catalog_routes,
    metrics_routes,
    plan_routes,
    probes_routes,
    uc_classic_routes,
    uc_delta_routes,
    uc_preview_routes,
)
from delvec_service.api.events_routes import EVENT_STREAM, WaitingRoute
from delvec_service.api.operation_routes import served
from delvec_service.api.plan_routes import DELETION_VECTOR_ERRORS
from delvec_service.api.problems import COMMON, CONFLICTS, MUTATION, OPENING, SNAPSHOT
from delvec_service.api.repeats import MaintenanceRoute, MutationRoute
from delvec_service.api.routes import Route

__all__ = ["ROUTES"]


class _Administration(Route):
    """Has no ``Idempotency-Key``: answers are stored under their keys, and a stored answer must not contain a token."""

    kind = "changes"


class _Creating(MutationRoute):
    """A new table comes with the files of its first rows."""

    large = True


class _Checking(Route):
    kind = "maintenance"


class _Vacuuming(MaintenanceRoute):
    """The answer contains lists of files."""

    large = True


def _registered(registered: tuple[TableResource, bool]) -> Response:
    resource, is_new = registered
    code = status.HTTP_201_CREATED if is_new else status.HTTP_200_OK
    return Response(resource.model_dump_json(by_alias=True), code, media_type="application/json")


def _unstored(credentials: CredentialsResponse) -> Response:
    """Return an answer that no cache may store."""
    content = credentials.model_dump_json(by_alias=True)
    return Response(content, headers={"Cache-Control": "no-store"}, media_type="application/json")


_OPEN: Final = (*COMMON, *OPENING)
_READ: Final = (*_OPEN, *SNAPSHOT)
_CHANGE: Final = (*MUTATION, *OPENING)
_WRITE: Final = (*_CHANGE, *SNAPSHOT)
_QUARANTINE_ERRORS: Final = (CorruptTable, QuarantineNotFound, UnsupportedWriterFeature)
_WRITABLE: Final = (
    UnsupportedTable,
    UnsupportedWriterFeature,
    CorruptTable,
    ConcurrentTransaction,
    *CONFLICTS,
)
"""Further errors of changes that are computed from the newest version."""

ROUTES: Final[tuple[Any, ...]] = (
    *probes_routes.router.routes,
    *metrics_routes.router.routes,
    served(
        operations.REGISTER_TABLE,
        "tables",
        _Creating,
        *(
            *MUTATION,
            *SNAPSHOT,
            *commits_routes.INVALID,
            ConstraintViolation,
            InvalidLocation,
            InvalidSchema,
            InvalidTableChange,
            InvalidPredicate,
        ),
        *(UnknownColumn, LocationNotAllowed, PermissionDenied, TableNotFound, TableAlreadyExists),
        AtomicCreateUnsupported,
        status=status.HTTP_201_CREATED,
        needs_body=True,
        answer=_registered,
        documented={200: {"model": TableResource, "description": "The table was already registered."}},
    ),
    served(
        operations.BEGIN_TABLE,
        "tables",
        MutationRoute,
        *(*MUTATION, InvalidLocation, InvalidSchema, InvalidTableChange, InvalidPredicate, UnknownColumn),
        *(LocationNotAllowed, PermissionDenied, TableNotFound, TableAlreadyExists, UnsupportedOperation),
        status=status.HTTP_201_CREATED,
        needs_body=True,
    ),
    served(operations.LIST_TABLES, "tables", MutationRoute, *COMMON, InvalidLocation, LocationNotAllowed),
    served(operations.GET_TABLE, "tables", MutationRoute, *_OPEN),
    served(operations.FORGET_TABLE, "tables", MutationRoute, *_CHANGE, UnsupportedOperation),
    served(operations.RENAME_TABLE, "tables", MutationRoute, *_CHANGE, TableAlreadyExists),
    served(operations.LIST_DROPPED, "tables", MutationRoute, *COMMON),
    served(
        operations.UNDROP_TABLE,
        "tables",
        MutationRoute,
        *(*MUTATION, *SNAPSHOT, TableNotFound, TableAlreadyExists, PermissionDenied, LocationNotAllowed),
    ),
    served(
        operations.DELETE_DROPPED,
        "tables",
        MaintenanceRoute,
        *(*MUTATION, *SNAPSHOT, TableNotFound, PermissionDenied, LocationNotAllowed, RetentionTooShort),
        *(TableInUse, CorruptTable, CorruptDeletionVector, VacuumIncomplete),
    ),
    served(operations.GET_SNAPSHOT, "reading", Route, *_READ, UnknownColumn),
    *plan_routes.router.routes,
    *changes_routes.router.routes,
    *additions_routes.router.routes,
    served(
        operations.BEGIN,
        "commits",
        MutationRoute,
        *(*_WRITE, InvalidTableChange, InvalidSchema, UnknownColumn, UnsupportedWriterFeature),
        status=status.HTTP_201_CREATED,
    ),
    *commits_routes.commit_router.routes,
    *commits_routes.reading_router.routes,
    served(operations.FIND_COMMIT, "commits", Route, *_READ),
    *commits_routes.transaction_router.routes,
    served(operations.FIND_TRANSACTION, "commits", Route, *COMMON, *SNAPSHOT),
    served(operations.GET_SNAPSHOTS, "commits", Route, *_READ),
    served(
        operations.ALTER_TABLE,
        "tables",
        MutationRoute,
        *(*_WRITE, InvalidTableChange, InvalidSchema, InvalidPredicate, UnknownColumn, VersionFromFuture),
        *(UnsupportedTable, UnsupportedWriterFeature, ExpressionNotAllowed, CorruptTable, MetadataChanged),
        *(ProtocolChanged, ConcurrentAppend, ConcurrentTransaction, ConcurrentWrite, CommitOutcomeUnknown),
        AtomicCreateUnsupported,
    ),
    *dml_routes.router.routes,
    served(
        operations.ALLOCATE,
        "deletion vectors",
        MutationRoute,
        *(*_WRITE, InvalidCommit, UnsupportedWriterFeature),
        status=status.HTTP_201_CREATED,
        needs_body=True,
    ),
    served(operations.GET_HISTORY, "reading", Route, *_READ),
    served(operations.GET_DETAIL, "reading", Route, *_READ),
    served(operations.GET_HEALTH, "reading", Route, *_READ, UnknownColumn, InvalidTableChange),
    served(operations.LIST_HEALTH_SAMPLES, "reading", Route, *_OPEN),
    served(operations.LIST_HEALTH, "reading", Route, *COMMON),
    served(operations.GET_FLEET, "reading", Route, *COMMON),
    served(operations.LIST_CONFLICTS, "reading", Route, *_OPEN),
    served(operations.LIST_ALL_CONFLICTS, "reading", Route, *COMMON),
    served(
        operations.LIST_EVENTS,
        "events",
        WaitingRoute,
        *_OPEN,
        documented={
            200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}, "model": EventsResponse}
        },
    ),
    served(operations.SET_POLICY, "policies", MutationRoute, *_CHANGE),
    served(operations.LIST_POLICIES, "policies", MutationRoute, *COMMON),
    served(operations.GET_POLICY, "policies", MutationRoute, *COMMON, PolicyNotFound),
    served(operations.DROP_POLICY, "policies", MutationRoute, *MUTATION, PolicyNotFound, PermissionDenied),
    served(operations.LIST_APPLICABLE_POLICIES, "policies", MutationRoute, *_OPEN),
    served(operations.LEASE_TABLE, "policies", MutationRoute, *_CHANGE, MaintenanceUnderWay),
    served(operations.RELEASE_TABLE, "policies", MutationRoute, *_CHANGE),
    served(operations.RECORD_RUN, "policies", MutationRoute, *_CHANGE),
    served(operations.REPORT_TASK, "policies", MutationRoute, *_CHANGE),
    served(operations.LIST_TASKS, "policies", MutationRoute, *_OPEN),
    served(operations.LIST_ALL_TASKS, "policies", MutationRoute, *COMMON),
    served(operations.LIST_RUNS, "policies", MutationRoute, *_OPEN),
    served(
        operations.CHECKPOINT,
        "maintenance",
        MaintenanceRoute,
        *(*_WRITE, CorruptTable, UnsupportedWriterFeature, ConcurrentWrite),
    ),
    served(
        operations.VACUUM,
        "maintenance",
        _Vacuuming,
        *(*_WRITE, LocationNotAllowed, RetentionTooShort, VacuumLiteImpossible, CorruptTable),
        *(CorruptDeletionVector, UnsupportedWriterFeature, VacuumIncomplete, ConcurrentModification),
        *(ConcurrentWrite, CommitOutcomeUnknown, AtomicCreateUnsupported),
    ),
    served(operations.LIST_QUARANTINES, "maintenance", _Vacuuming, *_OPEN, CorruptTable),
    served(operations.UNDO_VACUUM, "maintenance", _Vacuuming, *_WRITE, *_QUARANTINE_ERRORS),
    served(operations.PURGE_VACUUMED, "maintenance", _Vacuuming, *_WRITE, *_QUARANTINE_ERRORS),
    served(operations.CHECK_TABLE, "maintenance", _Checking, *_OPEN, NotADeltaTable, StorageError),
    served(
        operations.RESTORE_TABLE,
        "maintenance",
        MaintenanceRoute,
        *(*_WRITE, MissingRestoreFiles, FileNotInTable, InvalidTableChange, AppendOnlyTable, *_WRITABLE),
        needs_body=True,
    ),
    served(
        operations.REPAIR_TABLE,
        "maintenance",
        MaintenanceRoute,
        *(*_WRITE, AppendOnlyTable, InvalidCommit, *_WRITABLE),
    ),
    served(operations.GENERATE, "maintenance", MaintenanceRoute, *_WRITE, ManifestUnsupported, CorruptTable),
    served(
        operations.CONVERT_TO_ICEBERG,
        "maintenance",
        MaintenanceRoute,
        *(*_WRITE, IcebergUnsupported, CorruptTable, CorruptDeletionVector, CorruptIcebergMetadata),
        *(EngineUnavailable, IcebergCatalogError),
    ),
    served(
        operations.CLONE_TABLE,
        "tables",
        MaintenanceRoute,
        *(*_WRITE, InvalidLocation, LocationNotAllowed, TableAlreadyExists, MissingCloneFiles),
        *(InvalidTableChange, InvalidCommit, AppendOnlyTable, *_WRITABLE),
        needs_body=True,
    ),
    served(
        operations.COMPACT_DELETION_VECTORS,
        "maintenance",
        MaintenanceRoute,
        *(*_WRITE, *DELETION_VECTOR_ERRORS, InvalidTableChange, UnsupportedTable),
        *(UnsupportedWriterFeature, CorruptTable, *CONFLICTS),
    ),
    served(
        operations.CONVERT_TO_DELTA,
        "tables",
        MaintenanceRoute,
        *(*MUTATION, *SNAPSHOT, InvalidLocation, LocationNotAllowed, PermissionDenied, TableNotFound),
        *(TableAlreadyExists, UnsupportedOperation, InvalidSchema, InvalidTableChange, InvalidCommit),
        AtomicCreateUnsupported,
    ),
    served(operations.GET_ACCESS, "access", Route, *COMMON, TableNotFound, AmbiguousTable),
    served(
        operations.CREATE_TOKEN,
        "access",
        _Administration,
        *(*COMMON, PermissionDenied, TokenAlreadyExists),
        status=status.HTTP_201_CREATED,
    ),
    served(operations.LIST_TOKENS, "access", _Administration, *COMMON, PermissionDenied),
    served(operations.REVOKE_TOKEN, "access", _Administration, *COMMON, PermissionDenied, TokenNotFound),
    served(
        operations.GRANT_ROLE,
        "access",
        _Administration,
        *(*COMMON, PermissionDenied, TableNotFound, AmbiguousTable),
    ),
    served(operations.LIST_GRANTS, "access", _Administration, *COMMON),
    served(
        operations.REVOKE_ROLE,
        "access",
        _Administration,
        *(*COMMON, PermissionDenied, TableNotFound, AmbiguousTable, GrantNotFound),
    ),
    served(
        operations.VEND_CREDENTIALS,
        "access",
        Route,  # Answers are not stored under a key: they contain a secret.
        *(*_OPEN, CredentialVendingUnsupported, StorageDenied, StorageError),
        answer=_unstored,
    ),
    served(operations.LIST_AUDIT, "access", Route, *COMMON, PermissionDenied, TableNotFound, AmbiguousTable),
    *probes_routes.config_router.routes,
    *(route for router in iceberg_catalog_routes.routers for route in router.routes),
    *(route for router in uc_delta_routes.routers for route in router.routes),
    *(route for router in uc_preview_routes.routers for route in router.routes),
    *(route for router in uc_classic_routes.routers for route in router.routes),
)
"""All services of a process share them: include_router() would make each of them again for every application."""
