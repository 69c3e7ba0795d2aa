"""Named points where a test can make a commit fail, wait, or kill its process. For tests only.

Nothing is armed unless a test or ``DELVEC_FAULT_POINTS`` arms it; a point then costs one lookup in an empty
dictionary. A specification is a list like ``after-put:kill@3,before-put:error*2,before-ledger:delay=0.2%10``.
"""

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from delvec_errors import BadRequest, StorageError
from delvec_service.logs import logger

__all__ = ["POINTS", "RATIFICATION", "TRANSACTION_POINTS", "arm", "armed", "disarm", "passed", "reach"]

POINTS: Final = frozenset(
    {
        "begin",  # the request is parsed; nothing has been done
        "before-ledger",  # the ledger does not have the deletion vector files yet
        "after-ledger",  # the ledger has them; none is written yet
        "after-deletion-vectors",  # all are written; the log does not name them yet
        "before-put",  # before each attempt to create the version
        "after-put",  # it is created, or another one exists; the outcome is not known yet
        "before-close",  # the outcome is known; the ledger does not have it yet
        "before-answer",  # everything is done except the notifications
    }
)
"""Points of a commit by Delvec itself."""
RATIFICATION: Final = frozenset(
    {
        "begin",
        "after-read",  # the staged file is read; nothing about it is checked
        "after-checks",  # it may be published
        "before-put",
        "after-put",
        "before-close",
        "before-answer",
    }
)
"""Points of a commit that a client of the catalog has staged."""
TRANSACTION_POINTS: Final = frozenset(
    {
        "before-reservation",  # of each table, before its next version is reserved
        "after-reservation",  # of each table
        "before-staging",  # of each table that changes; all are reserved
        "before-decision",  # everything is staged
        "after-decision",  # the outcome is recorded; nothing is published
        "before-publication",  # of each table that changes
        "after-publication",  # of each table that changes
    }
)
"""Those of a transaction over several tables, whose versions also pass the points around their creation."""
_ALL: Final = POINTS | RATIFICATION | TRANSACTION_POINTS
_ITEM: Final = re.compile(
    r"(?P<point>[a-z-]+):(?P<fault>kill|error|lost|delay=(?P<seconds>\d+(?:\.\d+)?))"
    r"(?:\*(?P<times>\d+))?(?:@(?P<first>\d+))?(?:%(?P<percent>\d+(?:\.\d+)?))?"
)


@dataclass(slots=True)
class _Fault:
    """One item: which fault, how often, from which passage on, and how likely."""

    act: Callable[[], None]
    times: int | None = None
    first: int = 1
    percent: float = 100.0
    passages: int = 0

    def due(self) -> bool:
        self.passages += 1
        if self.passages < self.first or self.times == 0:
            return False
        if self.percent < 100.0 and random.uniform(0, 100) >= self.percent:  # noqa: S311, PLR2004 - a test's dice
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass(slots=True)
class _Armed:
    """The fault armed at one point, and how often it acted."""

    faults: list[_Fault] = field(default_factory=list)
    acted: int = 0


_lock: Final = threading.Lock()
_armed: dict[str, _Armed] = {}


def reach(point: str) -> None:
    """Pass a point.

    Raises:
        StorageError: a fault ``error`` or ``lost`` is armed there, and due.
    """
    if _armed:
        _reach(point)


def _reach(point: str) -> None:
    with _lock:
        here = _armed.get(point)
        due = [] if here is None else [fault for fault in here.faults if fault.due()]
        if here is not None:
            here.acted += len(due)
    for fault in due:
        fault.act()


def arm(specification: str) -> None:
    """Arm the faults of a specification, in addition to those already armed.

    An item is ``point:fault``, where the fault is ``kill`` (SIGKILL of this process), ``error`` (storage fails),
    ``lost`` (it fails after it took effect) or ``delay=seconds``; then ``*n``: n times at most; ``@n``: from the n-th
    passage on; ``%p``: with a probability of p per cent.

    Raises:
        BadRequest: it is not such a list, or names an unknown point.
    """
    for item in filter(None, (part.strip() for part in specification.split(","))):
        match = _ITEM.fullmatch(item)
        if match is None or match["point"] not in _ALL:
            raise BadRequest(
                f"'{item}' is not a fault: write point:fault, where the point is one of {', '.join(sorted(_ALL))} and "
                "the fault is kill, error, lost or delay=seconds, with *times, @first-passage and %percent."
            )
        fault = _Fault(
            _act(match["point"], match["fault"], match["seconds"]),
            times=int(match["times"]) if match["times"] else None,
            first=int(match["first"] or 1),
            percent=float(match["percent"] or 100),
        )
        _add(match["point"], fault)
        logger.warning("fault point armed", fault=item)


@contextmanager
def armed(specification: str = "", **functions: Callable[[], None]) -> Iterator[None]:
    """Arm faults for a block, then disarm all.

    Args:
        specification: see :func:`arm`.
        **functions: functions to call at a point, named with underscores; they may raise.
    """
    try:
        arm(specification)
        for name, function in functions.items():
            point = name.replace("_", "-")
            if point not in _ALL:
                raise BadRequest(f"Fault point '{point}' does not exist.")
            _add(point, _Fault(function))
        yield
    finally:
        disarm()


def disarm() -> None:
    """Disarm all faults."""
    with _lock:
        _armed.clear()


def passed(point: str) -> int:
    """Return how many faults acted at a point since it was armed."""
    with _lock:
        here = _armed.get(point)
        return 0 if here is None else here.acted


def _add(point: str, fault: _Fault) -> None:
    with _lock:
        _armed.setdefault(point, _Armed()).faults.append(fault)


def _act(point: str, fault: str, seconds: str | None) -> Callable[[], None]:
    if fault == "kill":
        return lambda: os.kill(os.getpid(), signal.SIGKILL)
    if seconds is not None:
        return lambda: time.sleep(float(seconds))
    what = "storage's answer was lost" if fault == "lost" else "storage failed"

    def fail() -> None:
        raise StorageError(f"At the fault point {point} {what}, because a test requested it.")

    return fail
