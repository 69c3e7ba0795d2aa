"""Sums over live files, kept up from commit to commit."""

from dataclasses import astuple, dataclass

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["COUNTED", "FileCounts"]

COUNTED = ("size", "num_records", "deletion_vector")
"""Columns of FILES_SCHEMA that :meth:`FileCounts.of` reads."""


@dataclass(frozen=True)
class FileCounts:
    """What a set of files adds up to.

    Attributes:
        size_in_bytes: of the data files.
        num_deletion_vectors: files that have one.
        num_deleted_rows: rows that those hold.
        num_known_records: physical rows of the files whose statistics say it.
        num_unknown: files whose statistics do not.
    """

    num_files: int = 0
    size_in_bytes: int = 0
    num_deletion_vectors: int = 0
    num_deleted_rows: int = 0
    num_known_records: int = 0
    num_unknown: int = 0

    @classmethod
    def of(cls, files: pa.RecordBatch) -> "FileCounts":
        """Count files, which need the columns COUNTED."""
        vectors, records = files.column("deletion_vector"), files.column("num_records")
        return cls(
            files.num_rows,
            _sum(files.column("size")),
            files.num_rows - vectors.null_count,
            _sum(pc.struct_field(vectors, "cardinality")),
            _sum(records),
            records.null_count,
        )

    @property
    def num_records(self) -> int | None:
        """Physical rows, deleted ones included; None where a file's statistics do not say."""
        return None if self.num_unknown else self.num_known_records

    def plus(self, other: "FileCounts") -> "FileCounts":
        """Return the counts of both."""
        return FileCounts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def minus(self, other: "FileCounts") -> "FileCounts":
        """Return the counts without those of a subset."""
        return FileCounts(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


def _sum(values: pa.Array) -> int:
    return int(pc.sum(values).as_py() or 0)
