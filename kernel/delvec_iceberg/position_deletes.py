"""Position delete files of Iceberg v2: the ordinals of deleted rows, as a stream and as Parquet.

A file may hold the deletes of many data files. Manifests do not say which, so its footer lists them, with the deletion
vectors that the rows are from.

Tested in `tests/unit/iceberg/test_delete_formats.py`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from delvec_errors import CorruptDeletionVector
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.schema.types import PARQUET_FIELD_ID
from delvec_parquet.parquet_file import open_parquet, read_footer

__all__ = [
    "FILE_PATH_ID",
    "POS_ID",
    "SCHEMA",
    "CoveredFile",
    "ordinals",
    "read_covered_files",
    "read_position_deletes",
    "write_position_deletes",
]

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
_COVERED: Final = "delvec.data-files"
"""Key in the footer of a shared file: its data files as JSON."""


@dataclass(frozen=True)
class CoveredFile:
    """A data file whose deletes are in a shared position delete file.

    Attributes:
        file_path: as in its manifest.
        path: as in the Delta log.
        descriptor: the descriptor of the Delta deletion vector with the same rows.
    """

    file_path: str
    path: str
    descriptor: Descriptor


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


def write_position_deletes(
    file: IO[bytes], deleted_rows: Mapping[str, BitMap64], covered_files: Sequence[CoveredFile] = ()
) -> None:
    """Write deletes as Parquet, sorted by data file and row.

    Args:
        file: open for writing, in binary.
        deleted_rows: the deleted rows, at least one, by the data file's path as in its manifest.
        covered_files: the data files, for the footer of a shared file.
    """
    names = sorted(deleted_rows, key=str.encode)
    dictionary = pa.array(names, pa.string())
    schema = SCHEMA.set(0, SCHEMA.field(0).with_type(pa.dictionary(pa.int32(), pa.string())))
    with pq.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=["file_path"], store_schema=False
    ) as writer:
        for numbers, rows in _row_groups([deleted_rows[name] for name in names]):
            paths = pa.DictionaryArray.from_arrays(numbers, dictionary)
            writer.write_batch(pa.record_batch([paths, pa.array(rows)], schema=schema))
        if covered_files:
            listed = [[one.file_path, one.path, one.descriptor.to_json()] for one in covered_files]
            writer.add_key_value_metadata({_COVERED: json.dumps(listed)})


def _row_groups(
    bitmaps: Sequence[BitMap64],
) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]]:
    """Yield (number of the bitmap, row) arrays of about a million rows."""
    pending: list[tuple[int, npt.NDArray[np.int64]]] = []
    count = 0
    for number, bitmap in enumerate(bitmaps):
        for part in ordinals(bitmap):
            if pending and count + len(part) > _SPAN:
                yield _joined(pending)
                pending, count = [], 0
            pending.append((number, part))
            count += len(part)
    if pending:
        yield _joined(pending)


def _joined(
    parts: Sequence[tuple[int, npt.NDArray[np.int64]]],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    numbers = np.repeat(np.array([number for number, _ in parts], np.int32), [len(rows) for _, rows in parts])
    return numbers, parts[0][1] if len(parts) == 1 else np.concatenate([rows for _, rows in parts])


def read_covered_files(file: pa.NativeFile, path: str) -> list[CoveredFile]:
    """Return the data files of a shared position delete file, from its footer.

    Args:
        file: Parquet.
        path: the path, for errors.

    Raises:
        ValueError: the footer does not list them.
        pa.ArrowException: or ``OSError``: the file cannot be read.
    """
    text = (read_footer(file, path).metadata or {}).get(_COVERED.encode())
    if text is None:
        raise ValueError("its footer does not list its data files")
    try:
        return [_covered(item) for item in json.loads(text)]
    except (TypeError, RecursionError, CorruptDeletionVector, ValueError) as error:
        raise ValueError(f"the list of data files in its footer is malformed: {str(error)[:200]}") from error


def _covered(item: Any) -> CoveredFile:
    file_path, path, descriptor = item
    if not (isinstance(file_path, str) and isinstance(path, str) and isinstance(descriptor, dict)):
        raise TypeError(str(item)[:200])
    return CoveredFile(file_path, path, Descriptor.from_json(descriptor))


def read_position_deletes(file: pa.NativeFile, path: str) -> Iterator[tuple[str, npt.NDArray[np.uint64]]]:
    """Yield (data file path, deleted rows) in file order; a path may occur more than once.

    Args:
        file: Parquet from any writer.
        path: the path, for errors.

    Raises:
        ValueError: a column is missing, or a value is null or not a valid position.
        pa.ArrowException: or ``OSError``: the file cannot be read.
    """
    parquet = open_parquet(file, path)
    names = _columns(parquet.schema_arrow)
    for batch in parquet.iter_batches(columns=names, batch_size=1 << 16):
        yield from _by_file(batch.column(names[0]), batch.column(names[1]))


def _columns(schema: pa.Schema) -> list[str]:
    """Return the file's names for the two columns, found by their field ids."""
    by_id = {(each.metadata or {}).get(PARQUET_FIELD_ID): each.name for each in schema}
    column_names = [
        by_id.get(str(number).encode(), name)
        for number, name in ((FILE_PATH_ID, "file_path"), (POS_ID, "pos"))
    ]
    if not set(column_names) <= set(schema.names):
        raise ValueError(f"it has the columns {', '.join(schema.names)[:200]}")
    return column_names


def _by_file(paths: pa.Array, positions: pa.Array) -> Iterator[tuple[str, npt.NDArray[np.uint64]]]:
    """Yield the positions of each data file of a batch."""
    if paths.null_count or positions.null_count or not pa.types.is_integer(positions.type):
        raise ValueError("it has a null, or a position that is not a number")
    dictionary_array = pc.dictionary_encode(paths)
    numbers = dictionary_array.indices.to_numpy()
    rows = positions.to_numpy()
    if len(rows) and rows.min() < 0:
        raise ValueError("it has a negative position")
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    for part in np.split(order, cuts) if len(order) else ():
        yield dictionary_array.dictionary[int(numbers[part[0]])].as_py(), rows[part].astype(np.uint64)
