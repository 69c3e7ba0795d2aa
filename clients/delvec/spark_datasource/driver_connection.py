"""Connections of the Python processes that Spark starts on the driver."""

from functools import lru_cache

from delvec.connection import Connection
from delvec.entry_point import connect

__all__ = ["driver_connection"]


@lru_cache(maxsize=4)
def driver_connection(url: str | None, token: str | None) -> Connection:
    """Return a cached connection: Spark reuses the process, and an embedded service takes time to start."""
    return connect(url, token=token)
