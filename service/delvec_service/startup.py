"""Speeds up the start of a process that serves or embeds the service."""

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

__all__ = ["garbage_collection_paused", "hide_pandas"]


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Disable garbage collection while modules are imported, which create no garbage.

    Python would scan everything imported so far, again and again: an eighth of the CPU time until a service is ready.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def hide_pandas() -> None:
    """Make ``import pandas`` fail in this process, as if it was not installed; no effect once it is imported.

    pyarrow imports pandas, where installed, to ask whether the first list that becomes an array is one of pandas:
    0.4 s of CPU and 33 MiB for a process that has no use for it.
    """
    if _HIDDEN not in sys.meta_path:  # a process may be both: `delvec serve` with one worker
        sys.meta_path.insert(0, _HIDDEN)


class _PandasHidden(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the interface
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a process of `delvec` does not use pandas", name=fullname)


_HIDDEN: Final = _PandasHidden()
