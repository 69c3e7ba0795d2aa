"""The Delvec service: log replay, conflict checks, commits and deletion vectors for Delta tables."""

from importlib.metadata import version
from typing import Final

__all__ = ["VERSION"]

VERSION: Final = version("delvec")
"""Of Delvec: read once per process, from a file."""
