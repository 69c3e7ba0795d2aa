"""Segments: immutable sets of live files that a store saves, and loads part by part.

How a store saves and restores them:

- A segment never changes and is identified by its ``id``. :meth:`Segment.record` is everything to save for a segment
  that the store does not have; :meth:`Segment.unsaved` is what was computed later (bounds of further columns). Pass
  either to :meth:`Segment.saved` once it is durable; from then on the segment may evict it from memory.
- :meth:`Segment.stored` is a segment with nothing in memory; its parts are read from the store on demand, for many
  segments in one call (:func:`load_parts`).
- The live files of a version are members: a segment and its dead rows
  (:mod:`~delvec_kernel.file_index.live_files`). ``LiveFiles.restored(location, members, counts)`` restores them;
  ``LiveSegment.dead`` is serialized by ``tobytes()`` and ``dead_rows(blob)``.
- A store may lose anything at any time. The next read then raises :class:`SegmentsLost`, and the owner of the
  snapshot must discard it and replay the log.
"""

import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from delvec_kernel.file_index.engine_port import SERIAL, FileIndexEngine
from delvec_kernel.file_index.file_rows import FILES_SCHEMA
from delvec_kernel.file_index.segment_parts import (
    BLOCK_ROWS,
    FILES,
    KEYS,
    PART_OF,
    PARTITIONS,
    STATS,
    Rows,
    are_few_blocks,
    decoded,
    decoded_part,
    decoded_rows,
    encoded_keys,
    encoded_parts,
)

__all__ = [
    "SEGMENT_ROWS",
    "Bound",
    "Chosen",
    "Segment",
    "SegmentRecord",
    "SegmentSource",
    "SegmentsLost",
    "Summary",
    "load_parts",
    "rows_of",
]

SEGMENT_ROWS: Final = 8192
"""Maximum files per segment; a million files are about 120 segments."""

_KEPT_IN_MEMORY: Final = frozenset({FILES, PARTITIONS, KEYS})
"""Parts that stay in memory, compressed, as long as there is room, even if a store has them: nearly every plan or commit
needs them."""

_OF_COLUMNS: Final = frozenset(PART_OF.values())
_OF_FILES: Final = _OF_COLUMNS | {KEYS}
_SMALL_BYTES: Final = 4 * 1024 * 1024
"""Of a segment that is encoded later: others wait meanwhile."""
_SLACK: Final = 64 * 1024

Bound: TypeAlias = int | float | str | Decimal | None


class SegmentsLost(Exception):
    """The store lost segments; the snapshot must be rebuilt from the log."""


@dataclass(frozen=True)
class Summary:
    """Bounds of one column over a whole segment.

    Attributes:
        low: lower bound, or None if unknown. Text has at most 65 characters and no NUL; numbers are finite.
        high: upper bound, or None if unknown.
        nullable: whether there may be a null.
        only_null: whether all values are null.
    """

    low: Bound
    high: Bound
    nullable: bool
    only_null: bool


@dataclass(frozen=True)
class SegmentRecord:
    """The stored form of a segment.

    Attributes:
        id: 32 hexadecimal digits.
        num_rows: including dead rows.
        blobs: by part name. "files", "partitions", "stats", "rest" and "keys" are always present,
            "bounds/<column key>" once parsed.
        summaries: by column key, 32 hexadecimal digits.
    """

    id: str
    num_rows: int
    blobs: Mapping[str, bytes] = field(repr=False)
    summaries: Mapping[str, Summary] = field(repr=False)


