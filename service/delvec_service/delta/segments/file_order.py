"""The order in which a plan's files are paged: by the hash of the path, so that it costs no sorting of paths.

It is the same for all replays of a version, in every process, whatever segments they keep the files in.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from delvec_service.delta.segments.segment import load_parts
from delvec_service.delta.segments.segment_parts import KEYS
from delvec_service.delta.segments.segment_rows import rows_of
from delvec_service.delta.skipping.file_selection import Selected

__all__ = ["page_of"]

_Index = npt.NDArray[np.int64]


def page_of(selected: Sequence[Selected], offset: int, limit: int | None) -> tuple[list[Selected], _Index]:
    """Return the files of one page, and the order that they have among each other.

    Args:
        selected: all files.
        offset: files to pass over.
        limit: files to return at most.

    Raises:
        SegmentsLost: a store lost a segment that is needed.
    """
    total = sum(each.num_rows for each in selected)
    end = total if limit is None else min(total, offset + limit)
    if offset >= end:
        return [], np.empty(0, np.int64)
    hashes = _hashes(selected)
    parted = np.partition(hashes, sorted({offset, end - 1}))
    first, last = parted[offset], parted[end - 1]
    near = np.flatnonzero((hashes >= first) & (hashes <= last))
    ordered = near[np.argsort(hashes[near], kind="stable")]
    if (np.diff(hashes[ordered]) == 0).any():
        paths = [path for batch in rows_of(_chosen(selected, near)) for path in batch["path"].to_pylist()]
        keyed = sorted(zip(hashes[near].tolist(), paths, near.tolist(), strict=True))
        ordered = np.array([place for _, _, place in keyed], np.int64)
    before = int(np.count_nonzero(hashes < first))
    wanted = ordered[offset - before : end - before]
    return _taken(selected, np.sort(wanted)), np.searchsorted(np.sort(wanted), wanted)


def _hashes(selected: Sequence[Selected]) -> npt.NDArray[np.uint64]:
    indexes = load_parts([each.chosen[0] for each in selected], KEYS)
    by_row = (keys.by_row() for keys in indexes)
    rows = (each.chosen[1] for each in selected)
    return np.concatenate(
        [hashes if each is None else hashes[each] for hashes, each in zip(by_row, rows, strict=True)]
    )


def _taken(selected: Sequence[Selected], places: _Index) -> list[Selected]:
    """Return the files at these places, ascending, of all files one segment behind the other."""
    ends = np.cumsum([each.num_rows for each in selected])
    borders = np.searchsorted(places, ends)
    taken: list[Selected] = []
    start = 0
    for each, file_end, border in zip(selected, ends.tolist(), borders.tolist(), strict=True):
        mine = places[start:border] - (file_end - each.num_rows)
        start = border
        if len(mine):
            segment, rows = each.chosen
            own: Any = mine.astype(np.uint16) if rows is None else rows[mine]
            taken.append(Selected((segment, own), each.matches_all[mine]))
    return taken


def _chosen(selected: Sequence[Selected], places: _Index) -> list[Any]:
    return [each.chosen for each in _taken(selected, places)]
