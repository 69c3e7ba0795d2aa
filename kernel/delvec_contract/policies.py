"""Maintenance policies, in the format of the catalogs' policy APIs, and their runs.

Tested in `tests/integration/service/api/test_policies.py`.
"""

from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from delvec_contract.codec import Body
from delvec_contract.shapes import (
    Answer,
    Envelope,
    JsonObject,
    Long,
    NamePattern,
    Text,
    TransactionId,
    in_words,
)
from delvec_maintenance import policies
from delvec_maintenance.policies import PolicyType

__all__ = [
    "POLICY_NAME",
    "LeaseRequest",
    "LeaseResponse",
    "MaintenancePlanResponse",
    "MaintenanceRun",
    "MaintenanceRunsResponse",
    "MaintenanceTask",
    "MaintenanceTasksResponse",
    "PlannedMaintenance",
    "PoliciesResponse",
    "Policy",
    "PolicyContent",
    "PolicyRequest",
    "RunState",
    "TaskReport",
    "TaskState",
    "config_of",
]

POLICY_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_.\-]*$"
_HOURS: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$"

RunState: TypeAlias = Literal["done", "failed"]
TaskState: TypeAlias = Literal["running", "done", "failed", "lost"]
TaskOperation: TypeAlias = Annotated[str, Field(max_length=64, pattern=r"^[A-Z][A-Z ]*$")]
TaskEngine: TypeAlias = Annotated[str, Field(max_length=128, pattern=r"^[ -~]*$")]
_Version: TypeAlias = Literal["2025-02-03"]


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("is outside the years 1 to 9999 in UTC") from None


# Strict, so that true is not accepted as a number.
_Ratio: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
_Hours: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)]
_Size: TypeAlias = Annotated[int, Field(strict=True, ge=1, lt=2**63)]
_Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
_Change: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Moment: TypeAlias = Annotated[AwareDatetime, AfterValidator(_in_utc)]


_Span: TypeAlias = Annotated[
    str, Field(pattern=_HOURS), in_words(_HOURS, "a span of hours is like 08:00-20:00 or 23:00-01:00, in UTC")
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


_COMMON_FIELDS: Final[dict[str, Any]] = {
    "quiet_hours": Annotated[list[_Span], Field(max_length=24)],
    "min_interval_hours": _Hours,
}
_BUDGET: Final[dict[str, Any]] = {
    "max_bytes_per_run": _Size | None,
    "max_memory_bytes": Annotated[int, Field(strict=True, ge=128 << 20, lt=2**63)] | None,
}
_CompactionConfig: TypeAlias = Annotated[
    policies.CompactionConfig,
    Body(
        _Strict,
        target_file_size_bytes=_Size | None,
        max_deleted_ratio=_Ratio,
        min_files_saved=_Count,
        min_gain_bytes=_Count,
        **_BUDGET,
        **_COMMON_FIELDS,
    ),
]
_DvPurgeConfig: TypeAlias = Annotated[
    policies.DvPurgeConfig,
    Body(_Strict, min_deleted_ratio=_Ratio, min_gain_bytes=_Count, **_BUDGET, **_COMMON_FIELDS),
]
_DvCompactionConfig: TypeAlias = Annotated[
    policies.DvCompactionConfig, Body(_Strict, min_files_saved=_Size, min_gain_bytes=_Size, **_COMMON_FIELDS)
]
_CheckpointConfig: TypeAlias = Annotated[
    policies.CheckpointConfig, Body(_Strict, min_commits=_Size, clean_up=StrictBool, **_COMMON_FIELDS)
]
_VacuumConfig: TypeAlias = Annotated[
    policies.VacuumConfig,
    Body(_Strict, retention_hours=_Hours | None, min_gain_bytes=_Count, **_COMMON_FIELDS),
]
_CONFIGS: Final[dict[str, Any]] = {
    "system.data-compaction": _CompactionConfig,
    "system.dv-purge": _DvPurgeConfig,
    "system.dv-compaction": _DvCompactionConfig,
    "system.checkpoint": _CheckpointConfig,
    "system.vacuum": _VacuumConfig,
}


@cache
def _adapter(policy_type: str) -> TypeAdapter[policies.PolicyConfig]:
    return TypeAdapter(_CONFIGS[policy_type])


def config_of(policy_type: str, config: dict[str, Any]) -> policies.PolicyConfig:
    """Return the config of a policy, with defaults.

    Raises:
        ValueError: it has unknown fields or invalid values; names them.
    """
    try:
        return _adapter(policy_type).validate_python(config)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part)[:100] for part in first["loc"]) or "config"
        problem = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            fields = ", ".join(sorted(_adapter(policy_type).json_schema()["properties"]))
            problem = f"is not a field of {policy_type}; it has {fields}"
        raise ValueError(f"config: {where} {problem}") from None


