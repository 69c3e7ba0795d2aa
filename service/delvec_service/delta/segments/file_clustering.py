"""Files put near their like before they are cut into segments, so that a predicate leaves few segments.

delta-spark distributes the files of a checkpoint by the hash of their path: in its order each segment has files of
every partition and of every time, and bounds of whole segments say nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_service.delta.segments.segment import SEGMENT_ROWS

__all__ = ["clustered"]

_Ranks: TypeAlias = npt.NDArray[Any]

_WINDOW: Final = 131_072
"""Rows that are sorted at a time: of a table a range of time is in one segment per window, and each window is in memory."""
_WINDOW_BYTES: Final = 512 * 1024 * 1024
"""Of a window: statistics of very wide tables would take gigabytes of memory before the rows end."""


def clustered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, a segment at a time, in windows ordered by partition values and then by modification time.

    Files that were written at about the same time tend to hold about the same values. Within a segment the rows
    are in the order in which they came.

    Args:
        batches: FILES_SCHEMA and any further columns; one of another schema begins a window.
    """
    waiting: list[pa.RecordBatch] = []
    count = nbytes = 0
    for batch in batches:
        full = count + batch.num_rows > _WINDOW or nbytes + batch.nbytes > _WINDOW_BYTES
        if waiting and (full or waiting[0].schema != batch.schema):
            yield from _ordered(waiting)
            count = nbytes = 0
        waiting.append(batch)
        count += batch.num_rows
        nbytes += batch.nbytes
    yield from _ordered(waiting)


def _ordered(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order; empties the list, so that the window is in memory once."""
    if not batches:
        return
    window = batches[:]
    batches.clear()
    times = np.concatenate([batch.column("modification_time").to_numpy() for batch in window])
    maps = pa.concat_arrays([batch.column("partition_values") for batch in window])
    order = np.lexsort([times, *reversed(_partition_ranks(maps))])
    del maps
    if np.all(order[1:] > order[:-1]):
        while window:
            yield window.pop(0)
        return
    starts = np.cumsum([0, *(batch.num_rows for batch in window)])
    for start in range(0, len(order), SEGMENT_ROWS):
        # Taking forwards from each batch copies nothing twice; joining the window first would.
        rows = np.sort(order[start : start + SEGMENT_ROWS])
        places = np.searchsorted(rows, starts)
        yield pa.concat_batches(
            batch.take(pa.array(rows[places[index] : places[index + 1]] - starts[index]))
            for index, batch in enumerate(window)
            if places[index] < places[index + 1]
        )


def _partition_ranks(maps: pa.MapArray) -> list[_Ranks]:
    """Return, for each partition column, a number per file that grows with its value as text."""
    ends = maps.offsets.to_numpy()
    widths = np.diff(ends)
    if not len(widths) or np.any(widths != widths[0]):
        return []  # a log whose files do not agree on the columns: any order will do
    first, width = int(ends[0]), int(widths[0])
    ranks = []
    for place in range(width):
        values = maps.items.take(pa.array(np.arange(first + place, int(ends[-1]), width)))
        encoded = values.dictionary_encode()
        # Ranks start at 1, which leaves 0 for null.
        by_code = np.append(pc.rank(encoded.dictionary).to_numpy(), 0)
        ranks.append(by_code[pc.fill_null(encoded.indices, len(by_code) - 1).to_numpy()])
    return ranks
