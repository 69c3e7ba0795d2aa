"""The running command: its name, which engines show in job descriptions, which reads are its own, and what executed it.

Tested in `tests/unit/engines/test_operation.py`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

__all__ = [
    "SPARK",
    "Execution",
    "attempt",
    "command",
    "executions",
    "note_execution",
    "operation",
    "running",
    "running_command",
]

SPARK: Final = "Spark"
"""What has executed a command that Spark planned."""

_running: Final[ContextVar[str]] = ContextVar("delvec_operation", default="READ")
_command: Final[ContextVar[object | None]] = ContextVar("delvec_command", default=None)
_executions: Final[ContextVar["list[Execution] | None"]] = ContextVar("delvec_executions", default=None)


@dataclass(frozen=True)
class Execution:
    """What executes a command, or a step of one.

    Attributes:
        by: an engine and where it runs, such as ``DuckDB in the driver``; or an engine's name.
        reason: why another engine, which would be faster, does not; empty if there is none.
    """

    by: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.by}: {self.reason}" if self.reason else self.by


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


@contextmanager
def attempt() -> Iterator[list[Execution]]:
    """Make the block one attempt of a command, and lend the list of what executes its steps."""
    noted: list[Execution] = []
    token = _executions.set(noted)
    try:
        yield noted
    finally:
        _executions.reset(token)


def note_execution(execution: Execution) -> None:
    """Note what has executed a step of the running attempt; an engine that chooses calls it."""
    noted = _executions.get()
    if noted is not None:
        noted.append(execution)


def executions() -> Sequence[Execution]:
    """Return what has executed the running attempt so far, each once."""
    return list(dict.fromkeys(_executions.get() or ()))
