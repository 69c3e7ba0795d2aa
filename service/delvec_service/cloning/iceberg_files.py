"""The data files of an Iceberg snapshot as Delta's add actions: paths, partition values, statistics.

Tested in `tests/integration/client/test_iceberg_import.py`.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from math import isnan
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delvec_errors import DelvecError
from delvec_iceberg.partitions import decimal_of
from delvec_kernel.schema import partition_values
from delvec_kernel.schema.types import DataType, DecimalType, PrimitiveType, StructField, StructType
from delvec_kernel.statistics.file_statistics import Number, Path, bound, dump, indexed_columns, tree
from delvec_parquet.parquet_file import read_footer
from delvec_service.cloning.iceberg_manifests import IcebergDataFile
from delvec_service.cloning.iceberg_metadata import IcebergSource, refusal
from delvec_storage.files import Allowed, open_input

__all__ = ["footers", "partition_columns", "partition_texts", "statistics"]

_AT_ONCE: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def footers(
    source: IcebergSource, files: Sequence[IcebergDataFile], is_allowed: Allowed
) -> Iterable[tuple[IcebergDataFile, pq.FileMetaData]]:
    """Yield each file with its footer, in order.

    Raises:
        InvalidTableChange: a file is missing, is not a Parquet file, or its size differs from its manifest.
        UnusableFile: a footer is larger than 256 MiB.
        LocationNotAllowed: a file is outside the roots.
        StorageError: storage did not answer.
    """

    def read(file: IcebergDataFile) -> pq.FileMetaData:
        try:
            with open_input(source.location, file.url, is_allowed=is_allowed) as opened:
                size, footer = opened.size(), read_footer(opened, file.path)
        except (pa.ArrowException, OSError) as error:
            raise refusal(
                source.location,
                f"its data file '{file.path}' is missing or is not a Parquet file "
                f"({str(error).partition(chr(10))[0][:200]}).",
                file=file.path,
            ) from error
        if (size, footer.num_rows) != (file.size, file.records):
            raise refusal(
                source.location,
                f"its data file '{file.path}' has {size} bytes and {footer.num_rows} rows, but its manifest says "
                f"{file.size} and {file.records}.",
                file=file.path,
            )
        return footer

    with ThreadPoolExecutor(_AT_ONCE, "delvec-footers") as pool:
        yield from zip(files, pool.map(read, files), strict=True)


def partition_columns(
    source: IcebergSource, schema: StructType, files: Iterable[IcebergDataFile]
) -> dict[str, dict[str, str | None]]:
    """Return the identity partition columns of all files, in order, with each file's value as text by URL.

    All other columns are ordinary columns of the files: Delta does not need them as partitions. So is a column with a
    value that a log cannot distinguish from NULL.

    Raises:
        InvalidTableChange: the number of a file's values differs from the fields of its partition spec.
    """
    data_files = list(files)
    known = {file.partition.spec_id for file in data_files} or set(source.specs)
    identities = [
        [field.source_id for field in source.specs.get(number, ()) if field.transform == "identity"]
        for number in sorted(known)
    ]
    identity_source_ids = (
        [number for number in identities[-1] if all(number in each for each in identities)]
        if identities
        else []
    )
    by_id = {field.field_id: field for field in schema.fields}
    values_by_column: dict[str, dict[str, str | None]] = {}
    for number in dict.fromkeys(identity_source_ids):
        field = by_id.get(number)
        if field is not None and len(values_by_column) + 1 < len(schema.fields):
            texts = partition_texts(source, field, data_files)
            if texts is not None:
                values_by_column[field.name] = texts
    return values_by_column


def partition_texts(
    source: IcebergSource, field: StructField, files: Iterable[IcebergDataFile]
) -> dict[str, str | None] | None:
    """Return a column's value in each file in the form of the log, by URL; None if one cannot be written.

    Raises:
        InvalidTableChange: the number of a file's values differs from the fields of its partition spec.
    """
    values_by_url: dict[str, str | None] = {}
    for file in files:
        spec = source.specs.get(file.partition.spec_id, ())
        if len(spec) != len(file.partition.values):
            raise refusal(
                source.location,
                f"'{file.path}' has {len(file.partition.values)} partition values, but its partition spec has "
                f"{len(spec)} fields.",
                file=file.path,
            )
        place = next(
            place
            for place, each in enumerate(spec)
            if (each.source_id, each.transform) == (field.field_id, "identity")
        )
        value = file.partition.values[place]
        try:
            plain = _plain(value, field.type)
            text = partition_values.serialize(plain, field.type)
        except (DelvecError, ValueError, TypeError, OverflowError):
            return None
        if text is None and value is not None:
            return None
        values_by_url[file.url] = text
    return values_by_url


def _plain(value: Any, kind: DataType) -> Any:
    """Return the Python value of one of Avro's plain types."""
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    match value:
        case int() if name == "date":
            return date(1970, 1, 1) + timedelta(days=value)
        case int() if name in ("timestamp", "timestamp_ntz"):
            moment = _EPOCH + timedelta(microseconds=value)
            return moment if name == "timestamp" else moment.replace(tzinfo=None)
        case bytes() if isinstance(kind, DecimalType):
            return decimal_of(value, kind.scale)
        case _:
            return value


