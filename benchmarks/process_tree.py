"""The memory of a process and of those that it started (Linux only)."""

import os
import time
from pathlib import Path

__all__ = ["ProcessTree"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FRESH = 2.0


class ProcessTree:
    """A process and its descendants.

    Args:
        process: the id of the oldest.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self._members: list[int] = []
        self._seen = float("-inf")

    def resident(self) -> int:
        """Return the bytes that they have resident together; what they share counts for each.

        Who belongs to them is looked up now and then: to look at all processes takes a while, and is not to be measured.
        """
        if time.monotonic() - self._seen > _FRESH:
            self._members = self._found()
            self._seen = time.monotonic()
        return sum(_resident(each) for each in self._members)

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
        # The name before it may hold anything, also brackets.
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0
