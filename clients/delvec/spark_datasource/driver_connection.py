"""The connections of a Python process of Spark's driver."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from delvec.connection import Connection, connect

__all__ = ["driver_connection"]


@lru_cache(maxsize=4)
def driver_connection(url: str | None, token: str | None) -> Connection:
    """Return a connection that stays: Spark uses the process again, and a service in it takes a while to start."""
    with _nothing_collected():
        return connect(url, token=token)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Spare what is made meanwhile the search for garbage, now and later: imports make much, and all of it stays.

    It would be a fifth of the time in which a service starts. Not for processes of users, whose garbage would stay too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
