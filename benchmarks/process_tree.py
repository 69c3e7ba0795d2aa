"""The memory of a process and of those that it started (Linux only)."""

import os
from pathlib import Path

__all__ = ["resident"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(process: int) -> int:
    """Return the bytes that a process and its descendants have resident together; what they share counts for each."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            children.setdefault(_parent(each), []).append(int(each.name))
    found = [process]
    for each in found:
        found += children.get(each, [])
    return sum(_resident(each) for each in found)


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
