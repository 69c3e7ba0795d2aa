"""Maintenance policies: their settings, which apply to a table, and when runs must not start."""

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol, TypeAlias, TypeVar

__all__ = [
    "CheckpointConfig",
    "CompactionConfig",
    "DvCompactionConfig",
    "DvPurgeConfig",
    "PolicyConfig",
    "PolicyType",
    "VacuumConfig",
    "applicable",
    "is_quiet",
]

PolicyType: TypeAlias = Literal[
    "system.data-compaction",
    "system.dv-purge",
    "system.dv-compaction",
    "system.checkpoint",
    "system.vacuum",
]


class _Attached(Protocol):
    """A policy, as far as it matters to which tables it applies."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> PolicyType: ...

    @property
    def table_id(self) -> str | None: ...

    @property
    def pattern(self) -> str | None: ...


_Policy = TypeVar("_Policy", bound=_Attached)


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """Settings of all policies, named as in the catalogs' policies.

    Attributes:
        quiet_hours: ``HH:MM-HH:MM`` in UTC, during which no run starts; may span midnight.
        min_interval_hours: minimum time between the starts of two runs on a table.
    """

    quiet_hours: Sequence[str] = field(default_factory=list)
    min_interval_hours: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CompactionConfig(PolicyConfig):
    """OPTIMIZE.

    Attributes:
        target_file_size_bytes: of new files; None for the table's setting.
        max_deleted_ratio: files with a larger share of deleted rows are rewritten, whatever their size.
        min_files_saved: a run must reduce the files to open by at least this many, or gain ``min_gain_bytes``.
        min_gain_bytes: bytes of deleted rows that justify a run.
        max_bytes_per_run: the budget: bytes of files to rewrite.
        max_memory_bytes: for rows held at once; others are spilled to disk. None for all memory of the process.
        rewrite: "always" decodes and re-encodes all rows, "auto" copies row groups where that is as good for readers.
    """

    target_file_size_bytes: int | None = None
    max_deleted_ratio: float = 0.05
    min_files_saved: int = 10
    min_gain_bytes: int = 1 << 30
    max_bytes_per_run: int | None = None
    max_memory_bytes: int | None = None
    rewrite: Literal["auto", "always"] = "auto"


@dataclass(frozen=True, kw_only=True)
class DvPurgeConfig(PolicyConfig):
    """PURGE of files with many deleted rows.

    Attributes:
        min_deleted_ratio: only files with a larger share of deleted rows are rewritten; 0 for all with a deletion vector.
        min_gain_bytes: minimum bytes of deleted rows for a run.
        max_bytes_per_run: the budget: bytes of files to rewrite.
        max_memory_bytes: for rows held at once; others are spilled to disk. None for all memory of the process.
    """

    min_deleted_ratio: float = 0.05
    min_gain_bytes: int = 0
    max_bytes_per_run: int | None = None
    max_memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class DvCompactionConfig(PolicyConfig):
    """Compaction of deletion vectors in many small files, or in files that are mostly unused.

    Attributes:
        min_files_saved: a run must save at least this many deletion vector files, or gain ``min_gain_bytes``.
        min_gain_bytes: bytes of dead deletion vectors that justify a run.
    """

    min_files_saved: int = 10
    min_gain_bytes: int = 64 << 20


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(PolicyConfig):
    """A checkpoint.

    Attributes:
        min_commits: commits since the newest checkpoint.
        clean_up: whether to also delete log files past ``delta.logRetentionDuration``.
    """

    min_commits: int = 20
    clean_up: bool = False


@dataclass(frozen=True, kw_only=True)
class VacuumConfig(PolicyConfig):
    """VACUUM, never with a shorter retention than the table's.

    Attributes:
        mode: ``lite`` reads only the log.
        retention_hours: None for ``delta.deletedFileRetentionDuration``.
        min_gain_bytes: minimum bytes to delete for a run.
    """

    min_interval_hours: float = 24.0
    mode: Literal["full", "lite"] = "full"
    retention_hours: float | None = None
    min_gain_bytes: int = 1


def applicable(policies: Iterable[_Policy], table_id: str, name: str) -> dict[PolicyType, _Policy]:
    """Return the applicable policy of each type.

    A policy attached to the table takes precedence over one by pattern, and that over one for all tables; among patterns
    the longest wins, then the first by name. The winner replaces the others entirely, including ``enable``.
    """
    ranked = sorted(
        (policy for policy in policies if _is_about(policy, table_id, name)),
        key=lambda policy: (policy.table_id is None, -len(policy.pattern or ""), policy.name),
    )
    found: dict[PolicyType, _Policy] = {}
    for policy in ranked:
        found.setdefault(policy.type, policy)
    return found


def _is_about(policy: _Attached, table_id: str, name: str) -> bool:
    if policy.table_id is not None:
        return policy.table_id == table_id
    return policy.pattern is None or fnmatch.fnmatchcase(name, policy.pattern)


def is_quiet(hours: Sequence[str], now: datetime) -> str | None:
    """Return the quiet hours that contain ``now``, or None.

    Args:
        hours: ``HH:MM-HH:MM`` in UTC, end exclusive; may span midnight. Equal times mean the whole day.
        now: with a time zone.
    """
    time = f"{now.astimezone(UTC):%H:%M}"
    for span in hours:
        start, _, end = span.partition("-")
        inside = start <= time < end if start < end else time >= start or time < end
        if inside:
            return span
    return None
