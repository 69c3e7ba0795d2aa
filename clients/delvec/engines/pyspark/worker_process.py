"""What tasks and planners do for the Python process that runs them, and what they leave to it."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar
from zipimport import zipimporter

from delvec.protocol.errors import DelvecError

__all__ = ["forget_archives", "plainly"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def forget_archives() -> None:
    """Drop what the import system remembers of ZIP archives; it is found again when it is needed.

    Before each task Spark invalidates the import system's caches. Until Python 3.13 every importer of an archive then
    reads its directory anew, and PySpark comes as an archive with an importer for each of its packages: a tenth of a
    second and more for each task, in a process that has nothing to import.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def plainly(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let Spark, which calls the function, show its errors without the frames and errors that they come from."""

    @wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except DelvecError as error:
            raise error.with_traceback(None) from None

    return called
