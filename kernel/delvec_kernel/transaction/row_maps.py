"""Where a compaction that sorts put each row: the record of it next to the table, and the mapping of rows by it.

Runs of neighbouring rows (:mod:`~delvec_kernel.transaction.row_runs`) would be as many as the rows. So the engine writes Parquet
files, ``_delvec/row_maps/<uuid>.parquet``, with a row for each row of the outputs, in their order: ``source``, the path as in the
log, and ``row``, the physical row index there. ``commitInfo.tags["delvec.rowMap"]`` names them, as JSON text:
``{"files": [[path, bytes, rows], ...], "outputs": [[path, rows], ...]}``. The files follow each other, and so do the outputs.

What the files say may come from anyone, and may be gone. A map that contradicts itself, the table or a deletion vector counts as
none.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from delvec_kernel import locations
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.errors import DelvecError
from delvec_kernel.transaction.row_runs import Rows, SourceRuns, row_array
from delvec_kernel.transaction.transaction_changes import RowMap, RowMapFile

__all__ = [
    "FOLDER",
    "MOST_FILE_BYTES",
    "MOST_FILE_ROWS",
    "MOST_FOLLOWED_ROWS",
    "MOST_ROWS",
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
MOST_ROWS: Final = 2**32
"""Of all outputs of one map."""
MOST_FILE_ROWS: Final = 2**24
MOST_FILE_BYTES: Final = 2**28
MOST_FOLLOWED_ROWS: Final = 2**24
"""Rows of the sources that are looked up at once; that takes up to 40 bytes each."""

_PATH: Final = re.compile(rf"{FOLDER}/[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\.parquet")

_Positions: TypeAlias = npt.NDArray[np.uint32]


def encode(row_map: RowMap) -> str:
    """Return the map as the text of the tag."""
    return json_text(
        {
            "files": [[file.path, file.size, file.num_rows] for file in row_map.files],
            "outputs": [list(output) for output in row_map.outputs],
        }
    )


def decode(text: str, location: str) -> RowMap | None:
    """Return the map that a tag names, outputs by canonical path; None where the text is not what encode writes."""
    try:
        found = json.loads(text)
        files = tuple(_file(*entry) for entry in found["files"])
        outputs = tuple(
            (locations.canonical_log_path(path, location), _count(rows, MOST_ROWS))
            for path, rows in found["outputs"]
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, DelvecError):
        return None
    total = sum(rows for _, rows in outputs)
    is_whole = total == sum(file.num_rows for file in files) and len(dict(outputs)) == len(outputs)
    return RowMap(files, outputs) if is_whole and 0 < total <= MOST_ROWS else None


def is_row_map_path(path: str) -> bool:
    """Return whether a path, relative to the table, is one that files of row maps have."""
    return _PATH.fullmatch(path) is not None


def _file(path: Any, size: Any, rows: Any) -> RowMapFile:
    if not is_row_map_path(path):
        raise ValueError("not a file of a row map")
    return RowMapFile(path, _count(size, MOST_FILE_BYTES), _count(rows, MOST_FILE_ROWS))


def _count(value: Any, most: int) -> int:
    if type(value) is not int or not 0 < value <= most:
        raise ValueError("not a count")
    return value


class SourceRows:
    """Where the rows of one source are, by rank: the interface of :class:`~delvec_kernel.transaction.row_runs.SourceRuns`.

    Args:
        rows: physical indexes of the source's rows, ascending.
        positions: of each of them, counted over the rows of all outputs.
        outputs: canonical paths of all outputs.
        starts: the position of the first row of each output, and behind them the number of rows.

    Attributes:
        total: of its rows; ranks are below it.
        outputs: canonical paths of the files that its rows are in.
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
        """Of memory, about."""
        return self._rows.nbytes + self._positions.nbytes

    def rows_at(self, ranks: Rows) -> dict[str, BitMap64]:
        """Return where the rows of these ranks, below ``total``, are: row indexes by output."""
        found: dict[str, BitMap64] = {}
        positions = np.sort(self._positions[ranks])
        ends = np.searchsorted(positions, self._starts)
        for place, path in enumerate(self._paths):
            here = positions[ends[place] : ends[place + 1]]
            if len(here):
                found[path] = BitMap64(here.astype(np.uint64) - np.uint64(self._starts[place]))
        return found

    def all_rows(self) -> dict[str, BitMap64]:
        """Return where all the rows are: row indexes by output."""
        return self.rows_at(np.arange(self.total, dtype=np.int64))

    def ranks_of(self, deleted: Mapping[str, BitMap64 | None]) -> Rows:
        """Return the ranks, ascending, of rows that are deleted in the outputs; None: all rows of that output."""
        gone = np.zeros(self.total, np.bool_)
        order = np.argsort(self._positions)
        ends = np.searchsorted(self._positions[order], self._starts)
        for place, path in enumerate(self._paths):
            here = order[ends[place] : ends[place + 1]]
            if path not in self.outputs:
                continue
            rows = deleted[path]
            if rows is None:
                gone[here] = True
            elif rows:
                indexes = self._positions[here].astype(np.int64) - self._starts[place]
                gone[here] = np.isin(indexes, row_array(rows), assume_unique=True)
        return np.flatnonzero(gone)

    def moved(
        self, rows: BitMap64, deleted: BitMap64, deleted_outputs: Mapping[str, BitMap64 | None]
    ) -> dict[str, BitMap64] | None:
        """Return where the compaction has put live rows of the source.

        Args:
            rows: row indexes in the source, none of them deleted.
            deleted: the source's deleted rows just before the commit.
            deleted_outputs: those of each output just after, None for one that was not added.

        Returns:
            Row indexes by output, or None where the map has no place for a row, or another row was deleted there.
        """
        taken = self._rows[self.ranks_of(deleted_outputs)]
        if len(taken) != len(BitMap64(taken.astype(np.uint64)) & deleted):
            return None
        wanted = row_array(rows)
        if not len(wanted):
            return {}
        ranks = np.searchsorted(self._rows, wanted)
        if ranks[-1] >= self.total or not np.array_equal(self._rows[ranks], wanted):
            return None
        return self.rows_at(ranks)


