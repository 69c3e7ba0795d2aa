"""Sorts the rows of files along a space-filling curve with DuckDB, which spills to disk.

Tested in `tests/integration/engines/test_cluster.py`.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from delvec_engines.compacted_files import Compacted, ReadRows, check_rows
from delvec_engines.duckdb.find_rows import check_positions
from delvec_engines.duckdb.scan import (
    FILE_HASH,
    FILE_INDEX,
    ROW_INDEX,
    ScanSource,
    check_files,
    quoted,
    sources,
)
from delvec_engines.duckdb.statement_runner import DuckDBSession, errors, streamed
from delvec_engines.internal_names import INTERNAL
from delvec_engines.parquet_writer import DEFAULT_FILE_SIZE, DataFileWriter
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_map_writer import RowMapWriter
from delvec_engines.scan import Scan
from delvec_engines.space_filling_curves import SAMPLE_ROWS, CurveKeys
from delvec_errors import CorruptTable, DelvecError
from delvec_kernel.schema.column_paths import ColumnPath
from delvec_maintenance.compaction import target_file_size
from delvec_maintenance.zcubes import files_to_come

__all__ = ["cluster"]

_BATCH_ROWS: Final = 1 << 17
_ROWS: Final = "delvec_rows"
_ROW_BITS: Final = 40
"""Bits of the row index in the number made of file and row index: sorting one column is cheaper than two."""


def cluster(
    session: DuckDBSession,
    scan: Scan,
    bins: Sequence[Sequence[str]],
    columns: Sequence[ColumnPath],
    target: WriteTarget,
) -> list[Compacted]:
    """Write the live rows of each bin's files sorted; see :meth:`delvec_engines.protocol.Engine.cluster`.

    Raises:
        CorruptTable: a file cannot be read, or does not have numRecords rows.
        StorageError: storage did not answer.
    """
    check_files(scan.only(path for paths in bins for path in paths))
    return [
        _cluster_bin(session, scan.only(paths), columns, target, number) for number, paths in enumerate(bins)
    ]


def _cluster_bin(
    session: DuckDBSession, scan: Scan, columns: Sequence[ColumnPath], target: WriteTarget, number: int
) -> Compacted:
    keys = CurveKeys.of(_sample(session, scan, columns), columns)
    rows_read = ReadRows()
    tables = _keyed(session, scan, keys, rows_read, target)
    first = next(tables, None)
    if first is None:
        check_rows(scan, *rows_read.finish())
        return Compacted([], {})
    # DuckDB batches have at least 2048 rows.
    batch_rows = max(2048, min(_BATCH_ROWS, target.row_group_bytes * first.num_rows // max(first.nbytes, 1)))
    with session.connected() as cursor, _raised(scan) as failures:
        rows = _batches(chain([first], tables), first.schema, failures)
        # DuckDB sorts the stream: a temporary table would be held beside the sorted rows.
        cursor.register(_ROWS, pa.RecordBatchReader.from_batches(first.schema, rows))
        del first
        sorted_batches = streamed(cursor, f"SELECT * EXCLUDE (key) FROM {_ROWS} ORDER BY key", batch_rows)  # noqa: S608
        head = next(sorted_batches)
        # By now all rows have been read.
        read, by_file = rows_read.finish()
        check_rows(scan, read, by_file)
        files = files_to_come(scan.files, target_file_size(target.configuration) or DEFAULT_FILE_SIZE)
        with (
            DataFileWriter(target, task=number, file_rows=-(-read // files), file_size=sys.maxsize) as writer,
            RowMapWriter(target.location, scan.files["path"].to_pylist()) as row_map,
        ):
            for batch in chain([head], sorted_batches):
                origins = batch.column(batch.num_columns - 1).to_numpy()
                row_map.write(origins >> _ROW_BITS, origins & ((1 << _ROW_BITS) - 1))
                columns_only = batch.select(range(batch.num_columns - 1))
                writer.write(columns_only.rename_columns(scan.schema.names))
                if target.advance is not None:
                    target.advance(batch.num_rows)
            if writer.rows != read:
                raise CorruptTable(
                    f"Sorting {read} rows of table '{scan.name}' (version {scan.version}) gave {writer.rows} rows; "
                    "nothing was committed. Retry, and please report this.",
                    table=scan.name,
                    version=scan.version,
                )
            return Compacted(writer.finish(), {}, row_map.finish())


def _sample(session: DuckDBSession, scan: Scan, columns: Sequence[ColumnPath]) -> pa.Table:
    """Return a sample of these columns from every part of the scan."""
    names = list(dict.fromkeys(path[0] for path in columns))
    selected = ", ".join(quoted(name) for name in names)
    parts = list(sources(scan, names))
    each = max(SAMPLE_ROWS // max(len(parts), 1), 1000)
    found = [
        session.table(scan, part, f"{part.select(selected, None)} USING SAMPLE {each} ROWS", None)
        for part in parts
    ]
    return pa.concat_tables(found, promote_options="permissive")


def _read(session: DuckDBSession, scan: Scan, source: ScanSource, rows_read: ReadRows) -> Iterator[pa.Table]:
    """Yield the rows of a source with their positions as the last column, and record which they are."""
    columns = [quoted(name) for name in scan.schema.names]
    selected = ", ".join([*columns, FILE_INDEX, FILE_HASH, ROW_INDEX])
    places = {path: place for place, path in enumerate(scan.files["path"].to_pylist())}
    in_scan = np.array([places[path] for path in source.files["path"].to_pylist()], np.int64)
    hashes = session.hashes(source.names).to_numpy()
    for batch in session.batches(scan, source, source.select(selected, None), None):
        files, names, rows = (column.to_numpy() for column in batch.columns[len(columns) :])
        check_positions(scan, source, hashes, files, names)
        rows_read.add(in_scan[files], rows)
        origins = pa.array((in_scan[files] << _ROW_BITS) | rows, pa.int64())
        yield pa.Table.from_batches([batch.select(range(len(columns)))]).append_column(
            INTERNAL("origin"), origins
        )


def _keyed(
    session: DuckDBSession, scan: Scan, keys: CurveKeys, rows_read: ReadRows, target: WriteTarget
) -> Iterator[pa.Table]:
    """Yield all rows under generated names, with the sort key as last column."""
    for source in sources(scan, scan.schema.names, positions=True):
        for rows in _read(session, scan, source, rows_read):
            if target.advance is not None:
                target.advance(rows.num_rows)
            if rows.num_rows:
                names = [*(f"c{place}" for place in range(rows.num_columns)), "key"]
                yield rows.append_column("key", keys(rows)).rename_columns(names)


def _batches(
    tables: Iterable[pa.Table], schema: pa.Schema, failures: list[Exception]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches that DuckDB sorts, and record the error that ends them: DuckDB keeps only its text."""
    try:
        for table in tables:
            yield from table.cast(schema).to_batches()
    except Exception as error:
        failures.append(error)
        raise


@contextmanager
def _raised(scan: Scan) -> Iterator[list[Exception]]:
    """Lend a list for the error that ends a stream of rows, and raise that error instead of DuckDB's."""
    failures: list[Exception] = []
    try:
        with errors(scan, None, None):
            yield failures
    except DelvecError as error:
        if failures:
            raise failures[0] from error
        raise
