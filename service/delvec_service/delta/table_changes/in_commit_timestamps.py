"""In-commit timestamps, turned on: from which version on, and since when (PROTOCOL.md, "In-Commit Timestamps")."""

from dataclasses import replace
from typing import Final

from delvec.protocol.table_properties import is_true
from delvec_service.delta.actions import Metadata

__all__ = ["are_enabled", "enabled_since"]

_ENABLED: Final = "delta.enableInCommitTimestamps"
_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"


def are_enabled(metadata: Metadata) -> bool:
    """Whether every commit has to say when it was made."""
    return is_true(metadata.configuration, _ENABLED)


def enabled_since(metadata: Metadata, version: int, timestamp: int) -> Metadata:
    """Return metadata by which readers know which versions have timestamps.

    Args:
        metadata: of the commit that turns them on; it is not the table's first.
        version: of that commit.
        timestamp: of that commit, milliseconds since the epoch.
    """
    since = {_VERSION: str(version), _TIMESTAMP: str(timestamp)}
    return replace(metadata, configuration={**metadata.configuration, **since})
