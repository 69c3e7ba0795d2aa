"""Deletes what a table's log no longer needs. Never outside ``_delta_log``, and nothing when in doubt."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import CorruptLog, DelvecError
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.features.managed_tables import is_catalog_managed
from delvec_kernel.locations import canonical_relative
from delvec_kernel.log.commit_file import parse_commit
from delvec_kernel.log.expired_log_files import Kept, expired_files, expired_sidecars
from delvec_kernel.log.log_policy import LogPolicy, check_understood
from delvec_kernel.log.log_segment import LogCheckpoint, LogListing
from delvec_kernel.log.tombstones import sidecars_in_parquet, tombstones_in_manifest
from delvec_parquet.parquet_file import open_parquet
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.commit_coordinator import CLEAN_LOG, STAGED
from delvec_service.store.objects import ObjectMeta, ObjectStore
from delvec_service.store.open_table import OpenTable

__all__ = ["CleanUpResult", "clean_up"]

_LOG: Final = "_delta_log"
_SIDECARS: Final = f"{_LOG}/_sidecars"
_STAGED_MS: Final = 7 * 24 * 3_600_000
"""Staged commits are kept for this long, so that a repeated request finds its own."""


@dataclass(frozen=True)
class CleanUpResult:
    """What was deleted, or would be deleted.

    Attributes:
        deleted: paths of files, relative to the table.
        oldest_version: the oldest version readable afterwards; None if there was nothing to delete.
        kept_because: why nothing was deleted; None if something was.
    """

    deleted: Sequence[str] = ()
    oldest_version: int | None = None
    kept_because: str | None = None


def clean_up(
    table: OpenTable, loader: SnapshotLoader, *, now: int | None = None, dry_run: bool = False
) -> CleanUpResult:
    """Delete the files of a log that the table does not need to keep.

    Args:
        table: the table.
        loader: reads snapshots.
        now: milliseconds since the epoch, by default by the local clock; pass the storage's time if known.
        dry_run: only report what would be deleted.

    Raises:
        UnsupportedTable: or a subclass: the table has features that Delvec does not know.
        CorruptTable: or a subclass: the log cannot be read, or a property is invalid.
        StorageError: storage did not answer; what was deleted before was not needed.
    """
    snapshot = loader.load(table.objects, table.name)
    check_understood(snapshot.protocol, snapshot.metadata, table.name)
    policy = LogPolicy.of(snapshot.configuration, snapshot.protocol)
    clock = time.time_ns() // 1_000_000
    now = clock if now is None else min(now, clock)
    if not table.objects.allows(CLEAN_LOG):
        return CleanUpResult(kept_because=f"the table's catalog does not leave {CLEAN_LOG} to its clients")
    files = table.objects.list_from(_LOG)
    expiry = expired_files(files, policy, now)
    reader = LogReader(table.objects, table.name)
    listing = LogListing(files)
    paths: list[str] = []
    reason = expiry.reason if isinstance(expiry, Kept) else None
    oldest = None
    if not isinstance(expiry, Kept):
        reason = _incomplete(reader, listing.checkpoints[expiry.oldest])
        if reason is None:
            oldest = expiry.oldest
            paths = [f"{_LOG}/{name}" for name in expiry.names]
    if policy.clean_up:
        remaining = [file for file in files if f"{_LOG}/{file.name}" not in set(paths)]
        paths += _unused_sidecars(reader, remaining, now)
        if is_catalog_managed(snapshot.protocol):
            paths += _old_staged_commits(table.objects, now)
    if not dry_run:
        for path in paths:
            table.objects.delete(path)
    return CleanUpResult(
        paths, oldest if paths else None, None if paths else reason or "nothing is old enough"
    )


def _old_staged_commits(objects: ObjectStore, now: int) -> list[str]:
    """Return staged commits that nobody can be waiting for: published, or lost to another commit, or abandoned."""
    unpublished = objects.unpublished()
    return [
        f"{STAGED}/{canonical_relative(found.name)}"
        for found in objects.list_from(STAGED)
        if found.last_modified_ms < now - _STAGED_MS and found.name not in unpublished
    ]


def _incomplete(reader: LogReader, checkpoint: LogCheckpoint) -> str | None:
    """Return what is wrong with the checkpoint that the remaining log would depend on, or None."""
    try:
        kinds: set[str] = set()
        for file in checkpoint.files:
            where = reader.where(checkpoint.version, file.name)
            path = f"{_LOG}/{file.name}"
            kinds |= _kinds(reader.objects, path, where)
            for name in _named(reader.objects, path, where):
                found = reader.objects.head(name if "/" in name else f"{_SIDECARS}/{name}")
                if found is None or not found.size:
                    return f"the checkpoint of version {checkpoint.version} lacks its sidecar {name}"
    except (DelvecError, FileNotFoundError) as error:
        return f"the checkpoint of version {checkpoint.version} cannot be read ({error})"
    if kinds != {Protocol.key, Metadata.key}:
        return f"the checkpoint of version {checkpoint.version} lacks protocol or metadata"
    return None


def _kinds(objects: ObjectStore, path: str, where: LogFile) -> set[str]:
    """Return which of protocol and metadata a checkpoint file contains."""
    if path.endswith(".json"):
        actions = parse_commit(objects.get(path), where)
        return {action.key for action in actions if isinstance(action, Protocol | Metadata)}
    firsts = {Protocol.key: "minReaderVersion", Metadata.key: "id"}
    try:
        with objects.open(path) as source:
            file = open_parquet(source, path)
            present = [key for key in firsts if file.schema_arrow.get_field_index(key) >= 0]
            columns = file.read(columns=[f"{key}.{firsts[key]}" for key in present]) if present else None
            return {
                key
                for key in present
                if columns is not None
                and pc.any(pc.is_valid(pc.struct_field(columns[key], firsts[key]))).as_py()
            }
    except (pa.ArrowException, ValueError, TypeError, KeyError, OSError) as error:
        raise where.corrupt("is not a readable Parquet checkpoint") from error


def _named(objects: ObjectStore, path: str, where: LogFile) -> list[str]:
    """Return the sidecars that a checkpoint file names."""
    if path.endswith(".json"):
        return tombstones_in_manifest(objects.get(path), where)[1]
    with objects.open(path) as source:
        return sidecars_in_parquet(source, where)


def _unused_sidecars(reader: LogReader, files: Sequence[ObjectMeta], now: int) -> list[str]:
    """Return sidecars that no remaining checkpoint names, or none if one of those checkpoints cannot be read."""
    present = reader.objects.list_from(_SIDECARS)
    if not present:
        return []
    referenced_sidecars: set[str] = set()
    for file in files:
        if ".checkpoint." not in file.name:
            continue
        where = LogFile(reader.table, None, file.name)
        try:
            for path in _named(reader.objects, f"{_LOG}/{file.name}", where):
                # In any spelling: by name, relative to the table, or absolute.
                last = path.rpartition("/")[2]
                referenced_sidecars |= {last, unquote(last)}
        except (CorruptLog, FileNotFoundError):
            return []
    return [
        f"{_SIDECARS}/{canonical_relative(name)}"
        for name in expired_sidecars(present, frozenset(referenced_sidecars), now)
    ]
