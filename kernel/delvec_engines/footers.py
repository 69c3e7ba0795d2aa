"""Reads footers of data files for facts that the log lacks."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec_engines.scan import Scan
from delvec_errors import DelvecError
from delvec_parquet.parquet_file import read_footer
from delvec_storage import files as storage

__all__ = ["rows_in", "with_row_counts"]

_CONCURRENT: Final = 16
_MAX_FOOTERS: Final = 1000
"""Maximum files of a command whose footers are read only to count rows."""


def rows_in(scan: Scan, path: str) -> int:
    """Return the number of rows of a file of the scan.

    Raises:
        OSError: it cannot be read.
        pa.ArrowException: it is not a Parquet file.
        UnusableFile: its footer has more than 256 MiB.
    """
    return int(_footer(scan, path).num_rows)


def with_row_counts(scan: Scan) -> Scan:
    """Return the scan with missing ``num_records`` filled in from footers.

    It stays null if a footer cannot be read, or if more than 1,000 files lack it.
    """

    def count(path: str) -> int | None:
        try:
            return rows_in(scan, path)
        except (OSError, pa.ArrowException, DelvecError):
            return None

    counts = scan.files["num_records"]
    paths = scan.files["path"].filter(pc.is_null(counts)).to_pylist()
    if not 0 < len(paths) <= _MAX_FOOTERS:
        return scan
    with ThreadPoolExecutor(min(_CONCURRENT, len(paths)), "delvec-footers") as pool:
        found = dict(zip(paths, pool.map(count, paths), strict=True))
    columns = zip(scan.files["path"].to_pylist(), counts.to_pylist(), strict=True)
    known = pa.array([found.get(path, number) for path, number in columns], counts.type)
    position = scan.files.schema.get_field_index("num_records")
    return replace(scan, files=scan.files.set_column(position, scan.files.schema.field(position), known))


def _footer(scan: Scan, path: str) -> pq.FileMetaData:
    with storage.open_input(scan.location, path, is_allowed=scan.roots.allows) as source:
        return read_footer(source, path)
