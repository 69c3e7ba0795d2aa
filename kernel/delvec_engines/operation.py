"""The name of the running command, which engines show in job descriptions."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["operation", "running"]

_running: Final[ContextVar[str]] = ContextVar("delvec_operation", default="READ")


@contextmanager
def running(name: str) -> Iterator[None]:
    """Set the operation name inside the block, unless an outer command has set one."""
    given = None if _running.get() != "READ" else _running.set(name)
    try:
        yield
    finally:
        if given is not None:
            _running.reset(given)


def operation() -> str:
    """Return the name of the running operation; ``READ`` by default."""
    return _running.get()
