"""Raises Delvec's errors with their types when they come back through Spark.

Errors of ``format("delvec")`` and of streams pass through the JVM and arrive as the text of a traceback in an
exception of PySpark. PySpark converts exceptions in one function for classic sessions and another for Spark Connect.
It has no hook, so both functions are wrapped when PySpark is imported; this module does not import PySpark.

The typed error is also an instance of PySpark's class, so ``except AnalysisException`` still works.

Tested in `tests/integration/spark/test_spark_typed_errors.py`.
"""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from delvec_errors import DelvecError

__all__ = ["install", "typed", "with_base"]

_MADE_BY: Final = {
    "pyspark.errors.exceptions.captured": (None, "convert_exception"),
    "pyspark.sql.connect.client.core": (None, "convert_exception"),
    "pyspark.sql.streaming.query": ("StreamingQuery", "exception"),
    "pyspark.sql.connect.streaming.query": ("StreamingQuery", "exception"),
}
"""The PySpark functions that convert exceptions, by module."""
_classes: Final[dict[tuple[type[DelvecError], type[Exception]], type[DelvecError]]] = {}


def install() -> None:
    """Make PySpark raise Delvec's errors with their types in this process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in _MADE_BY:
        if name in sys.modules:
            _wrap(sys.modules[name])


def typed(error: Any) -> Any:
    """Return the Delvec error in an exception of PySpark; the exception itself if there is none."""
    from delvec_engines.spark.failures import named_in

    if error is None or isinstance(error, DelvecError):
        return error
    texts = [getattr(error, name, None) for name in ("_desc", "_stackTrace")]
    delvec_error = next(
        filter(None, (named_in(text) for text in (texts if any(texts) else [str(error)]) if text)), None
    )
    if delvec_error is None:
        return error
    # PySpark raises py4j's error instead of an UnknownException.
    base = next(each for each in type(error).__mro__ if each.__name__ != "UnknownException")
    kind = _combined_class(type(delvec_error), base)
    both = kind.__new__(kind, delvec_error.message)
    # Without __init__: PySpark's would call the JVM.
    both.__dict__.update(error.__dict__)
    both.__dict__.update(delvec_error.__dict__)
    return both


def with_base(error: DelvecError, theirs: type[Exception]) -> DelvecError:
    """Return an error that is also an instance of PySpark's class, for programs written for delta-spark."""
    return _combined_class(type(error), theirs)(error.message, **error.details)


def _combined_class(ours: type[DelvecError], theirs: type[Exception]) -> type[DelvecError]:
    if (ours, theirs) not in _classes:
        # PySpark's __str__ would show the traceback of every process.
        shown = {
            "__str__": lambda self: self.message,
            "__reduce__": lambda self: (_rebuilt, (ours, self.message, self.details)),
        }
        members = {"__module__": ours.__module__, "__doc__": ours.__doc__, **shown}
        _classes[ours, theirs] = type(ours.__name__, (ours, theirs), members)
    return _classes[ours, theirs]


def _rebuilt(kind: type[DelvecError], message: str, details: dict[str, Any]) -> DelvecError:
    return kind(message, **details)


def _wrap(module: ModuleType) -> None:
    inside, name = _MADE_BY[module.__name__]
    owner = module if inside is None else getattr(module, inside, None)
    function: Callable[..., Any] | None = getattr(owner, name, None)
    if function is None or getattr(function, "_is_typed", False):
        return

    @wraps(function)
    def of_type(*args: Any, **kwargs: Any) -> Any:
        return typed(function(*args, **kwargs))

    of_type._is_typed = True  # type: ignore[attr-defined]  # noqa: SLF001 - of this function's own
    setattr(owner, name, of_type)


class _Finder(MetaPathFinder):
    """Wraps the functions of these modules once they are executed; other finders locate them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _MADE_BY:
            return None
        others = (finder for finder in sys.meta_path if not isinstance(finder, _Finder))
        found = (
            finder.find_spec(fullname, path, target) for finder in others if hasattr(finder, "find_spec")
        )
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Wrapping(spec.loader)
        return spec


class _Wrapping(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _wrap(module)
