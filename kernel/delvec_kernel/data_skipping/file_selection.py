"""Selects the live files that may match a predicate: segments by their summaries, then files by their bounds.

Each step evaluates :mod:`~delvec_kernel.data_skipping.truth` on few rows: one per segment, then one per distinct
combination of partition values, and finally one per file that is still undecided.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delvec_errors import CorruptLog
from delvec_kernel.data_skipping.generated_columns import Implied, implied_bounds, intersected
from delvec_kernel.data_skipping.truth import columns_of, truth_of
from delvec_kernel.expressions.predicate import Predicate
from delvec_kernel.file_index.column_bounds import KnownColumn, bounds_at, known_columns, segment_bounds
from delvec_kernel.file_index.live_files import LiveFiles, LiveSegment
from delvec_kernel.file_index.segment import Chosen, load_parts, rows_of
from delvec_kernel.file_index.segment_parts import KEYS, PARTITIONS
from delvec_kernel.schema.types import StructType
from delvec_kernel.statistics.bounds import Bounds, Mask, Path, partition_bounds

__all__ = ["Selected", "page_of", "select_files"]

_Index: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Selected:
    """The files of one segment that may contain matching rows.

    Attributes:
        chosen: segment and rows.
        matches_all: for each of the rows, whether partition values alone make the predicate TRUE for the whole file.
    """

    chosen: Chosen
    matches_all: Mask

    @property
    def num_rows(self) -> int:
        """The number of files."""
        return len(self.matches_all)


@dataclass
class _Candidate:
    """A live segment that may have matching files.

    Attributes:
        values: for each row, the index of its partition values.
        may_match: for each row; false for dead rows.
        matches_all: for each row; false for dead rows.
    """

    member: LiveSegment
    values: _Index
    may_match: Mask
    matches_all: Mask

    def selected(self) -> Selected:
        segment = self.member.segment
        if self.may_match.all():
            return Selected((segment, None), self.matches_all)
        rows = np.flatnonzero(self.may_match)
        return Selected((segment, rows.astype(np.uint16)), self.matches_all[rows])

    def restrict(self, rows: _Index | None, may_match: Mask) -> None:
        """Narrow ``may_match`` of these rows (None: all); rows already decided are not changed."""
        if rows is None:
            self.may_match &= may_match | self.matches_all
        else:
            self.may_match[rows] = may_match


def select_files(
    live: LiveFiles,
    predicate: Predicate | None,
    schema: StructType,
    partition_columns: Sequence[str],
    *,
    generates_columns: bool = True,
) -> list[Selected]:
    """Return the files that :func:`~delvec_kernel.data_skipping.truth.prune` would keep, or fewer.

    Args:
        live: the version's files.
        predicate: parsed against ``schema``; None means every row.
        schema: the schema of the table.
        partition_columns: logical names.
        generates_columns: whether generated columns can be relied on, which needs the table feature; without it writers may
            ignore the expressions.

    Raises:
        CorruptLog: a partition value cannot be parsed as its column's type.
        SegmentsLost: the store has lost a segment.
    """
    if predicate is None:
        return [Selected(member.chosen, np.ones(member.num_rows, np.bool_)) for member in live.members]
    columns = known_columns(columns_of(predicate), schema, partition_columns)
    members = _possible_segments(live, predicate, schema, columns)
    partitioned = [column for column in columns if column.is_partition]
    rest = [column for column in columns if not column.is_partition]
    implied_columns = _implied_bounds(rest, schema, partition_columns) if generates_columns else []
    candidates, column_bounds = _by_partition(members, predicate, schema, partitioned, implied_columns)
    if rest:
        _by_statistics(candidates, predicate, schema, column_bounds, rest)
    return [candidate.selected() for candidate in candidates if candidate.may_match.any()]


def _possible_segments(
    live: LiveFiles, predicate: Predicate, schema: StructType, columns: Sequence[KnownColumn]
) -> list[LiveSegment]:
    members = live.members
    if not members:
        return []
    truth = truth_of(predicate, schema, live.summary_bounds(columns), len(members))
    return [members[place] for place in np.flatnonzero(truth.true)]


def _implied_bounds(
    columns: Sequence[KnownColumn], schema: StructType, partition_columns: Sequence[str]
) -> list[Implied]:
    wanted = {column.path for column in columns}
    if not wanted:
        return []
    return [each for each in implied_bounds(schema, partition_columns) if each.path in wanted]


def _by_partition(
    members: Sequence[LiveSegment],
    predicate: Predicate,
    schema: StructType,
    columns: Sequence[KnownColumn],
    implied_columns: Sequence[Implied],
) -> tuple[list[_Candidate], dict[Path, Bounds]]:
    """Evaluate the predicate on partition values alone, once per distinct combination in a segment.

    Returns:
        The remaining segments, and bounds per combination of the partition columns and of the columns from which
        partition columns are generated.
    """
    codes: list[_Index] = [np.zeros(member.segment.num_rows, np.int64) for member in members]
    column_bounds: dict[Path, Bounds] = {}
    count = 1
    if (columns or implied_columns) and members:
        parts = load_parts([member.segment for member in members], PARTITIONS)
        distinct, count = [], 0
        for place, (member, part) in enumerate(zip(members, parts, strict=True)):
            values, partition_codes = part.distinct, part.codes
            if len(member.dead):
                # Skip values that only dead files have, since they may be invalid.
                used = np.zeros(len(values), np.bool_)
                used[np.delete(partition_codes, member.dead)] = True
                partition_codes = np.maximum(np.cumsum(used) - 1, 0)[partition_codes]
                values = values.filter(pa.array(used))
            distinct.append(values)
            codes[place] = partition_codes.astype(np.int64) + count
            count += len(values)
        maps = pa.concat_arrays(distinct)
        column_bounds = {each.path: partition_bounds(maps, each.names[0], each.data_type) for each in columns}
        column_bounds |= _limits(maps, implied_columns, schema)
    truth = truth_of(predicate, schema, column_bounds, count)
    all_match = truth.true & ~truth.false & ~truth.null
    candidates = [
        _Candidate(member, values, truth.true[values], all_match[values])
        for member, values in zip(members, codes, strict=True)
    ]
    for candidate in candidates:
        candidate.may_match[candidate.member.dead] = False
        candidate.matches_all[candidate.member.dead] = False
    return [each for each in candidates if each.may_match.any()], column_bounds


def _limits(maps: pa.Array, implied_columns: Sequence[Implied], schema: StructType) -> dict[Path, Bounds]:
    """Return the bounds that partition values imply for their source columns."""
    source_bounds: dict[Path, Bounds] = {}
    for each in implied_columns:
        fields = [schema.field(name) for name in each.partition_columns]
        try:
            bounds = each.bounds(
                [partition_bounds(maps, field.physical_name, field.type) for field in fields]
            )
        except CorruptLog:
            continue  # raises later if the predicate needs the value itself
        if bounds is not None:
            source_bounds[each.path] = (
                intersected([source_bounds[each.path], bounds]) if each.path in source_bounds else bounds
            )
    return source_bounds


def _by_statistics(
    candidates: Sequence[_Candidate],
    predicate: Predicate,
    schema: StructType,
    column_bounds: dict[Path, Bounds],
    columns: Sequence[KnownColumn],
) -> None:
    """Evaluate the predicate on statistics where partition values do not decide it."""
    open_ = [np.flatnonzero(each.may_match & ~each.matches_all) for each in candidates]
    left = [(each, rows) for each, rows in zip(candidates, open_, strict=True) if len(rows)]
    if not left:
        return
    batches = segment_bounds([each.member.segment for each, _ in left], columns)
    # Evaluating some rows needlessly is cheaper than copying most of them.
    looked_at = [None if 2 * len(rows) > len(each.values) else rows for each, rows in left]
    values = np.concatenate(
        [
            each.values if rows is None else each.values[rows]
            for (each, _), rows in zip(left, looked_at, strict=True)
        ]
    )
    bounds = {path: each.take(values) for path, each in column_bounds.items()}
    for column in columns:
        stated = bounds_at(batches[column.key], looked_at)
        before = bounds.get(column.path)
        bounds[column.path] = stated if before is None else intersected([before, stated])
    may_match = truth_of(predicate, schema, bounds, len(values)).true
    start = 0
    for (each, _), rows in zip(left, looked_at, strict=True):
        end = start + (len(each.values) if rows is None else len(rows))
        each.restrict(rows, may_match[start:end])
        start = end


_Positions = npt.NDArray[np.int64]


def page_of(
    selection: Sequence[Selected], offset: int, limit: int | None
) -> tuple[list[Selected], _Positions]:
    """Return the files of one page, and their order.

    Args:
        selection: all files.
        offset: number of files to skip.
        limit: maximum number of files.

    Raises:
        SegmentsLost: the store has lost a segment.
    """
    total = sum(each.num_rows for each in selection)
    end = total if limit is None else min(total, offset + limit)
    if offset >= end:
        return [], np.empty(0, np.int64)
    hashes = _hashes(selection)
    parted = np.partition(hashes, sorted({offset, end - 1}))
    first, last = parted[offset], parted[end - 1]
    near = np.flatnonzero((hashes >= first) & (hashes <= last))
    positions = near[np.argsort(hashes[near], kind="stable")]
    if (np.diff(hashes[positions]) == 0).any():
        paths = [path for batch in rows_of(_chosen(selection, near)) for path in batch["path"].to_pylist()]
        keyed = sorted(zip(hashes[near].tolist(), paths, near.tolist(), strict=True))
        positions = np.array([place for _, _, place in keyed], np.int64)
    before = int(np.count_nonzero(hashes < first))
    wanted = positions[offset - before : end - before]
    return _files_at(selection, np.sort(wanted)), np.searchsorted(np.sort(wanted), wanted)


def _hashes(selection: Sequence[Selected]) -> npt.NDArray[np.uint64]:
    indexes = load_parts([each.chosen[0] for each in selection], KEYS)
    by_row = (keys.by_row() for keys in indexes)
    rows = (each.chosen[1] for each in selection)
    return np.concatenate(
        [hashes if each is None else hashes[each] for hashes, each in zip(by_row, rows, strict=True)]
    )


def _files_at(selection: Sequence[Selected], places: _Positions) -> list[Selected]:
    """Return the files at these ascending positions, counted over all segments."""
    ends = np.cumsum([each.num_rows for each in selection])
    borders = np.searchsorted(places, ends)
    files: list[Selected] = []
    start = 0
    for each, file_end, border in zip(selection, ends.tolist(), borders.tolist(), strict=True):
        mine = places[start:border] - (file_end - each.num_rows)
        start = border
        if len(mine):
            segment, rows = each.chosen
            own: Any = mine.astype(np.uint16) if rows is None else rows[mine]
            files.append(Selected((segment, own), each.matches_all[mine]))
    return files


def _chosen(selection: Sequence[Selected], places: _Positions) -> list[Any]:
    return [each.chosen for each in _files_at(selection, places)]
