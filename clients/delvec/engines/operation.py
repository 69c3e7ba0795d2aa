"""What a command calls itself while an engine works for it: engines tell it to those who watch their jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["operation", "running"]

_running: Final[ContextVar[str]] = ContextVar("delvec_operation", default="READ")


@contextmanager
def running(name: str) -> Iterator[None]:
    """Call what is done inside by Delta's name of the operation, unless a larger one is running already."""
    given = None if _running.get() != "READ" else _running.set(name)
    try:
        yield
    finally:
        if given is not None:
            _running.reset(given)


def operation() -> str:
    """Return the name of what is running, ``READ`` where nothing else is."""
    return _running.get()
