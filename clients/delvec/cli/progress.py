"""A bar on standard error while a command takes long, for people who watch a terminal."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["working"]

_QUICK_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.2


@contextmanager
def working(what: str, fraction: Callable[[], float | None], *, as_json: bool) -> Iterator[None]:
    """Show that something is being done, once it has taken a second; nothing is left of it at the end.

    Args:
        what: is done: ``deleting rows``.
        fraction: how much of the present step is done, from 0 to 1; None where that is not known.
        as_json: a program reads the output; nothing is shown then, nor where standard error is no terminal.
    """
    if as_json or not sys.stderr.isatty():
        yield
        return
    fraction()  # those who are asked later know that they will be
    ended = threading.Event()
    shown = threading.Thread(target=_show, args=(what, fraction, ended), daemon=True)
    shown.start()
    try:
        yield
    finally:
        ended.set()
        shown.join()


def _show(what: str, fraction: Callable[[], float | None], ended: threading.Event) -> None:
    if ended.wait(_QUICK_SECONDS):
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        while not ended.wait(_LOOK_SECONDS):
            done = fraction()
            # Without a number the bar moves to and fro.
            bar.update(task, total=None if done is None else 1.0, completed=done or 0.0)
