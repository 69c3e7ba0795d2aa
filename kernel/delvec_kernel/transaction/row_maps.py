"""Row maps: the record of where a sorting compaction put each row, stored next to the table, and the mapping by it.

For reordered rows there would be as many runs (:mod:`~delvec_kernel.transaction.row_runs`) as rows. Instead, the engine writes
Parquet files ``_delvec/row_maps/<uuid>.parquet`` with one row per output row, in order: ``source``, the path as in the log, and
``row``, the physical row index in the source. ``commitInfo.tags["delvec.rowMap"]`` lists them as JSON text:
``{"files": [[path, bytes, rows], ...], "outputs": [[path, rows], ...]}``, with files and outputs in order.

The files are untrusted, and may be missing. A map that contradicts itself, the table or a deletion vector counts as
missing.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from delvec_errors import DelvecError
from delvec_kernel import locations
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.transaction.row_runs import Rows, SourceRuns, row_array
from delvec_kernel.transaction.transaction_changes import MappedOutput, RowMap, RowMapFile

__all__ = [
    "FOLDER",
    "MAX_FILE_BYTES",
    "MAX_FILE_ROWS",
    "MAX_FOLLOWED_ROWS",
    "MAX_ROWS",
    "SCHEMA",
    "TAG",
    "MovedRows",
    "RowMapReader",
    "RowMaps",
    "SourceRows",
    "decode",
    "encode",
    "is_row_map_path",
]

TAG: Final = "delvec.rowMap"
FOLDER: Final = "_delvec/row_maps"
SCHEMA: Final = pa.schema(
    [
        pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ]
)
MAX_ROWS: Final = 2**32
"""Maximum rows of all outputs of one map."""
MAX_FILE_ROWS: Final = 2**24
MAX_FILE_BYTES: Final = 2**28
MAX_FOLLOWED_ROWS: Final = 2**24
"""Maximum rows of the sources that are looked up at once, at up to 40 bytes each."""

_PATH: Final = re.compile(rf"{FOLDER}/[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\.parquet")

_Positions: TypeAlias = npt.NDArray[np.uint32]


def encode(row_map: RowMap) -> str:
    """Return the map as the tag's text."""
    return json_text(
        {
            "files": [[file.path, file.size_in_bytes, file.num_rows] for file in row_map.files],
            "outputs": [[output.path, output.num_rows] for output in row_map.outputs],
        }
    )


def decode(text: str, location: str) -> RowMap | None:
    """Parse a tag's map, with canonical paths of outputs; None if malformed."""
    try:
        found = json.loads(text)
        files = tuple(_file(*entry) for entry in found["files"])
        outputs = tuple(
            MappedOutput(locations.canonical_log_path(path, location), _count(rows, MAX_ROWS))
            for path, rows in found["outputs"]
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, DelvecError):
        return None
    total = sum(output.num_rows for output in outputs)
    row_map = RowMap(files, outputs)
    is_whole = total == sum(file.num_rows for file in files) and len(row_map.rows_by_output) == len(outputs)
    return row_map if is_whole and 0 < total <= MAX_ROWS else None


def is_row_map_path(path: str) -> bool:
    """Whether a path, relative to the table, is that of a row map file."""
    return _PATH.fullmatch(path) is not None


def _file(path: Any, size: Any, rows: Any) -> RowMapFile:
    if not is_row_map_path(path):
        raise ValueError("not a file of a row map")
    return RowMapFile(path, _count(size, MAX_FILE_BYTES), _count(rows, MAX_FILE_ROWS))


def _count(value: Any, most: int) -> int:
    if type(value) is not int or not 0 < value <= most:
        raise ValueError("not a count")
    return value


