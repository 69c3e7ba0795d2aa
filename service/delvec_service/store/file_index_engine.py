"""The engine for segments of live files: caches of parts, decoded and as stored, for all tables; two threads per task."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Final, TypeVar

from delvec_kernel.file_index.engine_port import FileIndexEngine
from delvec_service.store.lru_cache import LruCache

__all__ = ["FILE_INDEX_ENGINE", "PartCache", "in_parallel"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_BUDGET: Final = 96 * 1024 * 1024
_STORED_BUDGET: Final = 256 * 1024 * 1024
"""Of parts as the store has them: all that plans and commits need of some four million files."""
_THREADS: Final = 2
_READ_AHEAD: Final = 2


class PartCache:
    """Parts by segment and name; the least recently used are evicted first. Safe to share between threads.

    Args:
        max_bytes: the maximum for all values together.
    """

    def __init__(self, max_bytes: int = _BUDGET) -> None:
        self._parts: LruCache[tuple[str, str], Any] = LruCache(max_bytes)
        self._names: dict[str, set[str]] = {}
        self._dropped: deque[str] = deque()

    @property
    def nbytes(self) -> int:
        """The number of bytes in the cache."""
        return self._parts.weight

    def get(self, segment: str, part: str) -> Any | None:
        """Return a value, or None."""
        self._forget()
        return self._parts.get((segment, part))

    def put(self, segment: str, part: str, value: Any, nbytes: int) -> None:
        """Add a value, unless it is larger than the whole budget."""
        self._forget()
        self._names.setdefault(segment, set()).add(part)
        self._parts.put((segment, part), value, nbytes)

    def drop(self, segment: str) -> None:
        """Evict a segment, now or when the cache is next used.

        The garbage collector calls this on any thread at any time, even on one that holds the lock, which must not
        wait for itself.
        """
        self._dropped.append(segment)
        self._forget(wait=False)

    def _forget(self, *, wait: bool = True) -> None:
        dropped_segments = set()
        with suppress(IndexError):  # another thread may have taken the last one
            while self._dropped:
                dropped_segments.add(self._dropped.popleft())
        keys = [
            (segment, part) for segment in dropped_segments for part in tuple(self._names.get(segment, ()))
        ]
        if not self._parts.discard(keys, wait=wait):
            self._dropped.extend(dropped_segments)
            return
        for segment in dropped_segments:
            self._names.pop(segment, None)


def in_parallel(work: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
    """Yield the results in the order of the items, prefetching only a few."""
    following = iter(items)
    first = list(islice(following, 2))
    if len(first) == 1:  # as for nearly every commit: starting a thread is not worth it
        yield work(first[0])
        return
    pending: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(_THREADS, "delvec-segments") as pool:
        for item in chain(first, following):
            pending.append(pool.submit(work, item))
            if len(pending) > _READ_AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


FILE_INDEX_ENGINE: Final = FileIndexEngine(
    PartCache(), in_parallel, PartCache(_STORED_BUDGET), threading.Lock()
)
"""The engine of this process."""
