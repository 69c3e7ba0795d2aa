"""Replaying a log: from a listing to the snapshot of one of its versions."""

from collections.abc import Sequence
from dataclasses import dataclass

from delvec_service.delta.features import check_readable
from delvec_service.delta.log_segment import ListedFile, LogListing
from delvec_service.delta.replay import replay
from delvec_service.delta.snapshot import Snapshot
from delvec_service.operations.log_reader import LogReader

__all__ = ["Replayed", "file_of", "replayed"]


@dataclass(frozen=True)
class Replayed:
    """A snapshot read from the log.

    Attributes:
        file: by which the version is recognised: another size or time of it means another log.
    """

    snapshot: Snapshot
    file: ListedFile


def replayed(reader: LogReader, listing: LogListing, version: int | None = None) -> Replayed:
    """Return the snapshot of a version, by default the newest listed, read from checkpoint and commits.

    Raises:
        VersionNotFound: it is newer than the newest, or older than the oldest that can be read.
        MissingLogFile: the log has a gap, or a file of it went away.
        CorruptLog: a file of it cannot be read, or protocol or metadata are missing.
        UnsupportedReaderFeature: Delvec could read the table wrong.
    """
    segment = listing.segment(reader.table, version)
    state = reader.nothing() if segment.checkpoint is None else reader.checkpoint(segment.checkpoint)
    state = replay(state, reader.commits([number for number, _ in segment.commits]))
    file = file_of(listing, segment.version)
    assert file is not None  # noqa: S101 - what the segment ends with
    if not segment.commits and segment.version in listing.commits:
        # A checkpoint does not say when its version was committed.
        state = state.stamped(reader.commit_info(segment.version))
    snapshot = Snapshot.of(
        state,
        reader.where(segment.version, file.name),
        version=segment.version,
        file_time=segment.file_time,
        checkpoint_version=None if segment.checkpoint is None else segment.checkpoint.version,
    )
    check_readable(snapshot.protocol, snapshot.metadata, reader.table)
    return Replayed(snapshot, file)


def file_of(listing: LogListing, version: int) -> ListedFile | None:
    """Return the file by which a version is recognised: its commit, or its checkpoint where that is gone."""
    if version in listing.commits:
        return listing.commits[version]
    files: Sequence[ListedFile] = listing.checkpoints[version].files if version in listing.checkpoints else ()
    return files[0] if files else None
