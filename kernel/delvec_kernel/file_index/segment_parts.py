"""The parts of a segment, stored as separate blobs so that a plan decodes only what it needs.

A blob is a sequence of blocks of rows, each an Arrow IPC stream of one batch, compressed as a whole; columns of files
have BLOCK_ROWS rows in a block, so that a few files of a segment can be read without the others. The path index is not
compressed, because hashes do not compress. A column with only nulls is not stored.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from delvec_kernel.file_index.file_rows import FILES_SCHEMA, TEXT_MAP
from delvec_kernel.locations import canonical_log_paths

__all__ = [
    "BLOCK_ROWS",
    "FILES",
    "KEYS",
    "PARTITIONS",
    "PART_OF",
    "REST",
    "STATS",
    "Keys",
    "Partitions",
    "Rows",
    "are_few_blocks",
    "decoded",
    "decoded_part",
    "decoded_rows",
    "encoded_batch",
    "encoded_keys",
    "encoded_parts",
    "joined",
    "path_hashes",
]

Rows = npt.NDArray[np.uint16]
"""Row numbers of a segment, ascending unless stated otherwise."""

FILES: Final = "files"
PARTITIONS: Final = "partitions"
STATS: Final = "stats"
REST: Final = "rest"
KEYS: Final = "keys"

_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    FILES: ("path", "size", "modification_time", "num_records", "deletion_vector"),
    STATS: ("stats",),
    REST: ("tags", "base_row_id", "default_row_commit_version", "clustering_provider"),
}
PART_OF: Final = {name: part for part, names in _COLUMNS.items() for name in names} | {
    "partition_values": PARTITIONS
}
"""Which part holds a column of FILES_SCHEMA."""

BLOCK_ROWS: Final = 1024
"""Rows of a block; a smaller number makes blobs larger and reading whole segments slower."""

_MIN_COMPRESSED_ROWS: Final = 64
"""Blocks with fewer rows are not compressed."""
_ONE_BLOCK: Final = 64 * 1024
_CODEC: Final = pa.Codec("zstd")
_SIZE: Final = np.dtype("<u8")
_SPARSE: Final = 4
_HASH: Final = np.dtype("<u8")
_ROW: Final = np.dtype("<u2")


@dataclass(frozen=True)
class Keys:
    """The path index of a segment: ascending hashes of canonical paths, and the row of each."""

    hashes: npt.NDArray[np.uint64]
    rows: Rows

    def find(self, hashes: npt.NDArray[np.uint64]) -> Rows:
        """Return the rows with one of these ascending hashes, in no particular order."""
        if len(hashes) < len(self.hashes):
            first = np.searchsorted(self.hashes, hashes, "left")
            last = np.searchsorted(self.hashes, hashes, "right")
            found = [self.rows[first[i] : last[i]] for i in np.flatnonzero(last > first)]
            return np.concatenate(found) if found else self.rows[:0]
        if not len(hashes):
            return self.rows[:0]
        place = np.minimum(np.searchsorted(hashes, self.hashes), len(hashes) - 1)
        hits: Rows = self.rows[hashes[place] == self.hashes]
        return hits

    def by_row(self) -> npt.NDArray[np.uint64]:
        """Return the hash of each row."""
        ordered = np.empty(len(self.hashes), np.uint64)
        ordered[self.rows] = self.hashes
        return ordered


@dataclass(frozen=True)
class Partitions:
    """Dictionary-encoded partition values: the distinct ``map<string, string>`` values, and each row's code."""

    distinct: pa.MapArray
    codes: Rows

    def rows(self, rows: Rows | None = None) -> pa.Array:
        """Return the values of these rows, or of all rows."""
        codes = self.codes if rows is None else self.codes[rows]
        return self.distinct.take(pa.array(codes))


def path_hashes(paths: pa.Array, location: str) -> npt.NDArray[np.uint64]:
    """Return the hashes of canonical paths, which are the same in every process."""
    keys = canonical_log_paths(paths, location).cast(pa.binary()).to_pylist()
    return np.fromiter(map(xxhash.xxh3_64_intdigest, keys), np.uint64, len(keys))