MovedRows: TypeAlias = SourceRuns | SourceRows
"""Where the rows of one source are."""

RowMaps: TypeAlias = Callable[[RowMap, Collection[str]], Mapping[str, SourceRows]]
"""Reads what a map says of sources, named by canonical paths; nothing where it is gone or contradicts itself."""


class RowMapReader:
    """Takes from the rows of a map, batch by batch, those of some sources.

    Args:
        row_map: what the log says of it.
        sources: canonical paths.
        location: the table's canonical location.
    """

    def __init__(self, row_map: RowMap, sources: Collection[str], location: str) -> None:
        self._outputs = tuple(path for path, _ in row_map.outputs)
        counts = np.array([rows for _, rows in row_map.outputs], np.int64)
        self._starts: Rows = np.append(0, np.cumsum(counts)).astype(np.int64)
        self._sources = list(sources)
        self._location = location
        self._numbers = {path: number for number, path in enumerate(self._sources)}
        self._spelled: dict[str, int] = {}
        self._seen = 0
        self._found: list[tuple[npt.NDArray[np.int32], _Positions, _Positions]] = []
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows, of :data:`SCHEMA`.

        Raises:
            ValueError: a row has no source or no index that can be, or there are too many.
        """
        source, row = batch.column("source"), batch.column("row")
        if source.null_count or row.null_count:
            raise ValueError("a row without a source")
        numbers = np.array([self._number(path) for path in source.dictionary.to_pylist()], np.int32)
        codes = numbers[source.indices.to_numpy()] if len(numbers) else np.zeros(0, np.int32)
        ours = np.flatnonzero(codes >= 0)
        rows, positions = row.to_numpy()[ours], ours + self._seen
        self._seen += batch.num_rows
        self._count += len(ours)
        if self._seen > self._starts[-1] or self._count > MOST_FOLLOWED_ROWS:
            raise ValueError("more rows than the outputs have, or than are followed")
        if len(ours):
            if rows.min() < 0 or rows.max() >= MOST_ROWS:
                raise ValueError("a row index that no file has")
            self._found.append((codes[ours], rows.astype(np.uint32), positions.astype(np.uint32)))

    def finish(self) -> dict[str, SourceRows]:
        """Return what was found, by source; those of which no row was are left out.

        Raises:
            ValueError: the map does not have the rows of its outputs, or one row of a source twice.
        """
        if self._seen != self._starts[-1]:
            raise ValueError("not the rows of the outputs")
        if not self._found:
            return {}
        codes, rows, positions = (np.concatenate(part) for part in zip(*self._found, strict=True))
        self._found = []
        by_source = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes, np.arange(len(self._sources) + 1), sorter=by_source)
        found = {}
        for number, path in enumerate(self._sources):
            here = by_source[ends[number] : ends[number + 1]]
            if not len(here):
                continue
            here = here[np.argsort(rows[here])]
            if (np.diff(rows[here]) == 0).any():
                raise ValueError("a row in two places")
            found[path] = SourceRows(rows[here], positions[here], self._outputs, self._starts)
        return found

    def _number(self, path: str | None) -> int:
        """Return the number of a source as the map spells it, -1 for one that is not asked for."""
        if path is None:
            raise ValueError("a source without a name")
        known = self._spelled.get(path)
        if known is None:
            try:
                known = self._numbers.get(locations.canonical_log_path(path, self._location), -1)
            except DelvecError as error:
                raise ValueError("a source that is not a path") from error
            self._spelled[path] = known
        return known
