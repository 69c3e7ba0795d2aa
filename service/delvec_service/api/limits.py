"""Rate limits of principals and tables, per process: requests, commits and body bytes a second, and concurrent plans.

Requests over a limit are rejected before their body is read, with the time to retry. Libraries for this keep their
counts in a store shared by all processes, or lock; here a request costs a few additions.
"""

import math
import operator
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cachetools import LRUCache
from starlette.types import Scope

from delvec_errors import TooManyRequests
from delvec_service.api.authorizer import TABLE
from delvec_service.auth.rules import rule_of
from delvec_service.store.registry import TableRecord
from delvec_service.telemetry.observer import NO_OBSERVER, Observer

__all__ = ["Permit", "RateLimits", "RequestLimits"]

Owner: TypeAlias = Literal["principal", "table"]
Rate: TypeAlias = Literal["requests", "commits", "bytes"]

_BURST_SECONDS: Final = 2.0
"""The burst that is available after a quiet period."""
_MAX_KNOWN: Final = 10_000
"""How many principals, or tables, to keep counts of; those idle longest are dropped."""
_AT_ONCE_SECONDS: Final = 1.0
"""When to retry if too many plans are running: their end cannot be predicted."""
_READ_METHODS: Final = frozenset({"GET", "HEAD"})
_RATE_NAMES: Final[dict[Rate, str]] = {
    "requests": "requests a second",
    "commits": "commits a second",
    "bytes": "bytes of request bodies a second",
}


@dataclass(frozen=True)
class RateLimits:
    """The limits of one principal or one table; 0 is no limit.

    Attributes:
        requests: a second.
        commits: a second; every request that creates a version of a table counts.
        bytes: the bytes of request bodies, a second.
        plans: of scans, changes and streams, at the same time.
    """

    requests: float = 0
    commits: float = 0
    bytes: float = 0
    plans: int = 0

    def __bool__(self) -> bool:
        return any((self.requests, self.commits, self.bytes, self.plans))


