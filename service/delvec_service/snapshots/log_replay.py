"""Replays a log: from a listing to the snapshot of one of its versions.

The commits are the source of truth. Checkpoints and compactions are shortcuts to the same state: a damaged one is
skipped in favour of an older one, or of the commits themselves.

Tested in `tests/integration/service/snapshots/test_loader.py` and
`tests/integration/service/snapshots/test_log_fallback.py`.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from delvec_errors import (
    CorruptLog,
    CorruptTable,
    DelvecError,
    InvalidLocation,
    LocationNotAllowed,
    MissingLogFile,
    UnsupportedReaderFeature,
    VersionNotFound,
)
from delvec_kernel.features.table_features import check_readable
from delvec_kernel.log.log_segment import ListedFile, LogCheckpoint, LogListing, LogSegment, commit_name
from delvec_kernel.log.version_checksum import Contradiction, contradiction
from delvec_kernel.snapshot.replay import Commit, ReplayState, replay
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.snapshots.log_reader import LogReader

__all__ = ["Replayed", "file_of", "followed", "replayed"]

_LOGGER = logging.getLogger(__name__)
_MAX_CHECKSUMS = 3
"""How many earlier checksums are compared to find out whether this log's checksums can be trusted."""


@dataclass(frozen=True)
class Replayed:
    """A snapshot read from the log.

    Attributes:
        file: identifies the version: a different size or time means another log.
    """

    snapshot: Snapshot
    file: ListedFile


def replayed(reader: LogReader, listing: LogListing, version: int | None = None) -> Replayed:
    """Return the snapshot of a version, by default the newest listed, read from checkpoint and commits.

    The log is listed again before anything in it counts as missing.

    Raises:
        VersionNotFound: it is newer than the newest version, or older than the oldest readable one.
        MissingLogFile: the log has a gap, or a file of it was deleted.
        CorruptLog: a file of it cannot be read and nothing can replace it, protocol or metadata are missing, or the
            version contradicts its checksum.
        UnsupportedReaderFeature: Delvec might read the table incorrectly.
    """
    way = _LogReplay(reader, listing, version)
    try:
        return way.checked()
    except CorruptLog as error:
        if "field" not in error.details:
            reader.refuse_unknown(_newest_first(way.listing, version))
        raise


def followed(
    reader: LogReader, snapshot: Snapshot, commits: Sequence[Commit], listing: LogListing
) -> Snapshot:
    """Return the snapshot that the next commits lead to; the cost grows with the commits.

    Args:
        reader: the table's log.
        snapshot: the version before ``commits``.
        commits: at least one, ascending, without a gap.
        listing: contains them.

    Raises:
        CorruptLog: their content is invalid.
        UnsupportedReaderFeature: Delvec might read the table incorrectly.
    """
    versions = range(snapshot.version + 1, snapshot.version + 1 + len(commits))
    try:
        after = snapshot.after(
            list(commits),
            file_time=listing.commits[versions[-1]].last_modified_ms,
            checkpoint_version=max((one for one in listing.checkpoints if one <= versions[-1]), default=None),
        )
    except CorruptLog:
        reader.refuse_unknown(map(commit_name, reversed(versions)))
        raise
    _check(after, reader)
    return after


def _check(snapshot: Snapshot, reader: LogReader) -> None:
    check_readable(snapshot.protocol, snapshot.metadata, reader.table)
    reader.check_catalog(snapshot)


def file_of(listing: LogListing, version: int) -> ListedFile | None:
    """Return the file that identifies a version: its commit, or its checkpoint if the commit is gone."""
    if version in listing.commits:
        return listing.commits[version]
    checkpoint = listing.checkpoints.get(version)
    return None if checkpoint is None else checkpoint.files[0]


def _newest_first(listing: LogListing, version: int | None) -> Iterator[str]:
    """Yield the files that may contain the protocol of a version."""
    checkpoints = listing.checkpoints
    for number in sorted(listing.commits.keys() | checkpoints.keys(), reverse=True):
        if version is None or number <= version:
            yield from [commit_name(number)] if number in listing.commits else []
            yield from [file.name for file in checkpoints[number].files] if number in checkpoints else []