class SegmentSource(Protocol):
    """A thread-safe store of segments. Calls take many segments, so that a plan needs few queries."""

    def blobs(self, ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one part of each segment.

        Raises:
            SegmentsLost: a part is missing or corrupt.
        """
        ...

    def optional_blobs(self, ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one part of the segments that have it; a corrupt part counts as missing."""
        ...

    def summaries(self, ids: Sequence[str], column: str) -> Mapping[str, Summary]:
        """Return the existing summaries of one column, by segment id."""
        ...


class Segment:
    """A set of files; immutable except for what is cached about them, and thread-safe.

    Attributes:
        id: 32 hexadecimal digits.
        num_rows: including dead rows.
        source: the store that has it, or None.
        engine: cache and threads for work on it.
    """

    __slots__ = (
        "__weakref__",
        "_blobs",
        "_new_blobs",
        "_new_summaries",
        "_rows",
        "_summaries",
        "engine",
        "id",
        "num_rows",
        "source",
    )

    def __init__(
        self,
        segment_id: str,
        num_rows: int,
        blobs: Mapping[str, bytes],
        source: SegmentSource | None,
        engine: FileIndexEngine,
    ) -> None:
        self.id = segment_id
        self.num_rows = num_rows
        self.source = source
        self.engine = engine
        self._blobs = dict(blobs)
        self._new_blobs = set(blobs) if source is None else set()
        self._summaries: dict[str, Summary] = {}
        self._new_summaries: set[str] = set()
        self._rows: pa.RecordBatch | None = None
        for cache in (engine.decoded, engine.stored):
            weakref.finalize(self, cache.drop, segment_id).atexit = False

    @classmethod
    def of(
        cls,
        batch: pa.RecordBatch,
        location: str,
        engine: FileIndexEngine = SERIAL,
        *,
        without: frozenset[str] = frozenset(),
    ) -> "Segment":
        """Build a new segment.

        Args:
            batch: rows of FILES_SCHEMA, at most SEGMENT_ROWS.
            location: the table's canonical location, against which relative paths are resolved.
            engine: cache and threads for work on it.
            without: parts to leave out, which its source will provide.

        Raises:
            LocationNotAllowed: a path leads out of the table.
            CorruptLog: a path is invalid.
        """
        segment = cls(uuid.uuid4().hex, batch.num_rows, {KEYS: encoded_keys(batch, location)}, None, engine)
        is_small = batch.num_rows <= BLOCK_ROWS and batch.nbytes <= _SMALL_BYTES
        # A slice would keep the whole batch in memory.
        is_whole = batch.get_total_buffer_size() <= 2 * batch.nbytes + _SLACK
        if is_small and is_whole and not without:
            segment._rows = batch
        else:
            for name, blob in encoded_parts(batch, without).items():
                segment.keep_blob(name, blob, new=True)
        return segment

    @classmethod
    def stored(
        cls, segment_id: str, num_rows: int, source: SegmentSource, engine: FileIndexEngine = SERIAL
    ) -> "Segment":
        """Return a segment backed by a store, with nothing in memory."""
        return cls(segment_id, num_rows, {}, source, engine)

    @property
    def lacks_statistics(self) -> bool:
        """Whether its statistics have not been read yet, so that no store has them."""
        return FILES in self._new_blobs and STATS not in self._blobs

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds now, without what its engine keeps; after :meth:`encode`, as many as a store needs."""
        rows = self._rows
        own = sum(len(blob) for blob in list(self._blobs.values()))
        return own if rows is None else own + rows.nbytes

    # --- saving -----------------------------------------------------------------------------------------

    def record(self) -> SegmentRecord:
        """Return everything to save in a store that does not have the segment; omits what its current store has."""
        self.encode()
        return SegmentRecord(self.id, self.num_rows, dict(self._blobs), dict(self._summaries))

    def unsaved(self) -> SegmentRecord | None:
        """Return what its store does not have yet, or None if it has everything."""
        self.encode()
        blobs = {name: self._blobs[name] for name in sorted(self._new_blobs)}
        summaries = {column: self._summaries[column] for column in sorted(self._new_summaries)}
        return SegmentRecord(self.id, self.num_rows, blobs, summaries) if blobs or summaries else None

    def saved(self, record: SegmentRecord, source: SegmentSource) -> None:
        """Record that ``source`` has saved ``record``, and evict what can be read back."""
        self.source = source
        self._new_blobs -= set(record.blobs)
        self._new_summaries -= set(record.summaries)
        for name in record.blobs:
            blob = self._blobs.pop(name, None)
            if blob is not None and name in _KEPT_IN_MEMORY:
                self.engine.stored.put(self.id, name, blob, len(blob))

    def encode(self) -> None:
        """Encode the rows of a small new segment, which are used as they are until a store needs them; otherwise a no-op."""
        if self._rows is None:
            return
        # A second thread must not add blobs that the first one has saved and evicted meanwhile.
        with self.engine.encoding:
            rows = self._rows
            if rows is not None:
                for name, blob in encoded_parts(rows).items():
                    self.decoded(name)  # cached, so that the next version can merge the rows as they are
                    self.keep_blob(name, blob, new=True)
                self._rows = None

    # --- cached values ----------------------------------------------------------------------------------

    def blob(self, name: str) -> bytes | None:
        """Return a blob that is in memory, or None."""
        if name in _OF_COLUMNS:
            self.encode()
        found = self._blobs.get(name)
        return self.engine.stored.get(self.id, name) if found is None and name in _OF_FILES else found

    def keep_blob(self, name: str, blob: bytes, *, new: bool) -> None:
        """Cache a blob: ``new`` if computed here, else read from its store, if there is room."""
        if new:
            self._blobs[name] = blob
            self._new_blobs.add(name)
        else:
            self.engine.stored.put(self.id, name, blob, len(blob))

    def decoded(self, part: str) -> Any | None:
        """Return a decoded part that is in memory, or None."""
        found, rows = self.engine.decoded.get(self.id, part), self._rows
        if found is not None or rows is None or part not in _OF_COLUMNS:
            return found
        value, nbytes = decoded_part(part, rows)
        self.keep_decoded(part, value, nbytes)
        return value

    def keep_decoded(self, part: str, value: Any, nbytes: int) -> None:
        """Cache a decoded part, if there is room."""
        self.engine.decoded.put(self.id, part, value, nbytes)

    def summary(self, column: str) -> Summary | None:
        """Return a summary that is in memory, or None."""
        return self._summaries.get(column)

    def keep_summary(self, column: str, summary: Summary, *, new: bool) -> None:
        """Cache a summary: ``new`` if computed here, else read from its store."""
        self._summaries[column] = summary
        if new:
            self._new_summaries.add(column)


def load_parts(segments: Iterable[Segment], part: str, *, keep: bool = True) -> list[Any]:
    """Return one part of each segment, decoded (:func:`~delvec_kernel.file_index.segment_parts.decoded`), in order.

    Args:
        segments: any.
        part: a name of :mod:`~delvec_kernel.file_index.segment_parts`.
        keep: whether to cache the parts; False for one-off reads, which should evict nothing.

    Raises:
        SegmentsLost: the store has lost a part.
    """
    requested_segments = list(segments)
    parts_by_segment = {segment.id: segment.decoded(part) for segment in requested_segments}
    missing = [segment for segment in requested_segments if parts_by_segment[segment.id] is None]
    fetched = _fetched(missing, part, keep=part in _KEPT_IN_MEMORY)
    for segment in requested_segments:
        if parts_by_segment[segment.id] is None:
            value, nbytes = decoded(part, fetched[segment.id])
            parts_by_segment[segment.id] = value
            if keep:
                segment.keep_decoded(part, value, nbytes)
    return [parts_by_segment[segment.id] for segment in requested_segments]


def _fetched(segments: Sequence[Segment], part: str, *, keep: bool) -> dict[str, bytes]:
    blobs: dict[str, bytes] = {}
    elsewhere: dict[int, tuple[SegmentSource, dict[str, Segment]]] = {}
    for segment in segments:
        blob = segment.blob(part)
        if blob is not None:
            blobs[segment.id] = blob
        elif segment.source is not None:
            elsewhere.setdefault(id(segment.source), (segment.source, {}))[1][segment.id] = segment
        else:
            raise SegmentsLost
    for source, needed in elsewhere.values():
        source_blobs = source.blobs(list(needed), part)
        for id_, segment in needed.items():
            if id_ not in source_blobs:
                raise SegmentsLost
            if keep:
                segment.keep_blob(part, source_blobs[id_], new=False)
            blobs[id_] = source_blobs[id_]
    return blobs


Chosen: TypeAlias = tuple[Segment, Rows | None]
"""Rows of a segment; None means all."""

_AT_ONCE: Final = 16


def rows_of(
    selection: Sequence[Chosen], columns: Sequence[str] = tuple(FILES_SCHEMA.names), *, keep: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield one batch per segment, in order.

    Args:
        selection: the rows.
        columns: names of FILES_SCHEMA.
        keep: whether to cache what is read: whole parts decoded, and those of which few rows are read as they are stored.

    Raises:
        SegmentsLost: the store has lost a part.
    """
    schema = pa.schema([FILES_SCHEMA.field(name) for name in columns])
    needed = sorted({PART_OF[name] for name in columns})
    for start in range(0, len(selection), _AT_ONCE):
        group = selection[start : start + _AT_ONCE]
        loaded = [_load_rows(group, part, keep=keep) for part in needed]
        for place, (segment, rows) in enumerate(group):
            parts = {name: values[place] for name, values in zip(needed, loaded, strict=True)}
            count = segment.num_rows if rows is None else len(rows)
            arrays = [_column(*parts[PART_OF[name]], name, count) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _load_rows(selection: Sequence[Chosen], part: str, *, keep: bool) -> list[tuple[Any, Rows | None]]:
    """Return for each segment a decoded part, and which of its rows are the chosen ones."""
    few = [
        (place, segment, rows)
        for place, (segment, rows) in enumerate(selection)
        if part != PARTITIONS
        and rows is not None
        and are_few_blocks(rows, segment.num_rows)
        and segment.decoded(part) is None
    ]
    # Row changes that follow one another often concern files of the same segments.
    blobs = _fetched([segment for _, segment, _ in few], part, keep=keep or part in _KEPT_IN_MEMORY)
    parts_by_position: dict[int, tuple[Any, Rows | None]] = {
        place: (decoded_rows(blobs[segment.id], rows), None) for place, segment, rows in few
    }
    others = [place for place in range(len(selection)) if place not in parts_by_position]
    whole = load_parts([selection[place][0] for place in others], part, keep=keep)
    parts_by_position |= {
        place: (value, selection[place][1]) for place, value in zip(others, whole, strict=True)
    }
    return [parts_by_position[place] for place in range(len(selection))]


def _column(part: Any, rows: Rows | None, name: str, count: int) -> pa.Array:
    if PART_OF[name] == PARTITIONS:
        return part.rows(rows)
    if name not in part.schema.names:
        return pa.nulls(count, FILES_SCHEMA.field(name).type)
    return part.column(name) if rows is None else part.column(name).take(pa.array(rows))
