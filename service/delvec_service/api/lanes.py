"""How many requests of each kind run at once, how many wait, and how long they may take.

Each kind has its own threads: if storage stops answering reads, commits continue. Probes are not part of this.
Queued principals are served in turn, so one that sends a thousand requests delays only its own. Under overload, reads and
maintenance give way: neither may queue while commits wait.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from delvec_errors import DelvecError, ServiceUnavailable
from delvec_service.logs import logger
from delvec_service.telemetry.observer import NO_OBSERVER, Observer

__all__ = ["Kind", "Lane", "Lanes", "in_thread"]

Kind: TypeAlias = Literal["reading", "commits", "changes", "commands", "maintenance"]

_Result = TypeVar("_Result")

_AT_ONCE: Final[dict[Kind, int]] = {
    "reading": 24,
    "commits": 40,
    "changes": 16,
    "commands": 8,
    "maintenance": 4,
}
_YIELDING_KINDS: Final[frozenset[Kind]] = frozenset({"reading", "maintenance"})
"""Kinds of which no request queues while commits wait: it is rejected at once."""
_MAX_LATE: Final = 2
"""For each request that runs in time, how many that already timed out may still be running."""
_WAIT_SECONDS: Final = 10.0


class Lane:
    """The requests of one kind.

    Args:
        kind: the kind.
        at_once: how many run concurrently.
        queued: how many may wait; further ones are rejected. 0: any number, for any time.
        seconds: how long a request may run before it times out; 0: no limit.
        before: a more important lane: while it has waiting requests, this one accepts no new waiters.
        observer: notified of requests that are rejected or time out.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        at_once: int,
        max_queued: int,
        seconds: float,
        before: "Lane | None" = None,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self.kind = kind
        self.at_once = at_once
        self.queued = max_queued
        self.seconds = seconds
        self._observer = observer
        self._running = 0
        self._late = 0
        self._before = before
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting requests by principal, in the order of their turns."""
        self._threads: CapacityLimiter | None = None

    @property
    def running(self) -> int:
        """How many run. Requests that timed out have released their slots."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many are waiting."""
        return sum(map(len, self._waiting.values()))

    @property
    def threads(self) -> CapacityLimiter:
        """The threads of this kind. Threads stuck in storage count until they return."""
        if self._threads is None:  # The limiter belongs to the loop that is running by then.
            self._threads = CapacityLimiter(self.at_once * (1 + _MAX_LATE))
        return self._threads

    async def run(
        self,
        work: Callable[[], Awaitable[_Result]],
        timeout_error: Callable[[float], DelvecError],
        principal: str = "",
    ) -> _Result:
        """Do ``work`` when it is its turn. If it times out it keeps running, and its result is dropped.

        Args:
            work: what the request does.
            timeout_error: makes the error for a timeout, from the seconds allowed.
            principal: the principal that sent it.

        Raises:
            ServiceUnavailable: too many are waiting, or it waited too long; nothing was done.
            DelvecError: that error.
        """
        await self._enter(principal)
        token = _LANE.set(self)
        try:
            task = asyncio.ensure_future(work())
        finally:
            _LANE.reset(token)
        slot = _Slot()
        task.add_done_callback(lambda ended: self._done(ended, slot))
        finished, _ = await asyncio.wait((task,), timeout=self.seconds or None)
        if finished:
            return task.result()
        slot.timed_out = True
        self._observer.turned_away(self.kind, "late")
        logger.warning("request is late", kind=self.kind, seconds=self.seconds, late=self._late + 1)
        if self._late < self.at_once * _MAX_LATE:
            slot.counted = True
            self._late += 1
            self._leave()
        raise timeout_error(self.seconds)

    async def _enter(self, principal: str) -> None:
        if self._running < self.at_once:
            self._running += 1
            return
        if self.queued:
            if self._before is not None and self._before.waiting:
                raise self._busy("shed")
            if self.waiting >= self.queued and not self._make_room(principal):
                raise self._busy()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(principal, deque()).append(turn)
        try:
            # Unlike wait_for, which from Python 3.12 on times out even if the turn comes in the same moment: its slot
            # would never be free again.
            await asyncio.wait((turn,), timeout=_WAIT_SECONDS if self.queued else None)
            if not turn.done():
                raise self._busy()
            turn.result()
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave()  # its turn came, but the request is gone
            raise
        finally:
            self._wait_no_more(principal, turn)

    def _make_room(self, principal: str) -> bool:
        """Reject the last request of the principal with the most, if it has more than this principal would have."""
        greediest = max(self._waiting, key=lambda name: len(self._waiting[name]))
        if len(self._waiting[greediest]) <= len(self._waiting.get(principal, ())) + 1:
            return False
        turn = self._waiting[greediest][-1]
        self._wait_no_more(greediest, turn)
        if not turn.done():
            turn.set_exception(self._busy())
        return True

    def _wait_no_more(self, principal: str, turn: "asyncio.Future[None]") -> None:
        own = self._waiting.get(principal)
        if own is not None and turn in own:
            own.remove(turn)
            if not own:
                del self._waiting[principal]

    def _leave(self) -> None:
        """Pass the slot to the next principal's first request, or free it."""
        while self._waiting:
            principal, own = next(iter(self._waiting.items()))
            turn = own.popleft()
            del self._waiting[principal]
            if own:
                self._waiting[principal] = own  # to the back of the queue
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1

    def _done(self, task: "asyncio.Future[Any]", slot: "_Slot") -> None:
        if slot.counted:
            self._late -= 1
        else:
            self._leave()
        if slot.timed_out and not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("late request failed", kind=self.kind, reason=str(error)[:300])

    def _busy(self, reason: Literal["busy", "shed"] = "busy") -> ServiceUnavailable:
        self._observer.turned_away(self.kind, reason)
        why = (
            f"{self._running} requests of its kind ({self.kind}) are running and {self.waiting} are waiting"
            if self._before is None or reason == "busy"
            else (
                f"requests of kind {self._before.kind} are waiting ({self._before.waiting}), which take precedence "
                f"over its kind ({self.kind})"
            )
        )
        return ServiceUnavailable(f"The service is busy: {why}. Nothing was done; try again.", kind=self.kind)


