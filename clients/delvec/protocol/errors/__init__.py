"""Every error that Delvec raises, on both sides of the wire.

::

    DelvecError
    ├── BadRequest
    │   ├── InvalidPredicate
    │   ├── UnknownColumn
    │   ├── InvalidSchema
    │   ├── SchemaMismatch
    │   ├── AmbiguousColumn
    │   ├── AmbiguousTable
    │   ├── InvalidLocation
    │   ├── InvalidTableChange
    │   ├── InvalidStatement
    │   ├── UnsupportedOperation
    │   ├── MultipleMatches
    │   ├── ChangeDataNotRecorded
    │   ├── IncompatibleSchemaChange
    │   ├── SourceRowsChanged
    │   ├── StreamSchemaChanged
    │   ├── ConstraintViolation
    │   ├── IdempotencyKeyReused
    │   └── InvalidCommit
    │       ├── VersionFromFuture
    │       ├── StaleReadVersion
    │       ├── FileNotInSnapshot
    │       ├── FileNotInTable
    │       ├── FileNotInStorage
    │       ├── FileTooOld
    │       ├── FileSizeMismatch
    │       ├── DuplicateFile
    │       ├── RowIndexOutOfRange
    │       ├── InvalidBitmap
    │       ├── InvalidDeletionVector
    │       └── MissingChangeFiles
    ├── Unauthorized
    ├── LocationNotAllowed
    ├── NotFound
    │   ├── TableNotFound
    │   ├── NotADeltaTable
    │   └── VersionNotFound
    ├── TableAlreadyExists
    ├── RequestTimeout
    ├── RequestTooLarge
    ├── ReadLimitExceeded
    ├── UnsupportedTable
    │   ├── UnsupportedReaderFeature
    │   ├── UnsupportedWriterFeature
    │   │   └── ExpressionNotAllowed
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
    │   ├── ConcurrentTransaction
    │   └── CommitOverwritten
    ├── CommitOutcomeUnknown
    ├── StorageError
    │   ├── AtomicCreateUnsupported
    │   ├── StorageFull
    │   ├── StorageDenied
    │   └── UnusableFile
    ├── ServiceUnavailable
    ├── DeadlineExceeded
    ├── EngineUnavailable
    └── InternalError

An error travels as ``{"error": {"message", "type", "code", "retryable", "details"}}``; :func:`from_wire`
turns that back into the class that was raised. Concurrency errors carry Delta's own exception name as
``type``, so that programs written against delta-spark recognise them.
"""

from delvec.protocol.errors.commits import (
    DuplicateFile,
    FileNotInSnapshot,
    FileNotInStorage,
    FileNotInTable,
    FileSizeMismatch,
    FileTooOld,
    InvalidBitmap,
    InvalidCommit,
    InvalidDeletionVector,
    MissingChangeFiles,
    RowIndexOutOfRange,
    StaleReadVersion,
    VersionFromFuture,
)
from delvec.protocol.errors.concurrency import (
    CommitOutcomeUnknown,
    CommitOverwritten,
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentModification,
    ConcurrentTransaction,
    ConcurrentWrite,
    MetadataChanged,
    ProtocolChanged,
)
from delvec.protocol.errors.requests import (
    AmbiguousColumn,
    AmbiguousTable,
    BadRequest,
    ChangeDataNotRecorded,
    ConstraintViolation,
    IdempotencyKeyReused,
    IncompatibleSchemaChange,
    InvalidLocation,
    InvalidPredicate,
    InvalidSchema,
    InvalidStatement,
    InvalidTableChange,
    LocationNotAllowed,
    MultipleMatches,
    NotADeltaTable,
    NotFound,
    ReadLimitExceeded,
    RequestTimeout,
    RequestTooLarge,
    SchemaMismatch,
    SourceRowsChanged,
    StreamSchemaChanged,
    TableAlreadyExists,
    TableNotFound,
    Unauthorized,
    UnknownColumn,
    UnsupportedOperation,
    VersionNotFound,
)
from delvec.protocol.errors.root import (
    DelvecError,
    error_classes,
    from_wire,
)
from delvec.protocol.errors.services import (
    AtomicCreateUnsupported,
    DeadlineExceeded,
    EngineUnavailable,
    InternalError,
    ServiceUnavailable,
    StorageDenied,
    StorageError,
    StorageFull,
    UnusableFile,
)
from delvec.protocol.errors.tables import (
    AppendOnlyTable,
    CorruptDeletionVector,
    CorruptLog,
    CorruptTable,
    DeletionVectorCardinalityMismatch,
    DeletionVectorChecksumMismatch,
    DeletionVectorNotFound,
    DeletionVectorSizeMismatch,
    DeletionVectorTruncated,
    ExpressionNotAllowed,
    MissingDataFile,
    MissingLogFile,
    UnsupportedReaderFeature,
    UnsupportedTable,
    UnsupportedWriterFeature,
)

__all__ = [
    "AmbiguousColumn",
    "AmbiguousTable",
    "AppendOnlyTable",
    "AtomicCreateUnsupported",
    "BadRequest",
    "ChangeDataNotRecorded",
    "CommitOutcomeUnknown",
    "CommitOverwritten",
    "ConcurrentAppend",
    "ConcurrentDeleteDelete",
    "ConcurrentDeleteRead",
    "ConcurrentModification",
    "ConcurrentTransaction",
    "ConcurrentWrite",
    "ConstraintViolation",
    "CorruptDeletionVector",
    "CorruptLog",
    "CorruptTable",
    "DeadlineExceeded",
    "DeletionVectorCardinalityMismatch",
    "DeletionVectorChecksumMismatch",
    "DeletionVectorNotFound",
    "DeletionVectorSizeMismatch",
    "DeletionVectorTruncated",
    "DelvecError",
    "DuplicateFile",
    "EngineUnavailable",
    "ExpressionNotAllowed",
    "FileNotInSnapshot",
    "FileNotInStorage",
    "FileNotInTable",
    "FileSizeMismatch",
    "FileTooOld",
    "IdempotencyKeyReused",
    "IncompatibleSchemaChange",
    "InternalError",
    "InvalidBitmap",
    "InvalidCommit",
    "InvalidDeletionVector",
    "InvalidLocation",
    "InvalidPredicate",
    "InvalidSchema",
    "InvalidStatement",
    "InvalidTableChange",
    "LocationNotAllowed",
    "MetadataChanged",
    "MissingChangeFiles",
    "MissingDataFile",
    "MissingLogFile",
    "MultipleMatches",
    "NotADeltaTable",
    "NotFound",
    "ProtocolChanged",
    "ReadLimitExceeded",
    "RequestTimeout",
    "RequestTooLarge",
    "RowIndexOutOfRange",
    "SchemaMismatch",
    "ServiceUnavailable",
    "SourceRowsChanged",
    "StaleReadVersion",
    "StorageDenied",
    "StorageError",
    "StorageFull",
    "StreamSchemaChanged",
    "TableAlreadyExists",
    "TableNotFound",
    "Unauthorized",
    "UnknownColumn",
    "UnsupportedOperation",
    "UnsupportedReaderFeature",
    "UnsupportedTable",
    "UnsupportedWriterFeature",
    "UnusableFile",
    "VersionFromFuture",
    "VersionNotFound",
    "error_classes",
    "from_wire",
]
