"""Deleting files of a table and bringing removed files back take turns, within one process.

VACUUM looks at the log and then deletes; RESTORE looks into storage and then commits. Either is wrong where the other comes
in between.
"""

import threading
from typing import Final
from weakref import WeakValueDictionary

__all__ = ["deletion_lock"]

_GUARD: Final = threading.Lock()


class _TableLock:
    """A lock that a weak reference can point to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_LOCKS: Final[WeakValueDictionary[str, _TableLock]] = WeakValueDictionary()


def deletion_lock(location: str) -> _TableLock:
    """Return the lock of the table at a canonical location; every service of this process gets the same."""
    with _GUARD:
        lock = _LOCKS.get(location)
        if lock is None:
            lock = _LOCKS[location] = _TableLock()
        return lock
