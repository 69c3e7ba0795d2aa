"""The tasks of maintenance policies: decide whether a table needs one, and run it with the client's commands.

Tested in `tests/integration/client/test_maintenance.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from delvec_commands.dml.optimize_options import OptimizeOptions
from delvec_commands.dml.optimize_run import PlannedCompaction
from delvec_commands.maintained_table import MaintainedTable
from delvec_errors import InvalidTableChange
from delvec_errors.texts import counted
from delvec_kernel.table_properties import byte_size_text
from delvec_maintenance.policies import (
    CheckpointConfig,
    CompactionConfig,
    DvCompactionConfig,
    DvPurgeConfig,
    PolicyType,
    VacuumConfig,
)

__all__ = ["TASKS", "Task", "TaskDecision", "TaskOutcome"]


@dataclass(frozen=True)
class TaskDecision:
    """Whether a task is worth running now.

    Attributes:
        is_due: whether it is.
        reason: why, or why not.
        gain_bytes: bytes that scans would no longer read, or that would be freed; None if unknown.
        gain_files: fewer files to open or store.
        cost_bytes: bytes of files that would be rewritten.
    """

    is_due: bool
    reason: str
    gain_bytes: int | None = None
    gain_files: int | None = None
    cost_bytes: int | None = None


@dataclass(frozen=True)
class TaskOutcome:
    """The measured result; ``version`` is the last version that was committed."""

    gain_bytes: int | None = None
    gain_files: int | None = None
    version: int | None = None


class Task(Protocol):
    """One kind of maintenance."""

    def decide(self, table: MaintainedTable, config: Any) -> TaskDecision:
        """Decide whether the task is worth running now; changes nothing."""
        ...

    def perform(self, table: MaintainedTable, config: Any) -> TaskOutcome:
        """Run the task."""
        ...


class _Rewrite:
    """Shared steps of OPTIMIZE and PURGE."""

    @staticmethod
    def _options(config: Any) -> OptimizeOptions:
        raise NotImplementedError

    def perform(self, table: MaintainedTable, config: Any) -> TaskOutcome:
        """Rewrite files, within the budget."""
        metrics = table.optimize.run(self._options(config))
        return TaskOutcome(
            (metrics["numRemovedBytes"] or 0) - (metrics["numAddedBytes"] or 0),
            (metrics["numRemovedFiles"] or 0) - (metrics["numAddedFiles"] or 0),
            metrics.version,
        )

    def _over_budget(self, table: MaintainedTable, config: Any) -> str | None:
        """Return a reason if only the budget keeps files from being rewritten, else None."""
        if config.max_bytes_per_run is None:
            return None
        size = _planned(self._dry_run(table, config, max_bytes=None)).cost_bytes
        if not size:
            return None
        budget = byte_size_text(config.max_bytes_per_run)
        return f"max_bytes_per_run ({budget}) is too small for any of the {byte_size_text(size)} to rewrite"

    def _dry_run(self, table: MaintainedTable, config: Any, **changed: Any) -> Any:
        return table.optimize.run(replace(self._options(config), dry_run=True, **changed))


class _Purge(_Rewrite):
    """PURGE of files with many deleted rows."""

    def decide(self, table: MaintainedTable, config: DvPurgeConfig) -> TaskDecision:
        metrics = self._dry_run(table, config)
        prediction = _planned(metrics)
        share = f"with more than {config.min_deleted_ratio:.1%} deleted rows"
        if not prediction.cost_bytes:
            return TaskDecision(False, self._over_budget(table, config) or f"no files {share}")
        is_due = max(0, prediction.gain_bytes or 0) >= config.min_gain_bytes
        freed = byte_size_text(prediction.gain_bytes or 0)
        reason = f"{counted(metrics['numRemovedFiles'] or 0, 'file')} {share}: would free {freed}"
        if not is_due:
            reason += f", at least {byte_size_text(config.min_gain_bytes)} required"
        return _decision(prediction, reason, is_due)

    @staticmethod
    def _options(config: DvPurgeConfig) -> OptimizeOptions:
        return OptimizeOptions(
            purge=True,
            min_deleted_ratio=config.min_deleted_ratio,
            max_bytes=config.max_bytes_per_run,
            max_memory=config.max_memory_bytes,
        )


class _Compaction(_Rewrite):
    """OPTIMIZE."""

    def decide(self, table: MaintainedTable, config: CompactionConfig) -> TaskDecision:
        metrics = self._dry_run(table, config)
        prediction = _planned(metrics)
        if not prediction.cost_bytes:
            return TaskDecision(False, self._over_budget(table, config) or "no files need to be rewritten")
        files_saved, gain_bytes = prediction.gain_files or 0, prediction.gain_bytes or 0
        become = _become(metrics["numRemovedFiles"] or 0, "file")
        reason = f"{become} {metrics.num_new_files:,}, which frees {byte_size_text(gain_bytes)}"
        is_due = files_saved >= config.min_files_saved or gain_bytes >= config.min_gain_bytes
        if not is_due:
            reason += f"; {_required(config)}"
        return _decision(prediction, reason, is_due)

    @staticmethod
    def _options(config: CompactionConfig) -> OptimizeOptions:
        return OptimizeOptions(
            target_size=config.target_file_size_bytes,
            max_deleted_ratio=config.max_deleted_ratio,
            max_bytes=config.max_bytes_per_run,
            max_memory=config.max_memory_bytes,
            rewrite=config.rewrite,
        )


class _DvCompaction:
    """Compaction of deletion vector files."""

    def decide(self, table: MaintainedTable, config: DvCompactionConfig) -> TaskDecision:
        try:
            compaction_result = table.optimize.deletion_vectors(dry_run=True)
        except InvalidTableChange as error:  # nothing to do for a table without deletion vectors
            return TaskDecision(False, error.message)
        before, after = compaction_result["num-vector-files"], compaction_result["new-vector-files"]
        gain_bytes = compaction_result["gain-bytes"]
        reason = (
            f"{_become(before, 'deletion vector file')} {after:,}, which frees {byte_size_text(gain_bytes)}"
        )
        is_due = before - after >= config.min_files_saved or gain_bytes >= config.min_gain_bytes
        if not is_due:
            reason = (
                f"{reason}; {_required(config)}"
                if before
                else "no deletion vector files need to be compacted"
            )
        return TaskDecision(is_due, reason, gain_bytes, before - after, compaction_result["size-in-bytes"])

    def perform(self, table: MaintainedTable, config: DvCompactionConfig) -> TaskOutcome:
        del config
        before = table.health()["num-deletion-vector-files"]
        compaction_result = table.optimize.deletion_vectors()
        return TaskOutcome(
            None, before - table.health()["num-deletion-vector-files"], compaction_result["version"]
        )


class _Checkpoint:
    """A checkpoint, optionally with a clean-up of the log."""

    def decide(self, table: MaintainedTable, config: CheckpointConfig) -> TaskDecision:
        health = table.health()
        commits = health["commits-since-checkpoint"]
        is_due = commits >= config.min_commits
        since = "without a checkpoint" if commits > health["version"] else "since the newest checkpoint"
        reason = f"{counted(commits, 'commit')} {since}, {config.min_commits:,} required"
        return TaskDecision(is_due, reason, gain_files=commits if is_due else None)

    def perform(self, table: MaintainedTable, config: CheckpointConfig) -> TaskOutcome:
        before = table.health()["commits-since-checkpoint"]
        table.checkpoint(clean_up=config.clean_up)
        return TaskOutcome(gain_files=before - table.health()["commits-since-checkpoint"])


class _Vacuum:
    """VACUUM, with at least the table's retention."""

    def decide(self, table: MaintainedTable, config: VacuumConfig) -> TaskDecision:
        vacuum_result = self._run(table, config, dry_run=True)
        files, size = vacuum_result["num-files"], vacuum_result["size-in-bytes"]
        is_due = bool(files) and size >= config.min_gain_bytes
        reason = f"{counted(files, 'unneeded file')}, {byte_size_text(size)}"
        if files and not is_due:
            reason += f"; at least {byte_size_text(config.min_gain_bytes)} required"
        return TaskDecision(is_due, reason, size, files, 0)

    def perform(self, table: MaintainedTable, config: VacuumConfig) -> TaskOutcome:
        vacuum_result = self._run(table, config)
        return TaskOutcome(
            vacuum_result["size-in-bytes"], vacuum_result["num-files"], vacuum_result["end-version"]
        )

    @staticmethod
    def _run(table: MaintainedTable, config: VacuumConfig, *, dry_run: bool = False) -> dict[str, Any]:
        return table.vacuum(config.retention_hours, dry_run, mode=config.mode, limit=0)


def _become(number: int, noun: str) -> str:
    return f"{counted(number, noun)} {'becomes' if number == 1 else 'become'}"


def _required(config: CompactionConfig | DvCompactionConfig) -> str:
    return f"{config.min_files_saved:,} fewer files or {byte_size_text(config.min_gain_bytes)} required"


def _planned(planned: PlannedCompaction) -> TaskDecision:
    saved = (planned["numRemovedFiles"] or 0) - planned.num_new_files
    return TaskDecision(False, "", planned.gain_bytes, saved, planned["numRemovedBytes"])


def _decision(prediction: TaskDecision, reason: str, is_due: bool) -> TaskDecision:
    return TaskDecision(is_due, reason, prediction.gain_bytes, prediction.gain_files, prediction.cost_bytes)


TASKS: Final[Mapping[PolicyType, Task]] = {
    "system.data-compaction": _Compaction(),
    "system.dv-purge": _Purge(),
    "system.dv-compaction": _DvCompaction(),
    "system.checkpoint": _Checkpoint(),
    "system.vacuum": _Vacuum(),
}
"""By policy type, in the order of their runs: VACUUM deletes what the others leave behind."""
