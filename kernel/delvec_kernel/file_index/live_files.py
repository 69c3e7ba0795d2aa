"""The live files of a version; deriving the next version costs O(its changes), not O(table)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.file_index.column_bounds import KnownColumn
from delvec_kernel.file_index.deferred_statistics import DeferredStatistics
from delvec_kernel.file_index.engine_port import SERIAL, FileIndexEngine
from delvec_kernel.file_index.file_counts import FileCounts
from delvec_kernel.file_index.file_rows import FILES_SCHEMA
from delvec_kernel.file_index.packed_files import FileChange, LiveSegment, PackedFiles, dead_rows
from delvec_kernel.file_index.segment import Segment
from delvec_kernel.locations import canonical_log_path
from delvec_kernel.statistics.bounds import Bounds, Path

__all__ = ["LiveFiles", "LiveSegment", "dead_rows"]

_MAX_RECENT = 256
"""The maximum number of changed files held outside segments."""


_State: TypeAlias = tuple[PackedFiles, Mapping[str, AddFile | None]]
"""Segments, and the changes since; replaced as one value because other threads read it."""


class LiveFiles:
    """The live files of one version; immutable, and shares unchanged segments with other versions.

    The changes of recent commits are held outside the segments, where a lookup takes microseconds. They are folded
    into segments on the first request for more than single files, so that many small commits cost one fold.

    Args:
        location: the table's canonical location, against which relative paths are resolved.
        members: live segments, in no particular order.
        counts: totals over all files.
        engine: cache and threads for work on segments.
    """

    def __init__(
        self,
        location: str,
        members: Iterable[LiveSegment] = (),
        counts: FileCounts | None = None,
        engine: FileIndexEngine = SERIAL,
    ) -> None:
        self.location = location
        self.counts = FileCounts() if counts is None else counts
        self._state: _State = PackedFiles(location, tuple(members), self.counts, engine), {}
        self._folded: dict[str, PackedFiles] = {}

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[pa.RecordBatch],
        location: str,
        engine: FileIndexEngine = SERIAL,
        deferred_statistics: DeferredStatistics | None = None,
    ) -> "LiveFiles":
        """Build from rows of FILES_SCHEMA, each a different file; batches are released as they are read.

        Batches may have one further column: :data:`~delvec_kernel.statistics.typed_statistics.STATS_PARSED` or, in
        place of statistics, the DEFERRED_ROW of ``deferred_statistics``.

        Raises:
            LocationNotAllowed: a path leads out of the table.
            CorruptLog: a path is invalid.
        """
        return cls._of(PackedFiles.from_batches(batches, location, engine, deferred_statistics))

    @classmethod
    def restored(
        cls,
        location: str,
        members: Iterable[LiveSegment],
        counts: FileCounts,
        engine: FileIndexEngine = SERIAL,
    ) -> "LiveFiles":
        """Restore the live files that a store has saved."""
        return cls(location, members, counts, engine)

    @classmethod
    def _of(
        cls,
        packed: PackedFiles,
        recent: Mapping[str, AddFile | None] | None = None,
        counts: FileCounts | None = None,
    ) -> "LiveFiles":
        found = cls(packed.location, (), packed.counts if counts is None else counts)
        found._state = packed, {} if recent is None else recent
        return found

    @property
    def members(self) -> tuple[LiveSegment, ...]:
        """The live segments, in no particular order.

        Raises:
            SegmentsLost: folding recent changes needs segments that the store has lost.
        """
        return self._fold().members

    def summary_bounds(self, columns: Sequence[KnownColumn]) -> dict[Path, Bounds]:
        """Return for each column bounds with one entry per member; where there is no summary nothing is known.

        Raises:
            SegmentsLost: a store does not have a segment's partition values any more.
        """
        return self._fold().summary_bounds(columns)

    @property
    def segments(self) -> list[Segment]:
        """The current segments; folding in :attr:`members` may replace some."""
        return [member.segment for member in self._state[0].members]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that its segments use now."""
        return self._state[0].nbytes

    @property
    def table(self) -> pa.Table:
        """All live files as a new FILES_SCHEMA table, in no particular order."""
        return self.columns(FILES_SCHEMA.names)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return these columns of all live files, in no particular order."""
        schema = pa.schema([FILES_SCHEMA.field(name) for name in names])
        return pa.Table.from_batches(self.batches(names), schema)

    def batches(self, names: Sequence[str] = tuple(FILES_SCHEMA.names)) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all live files, in no particular order."""
        return self._fold().batches(names)

    def find(self, path: str) -> AddFile | None:
        """Return the live file with this path in any spelling, or None.

        Raises:
            LocationNotAllowed: the path leads out of the table.
            CorruptLog: the path is invalid.
        """
        return self.find_all([path]).get(path)

    def find_all(self, paths: Iterable[str]) -> dict[str, AddFile]:
        """Return the live files with these paths, keyed by path as given; others are missing from the result.

        Raises:
            LocationNotAllowed: a path leads out of the table.
            CorruptLog: a path is invalid.
        """
        keys = {path: canonical_log_path(path, self.location) for path in paths}
        adds = self._find(set(keys.values()))
        return {path: adds[key] for path, key in keys.items() if key in adds}

    def duplicate(self) -> str | None:
        """Return the key of a file that occurs twice, or None; duplicates make a checkpoint invalid."""
        return self._fold().duplicate()

    def apply(self, changes: Mapping[str, FileChange]) -> "LiveFiles":
        """Return the live files after ``changes``, keyed by canonical path; costs O(changes)."""
        packed_files, recent = self._state
        are_few = len(recent) + len(changes) <= _MAX_RECENT
        # Looking files up one by one needs their statistics, which would load deferred ones.
        if (
            not are_few
            or packed_files.lacks_statistics
            or not all(_is_valid_text(each.add) for each in changes.values())
        ):
            return self._of(self._fold().apply(changes))
        adds_by_path = self._find(set(changes))
        states: dict[str, AddFile | None] = dict(recent)
        removed_files: list[AddFile] = []
        added_files: list[AddFile] = []
        for key, change in changes.items():
            old, add = adds_by_path.get(key), change.add
            if add is None and (old is None or _vector_id(old) not in change.removed):
                continue
            if add is not None:
                # Segments do not store dataChange, so reading it back gives True.
                add = add if add.data_change else replace(add, data_change=True)
                added_files.append(add)
            if old is not None:
                removed_files.append(old)
            states[key] = add
        counts = self.counts.minus(FileCounts.of_adds(removed_files)).plus(FileCounts.of_adds(added_files))
        return self._of(packed_files, states, counts)

    def _fold(self) -> PackedFiles:
        """Return all files in segments, folding recent changes into them."""
        packed, recent = self._state
        if recent:
            # Concurrent threads must all continue with one thread's segments, or the store would save duplicates.
            packed = self._folded.setdefault("files", packed.follow(recent))
            self._state = packed, {}
        return packed

    def _find(self, keys: set[str]) -> dict[str, AddFile]:
        packed, recent = self._state
        found = {key: add for key in keys if (add := recent.get(key)) is not None}
        rest = keys.difference(recent)
        return found | packed.find(rest) if rest else found


def _is_valid_text(add: AddFile | None) -> bool:
    """Whether every string of an add is valid UTF-8, as Arrow requires."""
    if add is None:
        return True
    texts = [add.path, add.stats, add.clustering_provider]
    texts += [*add.partition_values, *add.partition_values.values()]
    if add.tags is not None:
        texts += [*add.tags, *add.tags.values()]
    if add.deletion_vector is not None:
        texts.append(add.deletion_vector.path_or_inline_dv)
    try:
        "".join(text for text in texts if text is not None).encode()
    except UnicodeEncodeError:
        return False
    return True


def _vector_id(add: AddFile) -> str | None:
    return None if add.deletion_vector is None else add.deletion_vector.unique_id