def statistics(
    file: IcebergDataFile,
    schema: StructType,
    partitions: Sequence[str],
    configuration: Mapping[str, str],
    has: frozenset[int],
) -> str:
    """Return the ``stats`` of an add action from a file's metrics, leaving out what they do not have.

    Bounds are wide: Iceberg does not guarantee that a value equals one. Floating-point columns only have bounds if
    they contain no NaN, which Iceberg's bounds ignore and Delta's do not.

    Args:
        file: the file with the metrics.
        schema: the schema of the table, with physical names.
        partitions: partition columns, which have no statistics.
        configuration: table properties, which determine the columns with statistics.
        has: the ids of the columns and fields that are in the file.
    """
    lows: list[tuple[Path, str | Number | None]] = []
    highs: list[tuple[Path, str | Number | None]] = []
    nulls: list[tuple[Path, str | Number | None]] = []
    for path in indexed_columns(schema, partitions, configuration):
        number, kind = path[-1].field_id, path[-1].type
        if number is None or number not in has:
            nulls.append((path, Number(file.records)))
            continue
        missing = file.nulls.get(number)
        if missing is not None and 0 <= missing <= file.records:
            nulls.append((path, Number(missing)))
        low, high = (_bound(each.get(number), kind) for each in (file.lower, file.upper))
        is_float = kind in (PrimitiveType("float"), PrimitiveType("double"))
        if low is None or high is None or low > high or (is_float and file.nans.get(number) != 0):
            continue
        lows.append((path, bound(low, kind, upper=False)))
        highs.append((path, bound(high, kind, upper=True)))
    return dump(
        {
            "numRecords": Number(file.records),
            "minValues": tree(lows),
            "maxValues": tree(highs),
            "nullCount": tree(nulls),
            "tightBounds": False,
        }
    )


def _bound(data: Any, kind: DataType) -> Any:
    """Return a bound for :func:`bound`, or None if it is missing or not of the type (or a narrower one)."""
    if not isinstance(data, bytes):
        return None
    if isinstance(kind, DecimalType):
        return decimal_of(data, kind.scale) if data else None
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    read = _BOUNDS.get((name, len(data))) or _BOUNDS.get((name, None))
    try:
        found = None if read is None else read(data)
    except (UnicodeDecodeError, struct.error):
        return None
    return None if isinstance(found, float) and isnan(found) else found


def _number(layout: str) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        return struct.unpack(layout, data)[0]

    return read


_BOUNDS: Final[Mapping[tuple[str, int | None], Callable[[bytes], Any]]] = {
    ("string", None): lambda data: data.decode("utf-8"),
    ("float", 4): _number("<f"),
    ("double", 4): _number("<f"),
    ("double", 8): _number("<d"),
    **{(name, 4): _number("<i") for name in ("integer", "long", "date")},
    **{(name, 8): _number("<q") for name in ("long", "timestamp", "timestamp_ntz")},
}
