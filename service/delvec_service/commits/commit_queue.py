"""Commits to one table take turns: those that wait while one is written share the next version.

This only affects speed. Without it, the writers of one process would race for each version and all but one would
write in vain. The committing thread still checks its decision, and other processes still race.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from delvec_errors import InternalError
from delvec_kernel.transaction.group_commit import Group, request_size
from delvec_kernel.transaction.transaction_changes import Changes
from delvec_service.store.open_table import OpenTable

__all__ = ["GroupCommit"]

_MAX_MEMBERS: Final = 64
_MAX_BYTES: Final = 16 * 1024 * 1024
_PATIENCE_SECONDS: Final = 1.0


class _HasChanges(Protocol):
    @property
    def changes(self) -> Changes: ...


_Member = TypeVar("_Member", bound=_HasChanges)


@dataclass(eq=False)
class _QueuedCommit(Generic[_Member]):
    """A commit in the queue of its table.

    Attributes:
        called: set when its turn has come, or when another commit has included it.
        done: whether it is finished or failed.
        error: the error of its group.
    """

    member: _Member
    called: threading.Event = field(default_factory=threading.Event)
    done: bool = False
    error: BaseException | None = None


@dataclass(eq=False)
class _CommitQueue(Generic[_Member]):
    """The queue of one table.

    Attributes:
        running: when each running commit began, by the monotonic clock.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: deque[_QueuedCommit[_Member]] = field(default_factory=deque)
    running: dict[_QueuedCommit[_Member], float] = field(default_factory=dict)

    def busy(self, since: float) -> bool:
        """Return whether a running commit began after ``since``."""
        return any(began > since for began in self.running.values())


class GroupCommit(Generic[_Member]):
    """Runs commits, those of one table in the order in which they came. Safe to share between threads.

    A commit with none ahead of it runs at once. One that has waited long starts anyway: the commit ahead may be
    stuck, or large.

    Args:
        run: commits the members of one group, and gives each its result. It may be called for one table on several
            threads at once.
        configuration: returns a table's properties if they are known without access to storage.
        max_members: of a group.
        max_bytes: approximate size of the requests in a group; a single one may be larger.
        patience: how many seconds a commit waits for those ahead.
    """

    def __init__(
        self,
        run: Callable[[OpenTable, list[_Member]], None],
        configuration: Callable[[OpenTable], Mapping[str, str]] = lambda _: {},
        *,
        max_members: int = _MAX_MEMBERS,
        max_bytes: int = _MAX_BYTES,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._run = run
        self._configuration = configuration
        self._max_members = max_members
        self._max_bytes = max_bytes
        self._patience = patience
        self._lock = threading.Lock()
        self._queues: dict[str, _CommitQueue[_Member]] = {}

    def submit(self, table: OpenTable, member: _Member) -> None:
        """Return once ``member`` has been run, on this thread or on another.

        Raises:
            Exception: what ``run`` raised, which is raised for all the members of the call.
        """
        entry = _QueuedCommit(member)
        queue = self._enter(table.location, entry)
        while not (group := self._turn(queue, entry, table)):
            if entry.done:
                if entry.error is not None:
                    raise entry.error
                return
            entry.called.wait(self._patience)
        error: BaseException | None = InternalError("The thread that was committing this group was stopped.")
        try:
            self._run(table, [one.member for one in group])
            error = None
        except Exception as failure:
            error = failure
            raise
        finally:
            self._leave(table.location, queue, group, error)

    def _enter(self, location: str, queued: _QueuedCommit[_Member]) -> _CommitQueue[_Member]:
        with self._lock:
            queue = self._queues.setdefault(location, _CommitQueue())
            with queue.lock:
                queue.waiting.append(queued)
            return queue

    def _turn(
        self, queue: _CommitQueue[_Member], entry: _QueuedCommit[_Member], table: OpenTable
    ) -> list[_QueuedCommit[_Member]]:
        """Return the group that ``entry`` is to run, itself first; empty if it is not its turn."""
        with queue.lock:
            entry.called.clear()
            now = time.monotonic()
            if not queue.waiting or queue.waiting[0] is not entry or queue.busy(now - self._patience):
                return []
            group = self._gather(queue, table)
            queue.running[entry] = now
            return group

    def _gather(self, queue: _CommitQueue[_Member], table: OpenTable) -> list[_QueuedCommit[_Member]]:
        """Take the first commit from a queue, and those behind it that may share a version with it."""
        first = queue.waiting.popleft()
        group, left = [first], deque[_QueuedCommit[_Member]]()
        if queue.waiting:
            together = Group(first.member.changes, self._configuration(table))
            size = request_size(first.member.changes)
            while queue.waiting and len(group) < self._max_members:
                other = queue.waiting.popleft()
                size += request_size(other.member.changes)
                if size > self._max_bytes:
                    # Commits behind it must not overtake it, or it could starve.
                    left.append(other)
                    break
                if together.admit(other.member.changes):
                    group.append(other)
                else:
                    left.append(other)
                    size -= request_size(other.member.changes)
        queue.waiting.extendleft(reversed(left))
        return group

    def _leave(
        self,
        location: str,
        queue: _CommitQueue[_Member],
        group: Sequence[_QueuedCommit[_Member]],
        error: BaseException | None,
    ) -> None:
        with self._lock, queue.lock:
            del queue.running[group[0]]
            for one in group:
                one.done, one.error = True, error
                one.called.set()
            if queue.waiting:
                queue.waiting[0].called.set()
            elif not queue.running:
                del self._queues[location]
