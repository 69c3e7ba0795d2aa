"""The running command: its name, which engines show in job descriptions, and which reads are its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["command", "operation", "running", "running_command"]

_running: Final[ContextVar[str]] = ContextVar("delvec_operation", default="READ")
_command: Final[ContextVar[object | None]] = ContextVar("delvec_command", default=None)


@contextmanager
def command() -> Iterator[None]:
    """Make the block a command, whose commit says what it depends on; inside another command it is a part of that."""
    outer = _command.get()
    token = _command.set(outer or object())
    try:
        yield
    finally:
        _command.reset(token)


def running_command() -> object | None:
    """Return what identifies the running command; None outside of commands, where a user reads."""
    return _command.get()


@contextmanager
def running(name: str) -> Iterator[None]:
    """Make the block a :func:`command`, and set its operation name, unless an outer command has set one."""
    token = None if _running.get() != "READ" else _running.set(name)
    try:
        with command():
            yield
    finally:
        if token is not None:
            _running.reset(token)


def operation() -> str:
    """Return the name of the running operation; ``READ`` by default."""
    return _running.get()
