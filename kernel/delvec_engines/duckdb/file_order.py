"""Reads the live rows of files in the order of the files.

DuckDB promises the order of rows only for a SELECT from a single table (`Order preservation
<https://duckdb.org/docs/stable/sql/dialect/order_preservation>`_): the join with the lookup of a scan's SQL loses it, and returns a
small vector of rows after later ones. So DuckDB only decodes the columns here, and what differs by file (deleted rows,
partition values, row ids) is added to its batches. A caller's connection with ``preserve_insertion_order`` off promises nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from delvec_engines.duckdb.find_rows import check_positions
from delvec_engines.duckdb.scan import FILE_HASH, FILE_INDEX, ROW_INDEX, quoted, sources
from delvec_engines.duckdb.statement_runner import DuckDBSession
from delvec_engines.marked_rows import MarkedRows
from delvec_engines.row_ids import BASE_ROW_ID, FILE_DEFAULT, file_default
from delvec_engines.scan import Scan
from delvec_kernel.schema.types import StructType

__all__ = ["LiveRows", "in_file_order"]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LiveRows:
    """A batch of live rows.

    Attributes:
        columns: those of the scan's schema.
        files: for each row, the position of its file in the scan.
        rows: for each row, its physical index in the file.
    """

    columns: pa.RecordBatch
    files: Numbers
    rows: Numbers


def in_file_order(session: DuckDBSession, scan: Scan) -> Iterator[LiveRows]:
    """Yield the live rows of a scan, file by file, in the order of each file; files of one schema come together.

    Raises:
        CorruptTable: or a subclass: a file or deletion vector cannot be read.
        InternalError: DuckDB numbers the files in another way.
        StorageError: storage did not answer.
    """
    partition, defaults = _partition_values(scan), _defaults(scan)
    decoded_scan = _decoded(scan, partition, defaults)
    names = decoded_scan.schema.names
    selected = ", ".join([*map(quoted, names), FILE_INDEX, FILE_HASH, ROW_INDEX])
    row_filter = _DeletedRowFilter(scan)
    for source in sources(decoded_scan, names, deletion_vectors=False, positions=True):
        hashes = session.hashes(source.names).to_numpy()
        in_scan = pc.index_in(source.files["path"], scan.files["path"]).to_numpy().astype(np.int64)
        for batch in session.batches(decoded_scan, source, source.select(selected, None), None):
            numbers, hashed, rows = (column.to_numpy() for column in batch.columns[len(names) :])
            check_positions(scan, source, hashes, numbers, hashed)
            files = in_scan[numbers]
            live, is_live = batch, row_filter.leave(files, rows)
            if not is_live.all():
                live, files, rows = batch.filter(pa.array(is_live)), files[is_live], rows[is_live]
            columns_by_name = dict(zip(names, live.columns, strict=False))
            places = pa.array(files)
            columns_by_name |= {name: values.take(places) for name, values in partition.items()}
            for name, values in defaults.items():
                default = values.default.take(places)
                if values.adds_row:
                    default = pc.add(default, pa.array(rows))
                columns_by_name[name] = pc.coalesce(columns_by_name[name], default)
            yield LiveRows(
                pa.RecordBatch.from_arrays(
                    [columns_by_name[name] for name in scan.schema.names], names=scan.schema.names
                ),
                files,
                rows,
            )


@dataclass(frozen=True)
class _Default:
    """Values of a row tracking column where a file stores none.

    Attributes:
        default: by file.
        adds_row: whether the row's index is added.
    """

    default: pa.Array
    adds_row: bool


def _decoded(scan: Scan, partition: Mapping[str, pa.Array], defaults: Mapping[str, _Default]) -> Scan:
    """Return the scan of the columns that the files store, whose SQL needs no lookup."""
    stored_fields = [
        replace(item, metadata={key: each for key, each in item.metadata.items() if key != FILE_DEFAULT})
        if item.name in defaults
        else item
        for item in scan.schema.fields
        if item.name not in partition
    ]
    return replace(scan, schema=StructType(tuple(stored_fields)), partition_columns=())


def _partition_values(scan: Scan) -> dict[str, pa.Array]:
    """Return the values of each file by partition column."""
    fields = [scan.schema.field(name) for name in scan.partition_columns]
    return {item.name: scan.partition_column(item) for item in fields}


def _defaults(scan: Scan) -> dict[str, _Default]:
    named = ((item.name, file_default(item)) for item in scan.schema.fields)
    return {
        name: _Default(scan.files[default].combine_chunks(), default == BASE_ROW_ID)
        for name, default in named
        if default is not None
    }


class _DeletedRowFilter:
    """Finds the deleted rows of batches, which are mostly of one file."""

    def __init__(self, scan: Scan) -> None:
        self._vectors = scan.deletion_vectors if scan.has_deletion_vectors else {}
        self._paths = scan.files["path"]
        self._file = -1
        self._deleted = MarkedRows(BitMap64())

    def leave(self, files: Numbers, rows: Numbers) -> npt.NDArray[np.bool_]:
        """Return which of the rows are live."""
        live = np.ones(len(rows), np.bool_)
        if not self._vectors:
            return live
        starts = np.flatnonzero(np.diff(files, prepend=-1))
        for start, end in pairwise([*starts.tolist(), len(rows)]):
            if files[start] != self._file:
                self._file = int(files[start])
                path = self._paths[self._file].as_py()
                self._deleted = MarkedRows(self._vectors.get(path, BitMap64()))
            live[start:end] = ~self._deleted.among(rows[start:end].astype(np.uint64))
        return live
