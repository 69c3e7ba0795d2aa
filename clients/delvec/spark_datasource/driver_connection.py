"""Connections of the Python processes that Spark starts on the driver."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from delvec.connection import Connection, connect

__all__ = ["driver_connection"]


@lru_cache(maxsize=4)
def driver_connection(url: str | None, token: str | None) -> Connection:
    """Return a cached connection: Spark reuses the process, and an embedded service takes time to start."""
    with _without_garbage_collection():
        return connect(url, token=token)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Exclude objects created in the block from garbage collection, now and later: imports create many, which all stay.

    Collection takes a fifth of the startup time of a service. Not for users' processes, whose garbage would stay, too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
