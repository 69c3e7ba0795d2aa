"""What the parts of the service report; the application decides which observer listens."""

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
    """Listens to nothing; what listens overrides what it wants to hear. Safe to share between threads.

    What takes time is a context manager around it, the rest a call. Nothing here raises.
    """

    def storage(self, kind: StorageKind) -> AbstractContextManager[None]:
        """Surround one request to storage."""
        del kind
        return _NOTHING

    def commit(self, table: str, transaction_id: str) -> AbstractContextManager[None]:
        """Surround one commit, from the request to its answer."""
        del table, transaction_id
        return _NOTHING

    def plan(self, table: str) -> AbstractContextManager[None]:
        """Surround the planning of one scan."""
        del table
        return _NOTHING

    def upkeep(self, task: str, table: str) -> AbstractContextManager[None]:
        """Surround one task in the background."""
        del task, table
        return _NOTHING

    def request(self, scope: Any) -> "AbstractContextManager[RequestObserver]":
        """Surround one HTTP request, whose ASGI scope this is."""
        del scope
        return nullcontext(_NO_REQUEST)

    def committed(self, outcome: CommitOutcome, rows_saved: int = 0) -> None:
        """Take note of what became of a commit, and of rows that nobody had to look for again."""

    def conflicted(self, error: str) -> None:
        """Take note of the type of a conflict."""

    def tried(self, members: int, attempts: int) -> None:
        """Take note of a group of commits, of how many, and of how many versions it tried to create."""

    def planned(self, files: int, files_total: int) -> None:
        """Take note of how many files of how many a scan has to read."""

    def loaded(self, source: CacheSource) -> None:
        """Take note of where the newest version of a table came from."""

    def vectors_found(self, held: int, read: int) -> None:
        """Take note of how many deletion vectors were in memory, and how many had to be read."""

    def turned_away(self, lane: str, reason: Literal["busy", "late", "shed"]) -> None:
        """Take note of a request that was not carried out for lack of room, or not in time."""

    def limited(self, limit: str, of: str) -> None:
        """Take note of a request over a limit, and of whose limit it is: the principal's or the table's."""

    def maintained(self, kind: str, state: str) -> None:
        """Take note of a run of a maintenance policy."""

    def expose(self, accept: str, gauges: Gauges, more: bytes = b"") -> tuple[bytes, str] | None:
        """Return metrics in a format that is accepted, and its media type; None where none are kept.

        Args:
            accept: of the request.
            gauges: this process's, as they are now.
            more: lines to go with them, in that format.
        """
        del accept, gauges, more
        return None

    def keep_fresh(self, look: Callable[[], Gauges]) -> None:
        """Look at gauges now and then, where other processes answer for this one."""

    def close(self) -> None:
        """Listen no more."""


class RequestObserver:
    """Learns how one HTTP request ended.

    Attributes:
        trace_id: of its trace, in hexadecimal; None where it has none.
    """

    trace_id: str | None = None

    def answered(self, status: int, route: str) -> None:
        """Take note of the status, 0 where there was no answer, and of the route's pattern."""


_NO_REQUEST: Final = RequestObserver()
NO_OBSERVER: Final = Observer()
