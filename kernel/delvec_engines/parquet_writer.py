"""Writes data files with Arrow directly to the table's location.

Files have their final names from the start: until a commit, nothing refers to them, so nothing is renamed or
listed. Partition columns are not stored (PROTOCOL.md, "Data Files"). One background thread encodes, and one
collects statistics, while the caller computes the next rows.
"""

import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import IO, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec_engines.arrow_conversion import bytes_in, cast_batch, physical_schema
from delvec_engines.data_file_names import data_file_path
from delvec_engines.identity_values import IdentityNumbers
from delvec_engines.protocol import WriteTarget
from delvec_engines.row_ids import table_columns
from delvec_errors import ConstraintViolation, StorageError
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.schema import partition_values
from delvec_kernel.schema.column_mapping import is_mapped
from delvec_kernel.schema.types import PrimitiveType
from delvec_kernel.statistics.file_statistics import StatisticsCollector
from delvec_maintenance.compaction import DEFAULT_TARGET_SIZE, target_file_size
from delvec_storage import files as storage

__all__ = ["DEFAULT_FILE_SIZE", "DataFileWriter", "write_data_files"]

DEFAULT_FILE_SIZE: Final = DEFAULT_TARGET_SIZE
"""Bytes at which a file is closed, unless the table sets ``delta.targetFileSize``."""

_ROW_GROUP_ROWS: Final = 1 << 18
_BUFFERED_ROW_GROUPS: Final = 8
_OPEN_FILES: Final = 128
_QUEUED_ROW_GROUPS: Final = 1
_CHUNKS: Final = 8
"""Number of batches in a row group above which concatenating them costs less than encoding them one by one."""
_CODECS: Final = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "brotli": "brotli",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "none": "none",
    "uncompressed": "none",
}
"""Values of ``delta.parquet.compression.codec``, and Arrow's names for them."""
_DEFAULT_CODEC: Final = "zstd"
"""A quarter smaller than snappy, for a tenth more time; every reader of Delta knows it."""
_ZSTD_LEVEL: Final = 1
"""Higher levels take half as long again for no gain: Parquet encodes first."""
_SAMPLE_ROWS: Final = 1 << 14
"""Rows that decide on a dictionary: about a page of them, as in parquet-java."""


_Key = tuple[str | None, ...]


def write_data_files(
    batches: Iterable[pa.RecordBatch], target: WriteTarget, *, task: int = 0
) -> list[AddFile]:
    """Write record batches as new files and return their actions; none for no rows.

    Args:
        batches: columns in any order and case; see :mod:`delvec_engines.arrow_conversion` for what fits.
        target: the table.
        task: number of this writer among those of the transaction; part of file names.

    Raises:
        SchemaMismatch: the data does not fit the table. No file is left behind.
        StorageError: storage did not answer. Files are removed if possible.
    """
    with DataFileWriter(target, task=task) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


@dataclass
class _OpenFile:
    """A file being written."""

    path: str
    opened: AbstractContextManager[IO[bytes]]
    sink: IO[bytes]
    parquet: pq.ParquetWriter
    statistics: StatisticsCollector | None
    rows: int = 0