class PolicyContent(Envelope):
    """The policy itself: the JSON that catalogs store."""

    version: _Version = Field(default="2025-02-03", description="The format version of this document.")
    enable: StrictBool = Field(
        description="If false, nothing is done, even if a policy attached to more tables says otherwise."
    )
    config: JsonObject = Field(
        default_factory=dict, description="The fields depend on the type; absent fields have defaults."
    )


class PolicyRequest(Envelope):
    """A policy and what it is attached to: a table, all tables whose names match a pattern, or all."""

    name: Annotated[
        str,
        Field(max_length=128, pattern=POLICY_NAME),
        in_words(
            POLICY_NAME,
            "a policy's name has letters, digits and _ . -, and starts with a letter or _: nightly-purge",
        ),
    ] = Field(description="An existing policy of that name is replaced.")
    type: PolicyType = Field(description="What to do.")
    content: PolicyContent = Field(description="When, and how.")
    table: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="The table that the policy is attached to, by name or id."
    )
    pattern: NamePattern | None = Field(
        default=None,
        description=(
            "The names of the tables that the policy is attached to: `*` matches any text, `?` any character."
        ),
    )

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.table is not None and self.pattern is not None:
            raise ValueError("give a table, a pattern, or neither for all tables")
        config_of(self.type, self.content.config)
        return self


class Policy(Answer):
    """A stored policy."""

    name: str
    type: PolicyType = Field(description="What to do.")
    content: PolicyContent = Field(description="When, and how.")
    table_id: str | None = Field(
        description=("The table that the policy is attached to; absent if there are several.")
    )
    pattern: str | None = Field(
        description=(
            "The table names that the policy is attached to; if table and pattern are absent, all tables."
        )
    )
    updated_at: datetime = Field(description="ISO 8601.")


class PoliciesResponse(Answer):
    """Policies, by name."""

    policies: list[Policy] = Field(
        description=("All policies; for a table, the ones that apply, one per type.")
    )


class LeaseRequest(Envelope):
    """A request to maintain a table, exclusively for a limited time."""

    owner: TransactionId = Field(description="Unique for each process that runs maintenance.")
    seconds: float = Field(ge=1, le=3600, allow_inf_nan=False, description="How long the lease lasts.")


class LeaseResponse(Answer):
    """The lease; the same owner may extend it."""

    owner: str = Field(description="Who holds the lease.")
    expires_at: datetime = Field(description="When the lease ends; ISO 8601.")


