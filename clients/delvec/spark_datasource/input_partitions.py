"""Splits a scan into input partitions of a Python data source."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql.datasource import InputPartition

from delvec_engines.repeated_rows import RepeatedRowsOfFile, occurrence_columns
from delvec_engines.scan import Scan
from delvec_engines.spark.file_slices import FileSlice, TableRead
from delvec_kernel.schema.column_mapping import mapping_mode

__all__ = ["FilesOfTask", "cut"]

_OPENING_BYTES: Final = 4 << 20
"""Cost in bytes of opening a file, so that a task does not get too many small files."""


class FilesOfTask(InputPartition):  # type: ignore[misc]
    """The input partition of one task."""

    def __init__(self, read: TableRead, slices: Sequence[FileSlice]) -> None:
        super().__init__(None)
        self.read = read
        self.slices = slices

    def __repr__(self) -> str:
        return f"{len(self.slices)} files"


def cut(scan: Scan, columns: Sequence[str], size: int) -> Iterator[FilesOfTask]:
    """Split large files and combine small ones, so that tasks have about ``size`` bytes each.

    Args:
        scan: the files.
        columns: the columns to read, spelled as in the scan.
        size: bytes.
    """
    read = TableRead(
        scan.location,
        scan.name,
        scan.version,
        # As in ``_spark_schema``: PySpark 4.2 and later refuse rows with another schema.
        scan.schema.select(columns).as_nullable(elements=False),
        frozenset(scan.schema.field(name).name for name in scan.partition_columns),
        mapping_mode(scan.configuration),
        scan.marked_only,
        scan.roots,
    )
    for group in _groups(scan, size):
        yield FilesOfTask(read, group)


def _groups(scan: Scan, size: int) -> Iterator[list[FileSlice]]:
    group: list[FileSlice] = []
    group_bytes = 0
    for part, nbytes in _slices(scan, size):
        if group and group_bytes + nbytes > size:
            yield group
            group, group_bytes = [], 0
        group.append(part)
        group_bytes += nbytes + _OPENING_BYTES
    if group:
        yield group


def _slices(scan: Scan, size: int) -> Iterator[tuple[FileSlice, int]]:
    names = ("path", "size", "partition_values", "deletion_vector", "deleted_rows", "num_records")
    columns = (scan.files[name].to_pylist() for name in names)
    repeats = bool(occurrence_columns(scan))
    for place, (path, length, values, descriptor, deleted, count) in enumerate(zip(*columns, strict=True)):
        occurrences = RepeatedRowsOfFile(scan.files, place) if repeats else None
        part = FileSlice(path, 0, None, dict(values or ()), descriptor, deleted, count, occurrences)
        # Not split: each slice would carry the occurrences of the whole file.
        parts = 1 if repeats else max(1, round(length / size))
        cuts = [length * i // parts for i in range(parts)]
        for start, end in zip(cuts, [*cuts[1:], None], strict=True):
            yield replace(part, start=start, end=end), (length if end is None else end) - start
