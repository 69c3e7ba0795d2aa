"""Selects the log files that are too old to keep (PROTOCOL.md, "Metadata Cleanup").

Keeps everything that readers of the oldest retained version need, and all files with unknown names. In doubt (a gap, a
checkpoint without its commit, a missing timestamp) nothing is deleted.

Tested in `tests/integration/service/maintenance/test_log_cleanup.py`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from delvec_kernel.log.log_policy import LogPolicy
from delvec_kernel.log.log_segment import ListedFile, LogListing

__all__ = ["Expired", "Kept", "expired_files", "expired_sidecars"]

_NAME: Final = re.compile(
    r"(?P<version>\d{20})\.(?:json|crc"
    r"|checkpoint\.(?:parquet|\d{10}\.\d{10}\.parquet"
    r"|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\.(?:json|parquet))"
    r"|\d{20}\.(?P<compacted>compacted)\.json)",
    re.ASCII,
)
_SIDECAR: Final = re.compile(r"[^/]+\.parquet")
_DAY: Final = timedelta(days=1) // timedelta(milliseconds=1)
_HOUR: Final = timedelta(hours=1) // timedelta(milliseconds=1)
"""Longer than any attempt to commit. An attempt must still find the file of a version taken meanwhile: were the file
deleted, the attempt would create it again, below the oldest checkpoint, where no reader looks."""


@dataclass(frozen=True)
class Expired:
    """Files to delete.

    Attributes:
        oldest: the version of the checkpoint that becomes the oldest.
        names: in ``_delta_log``, in deletion order.
    """

    oldest: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Kept:
    """Nothing to delete; ``reason`` says why, as part of a sentence."""

    reason: str


def expired_files(files: Sequence[ListedFile], policy: LogPolicy, now: int) -> Expired | Kept:
    """Return the log files past the retention period.

    Args:
        files: all of ``_delta_log``.
        policy: the policy of the newest version.
        now: milliseconds since the epoch.
    """
    if not policy.clean_up:
        return Kept("delta.enableExpiredLogCleanup is false")
    oldest_to_keep = now - policy.log_retention // timedelta(milliseconds=1)
    # Round to midnight UTC, as delta-spark does, so that the set of expired files changes once a day.
    cut_off = min(oldest_to_keep - oldest_to_keep % _DAY, now - _HOUR)
    listing = LogListing(files)
    times = listing.times
    # Commit timestamps ascend, so everything before an expired checkpoint has expired, too.
    candidates = [version for version in listing.checkpoints if times.get(version, now) <= cut_off]
    oldest = max(candidates, default=None)
    if oldest is None:
        return Kept("every checkpoint is still within delta.logRetentionDuration")
    if any(version not in listing.commits for version in range(oldest, listing.latest + 1)):
        return Kept(f"some commits after the checkpoint of version {oldest} are missing")
    if oldest < policy.protected_before:
        return Kept(
            f"with checkpointProtection, all versions before {policy.protected_before} must be deleted "
            f"together, but only those before {oldest} are old enough"
        )
    names = sorted(filter(None, (_key(file.name, oldest) for file in files)))
    return Expired(oldest, tuple(name for _, _, name in names))


def _key(name: str, oldest: int) -> tuple[int, int, str] | None:
    """Return the sort key of a file in deletion order; None to keep it."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    version = int(found.group("version"))
    if found.group("compacted"):
        # A compaction that starts here covers deleted commits; the remaining ones can be read without it.
        return (0, version, name) if version <= oldest else None
    return (1, version, name) if version < oldest else None


def expired_sidecars(
    files: Iterable[ListedFile], referenced_sidecars: frozenset[str], now: int
) -> tuple[str, ...]:
    """Return the sidecars that no checkpoint references and that no writer can still be about to reference.

    Args:
        files: all of ``_delta_log/_sidecars``.
        referenced_sidecars: sidecars that the remaining checkpoints reference.
        now: milliseconds since the epoch.
    """
    return tuple(
        file.name
        for file in files
        if _SIDECAR.fullmatch(file.name)
        and file.name not in referenced_sidecars
        and file.last_modified_ms < now - _DAY
    )
