"""The live files of a version, so that the next version costs what its commit changes and not what the table holds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.file_index.deferred_statistics import DeferredStatistics
from delvec_kernel.file_index.engine import SERIAL, FileIndexEngine
from delvec_kernel.file_index.file_counts import FileCounts
from delvec_kernel.file_index.files import FILES_SCHEMA
from delvec_kernel.file_index.packed_files import FileChange, LiveSegment, PackedFiles, dead_rows
from delvec_kernel.file_index.segment import Segment
from delvec_kernel.locations import canonical_log_path

__all__ = ["LiveFiles", "LiveSegment", "dead_rows"]

_MOST_RECENT = 256
"""Changes of so many files are kept beside the segments."""


_State: TypeAlias = tuple[PackedFiles, Mapping[str, AddFile | None]]
"""Files in segments, and what has changed since; replaced together, as other threads read it."""


class LiveFiles:
    """The live files of one version; immutable, and shares what did not change with other versions.

    What a few commits change is kept beside the segments, where finding it takes microseconds. It goes into them once
    somebody asks for more than single files: many small commits then cost as much as one.

    Args:
        location: the table's canonical location, which relative paths start from.
        members: in no order that means anything.
        counts: of all files.
        engine: what works on segments.
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
        self._whole_ones: dict[str, PackedFiles] = {}

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[pa.RecordBatch],
        location: str,
        engine: FileIndexEngine = SERIAL,
        deferred: DeferredStatistics | None = None,
    ) -> "LiveFiles":
        """Take rows of FILES_SCHEMA, each a different file; batches are let go of one after the other.

        They may have a further column, :data:`~delvec_kernel.statistics.typed_statistics.STATS_PARSED`, or, in place of
        statistics, DEFERRED_ROW of ``deferred``.

        Raises:
            LocationNotAllowed: a path leads out of the table.
            CorruptLog: one is not a path.
        """
        return cls._of(PackedFiles.from_batches(batches, location, engine, deferred))

    @classmethod
    def restored(
        cls,
        location: str,
        members: Iterable[LiveSegment],
        counts: FileCounts,
        engine: FileIndexEngine = SERIAL,
    ) -> "LiveFiles":
        """Bring back what a store has kept."""
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
        """Segments, and what is live of them; in no order that means anything.

        Raises:
            SegmentsLost: those of an earlier version are needed for it, and are gone.
        """
        return self._whole().members

    @property
    def segments(self) -> list[Segment]:
        """The segments that it rests on now; :attr:`members` may make others of them."""
        return [member.segment for member in self._state[0].members]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that its segments hold now."""
        return self._state[0].nbytes

    @property
    def table(self) -> pa.Table:
        """All live files, FILES_SCHEMA, made anew each time; its order means nothing."""
        return self.columns(FILES_SCHEMA.names)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all live files; the order of the files means nothing."""
        schema = pa.schema([FILES_SCHEMA.field(name) for name in names])
        return pa.Table.from_batches(self.batches(names), schema)

    def batches(self, names: Sequence[str] = tuple(FILES_SCHEMA.names)) -> Iterator[pa.RecordBatch]:
        """Yield some columns of all live files; the order of the files means nothing."""
        return self._whole().batches(names)

    def find(self, path: str) -> AddFile | None:
        """Return the live file of that path in any spelling, or None.

        Raises:
            LocationNotAllowed: the path leads out of the table.
            CorruptLog: it is not a path.
        """
        return self.find_all([path]).get(path)

    def find_all(self, paths: Iterable[str]) -> dict[str, AddFile]:
        """Return the live files of these paths, by path as given; what is not live is missing.

        Raises:
            LocationNotAllowed: a path leads out of the table.
            CorruptLog: one is not a path.
        """
        keys = {path: canonical_log_path(path, self.location) for path in paths}
        adds = self._find(set(keys.values()))
        return {path: adds[key] for path, key in keys.items() if key in adds}

    def duplicate(self) -> str | None:
        """Return the key of a file that occurs twice, or None: a checkpoint must not hold one."""
        return self._whole().duplicate()

    def apply(self, changes: Mapping[str, FileChange]) -> "LiveFiles":
        """Return the live files after ``changes``, which are keyed by canonical path; costs O(changes)."""
        packed, recent = self._state
        are_few = len(recent) + len(changes) <= _MOST_RECENT
        # Single files come with their statistics; segments that lack them yet are better left so.
        if (
            not are_few
            or packed.lacks_statistics
            or not all(_is_plain(each.add) for each in changes.values())
        ):
            return self._of(self._whole().apply(changes))
        known = self._find(set(changes))
        states: dict[str, AddFile | None] = dict(recent)
        gone: list[AddFile] = []
        added: list[AddFile] = []
        for key, change in changes.items():
            old, add = known.get(key), change.add
            if add is None and (old is None or _vector_id(old) not in change.removed):
                continue
            if add is not None:
                # As segments give it back: they do not keep how it came.
                add = add if add.data_change else replace(add, data_change=True)
                added.append(add)
            if old is not None:
                gone.append(old)
            states[key] = add
        counts = self.counts.minus(FileCounts.of_adds(gone)).plus(FileCounts.of_adds(added))
        return self._of(packed, states, counts)

    def _whole(self) -> PackedFiles:
        """Return all files in segments."""
        packed, recent = self._state
        if recent:
            # Threads may fold at the same time; all of them go on with the segments of one, so that a store has them once.
            packed = self._whole_ones.setdefault("files", packed.follow(recent))
            self._state = packed, {}
        return packed

    def _find(self, keys: set[str]) -> dict[str, AddFile]:
        packed, recent = self._state
        found = {key: add for key in keys if (add := recent.get(key)) is not None}
        rest = keys.difference(recent)
        return found | packed.find(rest) if rest else found


def _is_plain(add: AddFile | None) -> bool:
    """Whether Arrow will take what an add says."""
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
