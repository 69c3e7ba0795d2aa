"""Totals over live files, updated incrementally by each commit."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.file_index.file_rows import records_in

__all__ = ["COUNTED", "FileCounts"]

COUNTED = ("size", "num_records", "deletion_vector")
"""Columns of FILES_SCHEMA that :meth:`FileCounts.of` reads."""


@dataclass(frozen=True)
class FileCounts:
    """Totals of a set of files.

    Attributes:
        size_in_bytes: the size in bytes of the data files.
        num_deletion_vectors: files with a deletion vector.
        num_deleted_rows: total cardinality of the deletion vectors.
        num_known_records: physical rows of the files whose statistics have ``numRecords``.
        num_unknown: files whose statistics lack it.
    """

    num_files: int = 0
    size_in_bytes: int = 0
    num_deletion_vectors: int = 0
    num_deleted_rows: int = 0
    num_known_records: int = 0
    num_unknown: int = 0

    @classmethod
    def of(cls, files: pa.RecordBatch) -> "FileCounts":
        """Count files; ``files`` needs the columns COUNTED."""
        vectors, records = files.column("deletion_vector"), files.column("num_records")
        return cls(
            files.num_rows,
            _sum(files.column("size")),
            files.num_rows - vectors.null_count,
            _sum(pc.struct_field(vectors, "cardinality")),
            _sum(records),
            records.null_count,
        )

    @classmethod
    def of_adds(cls, adds: Sequence[AddFile]) -> "FileCounts":
        """Count a few files."""
        vectors = [add.deletion_vector for add in adds if add.deletion_vector is not None]
        records = [records_in(add.stats) for add in adds]
        return cls(
            len(adds),
            sum(add.size for add in adds),
            len(vectors),
            sum(vector.cardinality for vector in vectors),
            sum(count for count in records if count is not None),
            records.count(None),
        )

    @property
    def num_records(self) -> int | None:
        """Physical rows, deleted ones included; None if unknown for a file."""
        return None if self.num_unknown else self.num_known_records

    @property
    def num_rows(self) -> int | None:
        """Live rows; None if unknown, or if the statistics contradict the deletion vectors."""
        if self.num_unknown or self.num_known_records < self.num_deleted_rows:
            return None
        return self.num_known_records - self.num_deleted_rows

    def plus(self, other: "FileCounts") -> "FileCounts":
        """Return the sum of both."""
        return self._with(other, 1)

    def minus(self, other: "FileCounts") -> "FileCounts":
        """Subtract the counts of a subset."""
        return self._with(other, -1)

    def _with(self, other: "FileCounts", sign: int) -> "FileCounts":
        return FileCounts(
            self.num_files + sign * other.num_files,
            self.size_in_bytes + sign * other.size_in_bytes,
            self.num_deletion_vectors + sign * other.num_deletion_vectors,
            self.num_deleted_rows + sign * other.num_deleted_rows,
            self.num_known_records + sign * other.num_known_records,
            self.num_unknown + sign * other.num_unknown,
        )


def _sum(values: pa.Array) -> int:
    return int(pc.sum(values).as_py() or 0)
