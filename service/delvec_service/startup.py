"""What makes a start quick, of a process that serves and of one that embeds the service."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["garbage_collection_paused"]


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Keep Python from looking for garbage while modules are imported, which make none.

    It would look through all that was imported so far, again and again: a fifth of a start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
