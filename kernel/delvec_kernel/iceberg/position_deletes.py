"""Position delete files of Iceberg v2: the ordinals of deleted rows, as a stream and as Parquet."""

from collections.abc import Iterator
from typing import IO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from delvec_kernel.schema.types import PARQUET_FIELD_ID

__all__ = ["FILE_PATH_ID", "POS_ID", "SCHEMA", "ordinals", "read_position_deletes", "write_position_deletes"]

FILE_PATH_ID: Final = 2147483546
POS_ID: Final = 2147483545
SCHEMA: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={PARQUET_FIELD_ID: str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={PARQUET_FIELD_ID: str(POS_ID)}),
    ]
)
"""The schema of position delete files, with the field ids reserved by the specification."""

_SPAN: Final = 1 << 20


def ordinals(rows: BitMap64) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the ordinals of deleted rows in ascending chunks of at most about a million, to bound memory."""
    if not rows:
        return
    last = rows.max()
    start: int | None = rows.min()
    while start is not None:
        end = start + _SPAN
        span = BitMap64()
        span.add_range(start, end)
        yield np.frombuffer((rows & span).to_array(), np.uint64).astype(np.int64)
        start = rows.next_set_bit(end) if end <= last else None


def write_position_deletes(file: IO[bytes], referenced_data_file: str, rows: BitMap64) -> None:
    """Write the deletes of one data file as Parquet, sorted.

    Args:
        file: open for writing, in binary.
        referenced_data_file: the data file's path as in its manifest.
        rows: the deleted rows, at least one.
    """
    path = pa.array([referenced_data_file], pa.string())
    schema = SCHEMA.set(0, SCHEMA.field(0).with_type(pa.dictionary(pa.int32(), pa.string())))
    with pq.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=["file_path"], store_schema=False
    ) as writer:
        for part in ordinals(rows):
            paths = pa.DictionaryArray.from_arrays(np.zeros(len(part), np.int32), path)
            writer.write_batch(pa.record_batch([paths, pa.array(part)], schema=schema))


def read_position_deletes(file: pa.NativeFile) -> Iterator[tuple[str, npt.NDArray[np.uint64]]]:
    """Yield (data file path, deleted rows) in file order; a path may occur more than once.

    Args:
        file: Parquet from any writer, with a footer already checked.

    Raises:
        ValueError: a column is missing, or a value is null or not a valid position.
        pa.ArrowException: or ``OSError``: the file cannot be read.
    """
    parquet = pq.ParquetFile(file)
    names = _columns(parquet.schema_arrow)
    for batch in parquet.iter_batches(columns=names, batch_size=1 << 16):
        yield from _by_file(batch.column(names[0]), batch.column(names[1]))


def _columns(schema: pa.Schema) -> list[str]:
    """Return the file's names for the two columns, found by their field ids."""
    by_id = {(each.metadata or {}).get(PARQUET_FIELD_ID): each.name for each in schema}
    found = [
        by_id.get(str(number).encode(), name)
        for number, name in ((FILE_PATH_ID, "file_path"), (POS_ID, "pos"))
    ]
    if not set(found) <= set(schema.names):
        raise ValueError(f"it has the columns {', '.join(schema.names)[:200]}")
    return found


def _by_file(paths: pa.Array, positions: pa.Array) -> Iterator[tuple[str, npt.NDArray[np.uint64]]]:
    """Yield the positions of each data file of a batch."""
    if paths.null_count or positions.null_count or not pa.types.is_integer(positions.type):
        raise ValueError("it has a null, or a position that is not a number")
    encoded = pc.dictionary_encode(paths)
    numbers = encoded.indices.to_numpy()
    rows = positions.to_numpy()
    if len(rows) and rows.min() < 0:
        raise ValueError("it has a negative position")
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    for part in np.split(order, cuts) if len(order) else ():
        yield encoded.dictionary[int(numbers[part[0]])].as_py(), rows[part].astype(np.uint64)
