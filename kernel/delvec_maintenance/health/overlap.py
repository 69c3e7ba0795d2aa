"""How much the files of a version overlap in a column, that is, how many of them a point lookup must open.

Computed from the bounds that data skipping uses. A file without bounds is opened by every lookup; one with only NULLs
by none. Files of different partitions do not overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.file_index.column_bounds import bounds_at, known_columns, segment_bounds
from delvec_kernel.schema.column_paths import ColumnPath, as_in_schema, path_text
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics.bounds import Bounds
from delvec_kernel.statistics.outer_bounds import bound_type
from delvec_maintenance.compaction import partition_numbers

__all__ = ["ColumnOverlap", "Depths", "OverlapFile", "depths", "overlaps"]

_EDGES: Final = (1, 2, 4, 8, 16, 64, 256, 1024)
_BINS: Final = ("1", "2", "3-4", "5-8", "9-16", "17-64", "65-256", "257-1024", "over 1024")


@dataclass(frozen=True)
class OverlapFile:
    """A file that overlaps with others.

    Attributes:
        depth: files that a lookup of its minimum or maximum opens, itself included, averaged over the two.
        overlaps: other files whose range intersects its own.
    """

    path: str
    size: int
    depth: float
    overlaps: int


@dataclass(frozen=True)
class ColumnOverlap:
    """The overlap of files in one column.

    Attributes:
        column: by logical name.
        average_depth: the average depth of files with bounds (see :class:`OverlapFile`), within their partition: 1 if
            none overlap. None if no file has bounds.
        max_depth: the most files that a lookup opens, or None if no file has bounds.
        average_overlaps: average number of other files whose range intersects a file's, or None.
        num_files: files with bounds.
        unbounded_files: files without bounds, which every lookup opens; included in the depths.
        histogram: files with bounds by depth.
        files: the deepest files, as many as requested.
    """

    column: str
    average_depth: float | None
    max_depth: int | None
    average_overlaps: float | None
    num_files: int
    unbounded_files: int
    histogram: dict[str, int]
    files: tuple[OverlapFile, ...] = ()


@dataclass(frozen=True)
class Depths:
    """Depths of files in one column, one entry per file.

    Attributes:
        depth: 0 for files with only NULLs or without bounds.
        overlaps: the same.
        bounded: whether both bounds are known.
        unbounded: whether a bound is unknown and the file may have values.
        most: the most files that one lookup opens; 0 if no file has bounds.
    """

    depth: npt.NDArray[np.float64]
    overlaps: npt.NDArray[np.int64]
    bounded: npt.NDArray[np.bool_]
    unbounded: npt.NDArray[np.bool_]
    most: int

    @property
    def average(self) -> float | None:
        """Average depth of the files with bounds; None if there are none."""
        known = self.depth[self.bounded]
        return round(float(known.mean()), 2) if len(known) else None


def overlaps(
    snapshot: Snapshot, columns: Sequence[ColumnPath], column_depths: Sequence[Depths], *, num_traced: int = 0
) -> tuple[ColumnOverlap, ...]:
    """Summarize the overlap of a version's live files in these columns.

    Args:
        snapshot: the version.
        columns: paths by logical name.
        column_depths: the depths in each column.
        num_traced: the number of files to name per column.
    """
    files = snapshot.live.columns(["path", "size"]) if num_traced and columns else None
    column_overlaps = []
    for path, each in zip(columns, column_depths, strict=True):
        bounded_depths = each.depth[each.bounded]
        counts = np.bincount(np.searchsorted(_EDGES, bounded_depths, side="left"), minlength=len(_BINS))
        column_overlaps.append(
            ColumnOverlap(
                path_text(path),
                each.average,
                each.most if len(bounded_depths) else None,
                round(float(each.overlaps[each.bounded].mean()), 2) if len(bounded_depths) else None,
                len(bounded_depths),
                int(each.unbounded.sum()),
                {name: int(count) for name, count in zip(_BINS, counts, strict=True)},
                () if files is None else _deepest(files, each, num_traced),
            )
        )
    return tuple(column_overlaps)


def _deepest(files: pa.Table, found: Depths, num_traced: int) -> tuple[OverlapFile, ...]:
    places = np.flatnonzero(found.bounded)
    order = places[np.argsort(-found.depth[places], kind="stable")[:num_traced]]
    rows = files.take(pa.array(order)).to_pylist()
    numbers = zip(found.depth[order].tolist(), found.overlaps[order].tolist(), strict=True)
    return tuple(
        OverlapFile(row["path"], row["size"], round(depth, 2), overlapping)
        for row, (depth, overlapping) in zip(rows, numbers, strict=True)
    )


def depths(snapshot: Snapshot, columns: Sequence[ColumnPath]) -> list[Depths]:
    """Return the depths of the live files in each column, in file order.

    Raises:
        UnknownColumn: no such column.
        SegmentsLost: the store has lost statistics.
    """
    resolved_columns = known_columns(
        [as_in_schema(snapshot.schema, path) for path in columns], snapshot.schema, snapshot.partition_columns
    )
    members = snapshot.live.members
    columns_with_bounds = [
        column
        for column in resolved_columns
        if not column.is_partition and bound_type(column.data_type) is not None
    ]
    batches = segment_bounds([member.segment for member in members], columns_with_bounds) if members else {}
    rows = [member.live for member in members]
    keys = [snapshot.schema.field(name).physical_name for name in snapshot.partition_columns]
    partitions = (
        partition_numbers(snapshot.live.columns(["partition_values"]), keys)
        if keys
        else np.zeros(snapshot.num_files, np.int64)
    )
    return [
        _depths(bounds_at(batches[column.key], rows), partitions)
        if members and column in columns_with_bounds
        else _unknown_depths(len(partitions))
        for column in resolved_columns
    ]


def _unknown_depths(count: int) -> Depths:
    none = np.zeros(count, np.bool_)
    return Depths(np.zeros(count), np.zeros(count, np.int64), none, ~none, 0)


def _depths(bounds: Bounds, partitions: npt.NDArray[np.int64]) -> Depths:
    count = len(partitions)
    if not isinstance(bounds.low, pa.Array) or not isinstance(bounds.high, pa.Array):
        return replace(_unknown_depths(count), unbounded=~bounds.only_null)
    valid = pc.and_(pc.is_valid(bounds.low), pc.is_valid(bounds.high)).to_numpy(zero_copy_only=False)
    has_bounds = valid & ~bounds.only_null
    is_unbounded = ~valid & ~bounds.only_null
    depth, overlapping = np.zeros(count), np.zeros(count, np.int64)
    places = np.flatnonzero(has_bounds)
    if not len(places):
        return Depths(depth, overlapping, has_bounds, is_unbounded, 0)
    groups, mask = partitions[places], pa.array(has_bounds)
    lows, highs = _numbers(bounds.low.filter(mask), bounds.high.filter(mask), groups)
    # Search in sorted order: random access to a million numbers is ten times slower.
    in_low, in_high = np.argsort(lows), np.argsort(highs)
    by_low, by_high = lows[in_low], highs[in_high]
    starts, ends = np.zeros((2, len(places)), np.int64), np.zeros((2, len(places)), np.int64)
    for end, (order, at) in enumerate(((in_low, by_low), (in_high, by_high))):
        # Ranges that start at or before a value, and those that end before it; both include all earlier partitions.
        starts[end, order] = np.searchsorted(by_low, at, side="right")
        ends[end, order] = np.searchsorted(by_high, at, side="left")
    everywhere = np.bincount(partitions[is_unbounded], minlength=int(partitions.max()) + 1)[groups]
    num_open = starts - ends + everywhere
    depth[places] = num_open.mean(axis=0)
    overlapping[places] = starts[1] - ends[0] - 1
    return Depths(depth, overlapping, has_bounds, is_unbounded, int(num_open[0].max()))


def _numbers(
    lows: pa.Array, highs: pa.Array, partitions: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return order-preserving numbers for the bounds, with a separate range per partition."""
    if pa.types.is_int64(lows.type) and not partitions.any():
        ends = [lows.to_numpy(), highs.to_numpy()]
    else:
        ranks = pc.rank(pa.concat_arrays([lows, highs]), tiebreaker="dense").to_numpy().astype(np.int64)
        shift = partitions * (int(ranks.max()) + 1)
        ends = [ranks[: len(lows)] + shift, ranks[len(lows) :] + shift]
    return ends[0], np.maximum(*ends)