class _LogReplay:
    """The search for files that lead to a version.

    Attributes:
        listing: the listing of the log; of the whole log once something was wrong.
    """

    def __init__(self, reader: LogReader, listing: LogListing, version: int | None) -> None:
        self.listing = listing
        self._reader = reader
        self._version = version
        self._listed_again = False
        self._without: set[str] = set()
        self._damage: DelvecError | None = None
        self._bases: dict[str | None, ReplayState] = {None: reader.nothing()}

    def checked(self) -> Replayed:
        """Return the version, after comparing it with its checksum."""
        segment, replay_result = self._found()
        problem = self._contradiction(replay_result.snapshot)
        while problem is not None and self._reader.checksums == "check" and (used_files := _derived(segment)):
            # The checkpoint may be wrong: the files before it would then lead to another result.
            self._without.update(used_files)
            self._list_again()
            try:
                segment, replay_result = self._found()
            except (CorruptTable, VersionNotFound):
                break
            problem = self._contradiction(replay_result.snapshot)
            if problem is None:
                self._log("The log of table '%s' contradicts itself; skipping %s.", ", ".join(used_files))
        if problem is not None:
            self._refuse_or_log(problem, segment)
        return replay_result

    def _found(self) -> tuple[LogSegment, Replayed]:
        while True:
            try:
                segment = self.listing.segment(self._reader.table, self._version, without=self._without)
            except (MissingLogFile, VersionNotFound) as error:
                if self._listed_again:
                    raise self._damage or error from error
                if isinstance(error, VersionNotFound) and not self._without:
                    raise
                self._list_again()
                continue
            try:
                return segment, self._replayed(segment)
            except _DamagedError as damaged:
                self._skip_file(damaged)
            except MissingLogFile as error:
                if self._listed_again:
                    raise self._damage or error from error
                # The log may have been cleaned up between listing and reading.
                self._list_again()
            except CorruptLog as error:
                raise self._damage or error from error

    def _skip_file(self, damaged: "_DamagedError") -> None:
        if damaged.is_checkpoint:
            self._damage = self._damage or damaged.error
        self._without.add(damaged.name)
        self._log("Skipping a file of the log of table '%s': %s", damaged.error.message)
        self._list_again()

    def _list_again(self) -> None:
        if not self._listed_again:
            self.listing = self._reader.list_all()
            self._listed_again = True

    def _replayed(self, segment: LogSegment) -> Replayed:
        base = self._base(segment.checkpoint)
        commits = self._commits(segment)
        try:
            state = replay(base, commits)
        except CorruptLog as error:
            for one in segment.compactions:
                if one.file.name == error.details.get("file"):
                    raise _DamagedError(one.file.name, error, is_checkpoint=False) from error
            raise
        file = file_of(self.listing, segment.version)
        assert file is not None  # noqa: S101 - what the segment ends with
        snapshot = self._snapshot(state, segment, file)
        unstamped = not commits or commits[-1].compacted
        if unstamped and snapshot.in_commit_timestamps_enabled and segment.version in self.listing.commits:
            # Checkpoints and compactions do not contain the time when their version was committed.
            info = self._reader.commit_info(segment.version)
            snapshot = self._snapshot(state.stamped(info), segment, file)
        _check(snapshot, self._reader)
        return Replayed(snapshot, file)

    def _snapshot(self, state: ReplayState, segment: LogSegment, file: ListedFile) -> Snapshot:
        return Snapshot.of(
            state,
            self._reader.where(segment.version, file.name),
            version=segment.version,
            file_time=segment.file_time,
            checkpoint_version=None if segment.checkpoint is None else segment.checkpoint.version,
        )

    def _base(self, checkpoint: LogCheckpoint | None) -> ReplayState:
        name = None if checkpoint is None else checkpoint.name
        if checkpoint is not None and checkpoint.name not in self._bases:
            where = self._reader.where(checkpoint.version, checkpoint.name)
            try:
                state = self._reader.checkpoint(checkpoint)
                if state.protocol is None or state.metadata is None:
                    missing = "protocol" if state.protocol is None else "metadata"
                    raise where.corrupt(f"is a checkpoint without {missing}")
            except (CorruptTable, LocationNotAllowed, InvalidLocation) as error:
                raise _DamagedError(checkpoint.name, error, is_checkpoint=True) from error
            self._bases = {None: self._bases[None], checkpoint.name: state}
        return self._bases[name]

    def _commits(self, segment: LogSegment) -> list[Commit]:
        versioned_commits = []
        for one in segment.compactions:
            try:
                versioned_commits.append((one.last, self._reader.compaction(one)))
            except (CorruptLog, MissingLogFile) as error:
                raise _DamagedError(one.file.name, error, is_checkpoint=False) from error
        versions = segment.uncompacted
        versioned_commits += zip(versions, self._reader.commits(versions), strict=True)
        return [commit for _, commit in sorted(versioned_commits, key=lambda item: item[0])]

    def _contradiction(self, snapshot: Snapshot) -> Contradiction | None:
        file = self.listing.checksums.get(snapshot.version)
        if file is None or self._reader.checksums == "ignore":
            return None
        checksum = self._reader.checksum(file)
        if checksum is None:
            # Older writers leave out half of the fields, so this is not worth a warning.
            _LOGGER.info(
                "A version checksum of table '%s' is incomplete; ignoring %s.",
                self._reader.table,
                file.name,
            )
            return None
        problem = contradiction(checksum, snapshot)
        if problem is not None and self._is_of_another_commit(checksum.txn_id, snapshot.version):
            self._log(
                "A commit of table '%s' was replaced after its version checksum was written; ignoring %s.",
                file.name,
            )
            return None
        return problem

    def _is_of_another_commit(self, txn_id: str | None, version: int) -> bool:
        """Return whether a checksum was written for a commit that another writer has replaced since.

        Some writers check whether a version is free and then rename; nobody writes a checksum twice.
        """
        if txn_id is None or version not in self.listing.commits:
            return False
        try:
            info = self._reader.commit_info(version)
        except CorruptTable:
            return False
        return info is not None and info.txn_id not in (None, txn_id)

    def _refuse_or_log(self, problem: Contradiction, segment: LogSegment) -> None:
        name = self.listing.checksums[segment.version].name
        table = self._reader.table
        fact = f"{name} has {problem.field} {problem.said}, but the log has {problem.found}"
        if self._reader.checksums == "check" and (segment.checkpoint is not None or self._trusted(segment)):
            raise CorruptLog(
                f"The log of table '{table}' contradicts its checksum at version {segment.version}: {fact}. "
                "Restore the log from a backup, read another version, or set DELVEC_VERSION_CHECKSUMS=warn to "
                "read what the log says.",
                table=table,
                version=segment.version,
                file=name,
                field=problem.field,
                expected=problem.said,
                found=problem.found,
            )
        self._log("The log of table '%s' contradicts a version checksum: %s; using the log.", fact)

    def _trusted(self, segment: LogSegment) -> bool:
        """Return whether an earlier checksum of this log agrees with its version.

        If all commits exist and none agrees, the checksums belong to another log and prove nothing.
        """
        earlier = sorted(
            (version for version in self.listing.checksums if version < segment.version), reverse=True
        )
        for version in earlier[:_MAX_CHECKSUMS]:
            checksum = self._reader.checksum(self.listing.checksums[version])
            try:
                commits = self._reader.commits(range(version + 1))
                state = replay(self._reader.nothing(), commits)
                where = self._reader.where(version, commit_name(version))
                snapshot = Snapshot.of(state, where, version=version, file_time=0, checkpoint_version=None)
            except (CorruptTable, UnsupportedReaderFeature):
                continue
            if checksum is not None and contradiction(checksum, snapshot) is None:
                return True
        return False

    def _log(self, message: str, *facts: str) -> None:
        _LOGGER.warning(message, self._reader.table, *facts)


class _DamagedError(Exception):
    """A checkpoint or a compaction cannot be read."""

    def __init__(self, name: str, error: DelvecError, *, is_checkpoint: bool) -> None:
        super().__init__(name)
        self.name = name
        self.error = error
        self.is_checkpoint = is_checkpoint


def _derived(segment: LogSegment) -> list[str]:
    """Return the names of the files that a segment uses in place of commits."""
    names = [one.file.name for one in segment.compactions]
    return names if segment.checkpoint is None else [segment.checkpoint.name, *names]
