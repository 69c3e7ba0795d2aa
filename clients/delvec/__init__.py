"""Delvec: change rows of Delta Lake tables with deletion vectors.

::

    with delvec.connect() as lake:
        people = lake.table("/data/people")
        people.delete("age < 18")

All but the errors is imported when it is first used: Spark's executors import parts of this package in every
Python worker, and need neither HTTP nor SQL parsing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from delvec.engines.pyspark import typed_errors
from delvec.protocol.errors import (
    AmbiguousColumn,
    AmbiguousTable,
    AppendOnlyTable,
    AtomicCreateUnsupported,
    BadRequest,
    ChangeDataNotRecorded,
    CommitOutcomeUnknown,
    CommitOverwritten,
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentModification,
    ConcurrentTransaction,
    ConcurrentWrite,
    ConstraintViolation,
    CorruptDeletionVector,
    CorruptLog,
    CorruptTable,
    DeadlineExceeded,
    DeletionVectorCardinalityMismatch,
    DeletionVectorChecksumMismatch,
    DeletionVectorNotFound,
    DeletionVectorSizeMismatch,
    DeletionVectorTruncated,
    DelvecError,
    DuplicateFile,
    EngineUnavailable,
    ExpressionNotAllowed,
    FileNotInSnapshot,
    FileNotInStorage,
    FileNotInTable,
    FileSizeMismatch,
    FileTooOld,
    IdempotencyKeyReused,
    IncompatibleSchemaChange,
    InternalError,
    InvalidBitmap,
    InvalidCommit,
    InvalidDeletionVector,
    InvalidLocation,
    InvalidPredicate,
    InvalidSchema,
    InvalidStatement,
    InvalidTableChange,
    LocationNotAllowed,
    MetadataChanged,
    MissingChangeFiles,
    MissingDataFile,
    MissingLogFile,
    MultipleMatches,
    NotADeltaTable,
    NotFound,
    ProtocolChanged,
    RequestTimeout,
    RequestTooLarge,
    RowIndexOutOfRange,
    SchemaMismatch,
    ServiceUnavailable,
    SourceRowsChanged,
    StaleReadVersion,
    StorageError,
    StreamSchemaChanged,
    TableAlreadyExists,
    TableNotFound,
    Unauthorized,
    UnknownColumn,
    UnsupportedOperation,
    UnsupportedReaderFeature,
    UnsupportedTable,
    UnsupportedWriterFeature,
    VersionFromFuture,
    VersionNotFound,
)

if TYPE_CHECKING:
    from delvec.connection import Connection, connect
    from delvec.protocol.types import (
        ArrayType,
        DataType,
        DecimalType,
        MapType,
        PrimitiveType,
        StructField,
        StructType,
    )
    from delvec.table import DeltaTable
    from delvec.transaction import Metrics, Transaction

    __version__: str

__all__ = [
    "AmbiguousColumn",
    "AmbiguousTable",
    "AppendOnlyTable",
    "ArrayType",
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
    "Connection",
    "ConstraintViolation",
    "CorruptDeletionVector",
    "CorruptLog",
    "CorruptTable",
    "DataType",
    "DeadlineExceeded",
    "DecimalType",
    "DeletionVectorCardinalityMismatch",
    "DeletionVectorChecksumMismatch",
    "DeletionVectorNotFound",
    "DeletionVectorSizeMismatch",
    "DeletionVectorTruncated",
    "DeltaTable",
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
    "MapType",
    "MetadataChanged",
    "Metrics",
    "MissingChangeFiles",
    "MissingDataFile",
    "MissingLogFile",
    "MultipleMatches",
    "NotADeltaTable",
    "NotFound",
    "PrimitiveType",
    "ProtocolChanged",
    "RequestTimeout",
    "RequestTooLarge",
    "RowIndexOutOfRange",
    "SchemaMismatch",
    "ServiceUnavailable",
    "SourceRowsChanged",
    "StaleReadVersion",
    "StorageError",
    "StreamSchemaChanged",
    "StructField",
    "StructType",
    "TableAlreadyExists",
    "TableNotFound",
    "Transaction",
    "Unauthorized",
    "UnknownColumn",
    "UnsupportedOperation",
    "UnsupportedReaderFeature",
    "UnsupportedTable",
    "UnsupportedWriterFeature",
    "VersionFromFuture",
    "VersionNotFound",
    "__version__",
    "connect",
    "lit",
]

_HOMES = {
    "ArrayType": "delvec.protocol.types",
    "Connection": "delvec.connection",
    "DataType": "delvec.protocol.types",
    "DecimalType": "delvec.protocol.types",
    "DeltaTable": "delvec.table",
    "MapType": "delvec.protocol.types",
    "Metrics": "delvec.transaction",
    "PrimitiveType": "delvec.protocol.types",
    "lit": "delvec.protocol.literals",
    "StructField": "delvec.protocol.types",
    "StructType": "delvec.protocol.types",
    "Transaction": "delvec.transaction",
    "connect": "delvec.connection",
}

# Not with pyspark: it is imported where it is used.
typed_errors.install()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("delvec")
    if name not in _HOMES:
        from delvec.peer_names import MODULE_HINTS, no_attribute

        raise no_attribute("module 'delvec'", name, MODULE_HINTS)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