@dataclass
class _Buffer:
    """Rows of one partition that wait to become a row group."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0


class DataFileWriter:
    """Splits rows by partition and writes them; a context manager that removes its files if the block raises.

    Not thread-safe. Files that :meth:`finish` returned stay: from then on a commit may refer to them.

    Args:
        target: the table.
        task: number of this writer among those of the transaction; part of file names.
        file_size: bytes at which a file is closed; None for the table's setting.
        file_rows: rows at which a file is closed regardless of its size; None for no limit.
        folder: below the table's location, ending with a slash; empty for data files.
        prefix: the prefix of file names.
        statistics: whether statistics are collected.
    """

    def __init__(
        self,
        target: WriteTarget,
        *,
        task: int = 0,
        file_size: int | None = None,
        file_rows: int | None = None,
        folder: str = "",
        prefix: str = "part",
        statistics: bool = True,
    ) -> None:
        self._target = target
        self._task = task
        self._folder = folder
        self._prefix = prefix
        self._collects = statistics
        self._file_size = file_size or target_file_size(target.configuration) or DEFAULT_FILE_SIZE
        self._file_rows = file_rows or sys.maxsize
        self._group_bytes = target.row_group_bytes
        # Files end with a row group, so choose a size that divides the file evenly.
        self._group_rows = min(_ROW_GROUP_ROWS, self._file_rows)
        if file_rows is not None:
            self._group_rows = -(-file_rows // -(-file_rows // _ROW_GROUP_ROWS))
        named = target.configuration.get("delta.parquet.compression.codec", "").strip().lower()
        self._codec = _CODECS.get(named, _DEFAULT_CODEC)
        self._mapped = is_mapped(target.configuration)
        self._arrow = physical_schema(target.schema, has_mapping=self._mapped)
        partition_names = {name.lower() for name in target.partition_columns}
        fields = target.schema.fields
        # A void column has no Parquet type; readers take an absent column for NULL.
        self._stored = [
            i
            for i, item in enumerate(fields)
            if item.name.lower() not in partition_names and item.type != PrimitiveType("void")
        ]
        self._file_schema = pa.schema([self._arrow.field(i) for i in self._stored])
        self._counted = table_columns(target.schema)
        hidden = {
            self._arrow.field(i).name for i, item in enumerate(fields) if item.name not in self._counted
        }
        self._without_ids = (
            [name for name in self._file_schema.names if name not in hidden] if hidden else None
        )
        by_name = {item.name.lower(): i for i, item in enumerate(fields)}
        self._partition_positions = [by_name[name.lower()] for name in target.partition_columns]
        self._partition_names = [self._arrow.field(i).name for i in self._partition_positions]
        self._identity = IdentityNumbers(
            target.identity, target.schema, task, target.writers, target.numbers_at_once
        )
        self._buffers: dict[_Key, _Buffer] = {}
        self._buffered = 0
        self._open: OrderedDict[_Key, _OpenFile] = OrderedDict()
        self._paths: list[str] = []
        self._adds: list[AddFile] = []
        self._encoder = ThreadPoolExecutor(1, "delvec-parquet")
        self._counter = ThreadPoolExecutor(1, "delvec-statistics")
        self._pending: deque[Future[None]] = deque()
        self._finished = False
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            self._discard()
        self._encoder.shutdown()
        self._counter.shutdown()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; they are durable after :meth:`finish`.

        Raises:
            SchemaMismatch: the rows do not fit the table.
            StorageError: writing earlier rows failed.
        """
        fitted = cast_batch(batch, self._target.schema, self._arrow, check_nulls=True)
        if self._target.identity:
            fitted = self._identity.fill(fitted)
        self.rows += fitted.num_rows
        for key, rows in self._split(fitted):
            self._keep(key, rows)
        while self._buffered > _BUFFERED_ROW_GROUPS * self._group_bytes:
            self._submit(max(self._buffers, key=lambda each: self._buffers[each].size))

    def numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the identity values that :meth:`write` would generate.

        Args:
            batch: all columns of the schema, in its order; must be written next.

        Raises:
            ConstraintViolation: no identity value is left.
        """
        return self._identity.fill(batch) if self._target.identity else batch

    def finish(self) -> list[AddFile]:
        """Complete all files, durably, and return their actions in the order of their completion.

        Raises:
            StorageError: storage did not answer.
        """
        for key in list(self._buffers):
            self._submit(key)
        self._pending.append(self._encoder.submit(self._close_all))
        self._wait(0)
        self._finished = True
        marks = self._identity.tags()
        if marks and self._adds:
            self._adds[-1] = replace(self._adds[-1], tags=marks)
        return self._adds

    # --- in the caller's thread -----------------------------------------------------------------------

    def _split(self, batch: pa.RecordBatch) -> Iterable[tuple[_Key, pa.RecordBatch]]:
        if not batch.num_rows:
            return []
        stored_batch = batch.select(self._stored)
        if not self._partition_positions:
            return [((), stored_batch)]
        codes = np.zeros(batch.num_rows, np.int64)
        for position in self._partition_positions:
            encoded = batch.column(position).dictionary_encode("encode")
            inner = np.asarray(encoded.indices)
            _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + inner, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        ends = np.append(starts[1:], len(order))
        whole = stored_batch if len(starts) <= 1 else stored_batch.take(pa.array(order))
        return [
            (self._key(batch, int(order[start])), whole.slice(start, end - start))
            for start, end in zip(starts, ends, strict=True)
        ]

    def _key(self, batch: pa.RecordBatch, row: int) -> _Key:
        texts = []
        for position in self._partition_positions:
            item = self._target.schema.fields[position]
            text = partition_values.serialize(
                _scalar(batch.column(position), row),
                item.type,
                keeps_empty=item.name in self._target.empty_texts,
            )
            if text is None and not item.nullable:
                # NULL was refused before.
                raise ConstraintViolation(
                    f"NOT NULL constraint violated for column: {item.name}. In a partition column, an empty string is "
                    "NULL; give each row a value.",
                    constraint="NOT NULL",
                    column=item.name,
                )
            texts.append(text)
        return tuple(texts)

    def _keep(self, key: _Key, rows: pa.RecordBatch) -> None:
        buffer = self._buffers.setdefault(key, _Buffer())
        while rows.num_rows:
            part = rows.slice(0, self._group_rows - buffer.rows)
            rows = rows.slice(part.num_rows)
            size = bytes_in(part)
            buffer.batches.append(part)
            buffer.rows += part.num_rows
            buffer.size += size
            self._buffered += size
            if buffer.rows >= self._group_rows or buffer.size >= self._group_bytes:
                self._submit(key)
                buffer = self._buffers.setdefault(key, _Buffer())

    def _submit(self, key: _Key) -> None:
        buffer = self._buffers.pop(key)
        self._buffered -= buffer.size
        if not buffer.rows:
            return
        table = pa.Table.from_batches(buffer.batches, self._file_schema)
        if len(buffer.batches) > _CHUNKS:
            table = table.combine_chunks()
        self._pending.append(self._encoder.submit(self._encode, key, table))
        self._wait(_QUEUED_ROW_GROUPS)

    def _wait(self, allowed: int) -> None:
        while len(self._pending) > allowed:
            self._pending.popleft().result()

    def _discard(self) -> None:
        for future in self._pending:
            future.cancel()
        self._encoder.shutdown(wait=True)
        while self._open:
            _, file = self._open.popitem()
            _abandon(file)
        for path in self._paths:
            # Best effort: VACUUM removes unreferenced files.
            with suppress(StorageError, OSError):
                storage.delete_file(self._target.location, path)

    # --- in the encoder's thread ----------------------------------------------------------------------

    def _encode(self, key: _Key, table: pa.Table) -> None:
        file = self._open.get(key)
        if file is None:
            if len(self._open) >= _OPEN_FILES:
                self._close(next(iter(self._open)))
            file = self._open_file(key, _worth_a_dictionary(table))
            self._open[key] = file
        self._open.move_to_end(key)
        count_task = None
        if file.statistics is not None:
            # Row tracking columns need no bounds.
            rows = table if self._without_ids is None else table.select(self._without_ids)
            count_task = self._counter.submit(file.statistics.update, rows)
        with _disk_errors(file):
            file.parquet.write_table(table)
        if count_task is not None:
            count_task.result()
        file.rows += table.num_rows
        if file.sink.tell() >= self._file_size or file.rows >= self._file_rows:
            self._close(key)

    def _open_file(self, key: _Key, dictionaries: list[str]) -> _OpenFile:
        path = data_file_path(
            dict(zip(self._partition_names, key, strict=True)),
            self._target.transaction_id,
            task=self._task,
            number=len(self._paths),
            codec=self._codec,
            folder=self._folder,
            prefix=self._prefix,
        )
        output = storage.open_output(self._target.location, path)
        sink = output.__enter__()  # closed by _close or _abandon, whichever comes
        self._paths.append(path)
        parquet = pq.ParquetWriter(
            sink,
            self._file_schema,
            compression=self._codec,
            compression_level=_ZSTD_LEVEL if self._codec == "zstd" else None,
            use_dictionary=dictionaries,
            store_schema=False,
            store_decimal_as_integer=True,
        )
        statistics = None
        if self._collects:
            statistics = StatisticsCollector(
                self._counted,
                self._target.partition_columns,
                self._target.configuration,
                physical_names=self._mapped,
            )
        return _OpenFile(path, output, sink, parquet, statistics)

    def _close(self, key: _Key) -> None:
        file = self._open[key]
        with _disk_errors(file):
            file.parquet.close()
        size = file.sink.tell()
        file.opened.__exit__(None, None, None)
        del self._open[key]
        file_info = storage.stat(self._target.location, file.path)
        if file_info is None or file_info.size != size:
            raise StorageError(
                f"The file {file.path} of the table at {self._target.location} was written with {size} bytes, "
                f"but storage has {'no such file' if file_info is None else f'{file_info.size} bytes'}; retry.",
                file=file.path,
            )
        self._adds.append(
            AddFile(
                path=file.path,
                partition_values=dict(zip(self._partition_names, key, strict=True)),
                size=size,
                modification_time=file_info.last_modified_ms,
                stats=None if file.statistics is None else file.statistics.to_json(),
            )
        )

    def _close_all(self) -> None:
        for key in list(self._open):
            self._close(key)


@contextmanager
def _disk_errors(file: _OpenFile) -> Iterator[None]:
    try:
        yield
    except OSError:  # and not the ValueErrors of Arrow, which are about the rows
        with storage.storage_errors("write", file.path, writing=True):
            raise


def _worth_a_dictionary(table: pa.Table) -> list[str]:
    """Return the paths of the Parquet columns for which dictionary encoding saves space.

    By default Arrow tries a dictionary for every column up to 1 MiB. For columns with mostly distinct values, such as keys and
    amounts, files would be 25 % larger and take 50 % longer to write.
    """
    dictionary_columns: list[str] = []
    for item, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_nested(item.type):
            dictionary_columns += _leaves(item.name, item.type)
        elif not pa.types.is_boolean(item.type) and _repeats(column.slice(0, _SAMPLE_ROWS)):
            dictionary_columns.append(item.name)
    return dictionary_columns


def _repeats(sample: pa.ChunkedArray) -> bool:
    valid = len(sample) - sample.null_count
    if not valid:
        return True
    distinct = int(pc.count_distinct(sample).as_py())
    plain = sample.nbytes
    return bool(plain * distinct / valid + valid * distinct.bit_length() / 8 < plain)


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the paths of the Parquet leaf columns of a column."""
    if pa.types.is_struct(kind):
        for item in kind:
            yield from _leaves(f"{path}.{item.name}", item.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _scalar(column: pa.Array, row: int) -> pa.Scalar:
    found = column[row]
    # Not as_py(): a time zone would need the system's database, and without it the value is taken for UTC.
    return found.cast(pa.timestamp("us")) if pa.types.is_timestamp(found.type) else found


def _abandon(file: _OpenFile) -> None:
    failure = StorageError(f"Writing {file.path} was aborted.", file=file.path)
    with suppress(Exception):
        # If left open, its destructor would write the footer to a closed file.
        file.parquet.close()
    with suppress(Exception):
        file.opened.__exit__(StorageError, failure, None)
