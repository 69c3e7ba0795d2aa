"""Tombstones of a version, read where they are: in the checkpoint before it, and in the commits since."""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import pyarrow as pa

from delvec_kernel.errors import CorruptTable, MissingLogFile
from delvec_kernel.log.log_segment import LogCheckpoint
from delvec_kernel.log.tombstones import (
    Changes,
    sidecars_in_parquet,
    tombstones_in_manifest,
    tombstones_in_parquet,
)
from delvec_service.snapshots.log_reader import LogReader

__all__ = ["read_tombstones", "with_tombstones"]

_T = TypeVar("_T")

_LOG: Final = "_delta_log"
_SIDECARS: Final = f"{_LOG}/_sidecars"


def read_tombstones(
    reader: LogReader,
    version: int,
    base: LogCheckpoint | None,
    since: int,
    *,
    readded: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the tombstones that still count in a version, TOMBSTONES.

    Args:
        reader: of the log.
        version: that they are of.
        base: a checkpoint of that version or of one before it, None where there is none.
        since: milliseconds since the epoch; what was removed before counts no more.
        readded: whether files may be among them that were added again since. Who keeps live files anyway is spared
            reading what commits add.

    Raises:
        MissingLogFile: a commit, or a file of the checkpoint, is not there.
        CorruptLog: one cannot be read.
    """
    versions = range(0 if base is None else base.version + 1, version + 1)
    changes = Changes.of(reader.each(versions, removes_only=readded), reader.objects.location)
    yield changes.tombstones(since)
    if base is None:
        return
    try:
        for older in _in_checkpoint(reader, base):
            yield changes.remaining(older, since)
    except FileNotFoundError as error:
        raise MissingLogFile(
            f"A file of the checkpoint before version {version} of table '{reader.table}' is not there: {error}. "
            "Restore it from a backup.",
            table=reader.table,
            version=version,
        ) from error


def with_tombstones(
    reader: LogReader,
    version: int,
    since: int,
    work: Callable[[Iterator[pa.RecordBatch]], _T],
    *,
    before: int | None = None,
    readded: bool = False,
) -> _T:
    """Return what ``work`` makes of the tombstones that still count in a version; it must not mind being done twice.

    Args:
        reader: of the log.
        version: that they are of.
        since: as for :func:`read_tombstones`.
        work: gets TOMBSTONES.
        before: begin with a checkpoint of this version or of one before it. A newer one has forgotten what the table
            kept for a shorter time than is asked for.
        readded: as for :func:`read_tombstones`.

    Raises:
        CorruptTable: or a subclass: the log does not tell.
    """
    if before is None:
        checkpoints, end = reader.list_recent().checkpoints, version + 1
    else:
        listing = reader.list_all()
        checkpoints, end = listing.checkpoints, before + 1
        if listing.earliest is not None and listing.earliest >= end:
            # Versions before cannot be read any more, so nobody needs their files.
            end = listing.earliest + 1
    while True:
        base = max((one for one in checkpoints if one < end), default=None)
        try:
            checkpoint = None if base is None else checkpoints[base]
            return work(read_tombstones(reader, version, checkpoint, since, readded=readded))
        except CorruptTable:
            if base is None:
                raise
            # The snapshot was read past a damaged checkpoint, so this can be, too.
            checkpoints, end = reader.list_all().checkpoints, base


def _in_checkpoint(reader: LogReader, base: LogCheckpoint) -> Iterator[pa.RecordBatch]:
    sidecars: list[str] = []
    objects = reader.objects
    for file in base.files:
        where = reader.where(base.version, file.name)
        path = f"{_LOG}/{file.name}"
        if file.name.endswith(".json"):
            found, named = tombstones_in_manifest(objects.get(path), where)
            sidecars += named
            yield found
            continue
        with objects.open(path) as source:
            sidecars += sidecars_in_parquet(source, where)
        with objects.open(path) as source:
            yield from tombstones_in_parquet(source, where)
    for sidecar in sidecars:
        path = sidecar if "/" in sidecar else f"{_SIDECARS}/{sidecar}"
        with objects.open(path) as source:
            yield from tombstones_in_parquet(source, reader.where(base.version, sidecar))
