"""How this process works on segments of live files: one cache of decoded parts for all tables, and two threads a task."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, Final, TypeVar

from delvec_kernel.file_index.engine import FileIndexEngine

__all__ = ["FILE_INDEX_ENGINE", "PartCache", "in_parallel"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_BUDGET: Final = 96 * 1024 * 1024
_THREADS: Final = 2
_AHEAD: Final = 2


class PartCache:
    """Decoded parts, by segment and part; what was used longest ago goes first. Safe to share between threads.

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


def in_parallel(work: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
    """Yield the results in the order of the items, of which few are taken ahead."""
    following = iter(items)
    first = list(islice(following, 2))
    if len(first) == 1:  # as for nearly every commit: no thread is worth its start
        yield work(first[0])
        return
    pending: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(_THREADS, "delvec-segments") as pool:
        for item in chain(first, following):
            pending.append(pool.submit(work, item))
            if len(pending) > _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


FILE_INDEX_ENGINE: Final = FileIndexEngine(PartCache(), in_parallel)
"""The one of this process."""
