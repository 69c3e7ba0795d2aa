"""The deletion vector filter: bit sets of deleted rows that Spark tests per row in generated code.

A file's deleted rows become 64-bit words, in one of two layouts, the same for all files of a scan:

- *dense*: word ``i`` holds rows ``64 i`` to ``64 i + 63``. One array access per row.
- *sparse*: only non-zero words are kept, in ``words``. ``presence`` has one bit per word, set if it is kept,
  and ``ranks`` the number of kept words before each word of ``presence``. A row costs three accesses, but scattered
  deletes in huge files take little memory.

Tested in `tests/integration/spark/test_spark_scan.py`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from delvec_engines.marked_rows import MarkedRows
from delvec_engines.scan import Scan
from delvec_engines.spark.file_values import UNKNOWN_FILE
from delvec_engines.spark.row_sets import drop_zip_importers
from delvec_errors import DelvecError
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, deserialize_bitmap, serialize_bitmap
from delvec_storage.files import read_deletion_vectors
from delvec_storage.roots import Roots

__all__ = [
    "DENSE_LIMIT",
    "TASK_ERROR",
    "BitSets",
    "VectorSource",
    "estimated_bytes",
    "is_live",
    "is_live_in_task",
    "nonzero_words",
]

DENSE_LIMIT: Final = 8 << 20
"""Maximum bytes of the dense layout of a scan."""

_CHUNK: Final = 1 << 22

Words: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]


def nonzero_words(bitmap: BitMap64) -> Words:
    """Return ascending positions and the values of the non-zero 64-bit words."""
    return _words(np.frombuffer(bitmap.to_array(), dtype=np.uint64))


def _words(members: npt.NDArray[np.uint64]) -> Words:
    """Return the words of a set with these ascending members."""
    positions: list[npt.NDArray[np.int64]] = []
    values: list[npt.NDArray[np.uint64]] = []
    for start in range(0, len(members), _CHUNK):
        part = members[start : start + _CHUNK]
        at = (part >> np.uint64(6)).astype(np.int64)
        first = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1])))
        word_positions = at[first]
        words = np.bitwise_or.reduceat(np.uint64(1) << (part & np.uint64(63)), first)
        if positions and positions[-1][-1] == word_positions[0]:
            values[-1][-1] |= words[0]
            word_positions, words = word_positions[1:], words[1:]
        if len(word_positions):
            positions.append(word_positions)
            values.append(words)
    if not positions:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    return np.concatenate(positions), np.concatenate(values)


@dataclass(frozen=True)
class BitSets:
    """The deletion vectors of a scan's files, in order, as input of :func:`is_live`.

    Attributes:
        columns: by name, arrays with one list per file.
        is_dense: the layout.
        nbytes: memory of the words.
    """

    columns: Mapping[str, pa.Array]
    is_dense: bool
    nbytes: int

    @classmethod
    def of(cls, bitmaps: Sequence[BitMap64], *, dense_limit: int = DENSE_LIMIT) -> "BitSets":
        """Choose the layout and build it."""
        dense = sum(8 * (bitmap.max() // 64 + 1) for bitmap in bitmaps if bitmap)
        words = [nonzero_words(bitmap) for bitmap in bitmaps]
        if dense <= dense_limit:
            return cls({"words": _lists([_scatter(*each) for each in words])}, is_dense=True, nbytes=dense)
        columns = {
            "presence": _lists([_scatter(*_words(at.astype(np.uint64))) for at, _ in words]),
            "ranks": _lists([_ranks(at) for at, _ in words], pa.int32()),
            "words": _lists([values for _, values in words]),
        }
        return cls(columns, is_dense=False, nbytes=sum(column.nbytes for column in columns.values()))


def _scatter(positions: npt.NDArray[np.int64], values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    full = np.zeros(int(positions[-1]) + 1 if len(positions) else 0, np.uint64)
    full[positions] = values
    return full


def _ranks(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of ``positions`` before each multiple of 64."""
    counts = np.bincount(positions >> 6)
    return np.cumsum(counts) - counts


def _lists(arrays: Sequence[npt.NDArray[Any]], kind: pa.DataType | None = None) -> pa.Array:
    offsets = np.cumsum([0, *(len(each) for each in arrays)])
    flat = np.concatenate(arrays) if arrays else np.empty(0, np.int64)
    values = pa.array(flat.astype(np.int32) if kind else flat.view(np.int64), kind or pa.int64())
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def is_live(sets: Mapping[str, Column], row: Column, *, is_dense: bool) -> Column:
    """Return whether a row is not deleted.

    Args:
        sets: the lists of :class:`BitSets` for the row's file, by name.
        row: the row's index in the file.
        is_dense: the layout.
    """
    word = F.shiftright(row, 6)
    if is_dense:
        # get() is NULL beyond the last word, where no row is deleted.
        value = F.get(sets["words"], word.cast("int"))
    else:
        at = F.shiftright(row, 12).cast("int")
        present = F.get(sets["presence"], at)
        below = present.bitwiseAND(F.bitwise_not(_shifted(-1, word)))
        rank = F.get(sets["ranks"], at) + F.bit_count(below)
        value = F.when(present.bitwiseAND(_bit(word)) != 0, F.get(sets["words"], rank.cast("int")))
    return F.coalesce(value, F.lit(0).cast("long")).bitwiseAND(_bit(row)) == 0


