"""What data files say of themselves in their footers, where the log does not tell."""

import pyarrow as pa
import pyarrow.parquet as pq

from delvec import storage
from delvec.scan import Scan

__all__ = ["int96_columns", "rows_in"]


def rows_in(scan: Scan, path: str) -> int:
    """Return the number of rows of a file of the scan.

    Raises:
        OSError: it cannot be read.
        pa.ArrowException: it is not a Parquet file.
    """
    return int(_footer(scan, path).num_rows)


def int96_columns(scan: Scan, path: str) -> frozenset[str]:
    """Return the columns that a file keeps as INT96, as Spark does timestamps, in lower case; none if it cannot be read."""
    try:
        schema = _footer(scan, path).schema
    except (OSError, pa.ArrowException):
        return frozenset()
    columns = (schema.column(number) for number in range(len(schema)))
    return frozenset(each.path.lower() for each in columns if each.physical_type == "INT96")


def _footer(scan: Scan, path: str) -> pq.FileMetaData:
    with storage.open_input(scan.location, path, allowed=bool) as source:
        return pq.read_metadata(source)
