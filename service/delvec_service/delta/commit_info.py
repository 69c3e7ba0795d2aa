"""Commit provenance: who committed a version, how and when (PROTOCOL.md, "Commit Provenance Information")."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from delvec_service.delta.log.log_json import present

__all__ = ["CommitInfo"]


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Who did what. Nothing depends on it but history and, where enabled, the in-commit timestamp.

    Attributes:
        in_commit_timestamp: milliseconds since the epoch.
        timestamp: the writer's clock, milliseconds since the epoch.
        extra: every other field, as it stands in the log.
    """

    key: ClassVar[str] = "commitInfo"
    in_commit_timestamp: int | None = None
    timestamp: int | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, Any] | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    operation_metrics: Mapping[str, Any] | None = None
    user_metadata: str | None = None
    tags: Mapping[str, Any] | None = None
    engine_info: str | None = None
    txn_id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the object under ``commitInfo``; what is not of the usual kind goes to ``extra``."""
        known: dict[str, Any] = {}
        extra = {}
        for name, found in value.items():
            attribute, kind = _COMMIT_INFO.get(name, ("", object))
            if attribute and isinstance(found, kind) and not (kind is int and isinstance(found, bool)):
                known[attribute] = found
            elif found is not None:
                extra[name] = found
        return cls(**known, extra=extra)

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``commitInfo``."""
        known = {name: getattr(self, attribute) for name, (attribute, _) in _COMMIT_INFO.items()}
        return present(**known) | dict(self.extra)


_COMMIT_INFO: Final[Mapping[str, tuple[str, type]]] = {
    "inCommitTimestamp": ("in_commit_timestamp", int),
    "timestamp": ("timestamp", int),
    "operation": ("operation", str),
    "operationParameters": ("operation_parameters", dict),
    "readVersion": ("read_version", int),
    "isolationLevel": ("isolation_level", str),
    "isBlindAppend": ("is_blind_append", bool),
    "operationMetrics": ("operation_metrics", dict),
    "userMetadata": ("user_metadata", str),
    "tags": ("tags", dict),
    "engineInfo": ("engine_info", str),
    "txnId": ("txn_id", str),
}
