"""The jobs of every contender: delete, update, merge, append, and read the change feed."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["EFFORT", "LAYOUTS", "QUICK", "DmlEffort", "Job", "jobs"]

LAYOUTS: Mapping[str, int] = {"1 file": 1, "32 files": 32}


@dataclass(frozen=True)
class DmlEffort:
    """The size of the measurement.

    Attributes:
        rows: of the table.
        warm: untimed runs of one-row commands.
        untimed: untimed runs of other commands.
        runs: measured runs.
        limit: maximum seconds for the untimed runs of a job, and again for the measured ones; at least one is measured.
        small: rows of the warm-up table of contenders that rewrite files.
        batches: number of batches of a stream.
        batch: rows per batch.
        sweep_rows: rows per file, for each part of the sweep.
    """

    rows: int = 10_000_000
    warm: int = 10
    untimed: int = 2
    runs: int = 5
    limit: float = 10.0
    small: int = 100_000
    batches: int = 100
    batch: int = 1_000
    sweep_rows: tuple[int, ...] = (1_000, 10_000, 100_000, 500_000)


EFFORT = DmlEffort()
QUICK = DmlEffort(
    rows=100_000,
    warm=1,
    untimed=1,
    runs=2,
    limit=4.0,
    small=10_000,
    batches=4,
    batch=100,
    sweep_rows=(1_000, 4_000),
)


@dataclass(frozen=True)
class Job:
    """One job on a table.

    Attributes:
        title: its name in the report.
        kind: the contender's method: delete, update, merge, append or changes.
        argument: the condition of a DELETE or UPDATE, or the name of a source.
        untimed: number of untimed runs.
        layouts: the tables to measure it on.
        feed: whether the table has the change data feed enabled.
    """

    title: str
    kind: str
    argument: str
    untimed: int
    layouts: tuple[str, ...] = tuple(LAYOUTS)
    feed: bool = False


def jobs(effort: DmlEffort) -> list[Job]:
    """Return the jobs; the rows of each are spread over the whole table."""
    one = f"id = {effort.rows // 2 + 17}"
    warm, few = effort.warm, effort.untimed
    return [
        Job("DELETE 1 row", "delete", one, warm),
        Job("DELETE 1 %", "delete", "id % 100 = 42", few),
        Job("DELETE 30 %", "delete", "id % 10 < 3", few),
        Job("DELETE 50 %", "delete", "id % 2 = 1", few),
        Job("UPDATE 1 row", "update", one, warm),
        Job("UPDATE 1 %", "update", "id % 100 = 42", few),
        Job("MERGE of 2 %, all there", "merge", "upserts", 1),
        Job("MERGE of 2 %, half of it new", "merge", "news", 1),
        Job("append of 10 %", "append", "appended", few, layouts=("1 file",)),
        Job("change feed of UPDATE 1 %", "changes", "id % 100 = 42", few, layouts=("1 file",), feed=True),
    ]
