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
        self._is_broken = False

    @property
    def is_whole(self) -> bool:
        """Whether all rows that went by are here."""
        return self._nbytes <= self._limit and not self._is_broken

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from list(self._kept)
        while (batch := self._next()) is not None:
            self._keep(batch)
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        try:
            return next(self._coming, None)
        except BaseException:
            # Asked again, what has failed would say that it has no more.
            self._is_broken = True
            raise

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._nbytes += batch.nbytes
        if self.is_whole:
            self._kept.append(batch)
        else:
            self._kept.clear()
