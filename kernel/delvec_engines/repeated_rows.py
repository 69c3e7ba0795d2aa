"""Scans that return a row once per change, so that a file changed by many versions is read once.

The column :data:`OCCURRENCES` of ``Scan.files`` lists for each file the row indexes, with values for the columns of the
scan's schema that are not in files and differ by row. A row that is listed several times is returned several times. The
files' deletion vectors mark the same rows, once each: readers apply them first, so that few rows need the lookup.
rows left to look up.

Tested in `tests/integration/engines/test_changes.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delvec_engines.scan import OCCURRENCES, Scan

__all__ = ["RepeatedRows", "RepeatedRowsOfFile", "listed", "occurrence_columns"]

_ROW: Final = 0
"""Position of the row index in an occurrence; columns follow."""
_ROW_BITS: Final = 40
"""Bits of the row index in a key; the file number is above."""


@dataclass(frozen=True)
class RepeatedRows:
    """The occurrences of several files, flattened.

    Attributes:
        keys: file number and row index as one number, see :meth:`key`.
        columns: the values, by name.
    """

    keys: npt.NDArray[np.int64]
    columns: Mapping[str, pa.Array]

    @classmethod
    def of(cls, files: pa.Table, numbers: Sequence[int]) -> "RepeatedRows":
        """Return the occurrences of files.

        Args:
            files: a part of ``Scan.files``.
            numbers: the numbers of the files, below 2**23; they become part of the keys.
        """
        lists = files[OCCURRENCES].combine_chunks()
        flat = lists.flatten()
        rows = flat.field(_ROW).to_numpy()
        lengths = pc.list_value_length(lists).to_numpy()
        keys = np.repeat(np.asarray(numbers, np.int64) << _ROW_BITS, lengths) + rows
        names = [flat.type.field(place).name for place in range(1, flat.type.num_fields)]
        return cls(keys, {name: flat.field(place) for place, name in enumerate(names, 1)})

    @staticmethod
    def key(file: str, row: str) -> str:
        """Return the key of a file's number and a row's index in SQL."""
        return f"(CAST({file} AS BIGINT) * {1 << _ROW_BITS} + {row})"


class RepeatedRowsOfFile:
    """The occurrences of one file; sent to the task that reads it.

    Args:
        files: with the column :data:`OCCURRENCES`.
        place: the place of the file.
    """

    def __init__(self, files: pa.Table, place: int) -> None:
        found = files[OCCURRENCES][place].values
        # take() copies: pickling a slice would send the whole array.
        found = found.take(pa.array(np.argsort(found.field(_ROW).to_numpy(), kind="stable")))
        self._rows = found.field(_ROW).to_numpy()
        self._columns = {
            found.type.field(number).name: found.field(number) for number in range(1, found.type.num_fields)
        }

    def names(self) -> frozenset[str]:
        """Return the columns that differ by occurrence."""
        return frozenset(self._columns)

    def repeated(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return each row once per occurrence, with the columns that differ.

        Args:
            batch: some rows; its values in these columns are ignored.
            rows: their indexes in the file.
        """
        starts, ends = (np.searchsorted(self._rows, rows, side) for side in ("left", "right"))
        counts = ends - starts
        places = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        taken = batch.take(pa.array(np.repeat(np.arange(len(rows)), counts)))
        columns = [
            self._columns[name].take(pa.array(places)) if name in self._columns else taken.column(place)
            for place, name in enumerate(batch.schema.names)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def occurrence_columns(scan: Scan) -> frozenset[str]:
    """Return the names of the columns that differ by occurrence; none for most scans."""
    if OCCURRENCES not in scan.files.column_names:
        return frozenset()
    kind = scan.files.schema.field(OCCURRENCES).type.value_type
    return frozenset(kind.field(place).name for place in range(1, kind.num_fields))


def listed(
    rows: Sequence[npt.NDArray[np.uint64]], columns: Mapping[str, pa.Array], counts: npt.NDArray[np.int64]
) -> pa.Array:
    """Return a column :data:`OCCURRENCES`.

    Args:
        rows: row indexes, one array per file and change; arrays of one file are adjacent.
        columns: the values, one per array.
        counts: number of arrays per file.
    """
    lengths = np.array([len(each) for each in rows], np.int64)
    which = pa.array(np.repeat(np.arange(len(rows)), lengths))
    ends = np.concatenate(([0], np.cumsum(lengths)))[np.concatenate(([0], np.cumsum(counts)))]
    indexes = pa.array(np.concatenate(rows).astype(np.int64) if len(rows) else np.empty(0, np.int64))
    values = [values.take(which) for values in columns.values()]
    flat = pa.StructArray.from_arrays([indexes, *values], names=["row", *columns])
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), flat)
