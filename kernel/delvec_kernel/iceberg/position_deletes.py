"""Position delete files of Iceberg v2: the ordinals of deleted rows, as a stream and as Parquet."""

from collections.abc import Iterator
from typing import IO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from delvec_kernel.schema.types import PARQUET_FIELD_ID

__all__ = ["FILE_PATH_ID", "POS_ID", "SCHEMA", "ordinals", "write_position_deletes"]

FILE_PATH_ID: Final = 2147483546
POS_ID: Final = 2147483545
SCHEMA: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={PARQUET_FIELD_ID: str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={PARQUET_FIELD_ID: str(POS_ID)}),
    ]
)
"""What a position delete file holds, with the field ids that the specification reserves."""

_SPAN: Final = 1 << 20


def ordinals(rows: BitMap64) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the ordinals of deleted rows, ascending, at most about a million at a time: never all of them."""
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
        referenced_data_file: the data file's path as its manifest has it.
        rows: the deleted ones, at least one.
    """
    path = pa.array([referenced_data_file], pa.string())
    schema = SCHEMA.set(0, SCHEMA.field(0).with_type(pa.dictionary(pa.int32(), pa.string())))
    with pq.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=["file_path"], store_schema=False
    ) as writer:
        for part in ordinals(rows):
            paths = pa.DictionaryArray.from_arrays(np.zeros(len(part), np.int32), path)
            writer.write_batch(pa.record_batch([paths, pa.array(part)], schema=schema))
