"""What the file index needs from its caller: a cache of decoded parts, and threads."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

__all__ = ["SERIAL", "DecodedParts", "FileIndexEngine", "Parallel"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class DecodedParts(Protocol):
    """A thread-safe cache of segment parts, which may evict anything at any time."""

    def get(self, segment: str, part: str) -> Any | None:
        """Return a cached value, or None."""
        ...

    def put(self, segment: str, part: str, value: Any, nbytes: int) -> None:
        """Cache a value that takes ``nbytes`` bytes."""
        ...

    def drop(self, segment: str) -> None:
        """Evict a segment; called by the garbage collector on any thread."""
        ...


class Parallel(Protocol):
    """``map`` for work that releases the GIL."""

    def __call__(self, work: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
        """Yield results in input order; read few items ahead, since each may be large."""
        ...


class _NoCache:
    """A cache that stores nothing."""

    def get(self, segment: str, part: str) -> None:
        """Return None."""

    def put(self, segment: str, part: str, value: Any, nbytes: int) -> None:
        """Do nothing."""

    def drop(self, segment: str) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class FileIndexEngine:
    """Caches and threads for work on a table's segments; derived sets of live files inherit it.

    Attributes:
        decoded: cache of decoded parts.
        parallel: maps work over several segments.
        stored: cache of parts that a store has, as they are stored.
        encoding: a lock, held while a segment is encoded; none is needed for a single thread.
    """

    decoded: DecodedParts
    parallel: Parallel
    stored: DecodedParts = field(default_factory=_NoCache)
    encoding: AbstractContextManager[Any] = field(default_factory=nullcontext)


SERIAL: Final = FileIndexEngine(_NoCache(), map)
"""No cache, no threads."""
