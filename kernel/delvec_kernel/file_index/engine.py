"""What the file index needs of its caller: memory for decoded parts, and threads."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

__all__ = ["SERIAL", "DecodedParts", "FileIndexEngine", "Parallel"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class DecodedParts(Protocol):
    """A cache of decoded parts of segments; safe to share between threads, and free to forget anything."""

    def get(self, segment: str, part: str) -> Any | None:
        """Return a value, or None."""
        ...

    def put(self, segment: str, part: str, value: Any, nbytes: int) -> None:
        """Keep a value that takes so many bytes."""
        ...

    def drop(self, segment: str) -> None:
        """Forget a segment; the garbage collector calls this, on any thread."""
        ...


class Parallel(Protocol):
    """``map``, for work that releases Python's lock."""

    def __call__(self, work: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
        """Yield the results in the order of the items; takes few items ahead, for each may be large."""
        ...


@dataclass(frozen=True)
class FileIndexEngine:
    """How the segments of a table are worked on; what is derived from a set of live files has the same one.

    Attributes:
        decoded: where decoded parts are kept.
        parallel: how work on several segments is done.
    """

    decoded: DecodedParts
    parallel: Parallel


class _NoCache:
    """Keeps nothing."""

    def get(self, segment: str, part: str) -> None:
        """Return None."""

    def put(self, segment: str, part: str, value: Any, nbytes: int) -> None:
        """Do nothing."""

    def drop(self, segment: str) -> None:
        """Do nothing."""


SERIAL: Final = FileIndexEngine(_NoCache(), map)
"""Keeps nothing, and works on one segment after the other."""
