"""Requests that are invalid, not allowed, or refer to something that does not exist.

Tested in `tests/architecture/test_documentation.py` and `tests/docs/test_error_pages.py`.
"""

from delvec_errors.root import DelvecError

__all__ = [
    "AmbiguousColumn",
    "AmbiguousTable",
    "BadRequest",
    "ChangeDataNotRecorded",
    "ConstraintViolation",
    "CredentialVendingUnsupported",
    "GrantNotFound",
    "IdempotencyKeyReused",
    "IncompatibleSchemaChange",
    "InvalidLocation",
    "InvalidPredicate",
    "InvalidSchema",
    "InvalidStatement",
    "InvalidTableChange",
    "LocationNotAllowed",
    "MaintenanceUnderWay",
    "MultipleMatches",
    "NamespaceNotFound",
    "NotADeltaTable",
    "NotFound",
    "PermissionDenied",
    "PolicyNotFound",
    "QuarantineNotFound",
    "ReadLimitExceeded",
    "RequestTimeout",
    "RequestTooLarge",
    "RetentionTooShort",
    "SchemaMismatch",
    "SourceRowsChanged",
    "StreamSchemaChanged",
    "TableAlreadyExists",
    "TableInUse",
    "TableNotFound",
    "TokenAlreadyExists",
    "TokenNotFound",
    "TooManyRequests",
    "Unauthorized",
    "UnknownColumn",
    "UnsupportedOperation",
    "VacuumLiteImpossible",
    "VersionNotFound",
]


class BadRequest(DelvecError):
    """The request is not well formed."""

    type, code, status = "BadRequest", "BAD_REQUEST", 400


class InvalidPredicate(BadRequest):
    """A predicate is not a Boolean SQL expression that Delvec can parse."""

    type, code = "InvalidPredicate", "INVALID_PREDICATE"


class InvalidStatement(BadRequest):
    """SQL that cannot be parsed, or a statement that Delvec does not run; says where in the text."""

    type, code = "InvalidStatement", "INVALID_STATEMENT"


class UnsupportedOperation(BadRequest):
    """A Delta command that Delvec does not support yet; the message names an alternative."""

    type, code = "UnsupportedOperation", "UNSUPPORTED_OPERATION"


class UnknownColumn(BadRequest):
    """A predicate or a column list names a column that the table does not have."""

    type, code = "UnknownColumn", "UNKNOWN_COLUMN"


class AmbiguousColumn(BadRequest):
    """A column name without an alias exists on both sides of a MERGE."""

    type, code = "AmbiguousColumn", "AMBIGUOUS_COLUMN"


class AmbiguousTable(BadRequest):
    """Several tables share this folder name, and none was registered under the name."""

    type, code = "AmbiguousTable", "AMBIGUOUS_TABLE"


class InvalidSchema(BadRequest):
    """A schema has no Delta equivalent, or contradicts itself."""

    type, code = "InvalidSchema", "INVALID_SCHEMA"


class SchemaMismatch(BadRequest):
    """Input data does not match the table's schema."""

    type, code = "SchemaMismatch", "SCHEMA_MISMATCH"


class InvalidLocation(BadRequest):
    """A location is neither an absolute path nor a URL of a supported object store."""

    type, code = "InvalidLocation", "INVALID_LOCATION"


class Unauthorized(DelvecError):
    """The token is missing, wrong, expired or revoked."""

    type, code, status = "Unauthorized", "UNAUTHORIZED", 401


class PermissionDenied(DelvecError):
    """The principal of the token lacks the role that the request needs; the message names both."""

    type, code, status = "PermissionDenied", "PERMISSION_DENIED", 403


class CredentialVendingUnsupported(DelvecError):
    """The table's object store cannot issue credentials, or the service is not configured to request them."""

    type, code, status = "CredentialVendingUnsupported", "CREDENTIAL_VENDING_UNSUPPORTED", 422


class LocationNotAllowed(DelvecError):
    """The location, or a file of the log, is outside the configured roots; or it is inside, above or at another table."""

    type, code, status = "LocationNotAllowed", "LOCATION_NOT_ALLOWED", 403


class NotFound(DelvecError):
    """The resource does not exist."""

    type, code, status = "NotFound", "NOT_FOUND", 404


class NamespaceNotFound(NotFound):
    """No registered table is in that namespace."""

    type, code = "NamespaceNotFound", "NAMESPACE_NOT_FOUND"


class PolicyNotFound(NotFound):
    """There is no maintenance policy with that name."""

    type, code = "PolicyNotFound", "POLICY_NOT_FOUND"


class QuarantineNotFound(NotFound):
    """The table has no quarantine with that name: it was purged, or never existed."""

    type, code = "QuarantineNotFound", "QUARANTINE_NOT_FOUND"


