"""Ctrl-C is ``KeyboardInterrupt``, whatever a library makes of it.

Python raises ``KeyboardInterrupt`` in the main thread, wherever that happens to be, but not within a call of DuckDB,
which looks for signals between its tasks, of which one of a nested-loop join takes minutes. In DuckDB it becomes a
``RuntimeError``; in a Python iterator or file from which DuckDB or Arrow reads, it becomes an error about the data, of
which only the text tells. As errors they would be taken for damage, be retried, or make Spark run the command again.
"""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

__all__ = ["interruptible", "settle", "stoppable"]

_Result = TypeVar("_Result")

_BY_DUCKDB: Final = "Query interrupted"
_IN_TRACEBACK: Final = re.compile(
    r"Traceback \(most recent call last\):.*^KeyboardInterrupt\s*$", re.DOTALL | re.MULTILINE
)

_STOPS_AGAIN: Final = 0.05
"""Seconds after which a statement is stopped again: one that had not begun has not noticed."""


def stoppable(work: Callable[[], _Result], stop: Callable[[], None]) -> _Result:
    """Return the result of work, which the main thread leaves to another one, to be free for Ctrl-C.

    Args:
        work: calls DuckDB.
        stop: makes it end early.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the work has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    future: Future[_Result] = Future()
    # Not of a pool: its threads would be missing after a fork. The context says whose command reads.
    run = partial(copy_context().run, settle, future, work)
    threading.Thread(target=run, name="delvec-statement", daemon=True).start()
    try:
        with interruptible():
            return future.result()
    except BaseException:
        while not future.done():
            stop()
            wait([future], _STOPS_AGAIN)
        raise


def settle(future: "Future[_Result]", work: Callable[[], _Result]) -> None:
    """Give a future the result of work, or its error."""
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised where the result is taken
        future.set_exception(error)


@contextmanager
def interruptible() -> Iterator[None]:
    """Run calls of DuckDB, or reads of somebody's rows, of which Ctrl-C is to end the program's command.

    Raises:
        KeyboardInterrupt: instead of the error that a library has made of it.
    """
    try:
        yield
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from error
        raise


def _is_interrupt(error: Exception) -> bool:
    # Only there does Python raise KeyboardInterrupt: elsewhere, such a text is somebody's data.
    if threading.current_thread() is not threading.main_thread():
        return False
    text = str(error)
    return (type(error) is RuntimeError and text == _BY_DUCKDB) or _IN_TRACEBACK.search(text) is not None
