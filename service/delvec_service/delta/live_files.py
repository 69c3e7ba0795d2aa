"""The live files of a version, so that the next version costs what its commit changes and not what the table holds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delvec.protocol.deletion_vector import Descriptor
from delvec.protocol.locations import canonical_log_path, canonical_log_paths
from delvec_service.delta.actions import AddFile
from delvec_service.delta.files import FILES_SCHEMA, add_at, batch_from_adds

__all__ = ["FileChange", "LiveFiles"]

_SEGMENT_ROWS: Final = 8192
"""Rows that are copied when one of them goes; a million files are about 120 segments."""

_Hashes = npt.NDArray[np.int64]
_Rows = npt.NDArray[np.int64]


@dataclass(slots=True)
class FileChange:
    """What a run of commits does to one file.

    Attributes:
        add: what the file is from now on; None where nothing was added.
        removed: ids of the deletion vectors that it must not have any more to stay; None is "no deletion vector".
    """

    add: AddFile | None = None
    removed: set[str | None] = field(default_factory=set)

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


@dataclass(frozen=True)
class _Segment:
    """Some live files, and an index over the hashes of their keys.

    Attributes:
        hashes: ascending.
        rows: the row of each hash.
    """

    batch: pa.RecordBatch
    hashes: _Hashes
    rows: _Rows

    @classmethod
    def of(cls, batch: pa.RecordBatch, location: str) -> "_Segment":
        keys = canonical_log_paths(batch.column("path"), location).to_pylist()
        hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        rows = np.argsort(hashes, kind="stable")
        return cls(batch, hashes[rows], rows)

    @cached_property
    def nbytes(self) -> int:
        return int(self.batch.nbytes) + int(self.hashes.nbytes) + int(self.rows.nbytes)

    def find(self, hashes: _Hashes) -> _Rows:
        """Return the rows whose key has one of these hashes, which are ascending."""
        if len(hashes) < len(self.hashes):
            first = np.searchsorted(self.hashes, hashes, "left")
            last = np.searchsorted(self.hashes, hashes, "right")
            found = [self.rows[first[i] : last[i]] for i in np.flatnonzero(last > first)]
            return np.concatenate(found) if found else self.rows[:0]
        place = np.minimum(np.searchsorted(hashes, self.hashes), len(hashes) - 1)
        hits: _Rows = self.rows[hashes[place] == self.hashes]
        return hits

    def without(self, gone: Sequence[int]) -> "_Segment":
        keep = np.ones(self.batch.num_rows, dtype=np.bool_)
        keep[list(gone)] = False
        kept = keep[self.rows]
        moved = np.cumsum(keep) - 1
        return _Segment(self.batch.filter(pa.array(keep)), self.hashes[kept], moved[self.rows[kept]])


@dataclass(frozen=True)
class LiveFiles:
    """The live files of one version; immutable, and shares what did not change with other versions.

    Attributes:
        location: the table's canonical location, which relative paths start from.
    """

    location: str
    segments: tuple[_Segment, ...] = ()

    @classmethod
    def from_batches(cls, batches: Iterable[pa.RecordBatch], location: str) -> "LiveFiles":
        """Take rows of FILES_SCHEMA, each a different file."""
        return cls(location, tuple(_segments(batches, location)))

    @cached_property
    def table(self) -> pa.Table:
        """All live files, FILES_SCHEMA; its order means nothing."""
        return pa.Table.from_batches([segment.batch for segment in self.segments], FILES_SCHEMA)

    def find(self, path: str) -> AddFile | None:
        """Return the live file of that path in any spelling, or None.

        Raises:
            LocationNotAllowed: the path leads out of the table.
            CorruptLog: it is no path.
        """
        key = canonical_log_path(path, self.location)
        for segment, row, found in self._matches([key]):
            if found == key:
                return add_at(segment.batch, row)
        return None

    def duplicate(self) -> str | None:
        """Return the key of a file that occurs twice, or None: a checkpoint must not hold one."""
        if not self.segments:
            return None
        hashes = np.sort(np.concatenate([segment.hashes for segment in self.segments]))
        suspects = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        seen: set[str] = set()
        for _, _, key in self._with_hashes(suspects) if len(suspects) else ():
            if key in seen:
                return key
            seen.add(key)
        return None

    def apply(self, changes: Mapping[str, FileChange]) -> "LiveFiles":
        """Return the live files after ``changes``, which are keyed by canonical path; costs O(changes)."""
        gone: dict[int, list[int]] = {}
        places = {id(segment): place for place, segment in enumerate(self.segments)}
        for segment, row, key in self._matches(changes):
            change = changes.get(key)
            if change is not None and (
                change.add is not None or _row_id(segment.batch, row) in change.removed
            ):
                gone.setdefault(places[id(segment)], []).append(row)
        segments = list(self.segments)
        for place, rows in gone.items():
            segments[place] = segments[place].without(rows)
        segments = [segment for segment in segments if segment.batch.num_rows]
        added = [change.add for change in changes.values() if change.add is not None]
        if added:
            new = [batch_from_adds(added)]
            if segments and segments[-1].batch.num_rows + len(added) <= _SEGMENT_ROWS:
                # Otherwise a table with many small commits would become many small segments.
                new.insert(0, segments.pop().batch)
            segments.extend(_segments([_joined(new)], self.location))
        return LiveFiles(self.location, tuple(segments))

    def _matches(self, keys: Iterable[str]) -> Iterator[tuple[_Segment, int, str]]:
        hashes = np.sort(np.fromiter(map(hash, keys), np.int64))
        return self._with_hashes(hashes) if len(hashes) else iter(())

    def _with_hashes(self, hashes: _Hashes) -> Iterator[tuple[_Segment, int, str]]:
        for segment in self.segments:
            rows = segment.find(hashes)
            if len(rows):
                paths = segment.batch.column("path").take(pa.array(rows)).to_pylist()
                for row, path in zip(rows.tolist(), paths, strict=True):
                    yield segment, row, canonical_log_path(path, self.location)


def _segments(batches: Iterable[pa.RecordBatch], location: str) -> Iterator[_Segment]:
    for batch in batches:
        for start in range(0, batch.num_rows, _SEGMENT_ROWS):
            part = batch.slice(start, _SEGMENT_ROWS)
            yield _Segment.of(part, location)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0]


def _row_id(batch: pa.RecordBatch, row: int) -> str | None:
    dv: dict[str, Any] | None = batch.column("deletion_vector")[row].as_py()
    return None if dv is None else Descriptor.from_json(dv).unique_id


def _id(descriptor: Descriptor | None) -> str | None:
    return None if descriptor is None else descriptor.unique_id
