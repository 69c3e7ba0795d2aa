"""Request bodies of the Iceberg REST catalog protocol; fields that are not used are ignored."""

from typing import Annotated

from pydantic import Field

from delvec_contract.shapes import Answer, JsonObject

__all__ = ["FetchScanTasksRequest", "PlanTableScanRequest", "PlanTask"]

_SnapshotId = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class PlanTableScanRequest(Answer):
    """The snapshot and rows to scan."""

    snapshot_id: _SnapshotId | None = None
    start_snapshot_id: _SnapshotId | None = None
    end_snapshot_id: _SnapshotId | None = None
    filter: JsonObject | bool | None = Field(
        default=None, description="An expression of Iceberg, which the answer repeats."
    )


class PlanTask(Answer):
    """The content of a plan task."""

    snapshot_id: _SnapshotId
    manifest: str = Field(max_length=1024)
    filter: JsonObject | bool | None = None


class FetchScanTasksRequest(Answer):
    """A task of a plan."""

    plan_task: str = Field(max_length=1_000_000)
