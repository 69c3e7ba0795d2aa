"""The live files of a version in segments, how commits change them, and the index that finds them by path."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.column_bounds import keep_typed
from delvec_kernel.file_index.deferred_statistics import DEFERRED_ROW, DeferredStatistics
from delvec_kernel.file_index.engine import SERIAL, FileIndexEngine
from delvec_kernel.file_index.file_counts import COUNTED, FileCounts
from delvec_kernel.file_index.files import add_from_row, batch_from_adds
from delvec_kernel.file_index.segment import SEGMENT_ROWS, Chosen, Segment, load_parts, rows_of
from delvec_kernel.file_index.segment_parts import KEYS, STATS, Rows
from delvec_kernel.locations import canonical_log_path

__all__ = ["FileChange", "LiveSegment", "PackedFiles", "PathIndex", "clustered", "dead_rows"]


@dataclass(slots=True)
class FileChange:
    """What a run of commits does to one file.

    Attributes:
        add: what the file is from now on; None where nothing was added.
        removed: ids of the deletion vectors that it must not have any more to stay; None is "no deletion vector".
    """

    add: AddFile | None = None
    removed: set[str | None] = field(default_factory=set)

    @classmethod
    def to(cls, add: AddFile | None) -> "FileChange":
        """Return the change that makes a file ``add``, or no live file, whatever it was before."""
        return cls(add, _Everything())

    def follow(self, add: AddFile | None, removed: Descriptor | None, *, is_removed: bool) -> None:
        """Add what the next version does; its add wins over its remove, whatever their order in the file."""
        if add is not None:
            self.add = add
        elif is_removed:
            dv_id = _id(removed)
            if self.add is None:
                self.removed.add(dv_id)
            elif _id(self.add.deletion_vector) == dv_id:
                # From here on the file is gone, whatever it was before the add.
                self.add = None
                self.removed = _Everything()


class _Everything(set[str | None]):
    """The ids of all deletion vectors."""

    def __contains__(self, item: object) -> bool:
        return True


def _id(descriptor: Descriptor | None) -> str | None:
    return None if descriptor is None else descriptor.unique_id


_FEW_SEGMENTS = 16
"""So many are searched one by one as quickly."""

_MOST_SEGMENTS = 65_536


class PathIndex:
    """The hashes of the paths of some segments, in one order. Immutable.

    It outlives the version that it was made for: what segments it has does not change, and who asks knows which of
    them still count.

    Args:
        segments: at most 65,536.

    Raises:
        SegmentsLost: a store does not have one of them any more.
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
        """Return, by the id of a segment ``among`` these, the rows that have one of the hashes; in no order."""
        first = np.searchsorted(self._hashes, hashes, "left")
        last = np.searchsorted(self._hashes, hashes, "right")
        found: dict[str, list[int]] = {}
        for index in np.flatnonzero(last > first):
            for place in range(first[index], last[index]):
                id_ = self._ids[self._places[place]]
                if id_ in among:
                    found.setdefault(id_, []).append(int(self._rows[place]))
        return {id_: np.array(rows, np.uint16) for id_, rows in found.items()}

    @classmethod
    def following(cls, before: "PathIndex | None", segments: Collection[Segment]) -> "PathIndex | None":
        """Return an index for these segments: the one from before as long as it has nearly all of them.

        Returns:
            None where they are few, or too many.
        """
        known = frozenset() if before is None else before.segments
        new = sum(segment.id not in known for segment in segments)
        if new < _FEW_SEGMENTS:
            return before if any(segment.id in known for segment in segments) else None
        return cls(list(segments)) if len(segments) <= _MOST_SEGMENTS else None


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


_HOLLOW: Final = 4
"""A segment of which one row in so many is dead is written anew."""
_MANY: Final = 16
_MOST_ASKED: Final = 256
_LONGEST_STATS: Final = 8192
_UNASKED: Final = object()
_NONE: Final = np.empty(0, np.dtype("<u2"))

_Hashes = npt.NDArray[np.uint64]


def dead_rows(blob: bytes) -> Rows:
    """Return the ``dead`` of a member from its ``tobytes()``."""
    return np.frombuffer(blob, np.dtype("<u2"))


