"""Races, and outcomes that cannot be told."""

from typing import Any

from delvec.protocol.errors.root import DelvecError

__all__ = [
    "CommitOutcomeUnknown",
    "CommitOverwritten",
    "ConcurrentAppend",
    "ConcurrentDeleteDelete",
    "ConcurrentDeleteRead",
    "ConcurrentModification",
    "ConcurrentTransaction",
    "ConcurrentWrite",
    "MetadataChanged",
    "ProtocolChanged",
]


class ConcurrentModification(DelvecError):
    """Another writer won a race that this command could not be passed through.

    Attributes:
        conflict: what won: ``winning-version``, ``winning-operation``, ``files`` and the advice to re-run; where both
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

    type, code, status = "CommitOutcomeUnknown", "COMMIT_OUTCOME_UNKNOWN", 504


class CommitOverwritten(ConcurrentModification):
    """A commit that took effect was replaced by a writer that does not create versions atomically."""

    type, code = "CommitOverwritten", "COMMIT_OVERWRITTEN"
