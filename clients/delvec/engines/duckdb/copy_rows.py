"""Rows that stay where files are replaced: written again, with the proof that none of them was missed."""

from collections.abc import Mapping

from pyroaring import BitMap64

from delvec.engines.duckdb.scan import left_out, quoted, sources
from delvec.engines.duckdb.statements import Session
from delvec.engines.engine import WriteTarget
from delvec.engines.footers import rows_in
from delvec.engines.parquet_writer import DataFileWriter
from delvec.protocol.errors import CorruptTable
from delvec.protocol.wire import AddFile
from delvec.scan import Scan

__all__ = ["copy_rows"]


def copy_rows(
    session: Session, scan: Scan, gone: Mapping[str, BitMap64], target: WriteTarget
) -> list[AddFile]:
    """Write the live rows of the scan's files again, without those in ``gone``.

    Rows are not held against the table's constraints: they were when they were new.

    Raises:
        CorruptTable: a file cannot be read, or does not have the rows that its statistics say.
        StorageError: storage did not answer.
    """
    columns = ", ".join(quoted(name) for name in scan.schema.names)
    with DataFileWriter(target) as writer:
        for source in sources(scan, scan.schema.names, gone=gone):
            for batch in session.batches(scan, source, source.select(columns, None), None):
                writer.write(batch)
        _check_all_read(scan, gone, writer.rows)
        return writer.finish()


def _check_all_read(scan: Scan, gone: Mapping[str, BitMap64], rows: int) -> None:
    """Refuse to replace files of which not every row was either read or meant to go."""
    counts = [
        rows_in(scan, path) if count is None else count
        for path, count in zip(
            *(scan.files[name].to_pylist() for name in ("path", "num_records")), strict=True
        )
    ]
    expected = sum(counts) - sum(len(rows) for rows in left_out(scan, scan.files, gone))
    if rows != expected:
        raise CorruptTable(
            f"The {len(scan)} files to rewrite of table '{scan.name}' (version {scan.version}) have {rows} rows that "
            f"stay, but by their statistics there are {expected}; nothing was changed. Check the table's statistics.",
            table=scan.name,
            version=scan.version,
        )
