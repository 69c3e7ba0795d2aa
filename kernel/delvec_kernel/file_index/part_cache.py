"""Decoded parts of segments in memory: those used last, of all tables together, up to one number of bytes."""

import threading
from collections import OrderedDict, deque
from typing import Any, Final

__all__ = ["DECODED", "PartCache"]

_BUDGET: Final = 96 * 1024 * 1024


class PartCache:
    """Values by segment and part; what was used longest ago goes first. Safe to share between threads.

    Args:
        max_bytes: of all values together.
    """

    def __init__(self, max_bytes: int = _BUDGET) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._values: OrderedDict[tuple[str, str], tuple[Any, int]] = OrderedDict()
        self._nbytes = 0
        self._dropped: deque[str] = deque()

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self._nbytes

    def resize(self, max_bytes: int) -> None:
        """Change the budget."""
        with self._lock:
            self._max_bytes = max_bytes
            self._shrink()

    def get(self, segment: str, part: str) -> Any | None:
        """Return a value, or None."""
        with self._lock:
            self._forget()
            found = self._values.get((segment, part))
            if found is None:
                return None
            self._values.move_to_end((segment, part))
            return found[0]

    def put(self, segment: str, part: str, value: Any, nbytes: int) -> None:
        """Keep a value, unless it is larger than the whole budget."""
        with self._lock:
            self._forget()
            self._remove((segment, part))
            self._values[segment, part] = (value, nbytes)
            self._nbytes += nbytes
            self._shrink()

    def drop(self, segment: str) -> None:
        """Forget a segment, now or when the cache is next used.

        The garbage collector calls this, on any thread and at any time: also on one that holds the lock, which must
        not wait for itself.
        """
        self._dropped.append(segment)
        if self._lock.acquire(blocking=False):
            try:
                self._forget()
            finally:
                self._lock.release()

    def _forget(self) -> None:
        gone = set()
        while self._dropped:
            gone.add(self._dropped.popleft())
        for key in [key for key in self._values if key[0] in gone] if gone else ():
            self._remove(key)

    def _remove(self, key: tuple[str, str]) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self._nbytes -= found[1]

    def _shrink(self) -> None:
        while self._nbytes > self._max_bytes and self._values:
            self._remove(next(iter(self._values)))


DECODED: Final = PartCache()
"""The one of this process."""