@dataclass
class _Slot:
    """A request's slot: whether it was released early because the request timed out."""

    timed_out: bool = False
    counted: bool = False


class Lanes:
    """One lane per kind.

    Args:
        queued: how many requests of a kind may wait; 0: any number.
        seconds: how long a request may run; 0: no limit.
        maintenance_seconds: the same for maintenance.
        observer: notified of requests that are rejected or time out.
    """

    def __init__(
        self,
        *,
        max_queued: int,
        seconds: float,
        maintenance_seconds: float,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self._lanes: dict[Kind, Lane] = {}
        for kind in ("commits", *_AT_ONCE):  # the others give way to commits
            self._lanes.setdefault(
                kind,
                Lane(
                    kind,
                    at_once=_AT_ONCE[kind],
                    max_queued=max_queued,
                    seconds=maintenance_seconds if kind == "maintenance" else seconds,
                    before=self._lanes["commits"] if kind in _YIELDING_KINDS else None,
                    observer=observer,
                ),
            )

    def of(self, kind: Kind) -> Lane:
        """Return the lane of a kind."""
        return self._lanes[kind]

    def loads(self) -> dict[Kind, tuple[int, int]]:
        """Return how many requests of each kind are running and waiting."""
        return {kind: (lane.running, lane.waiting) for kind, lane in self._lanes.items()}


_LANE: Final[ContextVar[Lane | None]] = ContextVar("delvec_lane", default=None)


async def in_thread(work: Callable[..., _Result], *arguments: Any) -> _Result:
    """Run code that blocks on storage or the database in a thread of the request's kind."""
    lane = _LANE.get()
    return await anyio.to_thread.run_sync(work, *arguments, limiter=None if lane is None else lane.threads)
