"""The bodies of HTTP requests and answers.

Envelope fields are kebab-case; Delta actions, descriptors and metrics keep Delta's own spelling.
These are wire shapes, not the domain: the service turns them into its own actions.
"""

from delvec.protocol.wire.actions import (
    AddFile,
    DeletionVectorDescriptor,
    RemoveFile,
)
from delvec.protocol.wire.commits import (
    AllocatedDeletionVector,
    AllocateRequest,
    AllocateResponse,
    AppTransaction,
    BeginRequest,
    BeginResponse,
    CommitReads,
    CommitRequest,
    CommitResponse,
    FileRows,
    RewrittenFile,
    RowDelete,
    RowRun,
)
from delvec.protocol.wire.plans import (
    PlanFile,
    PlanRequest,
    PlanResponse,
)
from delvec.protocol.wire.problems import (
    ErrorBody,
    ErrorEnvelope,
)
from delvec.protocol.wire.tables import (
    DetailResponse,
    HistoryEntry,
    HistoryResponse,
    SnapshotResponse,
    TableRequest,
    TableResource,
    TablesResponse,
)
from delvec.protocol.wire.upkeep import (
    CheckpointRequest,
    CheckpointResponse,
    ConfigResponse,
    HealthResponse,
    LogCleanUp,
    Recommendation,
)

__all__ = [
    "AddFile",
    "AllocateRequest",
    "AllocateResponse",
    "AllocatedDeletionVector",
    "AppTransaction",
    "BeginRequest",
    "BeginResponse",
    "CheckpointRequest",
    "CheckpointResponse",
    "CommitReads",
    "CommitRequest",
    "CommitResponse",
    "ConfigResponse",
    "DeletionVectorDescriptor",
    "DetailResponse",
    "ErrorBody",
    "ErrorEnvelope",
    "FileRows",
    "HealthResponse",
    "HistoryEntry",
    "HistoryResponse",
    "LogCleanUp",
    "PlanFile",
    "PlanRequest",
    "PlanResponse",
    "Recommendation",
    "RemoveFile",
    "RewrittenFile",
    "RowDelete",
    "RowRun",
    "SnapshotResponse",
    "TableRequest",
    "TableResource",
    "TablesResponse",
]
