"""Within one process, VACUUM does not delete files of a table while a RESTORE brings removed files back.

VACUUM reads the log and then deletes; RESTORE checks storage and then commits. Either goes wrong if the other comes
in between. RESTOREs do not exclude each other: their commits conflict if necessary.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakValueDictionary

__all__ = ["deletion_lock", "restore_lock"]

_GUARD: Final = threading.Lock()


class _TableLock:
    """Shared by any number of RESTOREs, or held by one VACUUM."""

    def __init__(self) -> None:
        self._released = threading.Condition()
        self._restores = 0
        self._is_deleting = False

    @contextmanager
    def restoring(self) -> Iterator[None]:
        with self._released:
            self._released.wait_for(lambda: not self._is_deleting)
            self._restores += 1
        try:
            yield
        finally:
            with self._released:
                self._restores -= 1
                self._released.notify_all()

    @contextmanager
    def deleting(self) -> Iterator[None]:
        with self._released:
            self._released.wait_for(lambda: not self._is_deleting and not self._restores)
            self._is_deleting = True
        try:
            yield
        finally:
            with self._released:
                self._is_deleting = False
                self._released.notify_all()


_LOCKS: Final[WeakValueDictionary[str, _TableLock]] = WeakValueDictionary()


@contextmanager
def deletion_lock(location: str) -> Iterator[None]:
    """Block RESTOREs of the table at a canonical location, in every service of this process, while files are deleted."""
    lock = _lock(location)
    with lock.deleting():
        yield


@contextmanager
def restore_lock(location: str) -> Iterator[None]:
    """Block VACUUMs of the table at a canonical location, in every service of this process, while files are restored."""
    lock = _lock(location)
    with lock.restoring():
        yield


def _lock(location: str) -> _TableLock:
    with _GUARD:
        lock = _LOCKS.get(location)
        if lock is None:
            lock = _LOCKS[location] = _TableLock()
        return lock
