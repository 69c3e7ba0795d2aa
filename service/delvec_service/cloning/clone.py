"""CLONE: a new or existing table becomes a copy of another table's version.

The order: a shallow clone is recorded, for VACUUM of its source; the files of a deep one are copied; then its log is
written.

Tested in `tests/integration/client/test_clone.py`.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from delvec_contract.tables import CloneRequest
from delvec_errors import (
    BadRequest,
    CommitOutcomeUnknown,
    DelvecError,
    InvalidTableChange,
    LocationNotAllowed,
    MissingCloneFiles,
    TableAlreadyExists,
    UnsupportedTable,
)
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.features.table_features import check_writable
from delvec_kernel.file_index.file_rows import add_from_row
from delvec_kernel.locations import canonical_log_path, resolve, within
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.transaction.cloning import Clone, clone_of, cloned_files, first_version_of
from delvec_kernel.transaction.conflict_checker import Conflict, WinningCommit
from delvec_kernel.transaction.transaction_changes import Changes, Reads
from delvec_service.cloning.copied_files import copied_files, remove_copies
from delvec_service.commits.commit import CommitResult, Commits, Committed
from delvec_service.commits.idempotency import request_hash
from delvec_service.scans.vacuumed_versions import Use, check_complete, vacuumed_version
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.clone_records import write_clone_record
from delvec_service.store.clones import CloneStore
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import TableRecord
from delvec_service.tables.new_table import ENGINE_INFO
from delvec_service.tables.places import UNRESTRICTED, Requester
from delvec_service.tables.registry import Tables
from delvec_storage.roots import Roots

__all__ = ["CloneResult", "Cloned", "NotCloned", "clone"]

_ATTEMPTS: Final = 20
_USE: Final = Use("Clone", "cloned", MissingCloneFiles, lambda finding: finding.file)


@dataclass(frozen=True)
class Cloned:
    """The clone was created.

    Attributes:
        version: version of the clone.
        replaced: whether it replaced an existing table.
        metrics: Delta's operationMetrics.
    """

    record: TableRecord
    version: int
    source_version: int
    replaced: bool
    metrics: dict[str, int]


@dataclass(frozen=True)
class NotCloned:
    """A table already exists there and was left as it is."""

    record: TableRecord


CloneResult: TypeAlias = Cloned | NotCloned | Conflict


def clone(
    table: OpenTable,
    tables: Tables,
    loader: SnapshotLoader,
    commits: Commits,
    clones: CloneStore,
    request: CloneRequest,
    transaction_id: str,
    requester: Requester = UNRESTRICTED,
) -> CloneResult:
    """Clone a table once, no matter how often the request is sent.

    Args:
        table: the source.
        tables: determines the location of the clone.
        loader: reads snapshots.
        commits: commits to an existing table.
        clones: records shallow clones.
        request: the version, and the target.
        transaction_id: the transaction id of the clone's commit.
        requester: who asks.

    Returns:
        A conflict only if others changed the table being replaced during every one of many attempts.

    Raises:
        VersionNotFound: the log does not have that version.
        TableAlreadyExists: a table exists there, and is not to be replaced.
        LocationNotAllowed: the clone, or a file of the source, is outside its roots; or a shallow clone needs files
            of the source outside the clone's roots.
        MissingCloneFiles: files of the version are missing from storage; up to 100 are listed.
        InvalidTableChange: a property cannot be set to its value, or Delvec could not write the clone.
        AppendOnlyTable: rows would be removed from the table being replaced.
        CommitOutcomeUnknown: storage failed during the commit, or the log no longer has the answer.
    """
    canonical = tables.place(request.location, request.name, transaction_id, requester)
    if canonical == table.location:
        raise BadRequest(
            f"Table '{table.name}' cannot be cloned to its own location, {canonical}; use RESTORE for an earlier "
            "version."
        )
    roots = tables.roots_at(canonical, request.name)
    made = tables.was_begun(canonical, request.name, transaction_id)
    if made is False:
        if not request.if_not_exists and not request.replace:
            raise TableAlreadyExists(
                f"A Delta table already exists at {canonical}; clone elsewhere, or use replace.",
                location=canonical,
            )
        record = tables.register(canonical, request.name, requester)[0]
        if request.if_not_exists:
            return NotCloned(record)
        return _replace(
            table, tables.open(record.id), tables, loader, commits, clones, request, transaction_id
        )
    source = loader.load(table.objects, table.name, version=request.version, timestamp=request.timestamp)
    if made is None:
        found = _checked(table, source, None, request)
        files = _files(table, source, canonical, roots, tables, clones, loader, request)
        actions = first_version_of(
            found,
            files,
            location=canonical,
            parameters=_parameters(source, request),
            metrics=_metrics(source, request, removed=()),
            transaction_id=transaction_id,
            engine_info=_engine_info(request),
            now=time.time_ns() // 1_000_000,
        )
    else:
        actions = []  # it exists: the request was sent before
    try:
        record, version = tables.begin(canonical, request.name, transaction_id, actions, requester)
    except CommitOutcomeUnknown:
        raise
    except DelvecError:
        if made is None and not request.shallow:
            remove_copies(files, canonical)  # without a table there, VACUUM would never delete them
        raise
    _check_again(table, source, loader, request)
    return Cloned(record, version, source.version, False, _metrics(source, request, removed=()))


def _replace(
    table: OpenTable,
    target: OpenTable,
    tables: Tables,
    loader: SnapshotLoader,
    commits: Commits,
    clones: CloneStore,
    request: CloneRequest,
    transaction_id: str,
) -> CloneResult:
    latest = loader.load(target.objects, target.name)
    hashed = request_hash("clone", table.record.id, request.model_dump(mode="json", by_alias=True))
    earlier = commits.log.earlier(target, transaction_id, hashed, request.read_version, latest.version)
    if earlier is not None:
        return _replaced(target, *earlier)
    since = latest.version
    source = loader.load(table.objects, table.name, version=request.version, timestamp=request.timestamp)
    check_writable(latest.protocol, latest.metadata, target.name)
    _checked(table, source, latest, request)
    roots = tables.roots.of(target.name)
    files = _files(table, source, target.location, roots, tables, clones, loader, request)
    target = tables.open(target.record.id)  # whose log may name the source's files now
    result: CommitResult | None = None
    for _ in range(_ATTEMPTS):
        latest = loader.load(target.objects, target.name)
        earlier = commits.log.earlier(target, transaction_id, hashed, since, latest.version)
        if earlier is not None:
            return _replaced(target, *earlier)
        clone_definition = _checked(table, source, latest, request)
        live = loader.reading(target.objects, target.name, _live, version=latest.version)
        adds, removed = _differences(files, live, target.location)
        metrics = _metrics(source, request, removed=removed)
        changes = Changes(
            operation="CLONE",
            read_version=latest.version,
            transaction_id=transaction_id,
            engine_info=_engine_info(request),
            restores=adds,
            removes=[add.path for add in removed],
            parameters=_parameters(source, request),
            metrics=metrics,
            reads=Reads(whole_table=True),
            # Always included, so that commits that change the metadata meanwhile are detected.
            metadata=clone_definition.metadata,
            protocol=None if clone_definition.protocol == latest.protocol else clone_definition.protocol,
            domains=clone_definition.domains,
            makes_version=True,
            request_hash=hashed,
        )
        result = commits.commit(target, changes)
        if isinstance(result, Committed):
            _check_again(table, source, loader, request)
            return Cloned(target.record, result.version, source.version, True, dict(result.metrics))
    assert isinstance(result, Conflict)  # noqa: S101 - a CLONE always makes a version
    return result


def _replaced(target: OpenTable, committed: Committed, commit: WinningCommit) -> Cloned:
    """Return the answer to an earlier copy of the request, from its commit."""
    parameters = (commit.info and commit.info.operation_parameters) or {}
    return Cloned(
        target.record,
        committed.version,
        int(parameters.get("sourceVersion", -1)),
        True,
        dict(committed.metrics),
    )


def _checked(table: OpenTable, source: Snapshot, latest: Snapshot | None, request: CloneRequest) -> Clone:
    clone_definition = clone_of(source, latest, request.properties)
    try:
        check_writable(clone_definition.protocol, clone_definition.metadata, table.name)
    except UnsupportedTable as error:
        raise InvalidTableChange(
            f"Delvec could not write a clone of table '{table.name}' (version {source.version}): {error.message}",
            **{"table": table.name, "version": source.version, **error.details},
        ) from error
    return clone_definition


def _files(
    table: OpenTable,
    source: Snapshot,
    canonical: str,
    roots: Roots,
    tables: Tables,
    clones: CloneStore,
    loader: SnapshotLoader,
    request: CloneRequest,
) -> list[AddFile]:
    """Return the files of the clone: recorded and checked, or copied."""
    version = source.version
    if request.shallow:
        _check_within(roots, canonical, table.location, table)
        everywhere = tables.roots.everywhere.allows  # the copied table may be in another namespace
        record = clones.record(canonical, table.location, version)
        for location in dict.fromkeys((table.location, *clones.above(canonical))):
            if location != canonical and everywhere(location):
                write_clone_record(ObjectStore(location, is_allowed=everywhere), record)
        newest = loader.load(table.objects, table.name)
        if version != newest.version:
            loader.reading(
                table.objects,
                table.name,
                lambda found: check_complete(table, loader, found, _USE),
                version=version,
            )
        files = loader.reading(
            table.objects, table.name, lambda found: list(cloned_files(found, canonical)), version=version
        )
        for url in {
            url for add in files for url in _places(add, canonical) if not within(url, table.location)
        }:
            _check_within(roots, canonical, url, table)
        return files
    adds = loader.reading(table.objects, table.name, _live, version=version)
    try:
        copied = copied_files(adds, table.location, canonical, version=version, is_allowed=table.roots.allows)
    except MissingCloneFiles as error:
        vacuumed = vacuumed_version(table, loader, version, _owner(adds, error.details["missing"][0]))
        if vacuumed is None:
            raise
        raise MissingCloneFiles(
            f"Version {version} of table '{table.name}' cannot be cloned: {vacuumed.reason}",
            **error.details | vacuumed.facts,
        ) from error
    return copied


def _owner(adds: Sequence[AddFile], path: str) -> str:
    """Return the data file that a path in the table belongs to: itself, or the one whose deletion vector it is."""
    vectors = {
        add.deletion_vector.relative_path(): add.path for add in adds if add.deletion_vector is not None
    }
    return vectors.get(path, path)


def _places(add: AddFile, location: str) -> Iterator[str]:
    yield resolve(location, add.path)
    vector = add.deletion_vector
    if vector is not None and vector.storage_type == "p":
        yield resolve(location, vector.path_or_inline_dv)


def _check_within(roots: Roots, canonical: str, url: str, table: OpenTable) -> None:
    """Reject a clone that would refer to files outside its own roots."""
    if not (roots or table.roots).allows(url):
        advice = (
            "make a deep clone, which has its own files"
            if table.roots.allows(url)
            else "add their directory to DELVEC_ROOTS if the table may use them"
        )
        raise LocationNotAllowed(
            f"A shallow clone of table '{table.name}' at {canonical} would refer to files at {url}, outside the "
            f"roots that a table of its name may use; {advice}.",
            table=table.name,
            location=canonical,
            file=url,
        )


def _live(snapshot: Snapshot) -> list[AddFile]:
    return [add_from_row(row) for batch in snapshot.live.batches() for row in batch.to_pylist()]


def _check_again(table: OpenTable, source: Snapshot, loader: SnapshotLoader, request: CloneRequest) -> None:
    """Check whether a VACUUM that began before the clone was recorded has deleted files of an old version meanwhile."""
    if request.shallow and source.version != loader.load(table.objects, table.name).version:
        loader.reading(
            table.objects,
            table.name,
            lambda found: check_complete(table, loader, found, _USE),
            version=source.version,
        )


def _differences(
    files: Sequence[AddFile], live: Sequence[AddFile], location: str
) -> tuple[list[AddFile], list[AddFile]]:
    """Return the files to add and to remove; files from an earlier clone stay."""
    wanted = {_key(add, location): add for add in files}
    there = {_key(add, location): add for add in live}
    return (
        [add for key, add in wanted.items() if key not in there],
        [add for key, add in there.items() if key not in wanted],
    )


def _key(add: AddFile, location: str) -> tuple[str, str | None]:
    vector = add.deletion_vector
    return canonical_log_path(add.path, location), None if vector is None else vector.unique_id


def _metrics(source: Snapshot, request: CloneRequest, *, removed: Sequence[AddFile]) -> dict[str, int]:
    copied = not request.shallow
    return {
        "sourceTableSize": source.size_in_bytes,
        "sourceNumOfFiles": source.num_files,
        "numRemovedFiles": len(removed),
        "numCopiedFiles": source.num_files if copied else 0,
        "removedFilesSize": sum(add.size for add in removed),
        "copiedFilesSize": source.size_in_bytes if copied else 0,
    }


def _parameters(source: Snapshot, request: CloneRequest) -> dict[str, object]:
    return {
        "source": f"delta.`{source.location}`",
        "sourceVersion": source.version,
        "isShallow": request.shallow,
    }


def _engine_info(request: CloneRequest) -> str:
    return f"{request.engine_info} {ENGINE_INFO}" if request.engine_info else ENGINE_INFO
