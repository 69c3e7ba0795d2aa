"""The operations of the service that clients call: name, method, path and the body of the answer.

An operation's name is that of its handler, and its ``operationId`` in the OpenAPI document.

Tested in `tests/integration/contract/test_operations.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from delvec_contract import parameters
from delvec_contract.access import (
    AccessResponse,
    AuditResponse,
    CreatedToken,
    CredentialsResponse,
    GrantRequest,
    GrantsResponse,
    RoleGrant,
    TokenRequest,
    TokenResource,
    TokensResponse,
)
from delvec_contract.alterations import AlterRequest, AlterResponse
from delvec_contract.commits import (
    AllocateRequest,
    AllocateResponse,
    BeginRequest,
    BeginResponse,
    CommitOutcome,
    CommitResponse,
)
from delvec_contract.conflicts import ConflictsResponse
from delvec_contract.events import EventsResponse
from delvec_contract.fleet import FleetConflictsResponse, FleetResponse, FleetTasksResponse
from delvec_contract.health import HealthListResponse, HealthResponse, HealthSamplesResponse
from delvec_contract.maintenance import (
    CheckpointRequest,
    CheckpointResponse,
    CheckResponse,
    GenerateRequest,
    GenerateResponse,
    IcebergRequest,
    IcebergResponse,
    PurgeResponse,
    QuarantinesResponse,
    RepackRequest,
    RepackResponse,
    RepairRequest,
    RepairResponse,
    RestoreRequest,
    RestoreResponse,
    UndoResponse,
    VacuumRequest,
    VacuumResponse,
)
from delvec_contract.plans import (
    AdditionsRequest,
    AdditionsResponse,
    ChangesRequest,
    ChangesResponse,
    PlanRequest,
    PlanResponse,
)
from delvec_contract.policies import (
    LeaseRequest,
    LeaseResponse,
    MaintenanceRun,
    MaintenanceRunsResponse,
    MaintenanceTasksResponse,
    PoliciesResponse,
    Policy,
    PolicyRequest,
    TaskReport,
)
from delvec_contract.tables import (
    CloneRequest,
    CloneResponse,
    ConvertRequest,
    ConvertResponse,
    DeleteDroppedRequest,
    DeletedTableResponse,
    DetailResponse,
    DroppedTablesResponse,
    HistoryResponse,
    RenameRequest,
    SnapshotResponse,
    TableRequest,
    TableResource,
    TablesResponse,
    UndropRequest,
)
from delvec_contract.transactions import (
    SnapshotsRequest,
    SnapshotsResponse,
    TransactionOutcome,
    TransactionRequest,
    TransactionResponse,
)

__all__ = ["Operation"]

Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True)
class Operation(Generic[Answer_co]):
    """One operation.

    Attributes:
        name: of its handler.
        method: of HTTP.
        path: below the service's URL, with the names of its parameters in braces.
        answer: the class of the answer's body; NoneType for none.
        request: the class of the request's body, or of its query if the method has no body; None for neither.
        is_harmless: whether repeating it does no harm, so that the service need not remember its answer.
        takes_long: whether the service may work on it for `DELVEC_MAINTENANCE_SECONDS`.
    """

    name: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    answer: type[Answer_co]
    request: type[BaseModel] | None = None
    is_harmless: bool = False
    takes_long: bool = False

    def filled(self, path: Mapping[str, str]) -> str:
        """Return the path with its parameters, URL-encoded."""
        return self.path.format(**{name: quote(value, safe="") for name, value in path.items()})

    @property
    def only_reads(self) -> bool:
        """Whether it changes nothing."""
        return self.method == "GET"


def _of_table(
    name: str,
    method: Literal["GET", "POST", "DELETE"],
    rest: str,
    answer: type[Answer_co],
    request: type[BaseModel] | None = None,
    **options: Any,
) -> Operation[Answer_co]:
    return Operation(name, method, "/v1/tables/{table}" + rest, answer, request, **options)


PLAN_SCAN: Final = _of_table("plan_scan", "POST", "/plan", PlanResponse, PlanRequest, is_harmless=True)
PLAN_CHANGES: Final = _of_table(
    "plan_of_changes", "POST", "/changes", ChangesResponse, ChangesRequest, is_harmless=True
)
PLAN_ADDITIONS: Final = _of_table(
    "plan_of_additions", "POST", "/additions", AdditionsResponse, AdditionsRequest, is_harmless=True
)
# A transaction begun twice is one row more in the ledger.
BEGIN: Final = _of_table(
    "begin_transaction", "POST", "/transactions", BeginResponse, BeginRequest, is_harmless=True
)
ALLOCATE: Final = _of_table(
    "allocate_deletion_vectors", "POST", "/deletion-vectors", AllocateResponse, AllocateRequest
)
COMMIT: Final = _of_table("commit", "POST", "/commits", CommitResponse)
FIND_COMMIT: Final = _of_table("find_commit", "GET", "/commits", CommitOutcome, parameters.OutcomeParameters)

# Its body has the key under which it takes effect once.
COMMIT_TRANSACTION: Final = Operation(
    "commit_transaction",
    "POST",
    "/v1/transactions",
    TransactionResponse,
    TransactionRequest,
    is_harmless=True,
)
FIND_TRANSACTION: Final = Operation(
    "find_transaction", "GET", "/v1/transactions/{transaction}", TransactionOutcome
)
GET_SNAPSHOTS: Final = Operation(
    "get_snapshots", "POST", "/v1/snapshots", SnapshotsResponse, SnapshotsRequest, is_harmless=True
)

REGISTER_TABLE: Final = Operation("register_table", "POST", "/v1/tables", TableResource, TableRequest)
# Nothing is created or stored.
BEGIN_TABLE: Final = Operation(
    "begin_table", "POST", "/v1/new-tables", BeginResponse, TableRequest, is_harmless=True
)
LIST_TABLES: Final = Operation(
    "list_tables", "GET", "/v1/tables", TablesResponse, parameters.TablesParameters
)
GET_TABLE: Final = _of_table("get_table", "GET", "", TableResource)
FORGET_TABLE: Final = _of_table("forget_table", "DELETE", "", NoneType, parameters.ForgetParameters)
LIST_DROPPED: Final = Operation(
    "list_dropped_tables",
    "GET",
    "/v1/dropped-tables",
    DroppedTablesResponse,
    parameters.DroppedTablesParameters,
)
UNDROP_TABLE: Final = Operation(
    "undrop_table", "POST", "/v1/dropped-tables/{dropped}/undrop", TableResource, UndropRequest
)
DELETE_DROPPED: Final = Operation(
    "delete_dropped_table",
    "POST",
    "/v1/dropped-tables/{dropped}/delete",
    DeletedTableResponse,
    DeleteDroppedRequest,
    takes_long=True,
)
RENAME_TABLE: Final = _of_table("rename_table", "POST", "/rename", TableResource, RenameRequest)
ALTER_TABLE: Final = _of_table("alter_table", "POST", "/alter", AlterResponse, AlterRequest)
CLONE_TABLE: Final = _of_table("clone_table", "POST", "/clone", CloneResponse, CloneRequest, takes_long=True)
CONVERT_TO_DELTA: Final = Operation(
    "convert_to_delta", "POST", "/v1/convert", ConvertResponse, ConvertRequest, takes_long=True
)
RESTORE_TABLE: Final = _of_table(
    "restore_table", "POST", "/restore", RestoreResponse, RestoreRequest, takes_long=True
)

GET_SNAPSHOT: Final = _of_table(
    "get_snapshot", "GET", "/snapshot", SnapshotResponse, parameters.SnapshotParameters
)
GET_HISTORY: Final = _of_table(
    "get_history", "GET", "/history", HistoryResponse, parameters.HistoryParameters
)
GET_DETAIL: Final = _of_table("get_detail", "GET", "/detail", DetailResponse, parameters.DetailParameters)
LIST_CONFLICTS: Final = _of_table(
    "list_conflicts", "GET", "/conflicts", ConflictsResponse, parameters.ConflictsParameters
)
LIST_ALL_CONFLICTS: Final = Operation(
    "list_all_conflicts", "GET", "/v1/conflicts", FleetConflictsResponse, parameters.AllConflictsParameters
)

GET_HEALTH: Final = _of_table("get_health", "GET", "/health", HealthResponse, parameters.HealthParameters)
LIST_HEALTH_SAMPLES: Final = _of_table(
    "list_health_samples", "GET", "/health/samples", HealthSamplesResponse, parameters.HealthSamplesParameters
)
LIST_HEALTH: Final = Operation(
    "list_health", "GET", "/v1/health", HealthListResponse, parameters.HealthListParameters
)
GET_FLEET: Final = Operation("get_fleet", "GET", "/v1/fleet", FleetResponse)
LIST_EVENTS: Final = Operation(
    "list_events", "GET", "/v1/events", EventsResponse, parameters.EventsParameters
)
CHECK_TABLE: Final = _of_table(
    "check_table", "GET", "/check", CheckResponse, parameters.CheckParameters, takes_long=True
)
REPAIR_TABLE: Final = _of_table(
    "repair_table", "POST", "/repair", RepairResponse, RepairRequest, takes_long=True
)
CHECKPOINT: Final = _of_table(
    "write_checkpoint", "POST", "/checkpoint", CheckpointResponse, CheckpointRequest, takes_long=True
)
GENERATE: Final = _of_table(
    "generate_manifests", "POST", "/generate", GenerateResponse, GenerateRequest, takes_long=True
)
CONVERT_TO_ICEBERG: Final = _of_table(
    "convert_to_iceberg", "POST", "/iceberg", IcebergResponse, IcebergRequest, takes_long=True
)
COMPACT_DELETION_VECTORS: Final = _of_table(
    "compact_deletion_vectors",
    "POST",
    "/deletion-vectors/compact",
    RepackResponse,
    RepackRequest,
    takes_long=True,
)
VACUUM: Final = _of_table("vacuum_table", "POST", "/vacuum", VacuumResponse, VacuumRequest, takes_long=True)
LIST_QUARANTINES: Final = _of_table(
    "list_quarantines", "GET", "/quarantines", QuarantinesResponse, takes_long=True
)
UNDO_VACUUM: Final = _of_table(
    "undo_vacuum", "POST", "/quarantines/{quarantine}/undo", UndoResponse, takes_long=True
)
PURGE_VACUUMED: Final = _of_table(
    "purge_vacuumed", "POST", "/quarantines/{quarantine}/purge", PurgeResponse, takes_long=True
)

LIST_POLICIES: Final = Operation("list_policies", "GET", "/v1/policies", PoliciesResponse)
SET_POLICY: Final = Operation("set_policy", "POST", "/v1/policies", Policy, PolicyRequest)
GET_POLICY: Final = Operation("get_policy", "GET", "/v1/policies/{policy}", Policy)
DROP_POLICY: Final = Operation("drop_policy", "DELETE", "/v1/policies/{policy}", NoneType)
LIST_APPLICABLE_POLICIES: Final = _of_table("list_applicable_policies", "GET", "/policies", PoliciesResponse)
LEASE_TABLE: Final = _of_table("lease_table", "POST", "/maintenance-lease", LeaseResponse, LeaseRequest)
RELEASE_TABLE: Final = _of_table(
    "release_table", "DELETE", "/maintenance-lease", NoneType, parameters.LeaseParameters
)
RECORD_RUN: Final = _of_table("record_run", "POST", "/maintenance-runs", MaintenanceRun, MaintenanceRun)
LIST_RUNS: Final = Operation(
    "list_runs", "GET", "/v1/maintenance-runs", MaintenanceRunsResponse, parameters.RunsParameters
)
REPORT_TASK: Final = _of_table(
    "report_task", "POST", "/maintenance-tasks", TaskReport, TaskReport, is_harmless=True
)
LIST_TASKS: Final = _of_table("list_tasks", "GET", "/maintenance-tasks", MaintenanceTasksResponse)
LIST_ALL_TASKS: Final = Operation(
    "list_all_tasks", "GET", "/v1/maintenance-tasks", FleetTasksResponse, parameters.AllTasksParameters
)

GET_ACCESS: Final = Operation("get_access", "GET", "/v1/access", AccessResponse, parameters.AccessParameters)
LIST_TOKENS: Final = Operation("list_tokens", "GET", "/v1/tokens", TokensResponse)
CREATE_TOKEN: Final = Operation("create_token", "POST", "/v1/tokens", CreatedToken, TokenRequest)
REVOKE_TOKEN: Final = Operation("revoke_token", "DELETE", "/v1/tokens/{token}", TokenResource)
LIST_GRANTS: Final = Operation(
    "list_grants", "GET", "/v1/grants", GrantsResponse, parameters.GrantsParameters
)
GRANT_ROLE: Final = Operation("grant_role", "POST", "/v1/grants", RoleGrant, GrantRequest)
REVOKE_ROLE: Final = Operation("revoke_role", "DELETE", "/v1/grants", NoneType, parameters.GrantParameters)
LIST_AUDIT: Final = Operation("list_audit", "GET", "/v1/audit", AuditResponse, parameters.AuditParameters)
VEND_CREDENTIALS: Final = _of_table(
    "vend_credentials", "GET", "/credentials", CredentialsResponse, parameters.CredentialsParameters
)
