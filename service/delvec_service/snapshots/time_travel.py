"""Time travel: the newest version at a time (PROTOCOL.md, "In-Commit Timestamps")."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta
from datetime import datetime as DateTime  # noqa: N812
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from delvec_errors import BadRequest, CorruptLog, VersionNotFound
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.table_properties import IN_COMMIT_TIMESTAMPS, is_true
from delvec_service.snapshots.log_reader import LogReader

__all__ = ["first_stamped", "iso", "milliseconds", "since_of", "version_at"]

_EPOCH: Final = DateTime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_ZONE: Final = re.compile(r"[A-Za-z]{2}[A-Za-z0-9_+\-]*(?:/[A-Za-z0-9_+\-]+)*")


def milliseconds(text: str) -> int:
    """Return a time as milliseconds since the epoch, rounded down.

    Args:
        text: ISO 8601, a date or a date with a time, in UTC if it has no time zone; a time zone may also be given by
            name (``2026-01-31 08:00 Europe/Paris``); or the milliseconds themselves.

    Raises:
        BadRequest: it is none of these.
    """
    text = text.strip()
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = _parse_time(text)
    except (ValueError, OverflowError, ZoneInfoNotFoundError, OSError):
        raise BadRequest(
            f"'{text[:100]}' is not a valid timestamp; give ISO 8601, such as 2026-01-31T08:00:00Z, or milliseconds "
            "since 1970.",
            timestamp=text[:100],
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def since_of(text: str | None) -> DateTime | None:
    """Return the time in the parameter ``since``, in UTC; None if it was left out.

    Raises:
        BadRequest: it is not a time in a format that :func:`milliseconds` accepts, or out of range.
    """
    if text is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds(text))
    except BadRequest as error:
        raise BadRequest(f"since: {error.message}", parameter="since", timestamp=text[:100]) from None
    except OverflowError:
        raise BadRequest(
            f"since: '{text[:100]}' is outside the years 1 to 9999; give another time.",
            parameter="since",
            timestamp=text[:100],
        ) from None


def _parse_time(text: str) -> DateTime:
    if text.isdigit():
        raise ValueError  # too many digits; ISO 8601 without separators is not intended
    time, _, zone = text.rpartition(" ")
    if not _ZONE.fullmatch(zone):
        return DateTime.fromisoformat(text)
    moment = DateTime.fromisoformat(time)
    if moment.tzinfo is not None:
        raise ValueError  # two time zones
    return moment.replace(tzinfo=ZoneInfo(zone))


def iso(time: int) -> str:
    """Return milliseconds since the epoch as ISO 8601 in UTC."""
    try:
        return (
            (_EPOCH + timedelta(milliseconds=time)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except OverflowError:
        return f"{time} ms after 1970"


def first_stamped(configuration: Mapping[str, str]) -> int | None:
    """Return the first version whose in-commit timestamp counts, or None if there is none.

    Args:
        configuration: the properties of the newest version, which decide for all versions.
    """
    if not is_true(configuration, IN_COMMIT_TIMESTAMPS):
        return None
    since = configuration.get("delta.inCommitTimestampEnablementVersion", "0")
    return int(since) if since.isdecimal() else 0


def version_at(reader: LogReader, timestamp: str, latest: Snapshot) -> int:
    """Return the newest version committed at or before a time.

    Args:
        reader: the table's log.
        timestamp: see :func:`milliseconds`.
        latest: the newest version.

    Raises:
        BadRequest: it is not a timestamp.
        VersionNotFound: it is before the oldest readable version, or after the newest.
    """
    timestamp_ms = milliseconds(timestamp)
    listing = reader.list_all()
    # A commit after the latest snapshot is ignored: the caller cannot know of it.
    versions = [version for version in listing.retained() if version <= latest.version] or [latest.version]
    times = _Times(reader, listing.times, latest)
    newest = times[versions[-1]]
    if timestamp_ms > newest:
        raise VersionNotFound(
            f"Table '{reader.table}' has no version as late as {iso(timestamp_ms)}: its newest version, {versions[-1]}, "
            f"was committed at {iso(newest)}.",
            table=reader.table,
            timestamp=iso(timestamp_ms),
            latest=versions[-1],
            latest_timestamp=iso(newest),
        )
    matching_version = _last_not_after(
        timestamp_ms, [version for version in versions if version >= times.stamped_from], times
    )
    if matching_version is None:
        matching_version = _last_not_after(
            timestamp_ms, [version for version in versions if version < times.stamped_from], times
        )
    if matching_version is None:
        oldest = times[versions[0]]
        raise VersionNotFound(
            f"Table '{reader.table}' has no version as early as {iso(timestamp_ms)}: its oldest readable version, "
            f"{versions[0]}, was committed at {iso(oldest)}.",
            table=reader.table,
            timestamp=iso(timestamp_ms),
            earliest=versions[0],
            earliest_timestamp=iso(oldest),
        )
    return matching_version


class _Times:
    """When each version was committed, in milliseconds since the epoch; commits are read on access.

    Attributes:
        stamped_from: the first version whose commit contains its own time.
    """

    def __init__(self, reader: LogReader, file_times: Mapping[int, int], latest: Snapshot) -> None:
        self._reader = reader
        self._read = {latest.version: latest.timestamp} | dict(file_times)
        self.stamped_from = latest.version + 1
        since = first_stamped(latest.configuration)
        if since is not None:
            self.stamped_from = since
            self._read = {v: time for v, time in self._read.items() if v < self.stamped_from}
            self._read[latest.version] = latest.timestamp

    def __getitem__(self, version: int) -> int:
        if version not in self._read:
            self._read[version] = self._time(version)
        return self._read[version]

    def _time(self, version: int) -> int:
        info = self._reader.commit_info(version)
        if info is None or info.in_commit_timestamp is None:
            raise CorruptLog(
                f"Version {version} of table '{self._reader.table}' has no in-commit timestamp, although the table "
                "requires one; use version numbers instead.",
                table=self._reader.table,
                version=version,
            )
        return info.in_commit_timestamp


def _last_not_after(wanted: int, versions: Sequence[int], times: _Times) -> int | None:
    place = bisect_right(versions, wanted, key=times.__getitem__)
    return versions[place - 1] if place else None
