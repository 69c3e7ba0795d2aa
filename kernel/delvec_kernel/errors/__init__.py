"""All errors that Delvec raises, in the client and the service.

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
    │   ├── RetentionTooShort
    │   ├── VacuumLiteImpossible
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
    ├── PermissionDenied
    ├── LocationNotAllowed
    ├── CredentialVendingUnsupported
    ├── NotFound
    │   ├── NamespaceNotFound
    │   ├── PolicyNotFound
    │   ├── QuarantineNotFound
    │   ├── TokenNotFound
    │   ├── GrantNotFound
    │   ├── TableNotFound
    │   ├── NotADeltaTable
    │   └── VersionNotFound
    ├── MaintenanceUnderWay
    ├── TableAlreadyExists
    ├── TokenAlreadyExists
    ├── RequestTimeout
    ├── RequestTooLarge
    ├── TooManyRequests
    ├── ReadLimitExceeded
    ├── UnsupportedTable
    │   ├── UnsupportedReaderFeature
    │   ├── UnsupportedWriterFeature
    │   │   └── ExpressionNotAllowed
    │   ├── AppendOnlyTable
    │   ├── ManifestUnsupported
    │   └── IcebergUnsupported
    ├── CorruptTable
    │   ├── CorruptLog
    │   ├── MissingLogFile
    │   ├── MissingDataFile
    │   ├── MissingRestoreFiles
    │   ├── CorruptIcebergMetadata
    │   ├── MissingCloneFiles
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
    │   ├── UnusableFile
    │   └── VacuumIncomplete
    ├── IcebergCatalogError
    ├── ServiceUnavailable
    │   └── IdentityProviderUnavailable
    ├── DeadlineExceeded
    ├── EngineUnavailable
    └── InternalError

An error is sent as ``{"error": {"message", "type", "code", "retryable", "details"}}``; :func:`from_wire`
converts that back to the class that was raised. Concurrency errors have Delta's exception name as
``type``, so that programs written for delta-spark recognize them.

Tested in `tests/architecture/test_documentation.py` and `tests/docs/test_error_pages.py`.
"""

from delvec_kernel.errors.commits import (
    CommitOutcomeUnknown,
    CommitOverwritten,
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentModification,
    ConcurrentTransaction,
    ConcurrentWrite,
    DuplicateFile,
    FileNotInSnapshot,
    FileNotInStorage,
    FileNotInTable,
    FileSizeMismatch,
    FileTooOld,
    InvalidBitmap,
    InvalidCommit,
    InvalidDeletionVector,
    MetadataChanged,
    MissingChangeFiles,
    ProtocolChanged,
    RowIndexOutOfRange,
    StaleReadVersion,
    VersionFromFuture,
)
from delvec_kernel.errors.requests import (
    AmbiguousColumn,
    AmbiguousTable,
    BadRequest,
    ChangeDataNotRecorded,
    ConstraintViolation,
    CredentialVendingUnsupported,
    GrantNotFound,
    IdempotencyKeyReused,
    IncompatibleSchemaChange,
    InvalidLocation,
    InvalidPredicate,
    InvalidSchema,
    InvalidStatement,
    InvalidTableChange,
    LocationNotAllowed,
    MaintenanceUnderWay,
    MultipleMatches,
    NamespaceNotFound,
    NotADeltaTable,
    NotFound,
    PermissionDenied,
    PolicyNotFound,
    QuarantineNotFound,
    ReadLimitExceeded,
    RequestTimeout,
    RequestTooLarge,
    RetentionTooShort,
    SchemaMismatch,
    SourceRowsChanged,
    StreamSchemaChanged,
    TableAlreadyExists,
    TableNotFound,
    TokenAlreadyExists,
    TokenNotFound,
    TooManyRequests,
    Unauthorized,
    UnknownColumn,
    UnsupportedOperation,
    VacuumLiteImpossible,
    VersionNotFound,
)
from delvec_kernel.errors.root import (
    AtomicCreateUnsupported,
    DeadlineExceeded,
    DelvecError,
    EngineUnavailable,
    IcebergCatalogError,
    IdentityProviderUnavailable,
    InternalError,
    ServiceUnavailable,
    StorageDenied,
    StorageError,
    StorageFull,
    UnusableFile,
    VacuumIncomplete,
    error_classes,
    from_wire,
)
from delvec_kernel.errors.tables import (
    AppendOnlyTable,
    CorruptDeletionVector,
    CorruptIcebergMetadata,
    CorruptLog,
    CorruptTable,
    DeletionVectorCardinalityMismatch,
    DeletionVectorChecksumMismatch,
    DeletionVectorNotFound,
    DeletionVectorSizeMismatch,
    DeletionVectorTruncated,
    ExpressionNotAllowed,
    IcebergUnsupported,
    ManifestUnsupported,
    MissingCloneFiles,
    MissingDataFile,
    MissingLogFile,
    MissingRestoreFiles,
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
    "CorruptIcebergMetadata",
    "CorruptLog",
    "CorruptTable",
    "CredentialVendingUnsupported",
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
    "GrantNotFound",
    "IcebergCatalogError",
    "IcebergUnsupported",
    "IdempotencyKeyReused",
    "IdentityProviderUnavailable",
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
    "MaintenanceUnderWay",
    "ManifestUnsupported",
    "MetadataChanged",
    "MissingChangeFiles",
    "MissingCloneFiles",
    "MissingDataFile",
    "MissingLogFile",
    "MissingRestoreFiles",
    "MultipleMatches",
    "NamespaceNotFound",
    "NotADeltaTable",
    "NotFound",
    "PermissionDenied",
    "PolicyNotFound",
    "ProtocolChanged",
    "QuarantineNotFound",
    "ReadLimitExceeded",
    "RequestTimeout",
    "RequestTooLarge",
    "RetentionTooShort",
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
    "TokenAlreadyExists",
    "TokenNotFound",
    "TooManyRequests",
    "Unauthorized",
    "UnknownColumn",
    "UnsupportedOperation",
    "UnsupportedReaderFeature",
    "UnsupportedTable",
    "UnsupportedWriterFeature",
    "UnusableFile",
    "VacuumIncomplete",
    "VacuumLiteImpossible",
    "VersionFromFuture",
    "VersionNotFound",
    "error_classes",
    "from_wire",
]