@dataclass(frozen=True, eq=False)
class LiveSegment:
    """A segment, as far as its files are still live.

    Attributes:
        dead: rows that are not, ascending, little-endian 16-bit numbers.
    """

    segment: Segment
    dead: Rows = field(default_factory=lambda: _NONE)

    @property
    def num_rows(self) -> int:
        """Live files."""
        return self.segment.num_rows - len(self.dead)

    @property
    def live(self) -> Rows | None:
        """The live rows, ascending; None is all."""
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
    """Live files; immutable, and shares what did not change with other versions.

    Attributes:
        location: the table's canonical location, which relative paths start from.
        members: in no order that means anything.
        counts: of all files.
        engine: what makes segments.
    """

    location: str
    members: tuple[LiveSegment, ...] = ()
    counts: FileCounts = field(default_factory=FileCounts)
    engine: FileIndexEngine = SERIAL
    _index: PathIndex | None = field(default=None, repr=False)
    _asked: dict[str, AddFile | None] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[pa.RecordBatch],
        location: str,
        engine: FileIndexEngine = SERIAL,
        deferred: DeferredStatistics | None = None,
    ) -> "PackedFiles":
        """Take rows of FILES_SCHEMA, each a different file; batches are let go of one after the other.

        They may have a further column, :data:`~delvec_kernel.statistics.typed_statistics.STATS_PARSED`, or, in place of
        statistics, DEFERRED_ROW of ``deferred``.

        Raises:
            LocationNotAllowed: a path leads out of the table.
            CorruptLog: one is not a path.
        """
        counts: list[FileCounts] = []
        members = tuple(
            map(LiveSegment, _segments(clustered(_counted(batches, counts)), location, engine, deferred))
        )
        pa.default_memory_pool().release_unused()
        return cls(location, members, reduce(FileCounts.plus, counts, FileCounts()), engine)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that its segments hold now."""
        index = self._newest_index
        own = sum(member.segment.nbytes + member.dead.nbytes for member in self.members)
        return own if index is None else own + index.nbytes

    @property
    def lacks_statistics(self) -> bool:
        """Whether the statistics of a segment have not been read yet."""
        return any(member.segment.lacks_statistics for member in self.members)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of all live files; the order of the files means nothing."""
        return rows_of([member.chosen for member in self.members], names, keep=False)

    def find(self, keys: Collection[str]) -> dict[str, AddFile]:
        """Return the live files of these canonical paths, by them."""
        # A commit asks twice for what it changes, and often for what the one before it changed.
        found = {key: add for key in keys if (add := self._asked.get(key, _UNASKED)) is not _UNASKED}
        rest = keys if not found else [key for key in keys if key not in found]
        if rest:
            looked_up = dict.fromkeys(rest) | self._looked_up(frozenset(rest))
            self._remember(looked_up)
            found |= looked_up
        return {key: add for key, add in found.items() if isinstance(add, AddFile)}

    def follow(self, changes: Mapping[str, AddFile | None]) -> "PackedFiles":
        """Return the live files after ``changes``: the state of files from now on, by canonical path."""
        after = self.apply({key: FileChange.to(add) for key, add in changes.items()})
        after._remember({**self._asked, **changes})  # noqa: SLF001 - of this class
        return after

    def _remember(self, asked: Mapping[str, AddFile | None]) -> None:
        if len(self._asked) + len(asked) > _MOST_ASKED:
            self._asked.clear()
        if len(asked) <= _MOST_ASKED:
            small = {
                key: add for key, add in asked.items() if len((add and add.stats) or "") <= _LONGEST_STATS
            }
            self._asked.update(small)

    def _looked_up(self, keys: Collection[str]) -> dict[str, AddFile]:
        places = self._with_rows(_hashes(keys))
        found = {}
        for batch in rows_of([(self.members[place].segment, rows) for place, rows in places]):
            for row in batch.to_pylist():
                key = canonical_log_path(row["path"], self.location)
                if key in keys:
                    found[key] = add_from_row(row)
        return found

    def duplicate(self) -> str | None:
        """Return the key of a file that occurs twice, or None: a checkpoint must not hold one."""
        if not self.members:
            return None
        indexes = load_parts([member.segment for member in self.members], KEYS)
        hashes = np.sort(np.concatenate([keys.hashes for keys in indexes]))
        suspects = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        seen: set[str] = set()
        for _, _, keys in self._with_hashes(suspects):
            for key in keys:
                if key in seen:
                    return key
                seen.add(key)
        return None

    def apply(self, changes: Mapping[str, FileChange]) -> "PackedFiles":
        """Return the live files after ``changes``, which are keyed by canonical path; costs O(changes)."""
        gone = self._gone(changes)
        counts = self.counts
        leaving = [(self.members[place].segment, rows) for place, rows in gone.items()]
        for batch in rows_of(leaving, COUNTED):
            counts = counts.minus(FileCounts.of(batch))
        members = list(self.members)
        for place, rows in gone.items():
            dead = np.union1d(members[place].dead, rows).astype(_NONE.dtype)
            members[place] = LiveSegment(members[place].segment, dead)
        new: list[pa.RecordBatch] = []
        added = [change.add for change in changes.values() if change.add is not None]
        if added:
            new.append(batch_from_adds(added))
            counts = counts.plus(FileCounts.of(new[0]))
        packed = tuple(self._packed(members, new))
        return PackedFiles(self.location, packed, counts, self.engine, self._newest_index)

    def _gone(self, changes: Mapping[str, FileChange]) -> dict[int, Rows]:
        """Return, by the place of a member, the rows that die."""
        found = self._with_hashes(_hashes(changes))
        gone: dict[int, Rows] = {}
        for place, rows, keys in found:
            segment = self.members[place].segment
            (vectors,) = rows_of([(segment, rows)], ["deletion_vector"])
            ids = map(_row_id, vectors.column(0).to_pylist())
            dying = []
            for row, key, dv_id in zip(rows.tolist(), keys, ids, strict=True):
                change = changes.get(key)
                if change is not None and (change.add is not None or dv_id in change.removed):
                    dying.append(row)
            if dying:
                gone[place] = np.array(dying, np.uint16)
        return gone

    def _packed(self, members: Sequence[LiveSegment], new: Sequence[pa.RecordBatch]) -> Iterator[LiveSegment]:
        """Yield the members together with new files, so that there are few and few rows are copied.

        A member that has become hollow is written anew, and one of at most twice the size of what is new joins it:
        so sizes at least double from one small member to the next, and each row is copied about log(SEGMENT_ROWS)
        times.
        """
        hollow = [member for member in members if len(member.dead) * _HOLLOW > member.segment.num_rows]
        kept = [member for member in members if len(member.dead) * _HOLLOW <= member.segment.num_rows]
        moving = [member for member in hollow if member.num_rows]
        count = sum(member.num_rows for member in moving) + sum(batch.num_rows for batch in new)
        # What is not read yet is not read for this; it joins them in a later version.
        known = (member for member in kept if not member.segment.lacks_statistics)
        small = sorted((m for m in known if m.num_rows * _HOLLOW <= SEGMENT_ROWS * (_HOLLOW - 1)), key=_size)
        for member in small:
            if member.num_rows > 2 * count:
                break
            moving.append(member)
            count += member.num_rows
        moved = set(map(id, moving))
        yield from (member for member in kept if id(member) not in moved)
        old = rows_of([member.chosen for member in moving], keep=False)
        yield from map(LiveSegment, _segments(chain(old, new), self.location, self.engine))

    def _with_hashes(self, hashes: _Hashes) -> Iterator[tuple[int, Rows, list[str]]]:
        """Yield the places of members that may hold such files, the rows, and the canonical paths of those."""
        found = self._with_rows(hashes)
        chosen = [(self.members[place].segment, rows) for place, rows in found]
        for (place, rows), batch in zip(found, rows_of(chosen, ["path"]), strict=True):
            paths = batch.column(0).to_pylist()
            yield place, rows, [canonical_log_path(path, self.location) for path in paths]

    def _with_rows(self, hashes: _Hashes) -> list[tuple[int, Rows]]:
        """Return the places of members that may hold such files, and the rows, ascending."""
        if not len(hashes) or not self.members:
            return []
        index, places, others = self._search
        found = (
            [] if index is None else [(places[id_], rows) for id_, rows in index.find(hashes, places).items()]
        )
        indexes = load_parts([self.members[place].segment for place in others], KEYS)
        found += [(place, keys.find(hashes)) for place, keys in zip(others, indexes, strict=True)]
        # Hardly ever any; what follows costs more than finding nothing.
        alive = [(place, np.setdiff1d(rows, self.members[place].dead)) for place, rows in found if len(rows)]
        return [(place, rows) for place, rows in alive if len(rows)]

    @cached_property
    def _search(self) -> tuple[PathIndex | None, Mapping[str, int], Sequence[int]]:
        """The index, the places of its segments, and the places of those that it does not have."""
        index = PathIndex.following(self._index, [member.segment for member in self.members])
        places, others = {}, []
        for place, member in enumerate(self.members):
            if index is not None and member.segment.id in index.segments:
                places[member.segment.id] = place
            else:
                others.append(place)
        return index, places, others

    @property
    def _newest_index(self) -> PathIndex | None:
        found = self.__dict__.get("_search")
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
    deferred: DeferredStatistics | None = None,
) -> Iterator[Segment]:
    """Yield segments, made a few at a time: to encode one takes no lock."""

    def segment(batch: pa.RecordBatch) -> Segment:
        if deferred is not None and DEFERRED_ROW in batch.schema.names:
            made = Segment.of(batch, location, engine, without=frozenset({STATS}))
            deferred.adopt(made, batch.column(DEFERRED_ROW).to_numpy())
            return made
        made = Segment.of(batch, location, engine)
        keep_typed(made, batch)
        return made

    return engine.parallel(segment, _releasing(_filled(batches)))


def _releasing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same batches, and give memory back now and then."""
    for number, batch in enumerate(batches, 1):
        if number % _MANY == 0:
            # Arrow would keep what other threads have let go of, and read the next batch into new memory.
            pa.default_memory_pool().release_unused()
        yield batch


def _filled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of SEGMENT_ROWS; only the last of a schema is smaller."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if waiting and waiting[0].schema != batch.schema:
            # Typed statistics differ from one file of a checkpoint to the next.
            yield _joined(waiting)
            waiting, count = [], 0
        start = 0
        while count + batch.num_rows - start >= SEGMENT_ROWS:
            end = start + SEGMENT_ROWS - count
            yield _joined([*waiting, batch.slice(start, end - start)])
            waiting, count, start = [], 0, end
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
            count += batch.num_rows - start
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)  # fails where text is too long for one batch, and never drops the rest
