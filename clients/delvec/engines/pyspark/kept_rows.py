"""Rows of a task, kept as they go by while they are few: Spark gives them once, and a failed write needs them again."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

__all__ = ["KeptRows"]

_BYTES: Final = 64 << 20


class KeptRows:
    """Rows that can be iterated again, as long as :attr:`is_whole`.

    Args:
        batches: read once, and no further than the rows are asked for.
        limit: bytes above which nothing is kept any more.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], limit: int = _BYTES) -> None:
        self._coming = iter(batches)
        self._limit = limit
        self._kept: list[pa.RecordBatch] = []
        self._nbytes = 0

    @property
    def is_whole(self) -> bool:
        """Whether all rows that went by are here."""
        return self._nbytes <= self._limit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from list(self._kept)
        for batch in self._coming:
            self._keep(batch)
            yield batch

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._nbytes += batch.nbytes
        if self.is_whole:
            self._kept.append(batch)
        else:
            self._kept.clear()
