"""Making a table readable without deletion vector support: DROP FEATURE deletionVectors and the steps before it.

Each step is one commit or several, and leaves a valid table. Completed steps are not repeated, so calling it again
resumes an interrupted downgrade.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from delvec.alterations import Alterations
from delvec_commands.dml.optimize import Optimizer
from delvec_errors import InvalidTableChange
from delvec_kernel.table_properties import DELETION_VECTORS

__all__ = ["Downgrade", "DowngradeStep", "downgrade"]

_FEATURE: Final = "deletionVectors"
_PROTECTION: Final = "checkpointProtection"
_ATTEMPTS: Final = 5


@dataclass(frozen=True)
class DowngradeStep:
    """One step of a downgrade.

    Attributes:
        name: the name of the step.
        effect: what it does for readers and writers.
        version: the last version that it committed; None if it was not taken, or committed none.
        waits_for: why it cannot be taken yet; None if it was taken, or would be.
    """

    name: Literal["turn-off", "purge", "drop-feature", "truncate-history"]
    effect: str
    version: int | None = None
    waits_for: str | None = None

    def __str__(self) -> str:
        if self.waits_for is not None:
            return f"{self.name}: waiting. {self.waits_for}"
        return f"{self.name}: {self.effect}" + ("" if self.version is None else f" (version {self.version})")


@dataclass(frozen=True)
class Downgrade:
    """What a downgrade did, or with ``dry_run`` would do; ``str()`` describes it.

    Attributes:
        steps: in order; empty if the table needed none.
        dry_run: nothing was done.
    """

    steps: tuple[DowngradeStep, ...]
    dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether no step waits for something."""
        return all(step.waits_for is None for step in self.steps)

    def __str__(self) -> str:
        first = ["dry run, nothing committed"] if self.dry_run else []
        lines = [f"{number}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join(
            [
                *first,
                *(
                    lines
                    or [
                        "nothing to do: the table neither has deletion vectors nor requires readers to support them"
                    ]
                ),
            ]
        )


class DowngradableTable(Protocol):
    """The methods of a table that a downgrade needs."""

    @property
    def alter(self) -> Alterations:
        """Changes of the table itself."""
        ...

    @property
    def optimize(self) -> Optimizer:
        """OPTIMIZE and PURGE."""
        ...

    def detail(self) -> dict[str, Any]:
        """Return the result of DESCRIBE DETAIL."""
        ...

    def checkpoint(self, *, clean_up: bool = False) -> dict[str, Any]:
        """Write a checkpoint, and clean up the log."""
        ...


def downgrade(
    table: DowngradableTable,
    *,
    truncate_history: bool = False,
    dry_run: bool = False,
    progress: Callable[[DowngradeStep], None] | None = None,
) -> Downgrade:
    """Remove deletion vectors from a table; see :meth:`delvec.DeltaTable.downgrade`."""
    steps = []
    for step in _planned(table, truncate_history) if dry_run else _taken(table, truncate_history):
        steps.append(step)
        if progress is not None:
            progress(step)
    return Downgrade(tuple(steps), dry_run)


_TURN_OFF: Final = DowngradeStep(
    "turn-off", f"{DELETION_VECTORS} is unset, and no new deletion vectors are written"
)
_DROP: Final = DowngradeStep(
    "drop-feature",
    "readers no longer need to support deletion vectors; older versions still require it",
)
_TRUNCATE: Final = DowngradeStep(
    "truncate-history",
    f"older versions are deleted, and the writer feature {_PROTECTION} that protected them is dropped",
)


def _purge(files: int) -> DowngradeStep:
    which = "1 file with a deletion vector is" if files == 1 else f"{files} files with deletion vectors are"
    return DowngradeStep("purge", f"{which} rewritten without the deleted rows")


def _planned(table: DowngradableTable, truncate_history: bool) -> Iterator[DowngradeStep]:
    detail = table.detail()
    if _FEATURE in detail["tableFeatures"]:
        if DELETION_VECTORS in detail["properties"]:
            yield _TURN_OFF
        if files := table.optimize.purge(dry_run=True)["numRemovedFiles"]:
            yield _purge(files)
        yield _DROP
    elif _PROTECTION not in detail["tableFeatures"]:
        return
    if truncate_history:
        yield replace(_TRUNCATE, waits_for=_RETENTION)


_RETENTION: Final = (
    "The log keeps older versions for delta.logRetentionDuration, and these require the feature; "
    "run this again once they have expired, or lower the property first."
)


def _taken(table: DowngradableTable, truncate_history: bool) -> Iterator[DowngradeStep]:
    detail = table.detail()
    has = _FEATURE in detail["tableFeatures"]
    if has and DELETION_VECTORS in detail["properties"]:
        done = table.alter.unset_properties(DELETION_VECTORS, if_exists=True)
        yield replace(_TURN_OFF, version=None if done is None else done.version)
    for attempt in range(_ATTEMPTS) if has else ():
        purged = table.optimize.purge()
        if purged.version is not None:
            yield replace(_purge(purged["numRemovedFiles"] or 0), version=purged.version)
        try:
            alteration = table.alter.drop_feature(_FEATURE)
        except InvalidTableChange:
            # A writer that started before the property was unset may have committed a deletion vector since.
            if attempt == _ATTEMPTS - 1 or not table.optimize.purge(dry_run=True)["numRemovedFiles"]:
                raise
            continue
        yield replace(_DROP, version=None if alteration is None else alteration.version)
        break
    if truncate_history and (has or _PROTECTION in detail["tableFeatures"]):
        yield _truncated(table)


def _truncated(table: DowngradableTable) -> DowngradeStep:
    table.checkpoint(clean_up=True)
    try:
        done = table.alter.drop_feature(_PROTECTION, truncate_history=True)
    except InvalidTableChange as error:
        if error.details.get("feature") != _PROTECTION:
            raise
        return replace(_TRUNCATE, waits_for=f"{_RETENTION} ({error.message})")
    return replace(_TRUNCATE, version=None if done is None else done.version)
