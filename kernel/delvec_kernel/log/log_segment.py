"""Selects the log files that make up a version (PROTOCOL.md, "Delta Log Entries" and "Checkpoints").

Other files in ``_delta_log`` are ignored: hints, temporary files, files of other software.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from delvec_errors import MissingLogFile, VersionNotFound

__all__ = ["ListedFile", "LogCheckpoint", "LogCompaction", "LogListing", "LogSegment", "commit_name"]

_MAX_VERSION: Final = 2**63 - 1
_COMMIT: Final = re.compile(r"(\d{20})\.json", re.ASCII)
_CHECKSUM: Final = re.compile(r"(\d{20})\.crc", re.ASCII)
_COMPACTION: Final = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json", re.ASCII)
_CLASSIC: Final = re.compile(r"(\d{20})\.checkpoint\.parquet", re.ASCII)
_PART: Final = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet", re.ASCII)
_UUID: Final = re.compile(
    r"(\d{20})\.checkpoint\.[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\.(?:json|parquet)",
    re.ASCII,
)


def commit_name(version: int) -> str:
    """Return the name of a version's commit in ``_delta_log``."""
    return f"{version:020d}.json"


class ListedFile(Protocol):
    """A file in a listing of the log."""

    @property
    def name(self) -> str:
        """Its name in ``_delta_log``."""

    @property
    def size(self) -> int:
        """Size in bytes."""

    @property
    def last_modified_ms(self) -> int:
        """Milliseconds since the epoch, by the storage's clock."""

    @property
    def e_tag(self) -> str | None:
        """The object store's ETag, if any."""


@dataclass(frozen=True)
class LogCheckpoint:
    """A complete checkpoint, with all files of a multi-part one."""

    version: int
    files: tuple[ListedFile, ...]

    @property
    def name(self) -> str:
        """The name of its first file, which identifies it among checkpoints of the same version."""
        return self.files[0].name


@dataclass(frozen=True)
class LogCompaction:
    """A file that combines the commits ``first`` to ``last`` (PROTOCOL.md, "Log Compaction Files")."""

    first: int
    last: int
    file: ListedFile


@dataclass(frozen=True)
class LogSegment:
    """The files to read for one version: a checkpoint, and every commit after it.

    Attributes:
        version: the resulting version.
        checkpoint: to start from; None to start from commit 0.
        commits: ascending, without gaps.
        compactions: ascending, disjoint; each can replace the commits it covers.
        times: timestamps of the listed commits, milliseconds since the epoch, strictly ascending.
    """

    version: int
    checkpoint: LogCheckpoint | None
    commits: tuple[tuple[int, ListedFile], ...]
    compactions: tuple[LogCompaction, ...]
    times: Mapping[int, int]

    @property
    def uncompacted(self) -> list[int]:
        """The versions whose commits no compaction covers, ascending."""
        covered = {version for one in self.compactions for version in range(one.first, one.last + 1)}
        return [version for version, _ in self.commits if version not in covered]

    @property
    def file_time(self) -> int:
        """The version's file time, milliseconds since the epoch."""
        if self.version in self.times:
            return self.times[self.version]
        assert self.checkpoint is not None  # noqa: S101 - a segment without commits has one
        return self.checkpoint.files[0].last_modified_ms


