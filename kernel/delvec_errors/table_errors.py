"""Tables that cannot be read or written: not supported, or damaged.

Tested in `tests/architecture/test_documentation.py` and `tests/docs/test_error_pages.py`.
"""

from delvec_errors.root import DelvecError

__all__ = [
    "AppendOnlyTable",
    "CorruptDeletionVector",
    "CorruptIcebergMetadata",
    "CorruptLog",
    "CorruptTable",
    "DeletionVectorCardinalityMismatch",
    "DeletionVectorChecksumMismatch",
    "DeletionVectorNotFound",
    "DeletionVectorSizeMismatch",
    "DeletionVectorTruncated",
    "ExpressionNotAllowed",
    "IcebergUnsupported",
    "ManifestUnsupported",
    "MissingCloneFiles",
    "MissingDataFile",
    "MissingLogFile",
    "MissingRestoreFiles",
    "UnsupportedReaderFeature",
    "UnsupportedTable",
    "UnsupportedWriterFeature",
]


class UnsupportedTable(DelvecError):
    """The table needs something that Delvec does not support."""

    type, code, status = "UnsupportedTable", "UNSUPPORTED_TABLE", 422


class UnsupportedReaderFeature(UnsupportedTable):
    """The table has a reader feature or reader version that Delvec does not know."""

    type, code = "UnsupportedReaderFeature", "UNSUPPORTED_READER_FEATURE"


class UnsupportedWriterFeature(UnsupportedTable):
    """The table has a writer feature that Delvec does not fully implement, so it must not write."""

    type, code = "UnsupportedWriterFeature", "UNSUPPORTED_WRITER_FEATURE"


class ExpressionNotAllowed(UnsupportedWriterFeature):
    """A default, a generated column or a constraint contains SQL that is not on the allow-list."""

    type, code = "ExpressionNotAllowed", "EXPRESSION_NOT_ALLOWED"


class AppendOnlyTable(UnsupportedTable):
    """``delta.appendOnly`` is on: rows cannot be removed."""

    type, code = "AppendOnlyTable", "APPEND_ONLY_TABLE"


class ManifestUnsupported(UnsupportedTable):
    """A manifest cannot describe the table's rows: files have deletion vectors, or columns are mapped."""

    type, code = "ManifestUnsupported", "MANIFEST_UNSUPPORTED"


class IcebergUnsupported(UnsupportedTable):
    """Iceberg cannot express a column, its type or its history, or the directory holds another Iceberg table."""

    type, code = "IcebergUnsupported", "ICEBERG_UNSUPPORTED"


class CorruptTable(DelvecError):
    """The bytes of the table contradict the Delta protocol."""

    type, code, status = "CorruptTable", "CORRUPT_TABLE", 422


class CorruptLog(CorruptTable):
    """A commit or checkpoint cannot be read, or lacks protocol or metadata."""

    type, code = "CorruptLog", "CORRUPT_LOG"


class MissingLogFile(CorruptTable):
    """The log has a gap: a commit or a part of a checkpoint is missing."""

    type, code = "MissingLogFile", "MISSING_LOG_FILE"


class MissingDataFile(CorruptTable):
    """A live data file is not in storage."""

    type, code = "MissingDataFile", "MISSING_DATA_FILE"


class MissingCloneFiles(CorruptTable):
    """Data files or deletion vectors of the version to clone are missing from storage, or differ from the log."""

    type, code = "MissingCloneFiles", "MISSING_CLONE_FILES"


class MissingRestoreFiles(CorruptTable):
    """Data files or deletion vectors of the version to restore are missing from storage, or differ from the log."""

    type, code = "MissingRestoreFiles", "MISSING_RESTORE_FILES"


class CorruptIcebergMetadata(CorruptTable):
    """A file of a table's Iceberg metadata is missing or cannot be read."""

    type, code = "CorruptIcebergMetadata", "CORRUPT_ICEBERG_METADATA"


class CorruptDeletionVector(CorruptTable):
    """A deletion vector cannot be decoded."""

    type, code = "CorruptDeletionVector", "CORRUPT_DELETION_VECTOR"


class DeletionVectorNotFound(CorruptDeletionVector):
    """The file that a descriptor points to is not in storage."""

    type, code = "DeletionVectorNotFound", "DELETION_VECTOR_NOT_FOUND"


class DeletionVectorTruncated(CorruptDeletionVector):
    """The file that a descriptor points to ends before the deletion vector does."""

    type, code = "DeletionVectorTruncated", "DELETION_VECTOR_TRUNCATED"


class DeletionVectorSizeMismatch(CorruptDeletionVector):
    """The size in the file differs from the size in the descriptor."""

    type, code = "DeletionVectorSizeMismatch", "DELETION_VECTOR_SIZE_MISMATCH"


class DeletionVectorChecksumMismatch(CorruptDeletionVector):
    """The CRC-32 in the file differs from that of its bytes."""

    type, code = "DeletionVectorChecksumMismatch", "DELETION_VECTOR_CHECKSUM_MISMATCH"


class DeletionVectorCardinalityMismatch(CorruptDeletionVector):
    """The number of rows in the bitmap differs from the descriptor's cardinality."""

    type, code = "DeletionVectorCardinalityMismatch", "DELETION_VECTOR_CARDINALITY_MISMATCH"
