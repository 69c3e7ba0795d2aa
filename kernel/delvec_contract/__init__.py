"""The bodies of HTTP requests and responses.

Envelope fields are kebab-case; Delta actions, descriptors and metrics keep Delta's spelling.
The service converts these to its domain classes.

Tested in `tests/integration/service/test_openapi_conformance.py`.
"""

from delvec_contract.alterations import AlterRequest
from delvec_contract.commands import (
    DeleteRequest,
    OptimizePlan,
    OptimizeRequest,
    PlannedFiles,
    Rewrite,
    UpdateRequest,
)
from delvec_contract.commits import (
    AllocatedDeletionVector,
    AllocatedVectorFile,
    AllocateRequest,
    AllocateResponse,
    BeginRequest,
    BeginResponse,
    CommitOutcome,
    CommitRequest,
    CommitResponse,
)
from delvec_contract.health import HealthResponse, HealthSample
from delvec_contract.plans import (
    AdditionsResponse,
    ChangedFile,
    ChangesResponse,
    PlanFile,
    PlanRequest,
    PlanResponse,
    StreamPosition,
)
from delvec_contract.policies import PlannedMaintenance
from delvec_contract.shapes import ErrorBody
from delvec_contract.tables import SnapshotResponse, TableRequest, TableResource, TablesResponse
from delvec_contract.transactions import (
    CommittedTable,
    SnapshotsResponse,
    TransactionOutcome,
    TransactionRequest,
    TransactionResponse,
)

__all__ = [
    "AdditionsResponse",
    "AllocateRequest",
    "AllocateResponse",
    "AllocatedDeletionVector",
    "AllocatedVectorFile",
    "AlterRequest",
    "BeginRequest",
    "BeginResponse",
    "ChangedFile",
    "ChangesResponse",
    "CommitOutcome",
    "CommitRequest",
    "CommitResponse",
    "CommittedTable",
    "DeleteRequest",
    "ErrorBody",
    "HealthResponse",
    "HealthSample",
    "OptimizePlan",
    "OptimizeRequest",
    "PlanFile",
    "PlanRequest",
    "PlanResponse",
    "PlannedFiles",
    "PlannedMaintenance",
    "Rewrite",
    "SnapshotResponse",
    "SnapshotsResponse",
    "StreamPosition",
    "TableRequest",
    "TableResource",
    "TablesResponse",
    "TransactionOutcome",
    "TransactionRequest",
    "TransactionResponse",
    "UpdateRequest",
]
