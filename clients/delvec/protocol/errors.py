"""Every error that Delvec raises, on both sides of the wire.

::

    DelvecError
    ├── BadRequest
    │   ├── InvalidPredicate
    │   ├── UnknownColumn
    │   ├── InvalidSchema
    │   ├── SchemaMismatch
    │   ├── InvalidLocation
    │   └── InvalidCommit
    ├── Unauthorized
    ├── LocationNotAllowed
    ├── NotFound
    │   ├── TableNotFound
    │   ├── NotADeltaTable
    │   └── VersionNotFound
    ├── TableAlreadyExists
    ├── RequestTooLarge
    ├── UnsupportedTable
    │   ├── UnsupportedReaderFeature
    │   ├── UnsupportedWriterFeature
    │   └── AppendOnlyTable
    ├── CorruptTable
    │   ├── CorruptLog
    │   ├── MissingLogFile
    │   ├── MissingDataFile
    │   └── CorruptDeletionVector
    │       ├── DeletionVectorNotFound
    │       ├── DeletionVectorTruncated
    │       ├── DeletionVectorSizeMismatch
    │       ├── DeletionVectorChecksumMismatch
    │       └── DeletionVectorCardinalityMismatch
    ├── ConcurrentModification
    │   ├── ConcurrentWrite
    │   ├── MetadataChanged
    │   ├── ProtocolChanged
    │   ├── ConcurrentAppend
    │   ├── ConcurrentDeleteRead
    │   ├── ConcurrentDeleteDelete
    │   └── ConcurrentTransaction
    ├── CommitOutcomeUnknown
    ├── StorageError
    │   └── AtomicCreateUnsupported
    ├── ServiceUnavailable
    ├── EngineUnavailable
    └── InternalError

An error travels as ``{"error": {"message", "type", "code", "retryable", "details"}}``; :func:`from_wire`
turns that back into the class that was raised. Concurrency errors carry Delta's own exception name as
``type``, so that programs written against delta-spark recognise them.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

__all__ = [
    "AppendOnlyTable",
    "AtomicCreateUnsupported",
    "BadRequest",
    "CommitOutcomeUnknown",
    "ConcurrentAppend",
    "ConcurrentDeleteDelete",
    "ConcurrentDeleteRead",
    "ConcurrentModification",
    "ConcurrentTransaction",
    "ConcurrentWrite",
    "CorruptDeletionVector",
    "CorruptLog",
    "CorruptTable",
    "DeletionVectorCardinalityMismatch",
    "DeletionVectorChecksumMismatch",
    "DeletionVectorNotFound",
    "DeletionVectorSizeMismatch",
    "DeletionVectorTruncated",
    "DelvecError",
    "EngineUnavailable",
    "InternalError",
    "InvalidCommit",
    "InvalidLocation",
    "InvalidPredicate",
    "InvalidSchema",
    "LocationNotAllowed",
    "MetadataChanged",
    "MissingDataFile",
    "MissingLogFile",
    "NotADeltaTable",
    "NotFound",
    "ProtocolChanged",
    "RequestTooLarge",
    "SchemaMismatch",
    "ServiceUnavailable",
    "StorageError",
    "TableAlreadyExists",
    "TableNotFound",
    "Unauthorized",
    "UnknownColumn",
    "UnsupportedReaderFeature",
    "UnsupportedTable",
    "UnsupportedWriterFeature",
    "VersionNotFound",
    "error_classes",
    "from_wire",
]


class DelvecError(Exception):
    """The root: something that Delvec can name went wrong.

    Attributes:
        message: one sentence: what happened, where, what to do.
        details: JSON-ready facts for programs, among them ``table``, ``version`` and ``file`` where known.
    """

    type: ClassVar[str] = "DelvecError"
    code: ClassVar[str] = "DELVEC_ERROR"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = {key: value for key, value in details.items() if value is not None}

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles what a task raises; keyword-only details would be lost by the default.
        return (_rebuild, (type(self), self.message, self.details))

    def to_wire(self) -> dict[str, Any]:
        """Return the error envelope of an HTTP answer."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "code": self.code,
                "retryable": self.retryable,
                "details": self.details,
            }
        }


class BadRequest(DelvecError):
    """The request is not well formed."""

    type, code, status = "BadRequest", "BAD_REQUEST", 400


class InvalidPredicate(BadRequest):
    """A predicate is not a Boolean SQL expression that Delvec can parse."""

    type, code = "InvalidPredicate", "INVALID_PREDICATE"


class UnknownColumn(BadRequest):
    """A predicate or a column list names a column that the table does not have."""

    type, code = "UnknownColumn", "UNKNOWN_COLUMN"


class InvalidSchema(BadRequest):
    """A schema has no Delta equivalent, or contradicts itself."""

    type, code = "InvalidSchema", "INVALID_SCHEMA"


class SchemaMismatch(BadRequest):
    """Data handed in does not fit the table's schema."""

    type, code = "SchemaMismatch", "SCHEMA_MISMATCH"


class InvalidLocation(BadRequest):
    """A location is neither an absolute path nor a URL of a supported object store."""

    type, code = "InvalidLocation", "INVALID_LOCATION"


class InvalidCommit(BadRequest):
    """A commit request contradicts the table: unknown files, row indexes out of range, duplicates."""

    type, code = "InvalidCommit", "INVALID_COMMIT"


class Unauthorized(DelvecError):
    """The token is missing or wrong."""

    type, code, status = "Unauthorized", "UNAUTHORIZED", 401


class LocationNotAllowed(DelvecError):
    """The location, or a file that the log refers to, lies outside the configured roots."""

    type, code, status = "LocationNotAllowed", "LOCATION_NOT_ALLOWED", 403


