"""Connections of the processes that Spark keeps on the driver to plan and to commit."""

from functools import lru_cache

from delvec.connection import Connection, connect

__all__ = ["driver_connection"]


@lru_cache(maxsize=4)
def driver_connection(url: str | None, token: str | None) -> Connection:
    """Return a connection that stays: Spark uses the process again, and a service in it takes a while to start."""
    return connect(url, token=token)