class LogListing:
    """The commits, checkpoints, compactions and checksums in a listing of the log.

    Args:
        files: the files of ``_delta_log``, all or from a version on.
    """

    def __init__(self, files: Iterable[ListedFile]) -> None:
        self.commits: dict[int, ListedFile] = {}
        self.checksums: dict[int, ListedFile] = {}
        self.compactions: list[LogCompaction] = []
        self._candidates: dict[int, list[LogCheckpoint]] = {}
        parts: dict[tuple[int, int], dict[int, ListedFile]] = {}
        for file in files:
            if commit := _COMMIT.fullmatch(file.name):
                self.commits[int(commit.group(1))] = file
            elif checksum := _CHECKSUM.fullmatch(file.name):
                self.checksums[int(checksum.group(1))] = file
            elif single := _CLASSIC.fullmatch(file.name) or _UUID.fullmatch(file.name):
                version = int(single.group(1))
                self._candidates.setdefault(version, []).append(LogCheckpoint(version, (file,)))
            elif part := _PART.fullmatch(file.name):
                version, number, count = (int(group) for group in part.groups())
                parts.setdefault((version, count), {})[number] = file
            elif (compaction := _COMPACTION.fullmatch(file.name)) is not None:
                first, last = (int(group) for group in compaction.groups())
                self.compactions.append(LogCompaction(first, last, file))
        for checkpoint in _complete(parts):
            self._candidates.setdefault(checkpoint.version, []).append(checkpoint)
        for versions in (self.commits, self._candidates):
            for version in [version for version in versions if version > _MAX_VERSION]:
                del versions[version]

    def before(self, version: int) -> "LogListing":
        """Return the listing restricted to earlier versions."""
        found = LogListing(())
        found.commits = {number: file for number, file in self.commits.items() if number < version}
        found.checksums = {number: file for number, file in self.checksums.items() if number < version}
        found.compactions = [one for one in self.compactions if one.last < version]
        found._candidates = {number: each for number, each in self._candidates.items() if number < version}
        return found

    @property
    def checkpoints(self) -> Mapping[int, LogCheckpoint]:
        """One complete checkpoint per version; all checkpoints of a version are equivalent."""
        return {version: found[0] for version, found in self._candidates.items()}

    @property
    def gap(self) -> bool:
        """Whether a commit that the newest version needs is missing."""
        if not self:
            return False
        newest = max(self._candidates, default=None)
        start = min(self.commits, default=0) if newest is None else newest + 1
        after = sum(version >= start for version in self.commits)
        return self.latest + 1 - start > after

    def __bool__(self) -> bool:
        return bool(self.commits or self._candidates)

    @property
    def latest(self) -> int:
        """The newest version; the listing must not be empty."""
        return max(self.commits.keys() | self._candidates.keys())

    @property
    def earliest(self) -> int | None:
        """The oldest readable version, or None."""
        return 0 if 0 in self.commits else min(self._candidates, default=None)

    @property
    def times(self) -> dict[int, int]:
        """Commit timestamps, milliseconds since the epoch, adjusted to ascend strictly, as in delta-spark."""
        times: dict[int, int] = {}
        before: int | None = None
        for version in sorted(self.commits):
            time = self.commits[version].last_modified_ms
            before = time if before is None else max(time, before + 1)
            times[version] = before
        return times

    def segment(self, table: str, version: int | None = None, *, without: Collection[str] = ()) -> LogSegment:
        """Return the files that make up a version, by default the newest.

        Args:
            table: the table's name, for errors.
            version: the requested version.
            without: names of checkpoints (first file) and compactions known to be corrupt.

        Raises:
            VersionNotFound: it is newer than the newest or older than the oldest readable version.
            MissingLogFile: a commit that it needs is missing.
        """
        target_version = self.latest if version is None else version
        if target_version > self.latest:
            raise VersionNotFound(
                f"Version {target_version} of table '{table}' does not exist; the newest is {self.latest}.",
                table=table,
                version=target_version,
                latest=self.latest,
            )
        checkpoint = self._checkpoint(target_version, without)
        base = None if checkpoint is None else checkpoint.version
        start = 0 if base is None else base + 1
        if base is None and target_version not in self.commits and self.earliest not in (None, 0):
            self._too_old(table, target_version)
        commits = []
        for number in range(start, target_version + 1):
            file = self.commits.get(number)
            if file is None:
                if base is None and self.earliest not in (None, 0):
                    self._too_old(table, target_version)
                raise MissingLogFile(
                    f"The log of table '{table}' has no {commit_name(number)}, without which version "
                    f"{target_version} cannot be read; restore that file from a backup.",
                    table=table,
                    version=number,
                    file=commit_name(number),
                )
            commits.append((number, file))
        chosen = tuple(self._compactions(start, target_version, without))
        return LogSegment(target_version, checkpoint, tuple(commits), chosen, self.times)

    def _checkpoint(self, target_version: int, without: Collection[str]) -> LogCheckpoint | None:
        for version in sorted(self._candidates, reverse=True):
            for candidate in self._candidates[version] if version <= target_version else ():
                if candidate.name not in without:
                    return candidate
        return None

    def _compactions(
        self, start: int, target_version: int, without: Collection[str]
    ) -> Iterator[LogCompaction]:
        """Yield the longest compaction at ``start``, then the longest after it, and so on."""
        usable: dict[int, LogCompaction] = {}
        for one in self.compactions:
            if start <= one.first < one.last <= target_version and one.file.name not in without:
                known = usable.get(one.first)
                usable[one.first] = one if known is None or known.last < one.last else known
        for first in sorted(usable):
            if first >= start:
                yield usable[first]
                start = usable[first].last + 1

    def _too_old(self, table: str, target_version: int) -> None:
        raise VersionNotFound(
            f"Version {target_version} of table '{table}' can no longer be read, because the log was cleaned up; "
            f"the oldest version that can be read is {self.earliest}.",
            table=table,
            version=target_version,
            earliest=self.earliest,
        )

    def after(self, version: int) -> Iterator[tuple[int, ListedFile]]:
        """Yield the commits after ``version``, ascending, up to the first gap."""
        while (file := self.commits.get(version := version + 1)) is not None:
            yield version, file

    def retained(self) -> Sequence[int]:
        """Return the versions that can be read and have a commit, ascending."""
        versions = []
        readable: int | None = None
        for version in sorted(self.commits.keys() | self._candidates.keys()):
            starts = version == 0 and version in self.commits
            follows = readable is not None and readable == version - 1 and version in self.commits
            if starts or follows or version in self._candidates:
                readable = version
                versions += [version] if version in self.commits else []
        return versions


def _complete(parts: Mapping[tuple[int, int], Mapping[int, ListedFile]]) -> Iterator[LogCheckpoint]:
    """Yield the multi-part checkpoints with all parts; incomplete ones are leftovers of failed writers."""
    for (version, count), found in parts.items():
        if count and len(found) == count and set(found) == set(range(1, count + 1)):
            yield LogCheckpoint(version, tuple(found[number] for number in range(1, count + 1)))


def commit_path(version: int) -> str:
    """Return the path of a version's entry in the log."""
    return f"_delta_log/{commit_name(version)}"
