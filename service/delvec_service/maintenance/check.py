"""Checks a table: its retained log, version by version, then its live files in storage.

It only reads. Damage is recorded and skipped, so that one run reports all of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from delvec_errors import CorruptDeletionVector, CorruptTable, NotFound, ServiceUnavailable, UnsupportedTable
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.log.log_segment import commit_name
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_maintenance.checks.findings import Finding, row_id_findings
from delvec_service.maintenance.live_file_check import FileCheckResult, check_files
from delvec_service.maintenance.log_check import CleanedUpError, LogCheck
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.ledger import LedgerFile
from delvec_service.store.objects import ObjectStore
from delvec_service.store.own_commits import Overwritten
from delvec_storage.files import Allowed

__all__ = ["CheckResult", "Orphan", "check", "checked_log", "state_findings"]

_ATTEMPTS: Final = 3


@dataclass(frozen=True)
class Orphan:
    """A file in storage that is in the ledger, and that no retained version refers to.

    Attributes:
        size: bytes.
        state: the state of its transaction; ``open`` may still be running.
    """

    path: str
    size: int
    transaction_id: str
    state: str


@dataclass(frozen=True)
class CheckResult:
    """What was checked, and what was found.

    Attributes:
        version: the newest.
        first_version: the oldest readable version, None if there is none.
        commits: number of commits read.
        data_files: number of data files looked up.
        vectors: number of deletion vectors read.
        findings: the log's first, in the order of versions; then those of the newest version.
        orphans: files that a cleanup may delete.
    """

    version: int
    first_version: int | None
    commits: int
    data_files: int
    vectors: int
    findings: Sequence[Finding]
    orphans: Sequence[Orphan]


def check(
    loader: SnapshotLoader,
    objects: ObjectStore,
    table: str,
    *,
    is_allowed: Allowed,
    data_files: bool = True,
    ledgered: Sequence[LedgerFile] = (),
    overwritten: Sequence[Overwritten] = (),
) -> CheckResult:
    """Check every invariant of a table.

    Args:
        loader: its snapshots are compared with the commits.
        objects: the table's files.
        table: the table's name, for messages.
        is_allowed: whether a file outside the table may be accessed.
        data_files: whether to look up each live data file in storage.
        ledgered: the files in the ledger.
        overwritten: own commits that other writers replaced.

    Raises:
        NotADeltaTable: there is no log.
        StorageError: storage did not answer.
        ServiceUnavailable: the log is repeatedly cleaned up while it is read.
    """
    ledger_paths = frozenset(file.path for file in ledgered)
    log = checked_log(LogReader(objects, table), ledger_paths)
    version = log.listing.latest

    def look(snapshot: Snapshot) -> tuple[list[Finding], FileCheckResult, set[str]]:
        return (
            state_findings(log, snapshot),
            check_files(snapshot, objects, table, is_allowed, data_files=data_files),
            _named_by(snapshot.live, ledger_paths),
        )

    findings, files, live = log.findings, FileCheckResult(), set[str]()
    try:
        state, files, live = loader.reading(objects, table, look, version=version)
        findings = [*findings, *state, *files.findings]
    except (CorruptTable, NotFound) as error:
        findings = [*findings, Finding("readable-table", "error", version, None, error.message)]
    except UnsupportedTable as error:
        message = f"{error.message} Its live files were not checked."
        findings = [*findings, Finding("readable-table", "warning", version, None, message)]
    return CheckResult(
        version=version,
        first_version=log.listing.earliest,
        commits=log.commits,
        data_files=files.data_files,
        vectors=files.vectors,
        findings=[*map(_overwritten_finding, overwritten), *findings],
        orphans=list(_orphans(objects, ledgered, log.referenced | live)),
    )


def _overwritten_finding(one: Overwritten) -> Finding:
    by = " ".join(
        filter(None, [f"'{one.by_operation or 'a commit'}'", one.by_engine and f"by {one.by_engine}"])
    )
    return Finding(
        "own-commit",
        "error",
        one.version,
        commit_name(one.version),
        f"Transaction {one.key} committed version {one.version}, which was replaced by {by} before "
        f"{one.found_at:%Y-%m-%d %H:%M:%S} UTC. Run its command again, and do not let such writers run at the same "
        "time as Delvec.",
    )


def state_findings(log: LogCheck, snapshot: Snapshot) -> list[Finding]:
    """Return what is wrong with the newest version as readers load it, apart from its files in storage."""
    as_loaded = f"version {snapshot.version} as readers load it"
    walk = log.walk
    differences = [] if walk is None else walk.differences(snapshot.live, snapshot.version, as_loaded)
    return [*differences, *row_id_findings(snapshot)]


def checked_log(reader: LogReader, ledger_paths: frozenset[str] = frozenset()) -> LogCheck:
    """Follow a log; start again if it is cleaned up meanwhile.

    Raises:
        NotADeltaTable: there is no log.
        StorageError: storage did not answer.
        ServiceUnavailable: it is repeatedly cleaned up.
    """
    for _ in range(_ATTEMPTS):
        try:
            return LogCheck(reader, reader.list_all(), ledger_paths)
        except CleanedUpError as error:
            name = error.name
    raise ServiceUnavailable(
        f"The log of table '{reader.table}' is being cleaned up while it is checked ({name} was deleted); try again.",
        table=reader.table,
        file=name,
    )


def _named_by(live: LiveFiles, ledger_paths: frozenset[str]) -> set[str]:
    """Return which of these paths are live files, or files of live deletion vectors."""
    if not ledger_paths:
        return set()
    referenced_paths = set(live.find_all(ledger_paths))
    for batch in live.batches(["deletion_vector"]):
        vectors = batch.column("deletion_vector")
        for row in vectors.filter(pc.is_valid(vectors)).to_pylist():
            try:
                referenced_paths.add(Descriptor.from_json(row).relative_path() or "")
            except CorruptDeletionVector:
                continue  # it has its own finding
    return referenced_paths & ledger_paths


def _orphans(objects: ObjectStore, ledgered: Sequence[LedgerFile], named: set[str]) -> Iterator[Orphan]:
    for file in ledgered:
        if file.path in named:
            continue
        found = objects.head(file.path)
        if found is not None:
            yield Orphan(file.path, found.size, file.transaction_id, file.state)
