"""Tombstones of a version, read from the checkpoint before it and the commits since.

Tested in `tests/integration/service/maintenance/test_log_maintenance.py` and
`tests/integration/service/vacuum/test_vacuum.py`.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import pyarrow as pa

from delvec_errors import CorruptTable, MissingLogFile
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
    include_readded: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the unexpired tombstones of a version, TOMBSTONES.

    Args:
        reader: the reader of the log.
        version: the version.
        base: a checkpoint of that version or of an earlier one, or None.
        since: milliseconds since the epoch; tombstones of earlier removals have expired.
        include_readded: whether to include files that were added again since. For callers that keep live files anyway, this
            saves reading what commits add.

    Raises:
        MissingLogFile: a commit, or a file of the checkpoint, does not exist.
        CorruptLog: one cannot be read.
    """
    versions = range(0 if base is None else base.version + 1, version + 1)
    changes = Changes.of(reader.each(versions, removes_only=include_readded), reader.objects.location)
    yield changes.tombstones(since)
    if base is None:
        return
    try:
        for older in _in_checkpoint(reader, base):
            yield changes.remaining(older, since)
    except FileNotFoundError as error:
        raise MissingLogFile(
            f"A file of the checkpoint before version {version} of table '{reader.table}' does not exist: {error}. "
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
    include_readded: bool = False,
) -> _T:
    """Return the result of ``work`` on the unexpired tombstones of a version; it must be safe to run twice.

    Args:
        reader: the reader of the log.
        version: the version.
        since: as for :func:`read_tombstones`.
        work: a function of TOMBSTONES.
        before: begin with a checkpoint of this version or of an earlier one. A newer one may lack tombstones if the
            table kept them for less time than requested.
        include_readded: as for :func:`read_tombstones`.

    Raises:
        CorruptTable: or a subclass: the log does not have the information.
    """
    if before is None:
        checkpoints, end = reader.list_recent().checkpoints, version + 1
    else:
        listing = reader.list_all()
        checkpoints, end = listing.checkpoints, before + 1
        if listing.earliest is not None and listing.earliest >= end:
            # Earlier versions can no longer be read, so nobody needs their files.
            end = listing.earliest + 1
    while True:
        base = max((one for one in checkpoints if one < end), default=None)
        try:
            checkpoint = None if base is None else checkpoints[base]
            return work(read_tombstones(reader, version, checkpoint, since, include_readded=include_readded))
        except CorruptTable:
            if base is None:
                raise
            # The snapshot was read by skipping a damaged checkpoint, so tombstones can be, too.
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
