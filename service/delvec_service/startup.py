"""Speeds up the start of a process that serves or embeds the service."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["garbage_collection_paused"]


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Disable garbage collection while modules are imported, which create no garbage.

    Python would scan everything imported so far, again and again: a fifth of the startup time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
