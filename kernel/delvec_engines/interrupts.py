"""Ctrl-C is ``KeyboardInterrupt``, whatever a library makes of it.

Python raises ``KeyboardInterrupt`` in the main thread, wherever that happens to be, but not within a call of DuckDB,
which looks for signals between its tasks, of which one of a nested-loop join takes minutes. In DuckDB it becomes a
``RuntimeError``; in a Python iterator or file from which DuckDB or Arrow reads, it becomes an error about the data, of
which only the text tells. As errors they would be taken for damage, be retried, or make Spark run the command again.
"""

import queue
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

__all__ = ["SideThread", "interruptible", "stoppable"]

_Result = TypeVar("_Result")

_BY_DUCKDB: Final = "Query interrupted"
_IN_TRACEBACK: Final = re.compile(
    r"Traceback \(most recent call last\):.*^KeyboardInterrupt\s*$", re.DOTALL | re.MULTILINE
)

_STOPS_AGAIN: Final = 0.05
"""Seconds after which a statement is stopped again: one that had not begun has not noticed."""


class SideThread:
    """A thread that works for the main thread, which stays free for Ctrl-C meanwhile.

    Not a ``ThreadPoolExecutor``: the interpreter would wait at its exit for work that unreachable storage never ends.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pending: queue.SimpleQueue[Callable[[], None] | None] | None = None

    def submit(self, work: Callable[[], _Result]) -> "Future[_Result]":
        """Run work after what was submitted before, in the context of the caller: it says whose command this is."""
        future: Future[_Result] = Future()
        if self._pending is None:
            self._pending = queue.SimpleQueue()
            threading.Thread(target=_run_all, args=(self._pending,), name=self._name, daemon=True).start()
        self._pending.put(partial(copy_context().run, _settle, future, work))
        return future

    def close(self) -> None:
        """Let the thread end after what it does; later work gets another one."""
        if self._pending is not None:
            self._pending.put(None)
            self._pending = None


def _run_all(pending: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    while (work := pending.get()) is not None:
        work()
        del work  # it refers to answers


def _settle(future: "Future[_Result]", work: Callable[[], _Result]) -> None:
    """Give a future the result of work, or its error."""
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised where the result is taken
        future.set_exception(error)


@contextmanager
def stoppable(stop: Callable[[], None]) -> Iterator[Callable[[Callable[[], _Result]], _Result]]:
    """Lend a function that returns the result of work with DuckDB, and that Ctrl-C ends.

    One thread serves all batches of a statement: a new one for each takes 0.2 ms a batch.

    Args:
        stop: makes work end early.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the work has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda work: work()
        return
    # Not one that lasts: it would be missing after a fork.
    thread = SideThread("delvec-statement")

    def run(work: Callable[[], _Result]) -> _Result:
        future = thread.submit(work)
        try:
            with interruptible():
                return future.result()
        except BaseException:
            while not future.done():
                stop()
                wait([future], _STOPS_AGAIN)
            raise

    try:
        yield run
    finally:
        thread.close()


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
