"""Memory that is free but that allocators keep: given back after the work that needed much of it."""

import contextlib
import ctypes

import pyarrow as pa

__all__ = ["give_back"]


def give_back() -> None:
    """Return free memory to the system, as far as the allocators of this platform can."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        # What Python objects of some kilobytes leave behind glibc keeps for good otherwise.
        ctypes.CDLL(None).malloc_trim(0)