class _TokenBucket:
    """The remaining budget of a rate.

    The last caller may take more than is left; those after it wait for that.
    """

    __slots__ = ("_at", "_left", "_most", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._left = self._most = max(1.0, rate * _BURST_SECONDS)
        self._at = now

    def wait(self, now: float) -> float:
        """Return the seconds until some budget is available."""
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        return 0.0 if self._left >= 1 else (1 - self._left) / self._rate

    def take(self, amount: float) -> None:
        """Use some."""
        self._left -= amount


class _LimitedSubjects:
    """All principals, or all tables, and their usage."""

    def __init__(self, of: Owner, allowance: RateLimits) -> None:
        self.of = of
        self.allowance = allowance
        self.rates: dict[Rate, float] = {
            "requests": allowance.requests,
            "commits": allowance.commits,
            "bytes": allowance.bytes,
        }
        self.plans: dict[str, int] = {}
        self._meters: LRUCache[tuple[str, Rate], _TokenBucket] = LRUCache(_MAX_KNOWN * len(_RATE_NAMES))

    def meter(self, name: str, what: Rate, now: float) -> _TokenBucket | None:
        """Return the remaining budget of one of them, or None if it has no limit."""
        rate = self.rates[what]
        if not rate:
            return None
        key = name, what
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = _TokenBucket(rate, now)
        return meter

    def plan_ended(self, name: str) -> None:
        """Release the slot of a plan."""
        left = self.plans[name] - 1
        if left:
            self.plans[name] = left
        else:
            del self.plans[name]


class Permit:
    """An admitted request: counts what it uses and releases what it holds."""

    def __init__(self, bodies: list[_TokenBucket], plans: list[tuple[_LimitedSubjects, str]]) -> None:
        self._bodies = bodies
        self._plans = plans

    def received(self, size: int) -> None:
        """Count bytes of the request's body."""
        for meter in self._bodies:
            meter.take(size)

    def end(self) -> None:
        """Release what the request holds."""
        for owners, name in self._plans:
            owners.plan_ended(name)
        self._plans = []


class RequestLimits:
    """Counts the usage of principals and tables in this process. For one event loop.

    Args:
        principals: the limits of each principal; without tokens everybody is one principal.
        tables: the limits of each table, over all principals.
        observer: notified of rejected requests.
        clock: in seconds.
    """

    def __init__(
        self,
        principals: RateLimits,
        tables: RateLimits,
        observer: Observer = NO_OBSERVER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._principals = _LimitedSubjects("principal", principals)
        self._tables = _LimitedSubjects("table", tables)
        self._observer = observer
        self._clock = clock

    def admit(self, principal: str, scope: Scope) -> Permit:
        """Count an authorized request.

        Raises:
            TooManyRequests: it exceeds a limit; it was not counted.
        """
        rule_match = rule_of(scope["method"], scope["path"])
        if rule_match is not None and rule_match[0].on == "nothing":
            return Permit([], [])  # probes
        counts = None if rule_match is None else rule_match[0].counts
        rates: list[Rate] = ["requests"]
        if counts == "commit":
            rates.append("commits")
        if scope["method"] not in _READ_METHODS:
            rates.append("bytes")
        now = self._clock()
        owners = list(self._owners(principal, scope, None if rule_match is None else rule_match[1]))
        meters = [
            (each, name, what, meter)
            for each, name in owners
            for what in rates
            if (meter := each.meter(name, what, now)) is not None
        ]
        plans = [(each, name) for each, name in owners if counts == "plan" and each.allowance.plans]
        waits = [
            (wait, _over(each, name, what, wait))
            for each, name, what, meter in meters
            if (wait := meter.wait(now))
        ]
        waits += [
            (_AT_ONCE_SECONDS, _too_many_plans(each, name))
            for each, name in plans
            if each.plans.get(name, 0) >= each.allowance.plans
        ]
        if waits:
            refusal = max(waits, key=operator.itemgetter(0))[1]
            self._observer.limited(str(refusal.details["limit"]), str(refusal.details["of"]))
            raise refusal
        for _, _, what, meter in meters:
            if what != "bytes":
                meter.take(1)
        for each, name in plans:
            each.plans[name] = each.plans.get(name, 0) + 1
        return Permit([meter for _, _, what, meter in meters if what == "bytes"], plans)

    def _owners(
        self, principal: str, scope: Scope, names: dict[str, str] | None
    ) -> Iterator[tuple[_LimitedSubjects, str]]:
        yield self._principals, principal
        if not self._tables.allowance or not names or "table" not in names:
            return
        record: TableRecord | None = scope.get(TABLE)
        if record is not None:
            yield self._tables, record.name
        elif "namespace" in names:  # Iceberg's catalog, where names have two parts
            yield self._tables, f"{names['namespace'].replace(chr(0x1F), '.')}.{names['table']}"
        else:
            yield self._tables, names["table"]


def _over(owners: _LimitedSubjects, name: str, what: Rate, wait: float) -> TooManyRequests:
    most = owners.rates[what]
    setting = f"DELVEC_{owners.of.upper()}_{what.upper()}_PER_SECOND"
    return _refused(owners, name, what, most, f"{most:g} {_RATE_NAMES[what]}", setting, wait)


def _too_many_plans(owners: _LimitedSubjects, name: str) -> TooManyRequests:
    most = owners.allowance.plans
    setting = f"DELVEC_{owners.of.upper()}_PLANS_AT_ONCE"
    return _refused(owners, name, "plans", most, f"{most} concurrent plans", setting, _AT_ONCE_SECONDS)


def _refused(
    owners: _LimitedSubjects, name: str, limit: str, most: float, message: str, setting: str, wait: float
) -> TooManyRequests:
    whose = (
        f"'{name[:200]}' is limited to" if owners.of == "principal" else f"Table '{name[:200]}' is limited to"
    )
    after = max(math.ceil(wait * 1000) / 1000, 0.001)
    return TooManyRequests(
        f"{whose} {message} per process ({setting}), and the limit is reached. Nothing was done. Retry in {after:g} "
        "seconds.",
        limit=limit,
        of=owners.of,
        name=name[:200],
        most=most,
        retry_after=after,
    )