def _bit(position: Column) -> Column:
    return _shifted(1, position)


def _shifted(word: int, position: Column) -> Column:
    """Return ``word`` shifted left by the lowest six bits of ``position``."""
    return F.call_function("shiftleft", F.lit(word).cast("long"), position.bitwiseAND(63).cast("int"))


TASK_ERROR: Final = "delvec-error: "
"""Prefix of a task's error as JSON, in the text of Spark's exception."""

_BYTES_PER_ROW: Final = 8
_WORD: Final = 64


def estimated_bytes(scan: Scan) -> int:
    """Return the approximate memory of a scan's bit sets, without reading deletion vectors."""
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
    """The deletion vectors that tasks read themselves.

    Attributes:
        location: the location of the table.
        table: its name, for messages.
        version: the version of the table, for messages.
        vectors: by file number, the file's path, its deletion vector (descriptor JSON, or serialized), and its number of
            physical rows, if known.
        roots: allowed locations.
    """

    location: str
    table: str
    version: int
    vectors: Mapping[int, tuple[str, Mapping[str, Any] | bytes, int | None]]
    roots: Roots = field(default_factory=Roots)

    @classmethod
    def of(
        cls, scan: Scan, numbers: list[int], deleted_rows: Mapping[str, BitMap64] | None = None
    ) -> "VectorSource":
        """Return the source for a scan whose files all have a deletion vector or an entry in ``deleted_rows``."""
        paths = scan.files["path"].to_pylist()
        bitmaps_or_descriptors: list[Any]
        if deleted_rows is None:
            columns = (scan.files[name].to_pylist() for name in ("deletion_vector", "deleted_rows"))
            bitmaps_or_descriptors = [
                rows if rows is not None and vector["storageType"] == "i" else vector
                for vector, rows in zip(*columns, strict=True)
            ]
        else:
            bitmaps_or_descriptors = [serialize_bitmap(deleted_rows[path]) for path in paths]
        counts = scan.files["num_records"].to_pylist()
        vectors = dict(zip(numbers, zip(paths, bitmaps_or_descriptors, counts, strict=True), strict=True))
        return cls(scan.location, scan.name, scan.version, vectors, scan.roots)

    def deleted_rows(self, number: int) -> BitMap64:
        """Return the deleted rows of a file. Runs on executors."""
        if number not in self.vectors:
            raise LookupError(f"{UNKNOWN_FILE}{number}")
        path, vector, count = self.vectors[number]
        if vector is None:
            return BitMap64()
        try:
            if isinstance(vector, bytes):
                return deserialize_bitmap(vector)
            wanted = [(path, Descriptor.from_json(vector))]
            return read_deletion_vectors(
                self.location,
                wanted,
                table=self.table,
                version=self.version,
                is_allowed=self.roots.allows,
                num_records={path: count},
            )[path]
        except DelvecError as error:
            # Encoded, so that the driver can raise the typed error.
            raise RuntimeError(f"{TASK_ERROR}{json.dumps(error.to_wire())}") from error


def is_live_in_task(source: VectorSource, file: Column, row: Column, *, strict: bool) -> Column:
    """Return whether a row is not deleted.

    Args:
        source: the files.
        file: the number of the row's file.
        row: the row's index in it.
        strict: whether later filters may only be evaluated for live rows, which prevents their
            pushdown.
    """
    function = F.pandas_udf(_function(source), "boolean")
    return (function.asNondeterministic() if strict else function)(file, row)


def _function(source: VectorSource) -> Callable[..., Any]:
    import pandas as pd

    def live(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        return _live(source, batches)

    return live


def _live(source: VectorSource, batches: Iterator[tuple[Any, Any]]) -> Iterator[Any]:
    """Runs on executors. Rows arrive file by file, so only the last file's deletion vector is cached."""
    import pandas as pd

    drop_zip_importers()
    current, deleted_rows = None, MarkedRows(BitMap64())
    for files, rows in batches:
        numbers, indexes = files.to_numpy(), rows.to_numpy().astype(np.uint64)
        live = np.ones(len(numbers), np.bool_)
        cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        for start, end in zip([0, *cuts], [*cuts, len(numbers)], strict=True):
            if start == end:
                continue
            if numbers[start] != current:
                current = numbers[start]
                deleted_rows = MarkedRows(source.deleted_rows(int(current)))
            live[start:end] = ~deleted_rows.among(indexes[start:end])
        yield pd.Series(live)
