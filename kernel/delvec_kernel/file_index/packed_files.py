"""The live files of a version in segments: applying commits, and the index by path."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.column_bounds import KnownColumn, keep_typed, summary_bounds
from delvec_kernel.file_index.deferred_statistics import DEFERRED_ROW, DeferredStatistics
from delvec_kernel.file_index.engine_port import SERIAL, FileIndexEngine
from delvec_kernel.file_index.file_counts import COUNTED, FileCounts
from delvec_kernel.file_index.file_rows import add_from_row, batch_from_adds
from delvec_kernel.file_index.segment import SEGMENT_ROWS, Chosen, Segment, load_parts, rows_of
from delvec_kernel.file_index.segment_parts import KEYS, STATS, Rows, joined
from delvec_kernel.locations import canonical_log_path
from delvec_kernel.statistics.bounds import Bounds, Path

__all__ = ["FileChange", "LiveSegment", "PackedFiles", "PathIndex", "clustered", "dead_rows"]


@dataclass(slots=True)
class FileChange:
    """The net effect of a run of commits on one file.

    Attributes:
        add: the last add, or None if there is none.
        removed: ids of deletion vectors with which the file was removed; None stands for "no deletion vector".
    """

    add: AddFile | None = None
    removed: set[str | None] = field(default_factory=set)

    @classmethod
    def to(cls, add: AddFile | None) -> "FileChange":
        """Return the change that makes a file ``add``, or not live, whatever its state before."""
        return cls(add, _AllVectorIds())

    def follow(self, add: AddFile | None, removed: Descriptor | None, *, is_removed: bool) -> None:
        """Apply the next version's actions; its add wins over its remove, in any order in the commit file."""
        if add is not None:
            self.add = add
        elif is_removed:
            dv_id = _id(removed)
            if self.add is None:
                self.removed.add(dv_id)
            elif _id(self.add.deletion_vector) == dv_id:
                # The file is now removed, whatever its state before the add.
                self.add = None
                self.removed = _AllVectorIds()


class _AllVectorIds(set[str | None]):
    """The set of all deletion vector ids."""

    def __contains__(self, item: object) -> bool:
        return True


def _id(descriptor: Descriptor | None) -> str | None:
    return None if descriptor is None else descriptor.unique_id


_FEW_SEGMENTS = 16
"""Up to this many segments are searched one by one, which is as fast."""

_MAX_SEGMENTS = 65_536


