"""Ctrl-C is ``KeyboardInterrupt``, whatever a library makes of it.

Python raises ``KeyboardInterrupt`` in the main thread, wherever that happens to be. In DuckDB it becomes a
``RuntimeError``; in a Python iterator or file from which DuckDB or Arrow reads, it becomes an error about the data, of
which only the text tells. As errors they would be taken for damage, be retried, or make Spark run the command again.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["interruptible"]

_BY_DUCKDB: Final = "Query interrupted"
_IN_TRACEBACK: Final = re.compile(
    r"Traceback \(most recent call last\):.*^KeyboardInterrupt\s*$", re.DOTALL | re.MULTILINE
)


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