class NotFound(DelvecError):
    """Nothing is there."""

    type, code, status = "NotFound", "NOT_FOUND", 404


class TableNotFound(NotFound):
    """No table is registered under that name, id or location."""

    type, code = "TableNotFound", "TABLE_NOT_FOUND"


class NotADeltaTable(NotFound):
    """The location holds no Delta log."""

    type, code = "NotADeltaTable", "NOT_A_DELTA_TABLE"


class VersionNotFound(NotFound):
    """The version or timestamp lies outside what the log retains."""

    type, code = "VersionNotFound", "VERSION_NOT_FOUND"


class TableAlreadyExists(DelvecError):
    """A Delta table or a table of that name exists already."""

    type, code, status = "TableAlreadyExists", "TABLE_ALREADY_EXISTS", 409


class RequestTooLarge(DelvecError):
    """The request body is over the configured limit."""

    type, code, status = "RequestTooLarge", "REQUEST_TOO_LARGE", 413


class UnsupportedTable(DelvecError):
    """The table needs something that Delvec does not do."""

    type, code, status = "UnsupportedTable", "UNSUPPORTED_TABLE", 422


class UnsupportedReaderFeature(UnsupportedTable):
    """The table has a reader feature or reader version that Delvec does not know."""

    type, code = "UnsupportedReaderFeature", "UNSUPPORTED_READER_FEATURE"


class UnsupportedWriterFeature(UnsupportedTable):
    """The table has a writer feature that Delvec does not fully implement, so it must not write."""

    type, code = "UnsupportedWriterFeature", "UNSUPPORTED_WRITER_FEATURE"


class AppendOnlyTable(UnsupportedTable):
    """``delta.appendOnly`` is on: rows cannot be removed."""

    type, code = "AppendOnlyTable", "APPEND_ONLY_TABLE"


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


class ConcurrentModification(DelvecError):
    """Another writer won a race that this command could not be passed through.

    Attributes:
        conflict: what won: ``winning-version``, ``winning-operation``, ``files`` and the advice to re-run.
    """

    type, code, status, retryable = (
        "DeltaConcurrentModificationException",
        "CONCURRENT_MODIFICATION",
        409,
        True,
    )

    @property
    def conflict(self) -> dict[str, Any]:
        """The facts about the race, as the service reported them."""
        facts = self.details.get("conflict", {})
        return facts if isinstance(facts, dict) else {}


class ConcurrentWrite(ConcurrentModification):
    """Another commit took the version, and nothing more is known of it."""

    type, code = "ConcurrentWriteException", "CONCURRENT_WRITE"


class MetadataChanged(ConcurrentModification):
    """Another commit changed the table's metadata."""

    type, code = "MetadataChangedException", "METADATA_CHANGED"


class ProtocolChanged(ConcurrentModification):
    """Another commit changed the table's protocol."""

    type, code = "ProtocolChangedException", "PROTOCOL_CHANGED"


class ConcurrentAppend(ConcurrentModification):
    """Another commit added files that this command would have had to read."""

    type, code = "ConcurrentAppendException", "CONCURRENT_APPEND"


class ConcurrentDeleteRead(ConcurrentModification):
    """Another commit removed files that this command read."""

    type, code = "ConcurrentDeleteReadException", "CONCURRENT_DELETE_READ"


class ConcurrentDeleteDelete(ConcurrentModification):
    """Another commit removed files or rows that this command removes too."""

    type, code = "ConcurrentDeleteDeleteException", "CONCURRENT_DELETE_DELETE"


class ConcurrentTransaction(ConcurrentModification):
    """Another commit advanced the same application transaction."""

    type, code = "ConcurrentTransactionException", "CONCURRENT_TRANSACTION"


class CommitOutcomeUnknown(DelvecError):
    """Whether the commit took effect cannot be told; look for its transaction id before trying again."""

    type, code, status = "CommitOutcomeUnknown", "COMMIT_OUTCOME_UNKNOWN", 500


class StorageError(DelvecError):
    """The object store or file system answered with an error."""

    type, code, status, retryable = "StorageError", "STORAGE_ERROR", 502, True


class AtomicCreateUnsupported(StorageError):
    """The file system cannot create a file atomically (no hard links), so commits would not be safe."""

    type, code, status, retryable = "AtomicCreateUnsupported", "ATOMIC_CREATE_UNSUPPORTED", 501, False


class ServiceUnavailable(DelvecError):
    """The service cannot be reached or is not ready; nothing was done."""

    type, code, status, retryable = "ServiceUnavailable", "SERVICE_UNAVAILABLE", 503, True


class EngineUnavailable(DelvecError):
    """The engine asked for is not installed or cannot start (for example, no Java for Spark)."""

    type, code, status = "EngineUnavailable", "ENGINE_UNAVAILABLE", 501


class InternalError(DelvecError):
    """A defect in Delvec; the message names the request, the log has the traceback."""

    type, code, status = "InternalError", "INTERNAL_ERROR", 500


def _rebuild(cls: type[DelvecError], message: str, details: dict[str, Any]) -> DelvecError:
    return cls(message, **details)


def error_classes(root: type[DelvecError] = DelvecError) -> Iterator[type[DelvecError]]:
    """Yield ``root`` and every class below it."""
    yield root
    for child in root.__subclasses__():
        yield from error_classes(child)


def from_wire(body: dict[str, Any]) -> DelvecError:
    """Return the error that an envelope describes; an unknown ``type`` becomes a plain DelvecError."""
    error = body.get("error", {})
    classes = {cls.type: cls for cls in error_classes()}
    cls = classes.get(error.get("type", ""), DelvecError)
    details = error.get("details") or {}
    return _rebuild(cls, str(error.get("message", "the service gave no message")), details)