def encoded_keys(batch: pa.RecordBatch, location: str) -> bytes:
    """Return the path index of rows of FILES_SCHEMA.

    Args:
        batch: at most 65,536 rows.
        location: the table's canonical location.

    Raises:
        LocationNotAllowed: a path leads out of the table.
        CorruptLog: a path is invalid.
    """
    hashes = path_hashes(batch.column("path"), location)
    rows = np.argsort(hashes, kind="stable")
    return hashes[rows].astype(_HASH).tobytes() + rows.astype(_ROW).tobytes()


def encoded_parts(batch: pa.RecordBatch, without: Container[str] = ()) -> dict[str, bytes]:
    """Return the blobs of rows of FILES_SCHEMA, except the path index.

    Args:
        batch: at most 65,536 rows.
        without: parts to leave out.
    """
    blobs = {
        part: encoded_batch(_present(batch, names), BLOCK_ROWS)
        for part, names in _COLUMNS.items()
        if part not in without
    }
    blobs[PARTITIONS] = encoded_batch(_partitions(batch.column("partition_values")))
    return blobs


def decoded_part(part: str, batch: pa.RecordBatch) -> tuple[Any, int]:
    """Return one of the :func:`encoded_parts` of these rows as :func:`decoded` does, without encoding it."""
    if part == PARTITIONS:
        found = _partitions(batch.column("partition_values"))
        return _decoded_partitions(found), found.nbytes
    found = _present(batch, _COLUMNS[part])
    return found, found.nbytes


def encoded_batch(batch: pa.RecordBatch, block_rows: int | None = None) -> bytes:
    """Return a batch as a blob, compressed if it is large enough.

    Args:
        batch: at least one column.
        block_rows: rows of each block but the last; by default, and if they are few bytes, all rows are one block.
    """
    step = max(batch.num_rows, 1) if block_rows is None or batch.nbytes <= _ONE_BLOCK else block_rows
    blocks = [_encoded_block(batch.slice(start, step)) for start in range(0, max(batch.num_rows, 1), step)]
    head = [len(blocks), step, *(size for data, full in blocks for size in (data.size, full))]
    return b"".join([np.array(head, _SIZE).tobytes(), *(data for data, _ in blocks)])


def decoded(part: str, blob: bytes) -> tuple[Any, int]:
    """Return the decoded value of a blob, and its size in memory in bytes.

    Returns:
        Keys, Partitions or, for every other part, a RecordBatch without the all-null columns.
    """
    if part == KEYS:
        count = len(blob) // (_HASH.itemsize + _ROW.itemsize)
        hashes = np.frombuffer(blob, _HASH, count)
        return Keys(hashes, np.frombuffer(blob, _ROW, count, hashes.nbytes)), len(blob)
    blocks = _Blocks(blob)
    batch = joined([_decoded_block(blocks[number]) for number in range(len(blocks))])
    return _DECODERS[part](batch) if part in _DECODERS else batch, batch.nbytes


