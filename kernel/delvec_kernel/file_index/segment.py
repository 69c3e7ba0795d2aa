"""Segments: immutable sets of live files that a store can keep, and bring back part by part.

How a store saves and restores them:

- A segment never changes and is known by its ``id``. :meth:`Segment.record` is all there is to save of one that the
  store does not have; later :meth:`Segment.unsaved` is what was found out since (bounds of further columns). Both
  are given back to :meth:`Segment.saved` once they are durable; from then on the segment may forget what the store
  has.
- :meth:`Segment.stored` is a segment of which nothing is in memory yet; its parts are read from the store when
  something asks for them, for many segments in one call (:func:`load_parts`).
- The live files of a version are members: a segment and the rows of it that are dead
  (:mod:`~delvec_kernel.file_index.live_files`). ``LiveFiles.restored(location, members, counts)`` brings them back;
  ``LiveSegment.dead`` goes to bytes and back by ``tobytes()`` and ``dead_rows(blob)``.
- A store may lose anything at any time; then :class:`SegmentsLost` is raised by whatever needed it, and the owner of
  the snapshot has to discard it and to read the log again.
"""

import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from delvec_kernel.file_index.engine import SERIAL, FileIndexEngine
from delvec_kernel.file_index.files import FILES_SCHEMA
from delvec_kernel.file_index.segment_parts import (
    FILES,
    KEYS,
    PART_OF,
    PARTITIONS,
    STATS,
    Rows,
    decoded,
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
"""Files of a segment at most; a million files are about 120 segments."""

_HELD: Final = frozenset({FILES, PARTITIONS, KEYS})
"""Parts that stay in memory, compressed, even if a store has them: nearly every plan or commit needs them."""

Bound: TypeAlias = int | float | str | Decimal | None


class SegmentsLost(Exception):
    """The store lost segments; the snapshot has to be read from the log again."""


@dataclass(frozen=True)
class Summary:
    """Bounds of one column over a whole segment.

    Attributes:
        low: no value is below; None: not known. Text has at most 65 characters and no NUL; numbers are finite.
        high: no value is above; likewise.
        nullable: whether there may be a null.
        only_null: whether all values are null.
    """

    low: Bound
    high: Bound
    nullable: bool
    only_null: bool


@dataclass(frozen=True)
class SegmentRecord:
    """What a store keeps of a segment.

    Attributes:
        id: 32 hexadecimal digits.
        num_rows: dead ones included.
        blobs: by name. "files", "partitions", "stats", "rest" and "keys" are always there, "bounds/<column key>"
            where they were parsed.
        summaries: by column key, 32 hexadecimal digits.
    """

    id: str
    num_rows: int
    blobs: Mapping[str, bytes] = field(repr=False)
    summaries: Mapping[str, Summary] = field(repr=False)


class SegmentSource(Protocol):
    """A store of segments; safe to share between threads. Each call asks for many, so that a plan is few queries."""

    def blobs(self, ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one part of each segment.

        Raises:
            SegmentsLost: one is missing, or is not what was saved.
        """
        ...

    def optional_blobs(self, ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one part of those segments that have it; what is damaged counts as missing."""
        ...

    def summaries(self, ids: Sequence[str], column: str) -> Mapping[str, Summary]:
        """Return the summaries of one column that there are, by segment."""
        ...


class Segment:
    """Some files; immutable, but for what is known about them. Safe to share between threads.

    Attributes:
        id: 32 hexadecimal digits.
        num_rows: dead ones included.
        source: the store that has it, None if none has.
        engine: what works on it.
    """

    __slots__ = (
        "__weakref__",
        "_blobs",
        "_new_blobs",
        "_new_summaries",
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
        weakref.finalize(self, engine.decoded.drop, segment_id).atexit = False

    @classmethod
    def of(
        cls,
        batch: pa.RecordBatch,
        location: str,
        engine: FileIndexEngine = SERIAL,
        *,
        without: frozenset[str] = frozenset(),
    ) -> "Segment":
        """Return a new segment.

        Args:
            batch: rows of FILES_SCHEMA, at most SEGMENT_ROWS.
            location: the table's canonical location, which relative paths start from.
            engine: what works on it.
            without: parts that its source will have.

        Raises:
            LocationNotAllowed: a path leads out of the table.
            CorruptLog: one is not a path.
        """
        blobs = encoded_parts(batch, location, without)
        return cls(uuid.uuid4().hex, batch.num_rows, blobs, None, engine)

    @classmethod
    def stored(
        cls, segment_id: str, num_rows: int, source: SegmentSource, engine: FileIndexEngine = SERIAL
    ) -> "Segment":
        """Return a segment that a store has."""
        return cls(segment_id, num_rows, {}, source, engine)

    @property
    def lacks_statistics(self) -> bool:
        """Whether its statistics have not been read yet: no store has them, either."""
        return FILES in self._new_blobs and STATS not in self._blobs

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds now, without what is decoded."""
        return sum(len(blob) for blob in list(self._blobs.values()))

    # --- saving -----------------------------------------------------------------------------------------

    def record(self) -> SegmentRecord:
        """Return all that a store without it has to save; what this store has already is not in it."""
        return SegmentRecord(self.id, self.num_rows, dict(self._blobs), dict(self._summaries))

    def unsaved(self) -> SegmentRecord | None:
        """Return what its store does not have yet, None if it has everything."""
        blobs = {name: self._blobs[name] for name in sorted(self._new_blobs)}
        summaries = {column: self._summaries[column] for column in sorted(self._new_summaries)}
        return SegmentRecord(self.id, self.num_rows, blobs, summaries) if blobs or summaries else None

    def saved(self, record: SegmentRecord, source: SegmentSource) -> None:
        """Take note that a store has what is in ``record``, and forget what can be read from there."""
        self.source = source
        self._new_blobs -= set(record.blobs)
        self._new_summaries -= set(record.summaries)
        for name in record.blobs:
            if name not in _HELD:
                self._blobs.pop(name, None)

    # --- what is known ----------------------------------------------------------------------------------

    def blob(self, name: str) -> bytes | None:
        """Return a blob that is in memory, or None."""
        return self._blobs.get(name)

    def keep_blob(self, name: str, blob: bytes, *, new: bool) -> None:
        """Keep a blob: a ``new`` one that has been worked out, or one that its store has."""
        if new:
            self._blobs[name] = blob
            self._new_blobs.add(name)
        elif name in _HELD:
            self._blobs[name] = blob

    def decoded(self, part: str) -> Any | None:
        """Return a decoded part that is in memory, or None."""
        return self.engine.decoded.get(self.id, part)

    def keep_decoded(self, part: str, value: Any, nbytes: int) -> None:
        """Keep a decoded part as long as there is room."""
        self.engine.decoded.put(self.id, part, value, nbytes)

    def summary(self, column: str) -> Summary | None:
        """Return a summary that is in memory, or None."""
        return self._summaries.get(column)

    def keep_summary(self, column: str, summary: Summary, *, new: bool) -> None:
        """Keep a summary: a ``new`` one, or one that its store has."""
        self._summaries[column] = summary
        if new:
            self._new_summaries.add(column)


def load_parts(segments: Iterable[Segment], part: str, *, keep: bool = True) -> list[Any]:
    """Return one part of each segment, decoded (:func:`~delvec_kernel.file_index.segment_parts.decoded`), in order.

    Args:
        segments: any.
        part: a name of :mod:`~delvec_kernel.file_index.segment_parts`.
        keep: whether they are likely to be used again; else they push nothing else out of memory.

    Raises:
        SegmentsLost: a store does not have it any more.
    """
    wanted = list(segments)
    found = {segment.id: segment.decoded(part) for segment in wanted}
    fetched = _fetched([segment for segment in wanted if found[segment.id] is None], part)
    for segment in wanted:
        if found[segment.id] is None:
            value, nbytes = decoded(part, fetched[segment.id])
            found[segment.id] = value
            if keep:
                segment.keep_decoded(part, value, nbytes)
    return [found[segment.id] for segment in wanted]


def _fetched(segments: Sequence[Segment], part: str) -> dict[str, bytes]:
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
        found = source.blobs(list(needed), part)
        for id_, segment in needed.items():
            if id_ not in found:
                raise SegmentsLost
            segment.keep_blob(part, found[id_], new=False)
            blobs[id_] = found[id_]
    return blobs


Chosen: TypeAlias = tuple[Segment, Rows | None]
"""Rows of a segment; None is all of them."""

_AT_ONCE: Final = 16


def rows_of(
    chosen: Sequence[Chosen], columns: Sequence[str] = tuple(FILES_SCHEMA.names), *, keep: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield one batch per segment, in order.

    Args:
        chosen: the rows.
        columns: names of FILES_SCHEMA.
        keep: whether the segments are likely to be asked for again (:func:`~delvec_kernel.file_index.segment.load_parts`).

    Raises:
        SegmentsLost: a store does not have a part of them any more.
    """
    schema = pa.schema([FILES_SCHEMA.field(name) for name in columns])
    needed = sorted({PART_OF[name] for name in columns})
    for start in range(0, len(chosen), _AT_ONCE):
        group = chosen[start : start + _AT_ONCE]
        loaded = [load_parts([segment for segment, _ in group], part, keep=keep) for part in needed]
        for place, (segment, rows) in enumerate(group):
            parts = {name: values[place] for name, values in zip(needed, loaded, strict=True)}
            count = segment.num_rows if rows is None else len(rows)
            arrays = [_column(parts, name, rows, count) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(parts: Mapping[str, Any], name: str, rows: Rows | None, count: int) -> pa.Array:
    part = parts[PART_OF[name]]
    if PART_OF[name] == PARTITIONS:
        return part.rows(rows)
    if name not in part.schema.names:
        return pa.nulls(count, FILES_SCHEMA.field(name).type)
    return part.column(name) if rows is None else part.column(name).take(pa.array(rows))
