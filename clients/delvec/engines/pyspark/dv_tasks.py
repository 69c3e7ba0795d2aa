"""Deletion vectors that are too large to send to every task: each task fetches those of the files that it reads.

A Python function gets a row's file and index, and nothing else of the row: Spark goes on to read only the columns
that are asked for, and to push filters into the files. It costs one trip of two numbers per row through Python.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from delvec.engines.pyspark.dv_filter import DENSE_LIMIT
from delvec.engines.pyspark.facts import UNKNOWN_FILE
from delvec.engines.pyspark.worker_process import forget_archives
from delvec.protocol.deletion_vector import Descriptor, deserialize_bitmap, serialize_bitmap
from delvec.protocol.errors import DelvecError
from delvec.scan import Scan
from delvec.storage import read_deletion_vectors

__all__ = ["TASK_ERROR", "VectorSource", "estimated_bytes", "is_live_in_task"]

TASK_ERROR: Final = "delvec-error: "
"""What comes before the JSON of an error that a task ran into, in the text that Spark makes of it."""

_BYTES_PER_ROW: Final = 8
_WORD: Final = 64


def estimated_bytes(scan: Scan) -> int:
    """Return about how much memory the bit sets of a scan take, without reading a deletion vector."""
    files = scan.files.filter(pc.is_valid(scan.files["deletion_vector"]))
    guess = pc.divide(files["size"], _BYTES_PER_ROW)
    rows = pc.coalesce(files["num_records"], guess).to_numpy().astype(np.float64)
    dense = rows.sum() / 8
    if dense <= DENSE_LIMIT:
        return int(dense) + 1
    deleted = pc.struct_field(files["deletion_vector"].combine_chunks(), "cardinality")
    words = np.minimum(deleted.to_numpy(zero_copy_only=False).astype(np.float64), rows / _WORD)
    return int((8 * words + 12 * rows / _WORD**2).sum())


@dataclass(frozen=True)
class VectorSource:
    """Where tasks get deletion vectors from.

    Attributes:
        location: the table's.
        table: its name, for messages.
        version: of the table, for messages.
        vectors: by file number the file's path and its deletion vector: a descriptor's JSON, or serialized.
    """

    location: str
    table: str
    version: int
    vectors: Mapping[int, tuple[str, Mapping[str, Any] | bytes]]

    @classmethod
    def of(
        cls, scan: Scan, numbers: list[int], deleted: Mapping[str, BitMap64] | None = None
    ) -> "VectorSource":
        """Return the source for a scan's files, all with a deletion vector, or with the rows of ``deleted``."""
        paths = scan.files["path"].to_pylist()
        found: list[Any]
        if deleted is None:
            columns = (scan.files[name].to_pylist() for name in ("deletion_vector", "deleted_rows"))
            found = [
                rows if rows is not None and vector["storageType"] == "i" else vector
                for vector, rows in zip(*columns, strict=True)
            ]
        else:
            found = [serialize_bitmap(deleted[path]) for path in paths]
        vectors = dict(zip(numbers, zip(paths, found, strict=True), strict=True))
        return cls(scan.location, scan.name, scan.version, vectors)

    def deleted_rows(self, number: int) -> npt.NDArray[np.uint64]:
        """Return the deleted rows of a file, ascending. Runs on executors."""
        if number not in self.vectors:
            raise LookupError(f"{UNKNOWN_FILE}{number}")
        path, vector = self.vectors[number]
        if vector is None:
            return np.empty(0, np.uint64)
        try:
            if isinstance(vector, bytes):
                bitmap = deserialize_bitmap(vector)
            else:
                wanted = [(path, Descriptor.from_json(vector))]
                bitmap = read_deletion_vectors(
                    self.location, wanted, table=self.table, version=self.version, allowed=lambda _: True
                )[path]
        except DelvecError as error:
            # Retrying would not help; the driver makes the error of it again.
            raise RuntimeError(f"{TASK_ERROR}{json.dumps(error.to_wire())}") from error
        return np.frombuffer(bitmap.to_array(), np.uint64)


def is_live_in_task(source: VectorSource, file: Column, row: Column, *, strict: bool) -> Column:
    """Return whether a row is not deleted.

    Args:
        source: the files.
        file: the number of the row's file.
        row: the row's index in it.
        strict: whether conditions that come later may only be evaluated for rows that are live, at the price of
            not being pushed into the files.
    """
    function = F.pandas_udf(_function(source), "boolean")
    return (function.asNondeterministic() if strict else function)(file, row)


def _function(source: VectorSource) -> Callable[..., Any]:
    import pandas as pd

    def live(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        return _live(source, batches)

    return live


def _live(source: VectorSource, batches: Iterator[tuple[Any, Any]]) -> Iterator[Any]:
    """Runs on executors. Rows come file by file, so the last file's rows are all that is kept."""
    import pandas as pd

    forget_archives()
    current, deleted = None, np.empty(0, np.uint64)
    for files, rows in batches:
        numbers, indexes = files.to_numpy(), rows.to_numpy().astype(np.uint64)
        live = np.ones(len(numbers), np.bool_)
        cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        for start, end in zip([0, *cuts], [*cuts, len(numbers)], strict=True):
            if start == end:
                continue
            if numbers[start] != current:
                current = numbers[start]
                deleted = source.deleted_rows(int(current))
            if len(deleted):
                part = indexes[start:end]
                at = np.minimum(np.searchsorted(deleted, part), len(deleted) - 1)
                live[start:end] = deleted[at] != part
        yield pd.Series(live)
