"""The memory, the CPU time and the bytes read of a process and its descendants (Linux only)."""

import os
import time
from pathlib import Path

__all__ = ["ProcessTree"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FRESH = 2.0
_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessTree:
    """A process and its descendants.

    Args:
        process: process id of the root.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self._members: list[int] = []
        self._seen = float("-inf")

    def resident(self) -> int:
        """Return their total resident memory in bytes; shared memory counts for each.

        The list of descendants is only refreshed now and then, because scanning all processes would distort the measurement.
        """
        if time.monotonic() - self._seen > _FRESH:
            self._members = self._found()
            self._seen = time.monotonic()
        return sum(_resident(each) for each in self._members)

    def cpu(self) -> float:
        """Return the CPU seconds that they have used, those that have ended included if they were waited for.

        All descendants: Spark's Python workers are started by a process that the JVM started.
        """
        return sum(_ticks(each) for each in self._found()) / _TICKS

    def read(self) -> int:
        """Return the bytes that they have read by system calls, from the system's cache too, as far as they still run."""
        return sum(_read(each) for each in self._found())

    def _found(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for each in Path("/proc").iterdir():
            if each.name.isdecimal():
                children.setdefault(_parent(each), []).append(int(each.name))
        found = [self._process]
        for process in found:
            found += children.get(process, [])
        return found


def _parent(process: Path) -> int:
    try:
        # The process name before it may contain anything, including brackets.
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _ticks(process: int) -> int:
    try:
        facts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    # Its own, and those of children that it has waited for: in user mode and in the kernel.
    return sum(map(int, facts[11:15]))


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _read(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/io").read_text().split()[1])
    except (OSError, IndexError):
        return 0
