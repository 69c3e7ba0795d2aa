"""Writes the row map of sorted rows: files that record each row's source, and which the commit refers to.

Row maps let the commit rebase concurrent DML, as for a compaction that keeps the row order; see
:mod:`delvec_kernel.transaction.row_maps`.

Tested in `tests/integration/engines/test_cluster.py`.
"""

import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import IO, Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from delvec_errors import StorageError
from delvec_kernel.transaction.row_maps import FOLDER, MAX_FILE_ROWS, SCHEMA
from delvec_kernel.transaction.transaction_changes import RowMapFile
from delvec_storage import files as storage

__all__ = ["RowMapWriter"]

_GROUP_ROWS: Final = 1 << 20

Numbers = npt.NDArray[np.int64]


class RowMapWriter:
    """Writes files of a row map; a context manager that removes them if the block raises.

    Args:
        location: the location of the table.
        sources: paths of the source files, as in the log; rows refer to them by position.
    """

    def __init__(self, location: str, sources: Sequence[str]) -> None:
        self._location = location
        self._sources = pa.array(sources, pa.string())
        self._waiting: list[tuple[Numbers, Numbers]] = []
        self._rows = 0
        self._open: tuple[AbstractContextManager[IO[bytes]], IO[bytes], pq.ParquetWriter] | None = None
        self._open_rows = 0
        self._paths: list[str] = []
        self._files: list[RowMapFile] = []
        self._finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._finished:
            return
        if self._open is not None:
            opened, _, parquet = self._open
            with suppress(Exception):
                parquet.close()
            failure = StorageError("Writing a row map was aborted.")
            with suppress(Exception):
                opened.__exit__(StorageError, failure, None)
        for path in self._paths:
            # Best effort: VACUUM removes unreferenced files.
            with suppress(StorageError, OSError):
                storage.delete_file(self._location, path)

    def write(self, sources: Numbers, rows: Numbers) -> None:
        """Append rows: the position of each row's source file, and its physical index there.

        Raises:
            StorageError: storage did not answer.
        """
        self._waiting.append((sources, rows))
        self._rows += len(rows)
        while self._rows >= _GROUP_ROWS:
            self._write_group()

    def finish(self) -> list[RowMapFile]:
        """Complete the files, durably; none for no rows.

        Raises:
            StorageError: storage did not answer.
        """
        while self._rows:
            self._write_group()
        self._close()
        self._finished = True
        return self._files

    def _write_group(self) -> None:
        sources, rows = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
        count = min(len(rows), _GROUP_ROWS, MAX_FILE_ROWS - self._open_rows)
        self._waiting = [(sources[count:], rows[count:])]
        self._rows -= count
        # Not np.unique, which sorts and would take half of the time.
        present = np.flatnonzero(np.bincount(sources[:count], minlength=len(self._sources)))
        numbers = np.zeros(len(self._sources), np.int32)
        numbers[present] = np.arange(len(present), dtype=np.int32)
        named = pa.DictionaryArray.from_arrays(
            pa.array(numbers[sources[:count]]), self._sources.take(pa.array(present))
        )
        table = pa.Table.from_arrays([named, pa.array(rows[:count], pa.int64())], schema=SCHEMA)
        parquet = self._opened()
        with storage.storage_errors("write", self._paths[-1], writing=True):
            parquet.write_table(table)
        self._open_rows += count
        if self._open_rows >= MAX_FILE_ROWS:
            self._close()

    def _opened(self) -> Any:
        if self._open is None:
            path = f"{FOLDER}/{uuid.uuid4()}.parquet"
            output = storage.open_output(self._location, path)
            sink = output.__enter__()  # closed by _close or __exit__, whichever comes
            self._paths.append(path)
            parquet = pq.ParquetWriter(
                sink,
                SCHEMA,
                compression="zstd",
                compression_level=1,
                use_dictionary=["source"],
                column_encoding={"row": "DELTA_BINARY_PACKED"},
                write_statistics=False,
                write_page_checksum=True,
                store_schema=False,
            )
            self._open = output, sink, parquet
        return self._open[2]

    def _close(self) -> None:
        if self._open is None:
            return
        opened, sink, parquet = self._open
        with storage.storage_errors("write", self._paths[-1], writing=True):
            parquet.close()
        size = sink.tell()
        opened.__exit__(None, None, None)
        self._open = None
        self._files.append(RowMapFile(path=self._paths[-1], size_in_bytes=size, num_rows=self._open_rows))
        self._open_rows = 0
