"""Spark Connect: sessions, frames and columns whose JVM is elsewhere."""

from typing import Any

__all__ = ["is_remote"]


def is_remote(given: Any) -> bool:
    """Return whether a session, a DataFrame or a Column is one of Spark Connect; none of it is imported for that."""
    return type(given).__module__.startswith("pyspark.sql.connect.")
