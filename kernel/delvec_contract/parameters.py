"""The parameters of requests: those of their query, a class per operation, and those of their path.

Tested in `tests/integration/contract/test_table_service.py`.
"""

from typing import Annotated, Final, TypeAlias

from pydantic import BaseModel, Field, StringConstraints

from delvec_contract.access import AuditOutcome, StorageOperation
from delvec_contract.events import EventType
from delvec_contract.health_metrics import HealthOrder
from delvec_contract.policies import RunState
from delvec_contract.shapes import Column, Envelope
from delvec_maintenance.policies import PolicyType

__all__ = [
    "LONGEST_TOKEN",
    "AccessParameters",
    "AllConflictsParameters",
    "AllTasksParameters",
    "AuditParameters",
    "CheckParameters",
    "ConflictsParameters",
    "CredentialsParameters",
    "DetailParameters",
    "DroppedTablesParameters",
    "EventsParameters",
    "GrantParameters",
    "GrantsParameters",
    "HealthListParameters",
    "HealthParameters",
    "HealthSamplesParameters",
    "HistoryParameters",
    "LeaseParameters",
    "OutcomeParameters",
    "PathParameters",
    "RunsParameters",
    "SnapshotParameters",
    "TablesParameters",
]

LONGEST_TOKEN: Final = 4096
"""Of a page: the longest name of a table fits, whatever its characters."""

_Version: TypeAlias = Annotated[int | None, Field(ge=0, lt=2**63)]
_Time: TypeAlias = Annotated[str | None, Field(max_length=64)]
_Moment: TypeAlias = Annotated[_Time, Field(description="ISO 8601; UTC if it has no time zone.")]
_PageSize: TypeAlias = Annotated[int, Field(ge=1, le=1000)]
_PageToken: TypeAlias = Annotated[str, Field(max_length=LONGEST_TOKEN)]
_Path: TypeAlias = Annotated[str, StringConstraints(max_length=2000)]


class Parameters(BaseModel):
    """Parameters of a query, whose length the URL limits: kebab-case; unknown ones are errors."""

    model_config = Envelope.model_config


class PathParameters(Parameters):
    """Those of the paths of all operations; each path has some."""

    table: str = Field(default="", max_length=200, description="The table's name or id.")
    dropped: str = Field(
        default="",
        max_length=200,
        description="A dropped table, by id, or by name: the one that was dropped last.",
    )
    quarantine: str = Field(
        default="",
        max_length=64,
        pattern=r"^[0-9A-Za-z][0-9A-Za-z-]*$",
        description="The name of the quarantine.",
    )
    policy: str = Field(default="", max_length=128, description="The policy's name.")
    token: str = Field(default="", max_length=128, description="The token's name.")
    transaction: str = Field(default="", max_length=128, description="The transaction's id.")


class TablesParameters(Parameters):
    """Which tables to list."""

    location: str | None = Field(
        default=None,
        description="Only the table at this location: one or none. The request does not register it.",
    )
    namespace: str | None = Field(
        default=None,
        max_length=128,
        description="Only tables with names of the form `<namespace>.<something>`.",
    )
    page_size: _PageSize = 100
    page_token: _PageToken = ""


class ForgetParameters(Parameters):
    """What happens to the files of a table that is dropped."""

    purge: bool = Field(
        default=False,
        description="Its files are to go, too: it becomes a dropped table, as a managed one does, which is deleted with "
        "`POST /v1/dropped-tables/{id}/delete`, or by maintenance when the time is over.",
    )


class DroppedTablesParameters(Parameters):
    """Which dropped tables to list."""

    page_size: _PageSize = 100
    page_token: _PageToken = ""


class SnapshotParameters(Parameters):
    """Which version to describe."""

    range: list[Column] | None = Field(
        default=None,
        max_length=32,
        description="Also return the minimum and maximum of this column, if statistics determine them exactly; may be "
        "given several times.",
    )
    version: _Version = None
    timestamp: _Moment = None


class DetailParameters(Parameters):
    """Which version to describe."""

    version: _Version = None
    timestamp: _Moment = None


class HistoryParameters(Parameters):
    """Which commits to list."""

    limit: int | None = Field(
        default=None, ge=1, lt=2**31, description="How many commits to return, newest first."
    )


class OutcomeParameters(Parameters):
    """Which commit to look for."""

    transaction_id: str = Field(min_length=1, max_length=128)
    read_version: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="The version that the commit read; without it, the newest 10,000 versions are searched.",
    )


class ConflictsParameters(Parameters):
    """Which conflicts of a table to list."""

    since: _Time = Field(
        default=None,
        description=(
            "Only conflicts and counts at or after this time, in ISO 8601; UTC if it has no time zone."
        ),
    )
    limit: int = Field(default=100, ge=1, le=1000, description="How many conflicts to return, newest first.")


class AllConflictsParameters(Parameters):
    """Which conflicts of all tables to list."""

    since: _Time = Field(
        default=None,
        description="Only conflicts at or after this time, in ISO 8601; UTC if it has no time zone. By default those of the last 7 days.",
    )
    limit: int = Field(default=100, ge=1, le=1000, description="How many conflicts to return, newest first.")


