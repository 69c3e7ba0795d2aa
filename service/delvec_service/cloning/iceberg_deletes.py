"""The deleted rows of an Iceberg snapshot: position deletes and deletion vectors as bitmaps ("Scan Planning").

Tested in `tests/integration/client/test_iceberg_import.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyroaring import BitMap64

from delvec_errors import CorruptDeletionVector
from delvec_iceberg.position_deletes import read_position_deletes
from delvec_kernel.deletion_vectors.deletion_vector import FRAME_OVERHEAD, Descriptor, Where, unframe
from delvec_service.cloning.iceberg_manifests import DeleteFile, IcebergDataFile, Partition
from delvec_service.cloning.iceberg_metadata import IcebergSource, refusal
from delvec_storage.files import Allowed, open_input, read_ranges

__all__ = ["deleted_rows"]

_MAX_VECTOR: Final = 1 << 30


@dataclass
class _Deletes:
    """The deletes of one data file.

    Attributes:
        vector: the deletion vector.
        positions: by sequence number and partition of their delete files.
    """

    vector: tuple[DeleteFile, BitMap64] | None = None
    positions: dict[tuple[int, Partition], BitMap64] = field(default_factory=dict)


def deleted_rows(
    source: IcebergSource, data: Iterable[IcebergDataFile], deletes: Sequence[DeleteFile], is_allowed: Allowed
) -> dict[str, BitMap64]:
    """Return the deleted rows of each data file that has any, by the file's URL.

    Raises:
        InvalidTableChange: a delete file is missing, damaged or contradicts the data files.
        LocationNotAllowed: one is outside the roots.
        StorageError: storage did not answer.
    """
    deletes_by_path: dict[str, _Deletes] = {}
    for file in deletes:
        try:
            if file.extent is None:
                _take_positions(source, file, deletes_by_path, is_allowed)
            else:
                _take_vector(source, file, file.extent, deletes_by_path, is_allowed)
        except FileNotFoundError as error:
            raise refusal(
                source.location,
                f"the delete file '{file.path}' is missing, so its deleted rows are unknown. Restore it from a "
                "backup.",
                file=file.path,
            ) from error
    if not deletes_by_path:
        return {}
    rows = {
        file.url: _rows_of(source, file, deletes_by_path[file.path])
        for file in data
        if file.path in deletes_by_path
    }
    return {url: bitmap for url, bitmap in rows.items() if bitmap}


def _rows_of(source: IcebergSource, file: IcebergDataFile, deletes: _Deletes) -> BitMap64:
    if deletes.vector is not None and deletes.vector[0].sequence >= file.sequence:
        # It also contains the rows of older position deletes.
        vector, rows = deletes.vector
        _check_partition(source, file, vector.partition)
    else:
        rows = BitMap64()
        for (sequence, partition), positions in deletes.positions.items():
            if sequence >= file.sequence:
                _check_partition(source, file, partition)
                rows |= positions
    if rows and rows.max() >= file.records:
        raise refusal(
            source.location,
            f"a delete file marks row {rows.max()} of '{file.path}', which only has {file.records} rows.",
            file=file.path,
        )
    return rows


def _check_partition(source: IcebergSource, file: IcebergDataFile, partition: Partition) -> None:
    """Reject deletes of another partition or spec: some Iceberg readers apply them, others do not."""
    if partition != file.partition:
        raise refusal(
            source.location,
            f"'{file.path}' and its delete file are in different partitions or have different partition specs. "
            "Rewrite the table's position delete files with Iceberg first.",
            file=file.path,
        )


def _take_vector(
    source: IcebergSource,
    file: DeleteFile,
    extent: tuple[int, int],
    deletes_by_path: dict[str, _Deletes],
    is_allowed: Allowed,
) -> None:
    offset, length = extent
    size = length - FRAME_OVERHEAD
    if file.referenced is None or offset < 0 or not 0 < size <= _MAX_VECTOR:
        raise refusal(
            source.location,
            f"the deletion vector at {offset} of '{file.path}' is invalid: it has {length} bytes and names the data "
            f"file {file.referenced!r}.",
            file=file.path,
        )
    [buffer] = read_ranges(source.location, file.url, [(offset, offset + length)], is_allowed=is_allowed)
    # The bytes are the same: Iceberg adopted Delta's format.
    descriptor = Descriptor("p", file.url, offset, size, file.records)
    try:
        rows = unframe(buffer, descriptor, Where(source.location, None, file.referenced))
    except CorruptDeletionVector as error:
        raise refusal(
            source.location,
            f"the deletion vector of '{file.referenced}', at {offset} of '{file.path}', is damaged ({error.message}).",
            file=file.path,
        ) from error
    deletes = deletes_by_path.setdefault(file.referenced, _Deletes())
    if deletes.vector is not None:
        raise refusal(source.location, f"'{file.referenced}' has two deletion vectors.", file=file.referenced)
    deletes.vector = file, rows


def _take_positions(
    source: IcebergSource, file: DeleteFile, deletes_by_path: dict[str, _Deletes], is_allowed: Allowed
) -> None:
    key = file.sequence, file.partition
    try:
        with open_input(source.location, file.url, is_allowed=is_allowed) as opened:
            for path, rows in read_position_deletes(opened, file.path):
                deletes = deletes_by_path.setdefault(path, _Deletes())
                deletes.positions.setdefault(key, BitMap64()).update(rows)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise refusal(
            source.location,
            f"the position delete file '{file.path}' cannot be read ({str(error)[:200]}).",
            file=file.path,
        ) from error
