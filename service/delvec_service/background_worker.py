"""A thread for work that no request waits for: one item per key, each processed when it is due."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from delvec_service.logs import logger

__all__ = ["BackgroundWorker"]

_T = TypeVar("_T")
_JOIN_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 5.0


@dataclass
class _Entry(Generic[_T]):
    """A queued item.

    Attributes:
        due: by the monotonic clock.
        number: number of the call that first scheduled it.
    """

    item: _T
    due: float
    number: int


class BackgroundWorker(Generic[_T]):
    """A single thread, started with its first item. Safe to share between threads.

    Queued items are lost if the process is killed: nothing may depend on them.

    Args:
        name: the name of the thread.
        task: processes an item. Exceptions are logged, and the next item follows.
        rest: returns how many seconds to leave a key alone after a turn, given how long the turn took.
        share: the share of a processor that it takes at most, however many keys there are: what waits meanwhile is merged.
    """

    def __init__(
        self,
        name: str,
        task: Callable[[_T], None],
        *,
        rest: Callable[[float], float] | None = None,
        share: float = 1.0,
    ) -> None:
        self._name, self._task, self._rest, self._share = name, task, rest, share
        self._changed = threading.Condition()
        self._waiting: dict[str, _Entry[_T]] = {}
        self._resting: dict[str, float] = {}
        self._pauses_until = -math.inf
        self._number = 0
        self._hurried = 0
        """Items scheduled up to this number run without waiting until they are due."""
        self._running: int | None = None
        self._sleeps_until = -math.inf
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def backlog(self) -> int:
        """The number of queued items."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or running."""
        with self._changed:
            return not self._waiting and self._running is None

    def schedule(
        self, key: str, item: _T, *, after: float = 0.0, merge: Callable[[_T, _T], _T] | None = None
    ) -> None:
        """Queue an item. Returns at once, and does nothing after :meth:`close`.

        Args:
            key: what the item is for. A key has one queued item: a new one replaces it, at the earlier of their
                times, so that a key that is always busy also gets its turn.
            item: the argument for the task.
            after: seconds until it is due.
            merge: combines the old and the new item.
        """
        with self._changed:
            if self._closed:
                return
            due = time.monotonic() + after
            if (waiting := self._waiting.get(key)) is None:
                self._number += 1
                self._waiting[key] = _Entry(item, due, self._number)
            else:
                waiting.item = item if merge is None else merge(waiting.item, item)
                waiting.due = min(waiting.due, due)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            elif self._due(key) < self._sleeps_until:
                self._changed.notify_all()

    def discard(self, key: str) -> None:
        """Discard the queued item of a key."""
        with self._changed:
            self._waiting.pop(key, None)

    def wait(self, seconds: float) -> bool:
        """Process all queued items now; return whether that finished in time."""
        with self._changed:
            last = self._hurried = self._number
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._is_done(last), seconds)

    def close(self, seconds: float = _JOIN_SECONDS) -> None:
        """Discard the queue, accept no more, and wait up to this long for the thread to finish its turn."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)

    def _is_done(self, last: int) -> bool:
        if self._running is not None and self._running <= last:
            return False
        return all(entry.number > last for entry in self._waiting.values())

    def _run(self) -> None:
        while (queue_entry := self._next()) is not None:
            key, item = queue_entry
            began, cpu_start = time.monotonic(), time.thread_time()
            try:
                self._task(item)
            except Exception:  # noqa: BLE001 - the thread has other items to do
                logger.exception("background work failed", worker=self._name, key=key)
            end = time.monotonic()
            # An item held while the thread sleeps would count as in use.
            del queue_entry, item
            with self._changed:
                self._running = None
                if self._rest is not None:
                    self._resting[key] = end + self._rest(end - began)
                # Storage and database that answer slowly cost no processor time.
                pause = (time.thread_time() - cpu_start) * (1 / self._share - 1)
                self._pauses_until = end + min(pause, _LONGEST_PAUSE)
                self._changed.notify_all()

    def _next(self) -> tuple[str, _T] | None:
        """Wait for the next item; None after :meth:`close`."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                self._resting = {key: until for key, until in self._resting.items() if until > now}
                key = min(self._waiting, key=self._due, default=None)
                due = math.inf if key is None else self._due(key)
                if key is not None and due <= now:
                    self._sleeps_until = -math.inf
                    entry = self._waiting.pop(key)
                    self._running = entry.number
                    return key, entry.item
                self._sleeps_until = due
                self._changed.wait(None if key is None else due - now)
            return None

    def _due(self, key: str) -> float:
        entry = self._waiting[key]
        if entry.number <= self._hurried:
            return -math.inf
        return max(entry.due, self._resting.get(key, entry.due), self._pauses_until)