class HealthParameters(Parameters):
    """What to report of a table's health."""

    files: int = Field(
        default=0, ge=0, le=1000, description="How many files to list per recommendation, costliest first."
    )
    partitions: int = Field(
        default=0, ge=0, le=10_000, description="How many partitions to report on, costliest first."
    )
    file: list[_Path] | None = Field(
        default=None,
        max_length=16,
        description=(
            "Live files, by their paths in the log, to look up in storage in addition to a sample: those that could "
            "not be read. Repeatable."
        ),
    )
    column: list[Column] | None = Field(
        default=None,
        max_length=32,
        description=(
            "Also report how much files overlap in this column or struct field; repeatable. Clustering columns "
            "are always included."
        ),
    )
    version: _Version = None
    timestamp: _Moment = None


class HealthSamplesParameters(Parameters):
    """Which samples of a table's health to list."""

    since: _Time = Field(
        default=None,
        description="Only samples at or after this time, in ISO 8601; UTC if it has no time zone.",
    )
    limit: int = Field(
        default=1000, ge=1, le=100_000, description="How many samples to return, newest first."
    )


class HealthListParameters(Parameters):
    """Which tables to list, and in which order."""

    order_by: HealthOrder = Field(
        default="score",
        description="Sort order: the lowest score first, or the highest value of another measure.",
    )
    min_deleted_ratio: float | None = Field(
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Only tables with at least this share of their rows known to be deleted.",
    )
    search: str | None = Field(
        default=None,
        max_length=128,
        description="Only tables whose names contain this text, ignoring case.",
    )
    namespace: str | None = Field(
        default=None,
        max_length=128,
        description="Only tables of this namespace: the part of a name before its last dot; empty for names without one.",
    )
    page_size: _PageSize = 100
    page_token: _PageToken = ""


class EventsParameters(Parameters):
    """Which events to list."""

    cursor: str | None = Field(
        default=None,
        max_length=32,
        pattern="^(latest|[0-9a-f]{8}-[0-9]{1,19})$",
        description="Only events after this one's `sequence`, or this answer's `cursor`; `latest`: only new ones.",
    )
    table: str | None = Field(
        default=None, max_length=200, description="Only events of this table, by name or id."
    )
    namespace: str | None = Field(
        default=None, max_length=128, description="Only events of the tables of this namespace."
    )
    type: list[EventType] | None = Field(
        default=None, max_length=10, description="Only events of these types."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="How many events to return.")
    wait: float = Field(
        default=0,
        ge=0,
        le=60,
        allow_inf_nan=False,
        description="Seconds to wait for an event if there is none.",
    )


class CheckParameters(Parameters):
    """What to check."""

    data_files: bool = Field(default=True, description="Also look up every live data file in storage.")
    iceberg: bool = Field(
        default=False,
        description=(
            "Also check the published Iceberg metadata against the files and deleted rows of the Delta table."
        ),
    )


class LeaseParameters(Parameters):
    """Whose lease to release."""

    owner: str = Field(max_length=128, description="Who holds the lease; another holder's lease stays.")


class RunsParameters(Parameters):
    """Which maintenance runs to list."""

    table: str | None = Field(
        default=None, max_length=200, description="Only runs on this table, by name or id."
    )
    since: _Time = Field(
        default=None,
        description="Only runs that began at or after this time, in ISO 8601; UTC if it has no time zone.",
    )
    type: PolicyType | None = Field(default=None, description="Only runs of this type.")
    state: RunState | None = Field(default=None, description="Only runs that succeeded, or that failed.")
    limit: int = Field(default=100, ge=1, le=10_000, description="How many runs to return, newest first.")


class AllTasksParameters(Parameters):
    """Which tasks to list."""

    limit: int = Field(default=100, ge=1, le=1000, description="How many tasks to return.")


class AccessParameters(Parameters):
    """What to tell of the caller."""

    table: str | None = Field(
        default=None,
        max_length=200,
        description="Also return the caller's role on this table; name or id.",
    )


class GrantsParameters(Parameters):
    """Which grants to list."""

    grantee: str | None = Field(default=None, max_length=256, description="Only the grants of this grantee.")


class GrantParameters(Parameters):
    """Which grant to revoke."""

    grantee: str = Field(max_length=256, description="Whose role to revoke.")
    table: str | None = Field(
        default=None, max_length=200, description="The table the role was granted on, by name or id."
    )
    pattern: str | None = Field(
        default=None, max_length=128, description="The name pattern the role was granted on."
    )
    namespace: str | None = Field(
        default=None, max_length=128, description="The namespace the role was granted on."
    )
    all_tables: bool = Field(default=False, description="The role was granted on everything.")


class AuditParameters(Parameters):
    """Which entries of the audit log to list."""

    table: str | None = Field(
        default=None, max_length=200, description="Only entries about this table, by name or id."
    )
    principal: str | None = Field(default=None, max_length=256, description="Only entries of this principal.")
    outcome: AuditOutcome | None = Field(default=None, description="Only requests with this outcome.")
    since: _Time = Field(
        default=None,
        description="Only entries at or after this time, in ISO 8601; UTC if it has no time zone.",
    )
    page_size: _PageSize = 100
    page_token: str = Field(default="", max_length=32, pattern="^([0-9a-f]{30})?$")


class CredentialsParameters(Parameters):
    """Which credentials to issue."""

    operation: StorageOperation = Field(
        default="READ",
        description="`READ` for readers of the table; `READ_WRITE`, which can write data files, for its writers.",
    )