class TokenNotFound(NotFound):
    """There is no bearer token with that name."""

    type, code = "TokenNotFound", "TOKEN_NOT_FOUND"


class GrantNotFound(NotFound):
    """The grantee has no such role to revoke."""

    type, code = "GrantNotFound", "GRANT_NOT_FOUND"


class TableNotFound(NotFound):
    """No table is registered under that name, id or location, or none that the principal may read."""

    type, code = "TableNotFound", "TABLE_NOT_FOUND"


class NotADeltaTable(NotFound):
    """The location has no Delta log."""

    type, code = "NotADeltaTable", "NOT_A_DELTA_TABLE"


class VersionNotFound(NotFound):
    """The version or timestamp is outside the range that the log retains."""

    type, code = "VersionNotFound", "VERSION_NOT_FOUND"


class TableAlreadyExists(DelvecError):
    """A Delta table at that location, or a table with that name, already exists."""

    type, code, status = "TableAlreadyExists", "TABLE_ALREADY_EXISTS", 409


class TableInUse(DelvecError):
    """The files of a dropped table are still needed: by a shallow clone, or by somebody who commits to it."""

    type, code, status = "TableInUse", "TABLE_IN_USE", 409


class TokenAlreadyExists(DelvecError):
    """A bearer token with that name already exists, or existed and was revoked."""

    type, code, status = "TokenAlreadyExists", "TOKEN_ALREADY_EXISTS", 409


class RequestTimeout(DelvecError):
    """The request arrived too slowly; nothing was done."""

    type, code, status, retryable = "RequestTimeout", "REQUEST_TIMEOUT", 408, True


class TooManyRequests(DelvecError):
    """A principal or a table is over a limit; the message says which, and when to retry. Nothing was done."""

    type, code, status, retryable = "TooManyRequests", "TOO_MANY_REQUESTS", 429, True


class RequestTooLarge(DelvecError):
    """The request body is over the configured limit."""

    type, code, status = "RequestTooLarge", "REQUEST_TOO_LARGE", 413


class ReadLimitExceeded(DelvecError):
    """The service would read more for a command or a change feed than its limit; your own process has no such limit."""

    type, code, status = "ReadLimitExceeded", "READ_LIMIT_EXCEEDED", 422


class InvalidTableChange(BadRequest):
    """A change of schema, properties, constraints or features contradicts the table or its rows."""

    type, code = "InvalidTableChange", "INVALID_TABLE_CHANGE"


class ConstraintViolation(BadRequest):
    """Rows violate NOT NULL, a CHECK constraint, a generated column or a length."""

    type, code = "DeltaInvariantViolationException", "CONSTRAINT_VIOLATION"


class MultipleMatches(BadRequest):
    """Multiple source rows match one row of the table; the MERGE is ambiguous."""

    type, code = "MultipleMatches", "MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


class ChangeDataNotRecorded(BadRequest):
    """The change data feed was off in some version of the range."""

    type, code = "ChangeDataNotRecorded", "MISSING_CHANGE_DATA"


class IncompatibleSchemaChange(BadRequest):
    """A version in the range has a schema that is incompatible with the feed's: renamed, dropped, retyped columns."""

    type, code = "IncompatibleSchemaChange", "CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"


class SourceRowsChanged(BadRequest):
    """A version deleted or changed rows that a stream has read, or another table is at the stream's location."""

    type, code = "SourceRowsChanged", "SOURCE_ROWS_CHANGED"


class StreamSchemaChanged(BadRequest):
    """A version added columns that a running stream lacks; restart the stream to get them."""

    type, code = "StreamSchemaChanged", "STREAM_SCHEMA_CHANGED"


class IdempotencyKeyReused(BadRequest):
    """An idempotency key was reused for a different request."""

    type, code, status = "IdempotencyKeyReused", "IDEMPOTENCY_KEY_REUSED", 422


class RetentionTooShort(BadRequest):
    """VACUUM with less retention than the table's, or deletion of a dropped table before its retention has ended."""

    type, code = "RetentionTooShort", "VACUUM_RETENTION_PERIOD_TOO_SHORT"


class VacuumLiteImpossible(BadRequest):
    """VACUUM LITE reads the log, and the log no longer reaches back to the last VACUUM."""

    type, code = "VacuumLiteImpossible", "CANNOT_VACUUM_LITE"


class MaintenanceUnderWay(DelvecError):
    """Another process is running maintenance on the table; wait until it finishes or its lease expires."""

    type, code, status, retryable = "MaintenanceUnderWay", "MAINTENANCE_UNDER_WAY", 409, True