def are_few_blocks(rows: Rows, num_rows: int) -> bool:
    """Whether :func:`decoded_rows` decodes at most half of a segment for these ascending rows."""
    blocks = int(np.count_nonzero(np.diff(rows // BLOCK_ROWS))) + 1
    return len(rows) > 0 and 2 * blocks * BLOCK_ROWS <= num_rows


def decoded_rows(blob: bytes, rows: Rows) -> pa.RecordBatch:
    """Return some rows of a part, in the form of :func:`decoded`, without decoding the blocks between them.

    Args:
        blob: any part but KEYS and PARTITIONS.
        rows: ascending, at least one.
    """
    blocks = _Blocks(blob)
    numbers = rows // blocks.num_rows
    needed, starts = np.unique(numbers, return_index=True)
    batches = []
    for number, some in zip(needed.tolist(), np.split(rows, starts[1:]), strict=True):
        batch = _decoded_block(blocks[number])
        batches.append(batch.take(pa.array(some - number * blocks.num_rows)))
    return joined(batches)


_Block: TypeAlias = tuple[pa.Buffer, int]
"""A block as it is stored, and its size in bytes once decompressed; equal to the stored size if it is not compressed."""


class _Blocks:
    """The blocks of a blob, whose header is 64-bit numbers: how many blocks, rows of each but the last, their sizes."""

    def __init__(self, blob: bytes) -> None:
        count, self.num_rows = np.frombuffer(blob, _SIZE, 2).tolist()
        sizes = np.frombuffer(blob, _SIZE, 2 * count, 2 * _SIZE.itemsize).reshape(count, 2)
        self._ends = ((2 + 2 * count) * _SIZE.itemsize + np.cumsum(sizes[:, 0])).tolist()
        self._sizes = sizes.tolist()
        self._data = pa.py_buffer(blob)

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, number: int) -> _Block:
        stored, full = self._sizes[number]
        return self._data.slice(self._ends[number] - stored, stored), full


def _encoded_block(batch: pa.RecordBatch) -> _Block:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    full = sink.getvalue()
    # One frame for all columns: a frame for each would take longer to set up than to decompress.
    packed = _CODEC.compress(full) if batch.num_rows >= _MIN_COMPRESSED_ROWS else full
    return (packed if packed.size < full.size else full), full.size


def _decoded_block(block: _Block) -> pa.RecordBatch:
    data, full = block
    with pa.ipc.open_stream(data if data.size == full else _CODEC.decompress(data, full)) as reader:
        return reader.read_next_batch()


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches of one schema as one; a single batch is not copied."""
    # concat_batches raises if strings exceed one batch's offsets, where combine_chunks splits.
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _present(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    kept = [name for name in names if batch.column(name).null_count < batch.num_rows]
    # A batch without columns would lose its row count.
    return batch.select(kept or names[-1:])


def _partitions(values: pa.MapArray) -> pa.RecordBatch:
    first, codes = _distinct(values)
    distinct = values.take(pa.array(first))
    padding = pa.nulls(len(values) - len(distinct), TEXT_MAP)
    columns = [pa.array(codes.astype(_ROW)), pa.concat_arrays([distinct, padding])]
    count = np.full(len(values), len(distinct), np.int32)
    return pa.RecordBatch.from_arrays([*columns, pa.array(count)], ["codes", "distinct", "count"])


def _distinct(values: pa.MapArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first row of each distinct map, and each row's index among those."""
    offsets = values.offsets.to_numpy()
    lengths = np.diff(offsets)
    width, entries = int(lengths.max(initial=0)), int(offsets[-1] - offsets[0])
    if width == 0:
        return np.zeros(min(1, len(values)), np.int64), np.zeros(len(values), np.int64)
    if width * len(values) > _SPARSE * (entries + len(values)):
        everything = np.arange(len(values))
        return everything, everything
    keys = _codes(values.keys.slice(offsets[0], entries))
    pairs = keys * (entries + 1) + _codes(values.items.slice(offsets[0], entries))
    matrix = np.full((len(values), width), -1, np.int64)
    matrix[np.arange(width) < lengths[:, None]] = pairs
    combined = matrix[:, 0]
    for column in matrix.T[1:]:
        # Dense ranks, so that a pair of them always fits in an int64.
        ranks = np.unique(combined, return_inverse=True)[1] * (len(values) + 1)
        combined = ranks + np.unique(column, return_inverse=True)[1]
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    return first, codes


def _codes(texts: pa.Array) -> npt.NDArray[np.int64]:
    indices = texts.dictionary_encode(null_encoding="encode").indices
    return np.asarray(indices.to_numpy(zero_copy_only=False)).astype(np.int64)


def _decoded_partitions(batch: pa.RecordBatch) -> Partitions:
    count = batch.column("count")[0].as_py() if batch.num_rows else 0
    return Partitions(batch.column("distinct").slice(0, count), batch.column("codes").to_numpy())


_DECODERS: Final[Mapping[str, Callable[[pa.RecordBatch], Any]]] = {PARTITIONS: _decoded_partitions}

assert set(PART_OF) == set(FILES_SCHEMA.names)  # noqa: S101 - every column has its place
