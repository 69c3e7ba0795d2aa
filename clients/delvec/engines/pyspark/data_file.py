"""One data file, opened with pyarrow; what goes wrong names table, version and file."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from delvec import storage
from delvec.protocol.errors import CorruptTable, MissingDataFile
from delvec.scan import Scan

__all__ = ["DataFile", "open_data_file", "reading"]


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    Attributes:
        location: the table's.
        path: as in the log.
        table: the table's name, for messages.
        version: of the table, for messages.
    """

    location: str
    path: str
    table: str
    version: int

    @classmethod
    def of(cls, scan: Scan, path: str) -> "DataFile":
        """Return a file of a scan."""
        return cls(scan.location, path, scan.name, scan.version)


@contextmanager
def open_data_file(file: DataFile) -> Iterator[pq.ParquetFile]:
    """Open a data file; errors inside the block are the file's too.

    Raises:
        MissingDataFile: it is not in storage.
        CorruptTable: it is no Parquet file, or damaged.
        StorageError: storage did not answer.
    """
    # Where files may lie is for the service to decide, which made the plan.
    with (
        reading(file),
        storage.open_input(file.location, file.path, allowed=lambda _: True) as source,
        pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as opened,
    ):
        yield opened


@contextmanager
def reading(file: DataFile) -> Iterator[None]:
    """Turn what reading a file raises into the error that names it."""
    facts = {"table": file.table, "version": file.version, "file": file.path}
    where = f"The data file '{file.path}' of table '{file.table}' (version {file.version})"
    try:
        yield
    except FileNotFoundError as error:
        raise MissingDataFile(
            f"{where} does not exist; restore it from a backup, or restore the table to a version that does not "
            "need it.",
            **facts,
        ) from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise CorruptTable(f"{where} cannot be read: {reason}", **facts) from error
