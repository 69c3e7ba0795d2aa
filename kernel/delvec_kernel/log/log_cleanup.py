"""Which files of a log are too old to keep (PROTOCOL.md, "Metadata Cleanup").

Everything that a reader of the oldest version to keep needs stays, and so does whatever is not known by its name.
Nothing is decided here that rests on a guess: a gap, a checkpoint without its commit, a time that is missing mean
that nothing goes.
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
"""No attempt to commit takes so long. One that began before a version was taken must find it taken: were its file
deleted meanwhile, the attempt would create it anew, below the oldest checkpoint, where nobody reads it."""


@dataclass(frozen=True)
class Expired:
    """What may go.

    Attributes:
        oldest: the version of the checkpoint that becomes the oldest.
        names: in ``_delta_log``, in the order in which to delete them.
    """

    oldest: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Kept:
    """Nothing may go; ``reason`` says why, as part of a sentence."""

    reason: str


def expired_files(files: Sequence[ListedFile], policy: LogPolicy, now: int) -> Expired | Kept:
    """Return what of a log is older than its table wants to keep.

    Args:
        files: all of ``_delta_log``.
        policy: of the newest version.
        now: milliseconds since the epoch.
    """
    if not policy.clean_up:
        return Kept("delta.enableExpiredLogCleanup is false")
    oldest_to_keep = now - policy.log_retention // timedelta(milliseconds=1)
    # Midnight UTC: what is deleted changes once a day.
    cut_off = min(oldest_to_keep - oldest_to_keep % _DAY, now - _HOUR)
    listing = LogListing(files)
    times = listing.times
    # The times of commits ascend, so that everything before such a checkpoint is as old.
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
    """Return the place of a file in the order of deletion; None if it stays."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    version = int(found.group("version"))
    if found.group("compacted"):
        # One that starts here holds commits that go; those of its commits that stay can still be read.
        return (0, version, name) if version <= oldest else None
    return (1, version, name) if version < oldest else None


def expired_sidecars(files: Iterable[ListedFile], named: frozenset[str], now: int) -> tuple[str, ...]:
    """Return the sidecars that no checkpoint names and that no writer can be about to name.

    Args:
        files: all of ``_delta_log/_sidecars``.
        named: those that the remaining checkpoints name.
        now: milliseconds since the epoch.
    """
    return tuple(
        file.name
        for file in files
        if _SIDECAR.fullmatch(file.name) and file.name not in named and file.last_modified_ms < now - _DAY
    )
