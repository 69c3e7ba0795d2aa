"""Commit requests that contradict the table, and conflicts with other commits.

Tested in `tests/architecture/test_documentation.py` and `tests/docs/test_error_pages.py`.
"""

from typing import Any

from delvec_errors.request_errors import BadRequest
from delvec_errors.root import DelvecError

__all__ = [
    "CommitOutcomeUnknown",
    "CommitOverwritten",
    "ConcurrentAppend",
    "ConcurrentDeleteDelete",
    "ConcurrentDeleteRead",
    "ConcurrentModification",
    "ConcurrentTransaction",
    "ConcurrentWrite",
    "DuplicateFile",
    "FileNotInSnapshot",
    "FileNotInStorage",
    "FileNotInTable",
    "FileSizeMismatch",
    "FileTooOld",
    "InvalidBitmap",
    "InvalidCommit",
    "InvalidDeletionVector",
    "MetadataChanged",
    "MissingChangeFiles",
    "ProtocolChanged",
    "RowIndexOutOfRange",
    "StaleReadVersion",
    "VersionFromFuture",
]


class InvalidCommit(BadRequest):
    """A commit request contradicts the table: unknown files, row indexes out of range, duplicates."""

    type, code = "InvalidCommit", "INVALID_COMMIT"


class VersionFromFuture(InvalidCommit):
    """The commit says that it read a version that the table does not have."""

    type, code = "VersionFromFuture", "VERSION_FROM_FUTURE"


class StaleReadVersion(InvalidCommit):
    """The version that the commit read is no longer in the log, so conflicts cannot be checked."""

    type, code, status = "StaleReadVersion", "STALE_READ_VERSION", 409


class FileNotInSnapshot(InvalidCommit):
    """A file that the commit removes, or removes rows of, is not a live file of the version that it read."""

    type, code = "FileNotInSnapshot", "FILE_NOT_IN_SNAPSHOT"


class FileNotInTable(InvalidCommit):
    """A path is outside the table's directory, or names another table's file."""

    type, code = "FileNotInTable", "FILE_NOT_IN_TABLE"


class FileNotInStorage(InvalidCommit):
    """A new file is not in storage."""

    type, code = "FileNotInStorage", "FILE_NOT_IN_STORAGE"


class FileTooOld(InvalidCommit):
    """A new file was written so long before its commit that VACUUM may delete it."""

    type, code = "FileTooOld", "FILE_TOO_OLD"


class FileSizeMismatch(InvalidCommit):
    """A new file, or a deletion vector, has another size in storage than the commit says."""

    type, code = "FileSizeMismatch", "FILE_SIZE_MISMATCH"


class DuplicateFile(InvalidCommit):
    """The commit names one path twice, or adds one that is already live."""

    type, code = "DuplicateFile", "DUPLICATE_FILE"


class RowIndexOutOfRange(InvalidCommit):
    """A row index is beyond the physical rows of its file."""

    type, code = "RowIndexOutOfRange", "ROW_INDEX_OUT_OF_RANGE"


class InvalidBitmap(InvalidCommit):
    """Row indexes are not a 64-bit Roaring bitmap in the portable layout."""

    type, code = "InvalidBitmap", "INVALID_BITMAP"


class InvalidDeletionVector(InvalidCommit):
    """A deletion vector that an engine wrote does not match its descriptor, or drops rows of the earlier one."""

    type, code = "InvalidDeletionVector", "INVALID_DELETION_VECTOR"


class MissingChangeFiles(InvalidCommit):
    """The table has a change data feed, and the commit needs change files to record its changes."""

    type, code = "MissingChangeFiles", "MISSING_CHANGE_FILES"


class ConcurrentModification(DelvecError):
    """Another writer won a race, and this command could not be rebased.

    Attributes:
        conflict: the winning commit: ``winning-version``, ``winning-operation``, ``files`` and advice to retry; if both
            change rows, ``overlapping-rows`` and, for each file, ``overlaps`` with its path, count and first row indexes.
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
    """Another commit took the version, and nothing more is known about it."""

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
    """Whether the commit took effect is unknown; look for its transaction id before retrying."""

    type, code, status = "CommitOutcomeUnknown", "COMMIT_OUTCOME_UNKNOWN", 504


class CommitOverwritten(ConcurrentModification):
    """A commit that took effect was replaced by a writer that does not create versions atomically."""

    type, code = "CommitOverwritten", "COMMIT_OVERWRITTEN"
