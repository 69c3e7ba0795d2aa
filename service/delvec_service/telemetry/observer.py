"""The events that parts of the service report; the application decides which observer receives them.

Tested in `tests/unit/service/api/test_limits.py` and `tests/integration/service/test_metrics.py`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal, TypeAlias

__all__ = [
    "NO_OBSERVER",
    "CacheSource",
    "CommitOutcome",
    "Gauges",
    "Observer",
    "RequestObserver",
    "StorageKind",
]

StorageKind: TypeAlias = Literal[
    "list", "get", "head", "open", "create", "put", "delete", "read-deletion-vectors"
]
CommitOutcome: TypeAlias = Literal[
    "committed", "rebased", "replayed", "nothing-to-do", "already-applied", "conflict", "unknown", "failed"
]
CacheSource: TypeAlias = Literal["memory", "database", "log"]

Gauges: TypeAlias = Mapping[str, Mapping[tuple[str, ...], float]]
"""Values by the gauge's name without ``delvec_``, and by its labels."""

_NOTHING: Final[AbstractContextManager[None]] = nullcontext()


class Observer:
    """Ignores all events; subclasses override those they need. Safe to share between threads.

    Events with a duration are context managers, the others are calls. No method raises.
    """

    def storage(self, kind: StorageKind) -> AbstractContextManager[None]:
        """Observe a request to storage."""
        del kind
        return _NOTHING

    def commit(self, table: str, transaction_id: str) -> AbstractContextManager[None]:
        """Observe a commit, from the request to its answer."""
        del table, transaction_id
        return _NOTHING

    def plan(self, table: str) -> AbstractContextManager[None]:
        """Observe the planning of a scan."""
        del table
        return _NOTHING

    def background_task(self, task: str, table: str) -> AbstractContextManager[None]:
        """Observe a background task."""
        del task, table
        return _NOTHING

    def request(self, scope: Any) -> "AbstractContextManager[RequestObserver]":
        """Observe an HTTP request with this ASGI scope."""
        del scope
        return nullcontext(_NO_REQUEST)

    def committed(self, outcome: CommitOutcome, rows_saved: int = 0) -> None:
        """Record the outcome of a commit, and the changed rows that did not have to be searched again."""

    def conflicted(self, error: str) -> None:
        """Record the type of a conflict."""

    def tried(self, members: int, attempts: int) -> None:
        """Record the size of a group of commits, and how many versions it tried to create."""

    def planned(self, files: int, files_total: int) -> None:
        """Record how many files of how many a scan has to read."""

    def loaded(self, source: CacheSource) -> None:
        """Record the source of a table's newest version."""

    def vectors_found(self, held: int, read: int) -> None:
        """Record how many deletion vectors were in memory, and how many had to be read."""

    def turned_away(self, lane: str, reason: Literal["busy", "late", "shed"]) -> None:
        """Record a request that was rejected for lack of capacity, or timed out."""

    def limited(self, limit: str, of: str) -> None:
        """Record a request that exceeded a limit, and whether it is the principal's or the table's."""

    def maintained(self, kind: str, state: str) -> None:
        """Record a run of a maintenance policy."""

    def expose(self, accept: str, gauges: Gauges, more: bytes = b"") -> tuple[bytes, str] | None:
        """Return metrics in an accepted format, and its media type; None if there are no metrics.

        Args:
            accept: the request's Accept header.
            gauges: current gauges of this process.
            more: lines to append, in that format.
        """
        del accept, gauges, more
        return None

    def keep_fresh(self, look: Callable[[], Gauges]) -> None:
        """Measure gauges from time to time, if other processes answer for this one."""

    def close(self) -> None:
        """Stop observing."""


class RequestObserver:
    """Records how one HTTP request ended.

    Attributes:
        trace_id: the id of its trace in hexadecimal, or None.
    """

    trace_id: str | None = None

    def answered(self, status: int, route: str) -> None:
        """Record the status, 0 if there was no answer, and the route's path template."""


_NO_REQUEST: Final = RequestObserver()
NO_OBSERVER: Final = Observer()
