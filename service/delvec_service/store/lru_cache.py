"""A cache in memory that evicts the least recently used entries beyond a total weight."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

__all__ = ["LruCache"]

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class LruCache(Generic[_Key, _Value]):
    """Values by key; the least recently used are evicted first. Safe to share between threads.

    Args:
        max_weight: the limit for all values together: bytes, or whatever the callers count.
    """

    def __init__(self, max_weight: int) -> None:
        self._max_weight = max_weight
        self._lock = threading.Lock()
        self._held: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._weight = 0

    @property
    def weight(self) -> int:
        """The weight of all cached values."""
        return self._weight

    def get(self, key: _Key) -> _Value | None:
        """Return a value, or None."""
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: _Key, value: _Value, weight: int) -> None:
        """Add a value or replace an older one, unless it is heavier than the limit."""
        with self._lock:
            self._remove(key)
            if weight > self._max_weight:
                return
            self._held[key] = value, weight
            self._weight += weight
            while self._weight > self._max_weight:
                self._remove(next(iter(self._held)))

    def discard(self, keys: Collection[_Key], *, wait: bool = True) -> bool:
        """Evict the values of some keys, as far as they are there.

        Args:
            keys: the keys.
            wait: wait for the lock; without, returns False if it is taken.
        """
        if not keys:
            return True
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            for key in keys:
                self._remove(key)
        finally:
            self._lock.release()
        return True

    def _remove(self, key: _Key) -> None:
        gone = self._held.pop(key, None)
        if gone is not None:
            self._weight -= gone[1]
