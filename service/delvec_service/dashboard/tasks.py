"""Tasks on a table's page: those that people started there, in this process, and those that engines report.

Tested in `tests/integration/service/dashboard/test_table_actions.py`.
"""

import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

__all__ = ["RunningTask", "Tasks"]

_MAX_TASKS: Final = 200
_SHOWN_SECONDS: Final = 600.0


@dataclass
class RunningTask:
    """A task that somebody started.

    Attributes:
        began: by the wall clock, in milliseconds since 1970.
        ended: likewise; None while it runs.
        state: how it ended.
        id: the id of its request.
        progress: what its engine reported last, as in ``…/maintenance-tasks``; None if there is no report.
    """

    table: str
    label: str
    began: int
    ended: int | None = None
    state: Literal["running", "done", "failed", "lost"] = "running"
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    progress: Mapping[str, Any] | None = None

    @property
    def seconds(self) -> float:
        """How long it took, or has been running."""
        return ((_now() if self.ended is None else self.ended) - self.began) / 1000


class Tasks:
    """The tasks of a process; everything runs on the event loop."""

    def __init__(self) -> None:
        self._tasks: deque[RunningTask] = deque(maxlen=_MAX_TASKS)

    @contextmanager
    def running(self, table: str, label: str) -> Iterator[RunningTask]:
        """List a task while the block runs, and for ten minutes afterwards."""
        task = RunningTask(table, label, _now())
        self._tasks.append(task)
        task.state = "running"
        try:
            yield task
        finally:
            task.ended = _now()
            if task.state == "running":
                task.state = "failed"

    def of_table(self, table: str, reports: Sequence[Mapping[str, Any]] = ()) -> list[RunningTask]:
        """Return the tasks of a table, newest first: running ones, and those that ended recently.

        Args:
            table: its name.
            reports: what engines reported, as in ``…/maintenance-tasks``: of tasks of this process, and of others.
        """
        after = _now() - int(_SHOWN_SECONDS * 1000)
        tasks = [task for task in self._tasks if task.table == table]
        for report in reports:
            own = next((task for task in tasks if report["id"].startswith(f"{task.id}.")), None)
            if own is None:
                tasks.append(_reported(table, report))
            else:
                own.progress = report
        shown = [task for task in tasks if task.ended is None or task.ended >= after]
        return sorted(shown, key=lambda task: task.began, reverse=True)


def _reported(table: str, report: Mapping[str, Any]) -> RunningTask:
    label = f"{report['operation']} on {report['engine']}"
    if report.get("principal"):
        label += f" by {report['principal']}"
    began, updated = (_milliseconds(report[name]) for name in ("started-at", "updated-at"))
    state = report["state"]
    ended = None if state == "running" else updated
    return RunningTask(table, label, began, ended, state, report["id"], report)


def _milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def _now() -> int:
    return time.time_ns() // 1_000_000
