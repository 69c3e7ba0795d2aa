"""Tasks that people started on a table's page: those running in this process, and recent ones."""

import itertools
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["Task", "Tasks"]

_MOST: Final = 200
_SHOWN_SECONDS: Final = 600.0


@dataclass
class Task:
    """A task that somebody started.

    Attributes:
        began: by the wall clock, in milliseconds since 1970.
        ended: likewise; None while it runs.
        state: how it ended.
    """

    table: str
    label: str
    began: int
    ended: int | None = None
    state: Literal["running", "done", "failed"] = "running"

    @property
    def seconds(self) -> float:
        """How long it took, or has been running."""
        return ((_now() if self.ended is None else self.ended) - self.began) / 1000


class Tasks:
    """The tasks of a process; everything runs on the event loop."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._tasks: OrderedDict[int, Task] = OrderedDict()

    @contextmanager
    def running(self, table: str, label: str) -> Iterator[Task]:
        """List a task while the block runs, and for ten minutes afterwards."""
        number, task = next(self._numbers), Task(table, label, _now())
        self._tasks[number] = task
        if len(self._tasks) > _MOST:
            self._tasks.popitem(last=False)
        task.state = "running"
        try:
            yield task
        finally:
            task.ended = _now()
            if task.state == "running":
                task.state = "failed"

    def of_table(self, table: str) -> list[Task]:
        """Return the tasks of a table, newest first: running ones, and those that ended recently."""
        after = _now() - int(_SHOWN_SECONDS * 1000)
        return [
            task
            for task in reversed(self._tasks.values())
            if task.table == table and (task.ended is None or task.ended >= after)
        ]


def _now() -> int:
    return time.time_ns() // 1_000_000