class PathIndex:
    """A merged, sorted index of the path hashes of several segments. Immutable.

    It can outlive its version, since segments never change; callers know which segments are still live.

    Args:
        segments: at most 65,536.

    Raises:
        SegmentsLost: the store has lost a segment.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        parts = load_parts(segments, KEYS, keep=False)
        hashes = np.concatenate([keys.hashes for keys in parts])
        places = np.repeat(np.arange(len(parts), dtype=np.uint16), [len(keys.hashes) for keys in parts])
        order = np.argsort(hashes, kind="stable")
        self._ids = [segment.id for segment in segments]
        self._hashes = hashes[order]
        self._places = places[order]
        self._rows: Rows = np.concatenate([keys.rows for keys in parts])[order]
        self.segments = frozenset(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._hashes.nbytes + self._places.nbytes + self._rows.nbytes

    def find(self, hashes: npt.NDArray[np.uint64], among: Container[str]) -> dict[str, Rows]:
        """Return the rows with one of the hashes, by segment id, for the segments in ``among``; in no particular order."""
        first = np.searchsorted(self._hashes, hashes, "left")
        last = np.searchsorted(self._hashes, hashes, "right")
        rows_by_segment: dict[str, list[int]] = {}
        for index in np.flatnonzero(last > first):
            for place in range(first[index], last[index]):
                id_ = self._ids[self._places[place]]
                if id_ in among:
                    rows_by_segment.setdefault(id_, []).append(int(self._rows[place]))
        return {id_: np.array(rows, np.uint16) for id_, rows in rows_by_segment.items()}

    @classmethod
    def following(cls, before: "PathIndex | None", segments: Collection[Segment]) -> "PathIndex | None":
        """Return an index for these segments, reusing ``before`` while it covers nearly all of them.

        Returns:
            None if there are too few or too many segments.
        """
        known = frozenset() if before is None else before.segments
        new = sum(segment.id not in known for segment in segments)
        if new < _FEW_SEGMENTS:
            return before if any(segment.id in known for segment in segments) else None
        return cls(list(segments)) if len(segments) <= _MAX_SEGMENTS else None


_Ranks: TypeAlias = npt.NDArray[Any]

_WINDOW: Final = 131_072
"""Rows sorted at a time. A larger window puts a time range into fewer segments, but is all in memory."""
_WINDOW_BYTES: Final = 512 * 1024 * 1024
"""Of a window: statistics of very wide tables would take gigabytes of memory before the rows end."""
_BARE_WINDOW: Final = 524_288
_BARE_WINDOW_BYTES: Final = 256 * 1024 * 1024
_WINDOWS: Final = 16
"""Rows without their statistics are small; the fewer windows, the fewer segments a plan has to look into. More rows than
for so many windows would only take memory."""
_BLOCKS: Final = 16
"""Batches of a window at most: a segment takes rows from each of them."""


def clustered(
    batches: Iterable[pa.RecordBatch], num_rows: Callable[[], int] = lambda: 0
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, a segment at a time, in windows ordered by partition values and then by modification time.

    Files written at about the same time tend to hold similar values. Within a segment, rows keep their input order.

    Args:
        batches: FILES_SCHEMA and any further columns; one of another schema begins a window.
        num_rows: returns, once a batch was read, how many there are at least.
    """
    waiting: list[pa.RecordBatch] = []
    count = nbytes = 0
    for batch in batches:
        bare = DEFERRED_ROW in batch.schema.names
        most = min(_BARE_WINDOW, max(_WINDOW, num_rows() // _WINDOWS)) if bare else _WINDOW
        most_bytes = _BARE_WINDOW_BYTES if bare else _WINDOW_BYTES
        full = count + batch.num_rows > most or nbytes + batch.nbytes > most_bytes
        if waiting and (full or waiting[0].schema != batch.schema):
            yield from _ordered(waiting)
            count = nbytes = 0
        waiting.append(batch)
        count += batch.num_rows
        nbytes += batch.nbytes
    yield from _ordered(waiting)


def _ordered(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the sorted rows; empties the list, so that the window is in memory only once."""
    if not batches:
        return
    window = _in_blocks(batches)
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
        # Taking rows from each batch in order copies each once; concatenating the window first would copy twice.
        rows = np.sort(order[start : start + SEGMENT_ROWS])
        places = np.searchsorted(rows, starts)
        yield pa.concat_batches(
            batch.take(pa.array(rows[places[index] : places[index + 1]] - starts[index]))
            for index, batch in enumerate(window)
            if places[index] < places[index + 1]
        )


def _in_blocks(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the same rows in a few batches; empties the list, block after block."""
    rows = -(-sum(batch.num_rows for batch in batches) // _BLOCKS)
    blocks: list[pa.RecordBatch] = []
    while batches:
        block = [batches.pop(0)]
        while batches and sum(batch.num_rows for batch in block) + batches[0].num_rows <= rows:
            block.append(batches.pop(0))
        blocks.append(joined(block))
    return blocks


def _partition_ranks(maps: pa.MapArray) -> list[_Ranks]:
    """Return, for each partition column, the rank of each file's value as text."""
    ends = maps.offsets.to_numpy()
    widths = np.diff(ends)
    if not len(widths) or np.any(widths != widths[0]):
        return []  # files with different partition columns: leave them unsorted
    first, width = int(ends[0]), int(widths[0])
    ranks = []
    for place in range(width):
        values = maps.items.take(pa.array(np.arange(first + place, int(ends[-1]), width)))
        encoded = values.dictionary_encode()
        # Ranks start at 1; 0 stands for null.
        by_code = np.append(pc.rank(encoded.dictionary).to_numpy(), 0)
        ranks.append(by_code[pc.fill_null(encoded.indices, len(by_code) - 1).to_numpy()])
    return ranks


_REWRITE_FRACTION: Final = 4
"""A segment is rewritten once more than one in this many of its rows is dead."""
_RELEASE_INTERVAL: Final = 16
_SEARCHES_BEFORE_INDEX: Final = 4
"""So many searches are made before an index is built."""
_FEW_OTHERS: Final = 16
_MAX_LOOKUPS: Final = 256
_MAX_STATS_LENGTH: Final = 8192
_NOT_LOOKED_UP: Final = object()
_NO_ROWS: Final = np.empty(0, np.dtype("<u2"))

_Hashes = npt.NDArray[np.uint64]
_Search: TypeAlias = tuple[PathIndex | None, Mapping[str, int], Sequence[int]]


def dead_rows(blob: bytes) -> Rows:
    """Decode :attr:`LiveSegment.dead` from its ``tobytes()``."""
    return np.frombuffer(blob, np.dtype("<u2"))


@dataclass(frozen=True, eq=False)
class LiveSegment:
    """A segment, and which of its rows are dead.

    Attributes:
        dead: rows of files that are no longer live, ascending, little-endian 16-bit numbers.
    """

    segment: Segment
    dead: Rows = field(default_factory=lambda: _NO_ROWS)

    @property
    def num_rows(self) -> int:
        """Live files."""
        return self.segment.num_rows - len(self.dead)

    @property
    def live(self) -> Rows | None:
        """The live rows, ascending; None means all."""
        if not len(self.dead):
            return None
        alive = np.ones(self.segment.num_rows, np.bool_)
        alive[self.dead] = False
        return np.flatnonzero(alive).astype(np.uint16)

    @property
    def chosen(self) -> Chosen:
        """The live rows, as :func:`~delvec_kernel.file_index.segment.rows_of` takes them."""
        return self.segment, self.live


@dataclass(frozen=True, eq=False)
class PackedFiles:
    """The live files in segments; immutable, and shares unchanged segments with other versions.

    Attributes:
        location: the table's canonical location, against which relative paths are resolved.
        members: live segments, in no particular order.
        counts: totals over all files.
        engine: cache and threads for work on segments.
    """

    location: str
    members: tuple[LiveSegment, ...] = ()
    counts: FileCounts = field(default_factory=FileCounts)
    engine: FileIndexEngine = SERIAL
    _index: PathIndex | None = field(default=None, repr=False)
    _searches: int = field(default=0, repr=False)
    _lookups: dict[str, AddFile | None] = field(default_factory=dict, init=False, repr=False)
    _summaries: dict[str, Bounds] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[pa.RecordBatch],
        location: str,
        engine: FileIndexEngine = SERIAL,
        deferred_statistics: DeferredStatistics | None = None,
    ) -> "PackedFiles":
        """Build from rows of FILES_SCHEMA, each a different file; batches are released as they are read.

        Batches may have one further column: :data:`~delvec_kernel.statistics.typed_statistics.STATS_PARSED` or, in
        place of statistics, the DEFERRED_ROW of ``deferred_statistics``.

        Raises:
            LocationNotAllowed: a path leads out of the table.
            CorruptLog: a path is invalid.
        """
        counts: list[FileCounts] = []
        ordered = clustered(
            _counted(batches, counts),
            lambda: 0 if deferred_statistics is None else deferred_statistics.num_rows,
        )
        members = tuple(map(LiveSegment, _segments(ordered, location, engine, deferred_statistics)))
        pa.default_memory_pool().release_unused()
        return cls(location, members, reduce(FileCounts.plus, counts, FileCounts()), engine)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that its segments use now."""
        index = self._newest_index
        own = sum(member.segment.nbytes + member.dead.nbytes for member in self.members)
        return own if index is None else own + index.nbytes

    @property
    def lacks_statistics(self) -> bool:
        """Whether a segment's statistics have not been read yet."""
        return any(member.segment.lacks_statistics for member in self.members)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all live files, in no particular order."""
        return rows_of([member.chosen for member in self.members], names, keep=False)

    def summary_bounds(self, columns: Sequence[KnownColumn]) -> dict[Path, Bounds]:
        """Return for each column bounds with one entry per member; where there is no summary nothing is known.

        Raises:
            SegmentsLost: a store does not have a segment's partition values any more.
        """
        missing = [column for column in columns if column.key not in self._summaries]
        segments = [member.segment for member in self.members]
        found = summary_bounds(segments, missing) if missing else {}
        for column in missing:
            if all(segment.summary(column.key) is not None for segment in segments):
                self._summaries[column.key] = found[column.path]
        return found | {
            column.path: self._summaries[column.key] for column in columns if column.path not in found
        }

    def find(self, keys: Collection[str]) -> dict[str, AddFile]:
        """Return the live files with these canonical paths, by path."""
        # A commit looks its files up twice, and they are often those that the previous commit changed.
        adds_by_path = {
            key: add for key in keys if (add := self._lookups.get(key, _NOT_LOOKED_UP)) is not _NOT_LOOKED_UP
        }
        rest = keys if not adds_by_path else [key for key in keys if key not in adds_by_path]
        if rest:
            looked_up = dict.fromkeys(rest) | self._look_up(frozenset(rest))
            self._remember(looked_up)
            adds_by_path |= looked_up
        return {key: add for key, add in adds_by_path.items() if isinstance(add, AddFile)}

    def follow(self, changes: Mapping[str, AddFile | None]) -> "PackedFiles":
        """Return the live files after ``changes``, which map canonical paths to their new state."""
        after = self.apply({key: FileChange.to(add) for key, add in changes.items()})
        after._remember({**self._lookups, **changes})  # noqa: SLF001 - of this class
        return after

    def _remember(self, asked: Mapping[str, AddFile | None]) -> None:
        if len(self._lookups) + len(asked) > _MAX_LOOKUPS:
            self._lookups.clear()
        if len(asked) <= _MAX_LOOKUPS:
            small = {
                key: add for key, add in asked.items() if len((add and add.stats) or "") <= _MAX_STATS_LENGTH
            }
            self._lookups.update(small)

    def _look_up(self, keys: Collection[str]) -> dict[str, AddFile]:
        places = self._find_rows(_hashes(keys))
        adds_by_path = {}
        for batch in rows_of([(self.members[place].segment, rows) for place, rows in places]):
            for row in batch.to_pylist():
                key = canonical_log_path(row["path"], self.location)
                if key in keys:
                    adds_by_path[key] = add_from_row(row)
        return adds_by_path

    def duplicate(self) -> str | None:
        """Return the key of a file that occurs twice, or None; duplicates make a checkpoint invalid."""
        if not self.members:
            return None
        indexes = load_parts([member.segment for member in self.members], KEYS)
        hashes = np.sort(np.concatenate([keys.hashes for keys in indexes]))
        suspects = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        seen: set[str] = set()
        for _, _, keys in self._find_paths(suspects):
            for key in keys:
                if key in seen:
                    return key
                seen.add(key)
        return None

    def apply(self, changes: Mapping[str, FileChange]) -> "PackedFiles":
        """Return the live files after ``changes``, keyed by canonical path; costs O(changes)."""
        removed_rows = self._dying_rows(changes)
        counts = self.counts
        leaving = [(self.members[place].segment, rows) for place, rows in removed_rows.items()]
        for batch in rows_of(leaving, COUNTED):
            counts = counts.minus(FileCounts.of(batch))
        members = list(self.members)
        for place, rows in removed_rows.items():
            dead = np.union1d(members[place].dead, rows).astype(_NO_ROWS.dtype)
            members[place] = LiveSegment(members[place].segment, dead)
        new: list[pa.RecordBatch] = []
        added = [change.add for change in changes.values() if change.add is not None]
        if added:
            new.append(batch_from_adds(added))
            counts = counts.plus(FileCounts.of(new[0]))
        packed = tuple(self._packed(members, new))
        return PackedFiles(self.location, packed, counts, self.engine, self._newest_index, self._searches)

    def _dying_rows(self, changes: Mapping[str, FileChange]) -> dict[int, Rows]:
        """Return the rows that ``changes`` remove or replace, by position of the member."""
        matching_rows = self._find_paths(_hashes(changes))
        removed_rows: dict[int, Rows] = {}
        for place, rows, keys in matching_rows:
            segment = self.members[place].segment
            (vectors,) = rows_of([(segment, rows)], ["deletion_vector"])
            ids = map(_row_id, vectors.column(0).to_pylist())
            dying = []
            for row, key, dv_id in zip(rows.tolist(), keys, ids, strict=True):
                change = changes.get(key)
                if change is not None and (change.add is not None or dv_id in change.removed):
                    dying.append(row)
            if dying:
                removed_rows[place] = np.array(dying, np.uint16)
        return removed_rows

    def _packed(self, members: Sequence[LiveSegment], new: Sequence[pa.RecordBatch]) -> Iterator[LiveSegment]:
        """Merge new files into the members: few segments, and few rows copied.

        Members with many dead rows are rewritten, and members of at most twice the size of the new rows join them.
        Sizes of small members thus at least double from one to the next, so each row is copied about
        log(SEGMENT_ROWS) times.
        """
        hollow = [
            member for member in members if len(member.dead) * _REWRITE_FRACTION > member.segment.num_rows
        ]
        dense_members = [
            member for member in members if len(member.dead) * _REWRITE_FRACTION <= member.segment.num_rows
        ]
        moving = [member for member in hollow if member.num_rows]
        count = sum(member.num_rows for member in moving) + sum(batch.num_rows for batch in new)
        # Do not load deferred statistics only to merge; such members join in a later version.
        mergeable_members = (member for member in dense_members if not member.segment.lacks_statistics)
        small = sorted(
            (
                m
                for m in mergeable_members
                if m.num_rows * _REWRITE_FRACTION <= SEGMENT_ROWS * (_REWRITE_FRACTION - 1)
            ),
            key=_size,
        )
        for member in small:
            if member.num_rows > 2 * count:
                break
            moving.append(member)
            count += member.num_rows
        moved = set(map(id, moving))
        yield from (member for member in dense_members if id(member) not in moved)
        old = rows_of([member.chosen for member in moving], keep=False)
        yield from map(LiveSegment, _segments(chain(old, new), self.location, self.engine))

    def _find_paths(self, hashes: _Hashes) -> Iterator[tuple[int, Rows, list[str]]]:
        """Yield (position of the member, rows, their canonical paths) for files that match one of the hashes."""
        found = self._find_rows(hashes)
        chosen = [(self.members[place].segment, rows) for place, rows in found]
        for (place, rows), batch in zip(found, rows_of(chosen, ["path"]), strict=True):
            paths = batch.column(0).to_pylist()
            yield place, rows, [canonical_log_path(path, self.location) for path in paths]

    def _find_rows(self, hashes: _Hashes) -> list[tuple[int, Rows]]:
        """Return (position of the member, live rows, ascending) for files that match one of the hashes."""
        if not len(hashes) or not self.members:
            return []
        index, places, others = self._search()
        matching_rows = (
            [] if index is None else [(places[id_], rows) for id_, rows in index.find(hashes, places).items()]
        )
        are_few = len(others) <= _FEW_OTHERS
        indexes = load_parts([self.members[place].segment for place in others], KEYS, keep=are_few)
        matching_rows += [(place, keys.find(hashes)) for place, keys in zip(others, indexes, strict=True)]
        # Nearly always empty, and setdiff1d costs more than the search.
        alive = [
            (place, np.setdiff1d(rows, self.members[place].dead))
            for place, rows in matching_rows
            if len(rows)
        ]
        return [(place, rows) for place, rows in alive if len(rows)]

    def _search(self) -> _Search:
        """Return the index, the places of its segments, and the places of those that it does not have.

        The first searches do without a new index: of ten million files making one takes a second, and searching their
        segments one by one some hundredths. A plan that finds a few new commits searches twice.
        """
        search: _Search | None = self.__dict__.get("_searched")
        if search is not None:
            return search
        if self._searches < _SEARCHES_BEFORE_INDEX:
            self.__dict__["_searches"] = self._searches + 1
            return self._places(self._index)
        index = PathIndex.following(self._index, [member.segment for member in self.members])
        search = self.__dict__["_searched"] = self._places(index)
        return search

    def _places(self, index: PathIndex | None) -> _Search:
        places, others = {}, []
        for place, member in enumerate(self.members):
            if index is not None and member.segment.id in index.segments:
                places[member.segment.id] = place
            else:
                others.append(place)
        return index, places, others

    @property
    def _newest_index(self) -> PathIndex | None:
        found: _Search | None = self.__dict__.get("_searched")
        return self._index if found is None else found[0]


def _hashes(keys: Iterable[str]) -> _Hashes:
    hashes = [xxhash.xxh3_64_intdigest(key.encode()) for key in keys]
    return np.sort(np.array(hashes, np.uint64))


def _size(member: LiveSegment) -> int:
    return member.num_rows


def _row_id(dv: dict[str, Any] | None) -> str | None:
    return None if dv is None else Descriptor.from_json(dv).unique_id


def _counted(batches: Iterable[pa.RecordBatch], counts: list[FileCounts]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        counts.append(FileCounts.of(batch))
        yield batch


def _segments(
    batches: Iterable[pa.RecordBatch],
    location: str,
    engine: FileIndexEngine,
    deferred_statistics: DeferredStatistics | None = None,
) -> Iterator[Segment]:
    """Yield segments, built a few at a time in parallel, since encoding releases the GIL."""

    def segment(batch: pa.RecordBatch) -> Segment:
        if deferred_statistics is not None and DEFERRED_ROW in batch.schema.names:
            made = Segment.of(batch, location, engine, without=frozenset({STATS}))
            deferred_statistics.adopt(made, batch.column(DEFERRED_ROW).to_numpy())
            return made
        made = Segment.of(batch, location, engine)
        keep_typed(made, batch)
        return made

    return engine.parallel(segment, _releasing(_filled(batches)))


def _releasing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same batches, releasing unused memory at intervals."""
    for number, batch in enumerate(batches, 1):
        if number % _RELEASE_INTERVAL == 0:
            # Otherwise Arrow keeps memory freed by other threads and allocates more for the next batch.
            pa.default_memory_pool().release_unused()
        yield batch


def _filled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of SEGMENT_ROWS; only the last batch of each schema is smaller."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if waiting and waiting[0].schema != batch.schema:
            # Files of one checkpoint may have different typed statistics.
            yield joined(waiting)
            waiting, count = [], 0
        start = 0
        while count + batch.num_rows - start >= SEGMENT_ROWS:
            end = start + SEGMENT_ROWS - count
            yield joined([*waiting, batch.slice(start, end - start)])
            waiting, count, start = [], 0, end
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
            count += batch.num_rows - start
    if waiting:
        yield joined(waiting)
