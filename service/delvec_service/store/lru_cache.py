"""The LRU cache of cachetools with a lock, and with a weight for each value."""

import threading
from collections.abc import Collection, Hashable
from operator import itemgetter
from typing import Generic, TypeVar

from cachetools import LRUCache

__all__ = ["LruCache"]

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class LruCache(Generic[_Key, _Value]):
    """Values by key; the least recently used are evicted first. Safe to share between threads.

    Args:
        max_weight: the limit for all values together: bytes, or whatever the callers count; by default the values.
    """

    def __init__(self, max_weight: int) -> None:
        self._lock = threading.Lock()
        self._entries: LRUCache[_Key, tuple[_Value, int]] = LRUCache(max_weight, getsizeof=itemgetter(1))

    @property
    def weight(self) -> int:
        """The weight of all cached values."""
        return int(self._entries.currsize)

    def get(self, key: _Key) -> _Value | None:
        """Return a value, or None."""
        with self._lock:
            entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: _Key, value: _Value, weight: int = 1) -> None:
        """Add a value or replace an older one, unless it is heavier than the limit."""
        with self._lock:
            self._entries.pop(key, None)
            if weight <= self._entries.maxsize:
                self._entries[key] = value, weight

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
                self._entries.pop(key, None)
        finally:
            self._lock.release()
        return True
