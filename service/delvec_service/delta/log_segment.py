"""Which files of a log make up a version (PROTOCOL.md, "Delta Log Entries" and "Checkpoints").

Everything else that lies in ``_delta_log`` is passed over: checksums, log compactions, hints, temporary files.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from delvec.protocol.errors import MissingLogFile, VersionNotFound

__all__ = ["ListedFile", "LogCheckpoint", "LogListing", "LogSegment", "commit_name"]

_MAX_VERSION: Final = 2**63 - 1
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CLASSIC: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART: Final = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_UUID: Final = re.compile(
    r"(\d{20})\.checkpoint\.[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\.(?:json|parquet)"
)


def commit_name(version: int) -> str:
    """Return the name of a version's commit in ``_delta_log``."""
    return f"{version:020d}.json"


class ListedFile(Protocol):
    """A file of a listing."""

    @property
    def name(self) -> str:
        """Its name in ``_delta_log``."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def last_modified_ms(self) -> int:
        """Milliseconds since the epoch, by the storage's clock."""


@dataclass(frozen=True)
class LogCheckpoint:
    """A complete checkpoint; all files of a multi-part one."""

    version: int
    files: tuple[ListedFile, ...]


@dataclass(frozen=True)
class LogSegment:
    """What has to be read for one version: a checkpoint, and every commit after it.

    Attributes:
        version: that results.
        checkpoint: to start from; None means from nothing, and then the commits start at 0.
        commits: ascending, without a gap.
        times: of the commits that the listing held, milliseconds since the epoch, ascending strictly.
    """

    version: int
    checkpoint: LogCheckpoint | None
    commits: tuple[tuple[int, ListedFile], ...]
    times: Mapping[int, int]

    @property
    def file_time(self) -> int:
        """When the version was written, milliseconds since the epoch."""
        if self.version in self.times:
            return self.times[self.version]
        assert self.checkpoint is not None  # noqa: S101 - without a commit there is one
        return self.checkpoint.files[0].last_modified_ms


class LogListing:
    """The commits and checkpoints among the files of a log.

    Args:
        files: of ``_delta_log``, all or those from a version on.
    """

    def __init__(self, files: Iterable[ListedFile]) -> None:
        self.commits: dict[int, ListedFile] = {}
        self.checkpoints: dict[int, LogCheckpoint] = {}
        parts: dict[tuple[int, int], dict[int, ListedFile]] = {}
        single: dict[int, ListedFile] = {}
        for file in files:
            if commit := _COMMIT.fullmatch(file.name):
                self.commits[int(commit.group(1))] = file
            elif classic := _CLASSIC.fullmatch(file.name) or _UUID.fullmatch(file.name):
                single.setdefault(int(classic.group(1)), file)
            elif part := _PART.fullmatch(file.name):
                version, number, count = (int(group) for group in part.groups())
                parts.setdefault((version, count), {})[number] = file
        for (version, count), found in parts.items():
            # An incomplete one is what a writer that failed left behind.
            if count and len(found) == count and set(found) == set(range(1, count + 1)):
                files_in_order = tuple(found[number] for number in range(1, count + 1))
                self.checkpoints[version] = LogCheckpoint(version, files_in_order)
        for version, file in single.items():
            self.checkpoints[version] = LogCheckpoint(version, (file,))
        for versions in (self.commits, self.checkpoints):
            for version in [version for version in versions if version > _MAX_VERSION]:
                del versions[version]

    def __bool__(self) -> bool:
        return bool(self.commits or self.checkpoints)

    @property
    def latest(self) -> int:
        """The newest version; the listing must not be empty."""
        return max(self.commits.keys() | self.checkpoints.keys())

    @property
    def earliest(self) -> int | None:
        """The oldest version that can be read, None if none can."""
        return 0 if 0 in self.commits else min(self.checkpoints, default=None)

    @property
    def times(self) -> dict[int, int]:
        """When each commit was written, milliseconds since the epoch; made to ascend strictly, as in delta-spark."""
        times: dict[int, int] = {}
        before: int | None = None
        for version in sorted(self.commits):
            time = self.commits[version].last_modified_ms
            before = time if before is None else max(time, before + 1)
            times[version] = before
        return times

    def segment(self, table: str, version: int | None = None) -> LogSegment:
        """Return what makes up a version, by default the newest.

        Args:
            table: for errors.
            version: the one asked for.

        Raises:
            VersionNotFound: it is newer than the newest or older than the oldest that can be read.
            MissingLogFile: a commit that it needs is missing.
        """
        wanted = self.latest if version is None else version
        if wanted > self.latest:
            raise VersionNotFound(
                f"Table '{table}' has no version {wanted}: its newest is {self.latest}.",
                table=table,
                version=wanted,
                latest=self.latest,
            )
        base = max((found for found in self.checkpoints if found <= wanted), default=None)
        start = 0 if base is None else base + 1
        if base is None and wanted not in self.commits and self.earliest not in (None, 0):
            self._too_old(table, wanted)
        commits = []
        for number in range(start, wanted + 1):
            file = self.commits.get(number)
            if file is None:
                if base is None and self.earliest not in (None, 0):
                    self._too_old(table, wanted)
                raise MissingLogFile(
                    f"The log of table '{table}' lacks {commit_name(number)}, which version {wanted} needs; "
                    "restore that file from a backup.",
                    table=table,
                    version=number,
                    file=commit_name(number),
                )
            commits.append((number, file))
        checkpoint = None if base is None else self.checkpoints[base]
        return LogSegment(wanted, checkpoint, tuple(commits), self.times)

    def _too_old(self, table: str, wanted: int) -> None:
        raise VersionNotFound(
            f"Version {wanted} of table '{table}' cannot be read any more: the log was cleaned up before "
            f"version {self.earliest}, the oldest that can.",
            table=table,
            version=wanted,
            earliest=self.earliest,
        )

    def after(self, version: int) -> Iterator[tuple[int, ListedFile]]:
        """Yield the commits after ``version``, ascending, up to the first gap."""
        while (file := self.commits.get(version := version + 1)) is not None:
            yield version, file

    def retained(self) -> Sequence[int]:
        """Return the versions that can be read and have a commit, ascending."""
        first = self.earliest
        return [] if first is None else sorted(version for version in self.commits if version >= first)
