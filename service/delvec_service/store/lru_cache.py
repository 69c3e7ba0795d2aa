"""What was used last, in memory, up to a sum of weights."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["LruCache"]

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class LruCache(Generic[_Key, _Value]):
    """Values by key; what was used longest ago goes first. Safe to share between threads.

    Args:
        max_weight: of all values together: bytes, or whatever the callers count.
    """

    def __init__(self, max_weight: int) -> None:
        self._max_weight = max_weight
        self._lock = threading.Lock()
        self._held: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._weight = 0

    @property
    def weight(self) -> int:
        """Of what is held now."""
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
        """Keep a value in the place of an older one, unless it is heavier than all may be."""
        with self._lock:
            self._remove(key)
            if weight > self._max_weight:
                return
            self._held[key] = value, weight
            self._weight += weight
            while self._weight > self._max_weight:
                self._remove(next(iter(self._held)))

    def discard(self, unwanted: Callable[[_Key], bool], *, wait: bool = True) -> bool:
        """Forget the values of some keys.

        Args:
            unwanted: decides by the key.
            wait: for another user of the cache; without, False is returned if there is one.
        """
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            for key in [key for key in self._held if unwanted(key)]:
                self._remove(key)
        finally:
            self._lock.release()
        return True

    def _remove(self, key: _Key) -> None:
        gone = self._held.pop(key, None)
        if gone is not None:
            self._weight -= gone[1]