class MaintenanceRun(Envelope):
    """A maintenance run on a table: what it did, why, and the result."""

    id: TransactionId = Field(description="The id of the run.")
    table: Annotated[str, Field(max_length=200)] = Field(default="", description="The table's name.")
    policy: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="The policy of the run; absent if it had none."
    )
    type: PolicyType = Field(description="What was done.")
    state: RunState = Field(description="How the run ended.")
    reason: Annotated[Text, Field(max_length=2000)] = Field(description="Why the run was worthwhile.")
    started_at: _Moment = Field(description="ISO 8601 with a zone.")
    ended_at: _Moment = Field(description="ISO 8601 with a zone.")
    cost_bytes: _Change | None = Field(default=None, description="Bytes that were expected to be rewritten.")
    predicted_gain_bytes: _Change | None = Field(
        default=None, description="Bytes that scans would no longer read, or that would be freed in storage."
    )
    measured_gain_bytes: _Change | None = Field(default=None, description="The same, as measured afterwards.")
    predicted_gain_files: _Change | None = Field(default=None, description="The expected reduction in files.")
    measured_gain_files: _Change | None = Field(default=None, description="The same, as measured afterwards.")
    version: Long | None = Field(default=None, description="The last version that it created.")
    error: Annotated[Text, Field(max_length=2000)] | None = Field(
        default=None, description="What went wrong; changes made before the error stay."
    )


class TaskReport(Envelope):
    """Progress of a task: sent every second while it runs, and once when it ends."""

    id: TransactionId = Field(description="The task's id.")
    operation: TaskOperation = Field(description="What it does.")
    engine: TaskEngine = Field(description="What runs it.")
    state: Literal["running", "done", "failed"] = Field(description="Whether it runs, or how it ended.")
    elapsed_seconds: float = Field(ge=0, le=1e8, allow_inf_nan=False, description="Seconds since it started.")
    num_files: Long = Field(description="Files to rewrite.")
    files_done: Long = Field(description="How many of them were rewritten.")
    size_in_bytes: Long = Field(description="Bytes of the files to rewrite.")
    bytes_done: Long = Field(description="How many of them were rewritten.")


class MaintenanceTask(Answer):
    """Maintenance that is running, or ended less than a day ago."""

    id: str = Field(description="The task's id.")
    operation: str = Field(description="What it does.")
    engine: str = Field(description="What runs it.")
    principal: str | None = Field(description="Who started it; absent if the service requires no tokens.")
    state: TaskState = Field(
        description="`lost`: it has not reported for a minute; its process may be dead. Its commits stay."
    )
    started_at: datetime = Field(description="ISO 8601.")
    updated_at: datetime = Field(description="When it last reported; ISO 8601.")
    num_files: int = Field(description="Files to rewrite.")
    files_done: int = Field(description="How many of them were rewritten.")
    size_in_bytes: int = Field(description="Bytes of the files to rewrite.")
    bytes_done: int = Field(description="How many of them were rewritten.")
    bytes_per_second: float | None = Field(description="On average; absent before the first byte.")
    seconds_left: float | None = Field(
        description="At that rate; absent before the first byte, and if it does not run."
    )


class MaintenanceTasksResponse(Answer):
    """Tasks, newest first."""

    tasks: list[MaintenanceTask] = Field(
        description="The running tasks, and those that ended less than a day ago."
    )


class PlannedMaintenance(Answer):
    """What a policy would do to a table now."""

    policy: str | None = Field(description="The policy's name; absent if no policy could be examined.")
    type: PolicyType | None = Field(description="What it does.")
    state: Literal["due", "not-due", "failed", "done", "elsewhere"] = Field(
        description="`due`: it would run. `failed`: this could not be determined; see the reason."
    )
    reason: str = Field(description="Why, or why not.")
    cost_bytes: int | None = Field(description="Bytes that would be rewritten.")
    predicted_gain_bytes: int | None = Field(
        description="Bytes that scans would no longer read, or that would be freed in storage."
    )
    predicted_gain_files: int | None = Field(description="The expected reduction in files.")


class MaintenancePlanResponse(Answer):
    """What the applicable policies would do to a table now, and why."""

    table: str
    planned: list[PlannedMaintenance] = Field(description="One entry per enabled policy, in order.")


class MaintenanceRunsResponse(Answer):
    """Runs, newest first."""

    runs: list[MaintenanceRun] = Field(description="The runs, newest first.")