class SourceRows:
    """The positions of one source's rows, by rank; same interface as :class:`~delvec_kernel.transaction.row_runs.SourceRuns`.

    Args:
        rows: physical indexes of the source's rows, ascending.
        positions: the positions of each of these rows, counted over all outputs.
        outputs: canonical paths of all outputs.
        starts: the position of the first row of each output, then the total number of rows.

    Attributes:
        total: the number of its rows; ranks are below it.
        outputs: canonical paths of the files that contain its rows.
    """

    def __init__(
        self, rows: _Positions, positions: _Positions, outputs: tuple[str, ...], starts: Rows
    ) -> None:
        self._rows = rows
        self._positions = positions
        self._paths = outputs
        self._starts = starts
        self.total = len(rows)
        holds = np.unique(np.searchsorted(starts, positions, side="right") - 1)
        self.outputs = frozenset(outputs[place] for place in holds.tolist())

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        return self._rows.nbytes + self._positions.nbytes

    def rows_at(self, ranks: Rows) -> dict[str, BitMap64]:
        """Return row indexes by output for these ranks below ``total``."""
        rows_by_output: dict[str, BitMap64] = {}
        positions = np.sort(self._positions[ranks])
        ends = np.searchsorted(positions, self._starts)
        for place, path in enumerate(self._paths):
            here = positions[ends[place] : ends[place + 1]]
            if len(here):
                rows_by_output[path] = BitMap64(here.astype(np.uint64) - np.uint64(self._starts[place]))
        return rows_by_output

    def all_rows(self) -> dict[str, BitMap64]:
        """Return row indexes by output of all rows."""
        return self.rows_at(np.arange(self.total, dtype=np.int64))

    def ranks_of(self, deleted_outputs: Mapping[str, BitMap64 | None]) -> Rows:
        """Return the ascending ranks of rows deleted in the outputs; None means all rows of an output."""
        is_deleted = np.zeros(self.total, np.bool_)
        order = np.argsort(self._positions)
        ends = np.searchsorted(self._positions[order], self._starts)
        for place, path in enumerate(self._paths):
            here = order[ends[place] : ends[place + 1]]
            if path not in self.outputs:
                continue
            rows = deleted_outputs[path]
            if rows is None:
                is_deleted[here] = True
            elif rows:
                indexes = self._positions[here].astype(np.int64) - self._starts[place]
                is_deleted[here] = np.isin(indexes, row_array(rows), assume_unique=True)
        return np.flatnonzero(is_deleted)

    def moved(
        self, rows: BitMap64, deleted_rows: BitMap64, deleted_outputs: Mapping[str, BitMap64 | None]
    ) -> dict[str, BitMap64] | None:
        """Return where the compaction put these live rows of the source.

        Args:
            rows: row indexes in the source, none of them deleted.
            deleted_rows: the source's deleted rows just before the commit.
            deleted_outputs: deleted rows of each output just after the commit, None for an output that was not added.

        Returns:
            Row indexes by output, or None if the map lacks a row, or if other rows are deleted in the outputs.
        """
        taken = self._rows[self.ranks_of(deleted_outputs)]
        if len(taken) != len(BitMap64(taken.astype(np.uint64)) & deleted_rows):
            return None
        wanted = row_array(rows)
        if not len(wanted):
            return {}
        ranks = np.searchsorted(self._rows, wanted)
        if ranks[-1] >= self.total or not np.array_equal(self._rows[ranks], wanted):
            return None
        return self.rows_at(ranks)


MovedRows: TypeAlias = SourceRuns | SourceRows
"""The positions of one source's rows."""

RowMaps: TypeAlias = Callable[[RowMap, Collection[str]], Mapping[str, SourceRows]]
"""Reads the rows of these sources (canonical paths) from a map; empty if it is missing or contradicts itself."""


class RowMapReader:
    """Collects the rows of some sources from a map, batch by batch.

    Args:
        row_map: as in the log.
        sources: canonical paths.
        location: the table's canonical location.
    """

    def __init__(self, row_map: RowMap, sources: Collection[str], location: str) -> None:
        self._outputs = tuple(output.path for output in row_map.outputs)
        counts = np.array([output.num_rows for output in row_map.outputs], np.int64)
        self._starts: Rows = np.append(0, np.cumsum(counts)).astype(np.int64)
        self._sources = list(sources)
        self._location = location
        self._numbers = {path: number for number, path in enumerate(self._sources)}
        self._spelled: dict[str, int] = {}
        self._seen = 0
        self._found: list[tuple[npt.NDArray[np.int32], _Positions, _Positions]] = []
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows, of :data:`SCHEMA`.

        Raises:
            ValueError: a row has an invalid source or index, or there are too many rows.
        """
        source, row = batch.column("source"), batch.column("row")
        if source.null_count or row.null_count:
            raise ValueError("a row without a source")
        numbers = np.array([self._number(path) for path in source.dictionary.to_pylist()], np.int32)
        codes = numbers[source.indices.to_numpy()]
        ours = np.flatnonzero(codes >= 0)
        rows, positions = row.to_numpy()[ours], ours + self._seen
        self._seen += batch.num_rows
        self._count += len(ours)
        if self._seen > self._starts[-1] or self._count > MAX_FOLLOWED_ROWS:
            raise ValueError("more rows than the outputs have, or than are followed")
        if len(ours):
            if rows.min() < 0 or rows.max() >= MAX_ROWS:
                raise ValueError("a row index that no file has")
            self._found.append((codes[ours], rows.astype(np.uint32), positions.astype(np.uint32)))

    def finish(self) -> dict[str, SourceRows]:
        """Return the rows found, by source; sources without rows are omitted.

        Raises:
            ValueError: the number of rows differs from the outputs', or a source row occurs twice.
        """
        if self._seen != self._starts[-1]:
            raise ValueError("not the rows of the outputs")
        if not self._found:
            return {}
        codes, rows, positions = (np.concatenate(part) for part in zip(*self._found, strict=True))
        self._found = []
        by_source = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes, np.arange(len(self._sources) + 1), sorter=by_source)
        rows_by_source = {}
        for number, path in enumerate(self._sources):
            here = by_source[ends[number] : ends[number + 1]]
            if not len(here):
                continue
            here = here[np.argsort(rows[here])]
            if (np.diff(rows[here]) == 0).any():
                raise ValueError("a row in two places")
            rows_by_source[path] = SourceRows(rows[here], positions[here], self._outputs, self._starts)
        return rows_by_source

    def _number(self, path: str | None) -> int:
        """Return the number of a source by its path in the map, or -1 if it was not requested."""
        if path is None:
            raise ValueError("a source without a name")
        source_number = self._spelled.get(path)
        if source_number is None:
            try:
                source_number = self._numbers.get(locations.canonical_log_path(path, self._location), -1)
            except DelvecError as error:
                raise ValueError("a source that is not a path") from error
            self._spelled[path] = source_number
        return source_number
