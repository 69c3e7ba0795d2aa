"""Plans a repair: for each finding the one right fix, or why it cannot be repaired automatically.

Everything is decided from the log and storage at one version. If two fixes are possible, none is chosen.

Tested in `tests/integration/client/test_repair.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from pyroaring import BitMap64

from delvec_contract.maintenance import RepairAction
from delvec_errors import (
    CorruptDeletionVector,
    CorruptLog,
    CorruptTable,
    DelvecError,
    LocationNotAllowed,
    NotFound,
)
from delvec_kernel import row_tracking
from delvec_kernel.actions.actions import AddFile, Protocol, RemoveFile
from delvec_kernel.features.protocol_upgrade import upgraded
from delvec_kernel.locations import canonical_log_path
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_kernel.statistics import file_statistics as statistics
from delvec_kernel.transaction.transaction_changes import FileRepair
from delvec_kernel.transaction.winning_commit import live_rows, num_records
from delvec_maintenance.checks.findings import Finding
from delvec_maintenance.checks.stray_files import MissedRemove, StrayFiles, SupersededFile, vector_text
from delvec_service.maintenance.check import checked_log, state_findings
from delvec_service.maintenance.live_file_check import FileCheckResult, check_files
from delvec_service.maintenance.log_check import LogCheck
from delvec_service.maintenance.lost_vectors import LostVectors
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.open_table import OpenTable
from delvec_storage import files as storage

__all__ = ["Repair", "RepairPlan", "Unrepaired", "plan_repair"]

_ROW_WISE: Final = frozenset({"DELETE", "UPDATE", "MERGE"})
_RESTORING_OPERATIONS: Final = frozenset({"RESTORE", "CLONE"})
_STRAY: Final = ("remove-with-its-vector", "one-live-file-per-path")
_OF_STATISTICS: Final = (
    "physical-count",
    "vector-needs-count",
    "vector-within-file",
    "vector-loosens-bounds",
)

_BY_HAND: Final[Mapping[str, str]] = {
    "version-gap": "only a backup has the missing commit",
    "readable-commit": "only a backup has the content of the commit",
    "readable-checkpoint": (
        "a checkpoint is not part of a commit: delete it if all the commits before it exist, and write another one "
        "with `delvec checkpoint`"
    ),
    "readable-table": "a table that cannot be read cannot be committed to: follow the message's advice first",
    "one-action-per-file": "readers disagree on which of the actions counts, so no fix is right for all of them",
    "remove-of-live-file": "readers ignore such a remove, and no row is wrong",
    "no-empty-vector": "readers disagree on what it means: rewrite the files with OPTIMIZE",
    "vector-within-file": (
        "the deletion vector marks rows that the file does not have, so it may belong to another file"
    ),
    "readable-vector": "neither the log nor the change data feed has its rows",
    "data-file": "the file is not the one that was committed, and only a backup has that one",
    "checkpoint-agrees": "a person has to decide which of the two is right",
    "in-commit-timestamp": "the time of a commit cannot be changed",
    "application-version": "what the application wrote has to be compared with its source",
    "own-commit": "somebody who knows the command's purpose has to run it again",
    "row-ids": "the rows have to be rewritten to get new ids",
}


@dataclass(frozen=True, slots=True)
class Repair:
    """A finding that is repaired.

    Attributes:
        file: the path, if it concerns a file.
        what: the fix, as a sentence.
        why: why the fix is right, as a sentence.
    """

    finding: Finding
    action: RepairAction
    file: str | None
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Unrepaired:
    """A finding that is not repaired.

    Attributes:
        reason: why, as a sentence.
    """

    finding: Finding
    reason: str


@dataclass
class RepairPlan:
    """The changes of the next commit.

    Attributes:
        version: the version that was checked.
        goes_on: whether another version must follow: a version can remove only one logical file per path.
        lost_rows: live rows of dropped files, None if unknown.
    """

    version: int
    repairs: list[Repair] = field(default_factory=list)
    left: list[Unrepaired] = field(default_factory=list)
    files: list[FileRepair] = field(default_factory=list)
    protocol: Protocol | None = None
    goes_on: bool = False
    lost_rows: int | None = 0

    @property
    def does_something(self) -> bool:
        """Whether there is something to commit."""
        return bool(self.files) or self.protocol is not None


def plan_repair(loader: SnapshotLoader, table: OpenTable, *, drop_missing_files: bool) -> RepairPlan:
    """Check a table, and plan its repair.

    Args:
        loader: reads snapshots.
        table: the table.
        drop_missing_files: whether to remove files missing from storage from the table, with their rows.

    Raises:
        NotADeltaTable: there is no log.
        StorageError: storage did not answer.
        ServiceUnavailable: the log is repeatedly cleaned up while it is read.
        UnsupportedTable: Delvec cannot read the table.
    """
    reader = LogReader(table.objects, table.name)
    log = checked_log(reader)
    version = log.listing.latest

    def look(snapshot: Snapshot) -> RepairPlan:
        files = check_files(snapshot, table.objects, table.name, table.roots.allows, data_files=True)
        findings = [*log.findings, *state_findings(log, snapshot), *files.findings]
        planner = _Planner(table, reader, log, snapshot, files, drops=drop_missing_files)
        return planner.plan([found for found in findings if found.fixed_in is None])

    try:
        return loader.reading(table.objects, table.name, look, version=version)
    except (CorruptTable, NotFound) as error:
        findings = [*log.findings, Finding("readable-table", "error", version, None, error.message)]
        left = [
            Unrepaired(finding, _sentence(_BY_HAND.get(finding.invariant, _BY_HAND["readable-table"])))
            for finding in findings
            if finding.fixed_in is None
        ]
        return RepairPlan(version, left=left)


@dataclass
class _File:
    """The repair of one path.

    Attributes:
        live: its state in the table, or None.
        becomes: its state after the repairs decided so far.
        done: the fix for an invariant, and why.
        left: why an invariant is not repaired.
    """

    key: str
    live: AddFile | None
    becomes: AddFile | None
    rows: BitMap64 | None = None
    stale: AddFile | None = None
    is_gone: bool = False
    loses_rows: bool = False
    done: dict[str, tuple[RepairAction, str, str]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    @property
    def repair(self) -> FileRepair | None:
        """The changes of the commit, or None if there are none."""
        path = (
            self.live.path if self.live is not None else self.stale.path if self.stale is not None else None
        )
        if path is None:
            return None
        if self.is_gone:
            return FileRepair(path, self.live, loses_rows=self.loses_rows)
        # Files added again without row ids get new ones.
        changed = self.becomes is not self.live or self.rows is not None or "row-ids" in self.done
        becomes = self.becomes if changed else None
        if becomes is None and self.stale is None:
            return None
        return FileRepair(path, self.live, becomes, self.rows, self.stale)


class _Planner:
    def __init__(
        self,
        table: OpenTable,
        reader: LogReader,
        log: LogCheck,
        snapshot: Snapshot,
        files: FileCheckResult,
        *,
        drops: bool,
    ) -> None:
        self._table = table
        self._reader = reader
        self._log = log
        self._snapshot = snapshot
        self._checked = files
        self._drops = drops
        self._strays = StrayFiles() if log.walk is None else log.walk.strays
        self._read: dict[tuple[str, str], BitMap64 | None] = {}
        self._plan = RepairPlan(snapshot.version)

    def plan(self, findings: Sequence[Finding]) -> RepairPlan:
        keys = {finding: self._key(finding) for finding in findings}
        named = {key for key in keys.values() if key is not None}
        wanted = sorted(named | self._strays.superseded.keys() | self._strays.missed.keys())
        live = self._snapshot.live.find_all(wanted)
        self._lost_keys = [keys[each] or "" for each in findings if each.invariant == "readable-vector"]
        of_files = {key: _File(key, live.get(key), live.get(key)) for key in wanted}
        invariants: dict[str, set[str]] = {key: set() for key in wanted}
        for finding, key in keys.items():
            if key is not None:
                invariants[key].add(finding.invariant)
        for key, file in of_files.items():
            self._decide(file, invariants[key])
            repair = file.repair
            if repair is not None:
                self._plan.files.append(repair)
        self._features()
        for finding in findings:
            key = keys[finding]
            self._report(finding, None if key is None else of_files[key])
        return self._plan

    def _key(self, finding: Finding) -> str | None:
        if finding.file is None or finding.invariant not in _OF_FILES:
            return None
        try:
            return canonical_log_path(finding.file, self._snapshot.location)
        except DelvecError:
            return None

    # --- one file -------------------------------------------------------------------------------------------

    def _decide(self, file: _File, invariants: set[str]) -> None:
        is_missing = file.live is not None and file.live.path in self._checked.missing
        if is_missing:
            self._missing(file)
        missed = self._strays.missed.get(file.key)
        if missed is not None and not file.is_gone:
            self._missed(file, missed)
        strays = self._strays.superseded.get(file.key)
        if file.is_gone:
            # Another version handles the rest of this path.
            self._plan.goes_on |= bool(strays)
            for invariant in invariants - file.done.keys():
                file.done[invariant] = next(iter(file.done.values()))
            return
        if "readable-vector" in invariants:
            self._vector(file, is_missing=is_missing)
        if strays:
            self._superseded(file, list(strays.values()))
        self._statistics(file, invariants)
        if "row-ids" in invariants:
            self._row_ids(file)

    def _missing(self, file: _File) -> None:
        assert file.live is not None  # noqa: S101 - it is live and missing
        rows = live_rows(file.live)
        loss = "an unknown number of rows" if rows is None else f"{rows} rows"
        if not self._drops:
            file.left["data-file"] = (
                f"the file is missing, and {loss} with it; restore it from a backup, or let the repair drop missing "
                "files"
            )
            return
        file.is_gone = file.loses_rows = True
        known = self._plan.lost_rows
        self._plan.lost_rows = None if known is None or rows is None else known + rows
        file.done["data-file"] = (
            "drop-missing-file",
            f"Removes the file from the table: {loss} ({file.live.size} bytes) are lost.",
            "The file does not exist in storage, and dropping such files was requested.",
        )

    def _missed(self, file: _File, missed_remove: MissedRemove) -> None:
        invariant = _STRAY[0]
        at = missed_remove.at.version
        if file.live is None or missed_remove.changed_in is not None:
            file.left[invariant] = (
                f"version {missed_remove.changed_in} changed the file after version {at} should have removed it, so its "
                "rows may now be in other files"
            )
            return
        origin = missed_remove.origin
        read = missed_remove.at.read_version
        knew = read is not None and (origin is None or read >= origin.version)
        if missed_remove.writes_rows and not knew:
            file.left[invariant] = (
                f"version {at} also adds files, and does not say that it read the deletion vector, so it is unknown "
                "whether they contain rows that it marks"
            )
            return
        file.is_gone = True
        by = missed_remove.at.operation or "unknown operation"
        since = (
            f"it read version {read}, which had the file with this deletion vector"
            if missed_remove.writes_rows
            else "it adds none of its rows elsewhere"
        )
        file.done[invariant] = (
            "remove-file",
            f"Removes the file with its deletion vector, as version {at} should have done.",
            f"Version {at} ({by}) removed the whole file, which nothing has changed since; {since}.",
        )

    def _vector(self, file: _File, *, is_missing: bool) -> None:
        live = file.live
        if live is None:
            return
        if is_missing:
            file.left["readable-vector"] = "the data file is missing, too"
            return
        if not self._snapshot.dv_enabled:
            file.left["readable-vector"] = (
                "the table has delta.enableDeletionVectors=false, so no deletion vector may be written; set it to "
                "true for the repair"
            )
            return
        recovery = self._lost.recover(file.key, live)
        if isinstance(recovery, str):
            file.left["readable-vector"] = f"the rows of the deletion vector cannot be recovered: {recovery}"
            return
        file.rows = recovery.rows
        file.done["readable-vector"] = (
            "rewrite-deletion-vector",
            f"Rewrites the deletion vector with the same {len(recovery.rows)} rows.",
            f"{recovery.how[:1].upper()}{recovery.how[1:]}.",
        )

    @cached_property
    def _lost(self) -> LostVectors:
        found = LostVectors(
            self._reader, self._log.listing, self._snapshot.location, self._rows, self._table.roots.allows
        )
        found.follow(self._lost_keys)
        return found

    # --- paths that are live twice --------------------------------------------------------------------------

    def _superseded(self, file: _File, strays: Sequence[SupersededFile]) -> None:
        """Remove one of the logical files; the others follow in later versions."""
        for stray in sorted(strays, key=lambda each: each.at.version):
            verdict = self._judge(file, stray)
            for invariant in _STRAY:
                if not verdict.why:
                    file.left[invariant] = verdict.what
                elif verdict.union is not None:
                    file.done[invariant] = ("merge-deletion-vectors", verdict.what, verdict.why)
                else:
                    file.done.setdefault(invariant, ("remove-stale-file", verdict.what, verdict.why))
            if not verdict.why:
                continue
            if verdict.union is not None:
                # First its rows are deleted for good; then the other logical file can be removed.
                file.rows = verdict.union
            if file.rows is None and file.stale is None:
                file.stale = stray.add
            else:
                self._plan.goes_on = True
        if file.rows is not None and file.stale is not None:
            file.stale, self._plan.goes_on = None, True

    def _judge(self, file: _File, stray: SupersededFile) -> "_Resolution":  # noqa: PLR0911 - one answer per case
        at, by = stray.at.version, stray.at.operation or "unknown operation"
        what = f"Removes the file with {vector_text(stray.add)}, which version {at} left live."
        if stray.at.operation in _RESTORING_OPERATIONS:
            return _Resolution(what, f"Version {at} ({by}) specifies the deletion vector of the file.")
        stray_rows = self._rows(stray.add)
        if stray_rows is None:
            return _Resolution(
                f"{vector_text(stray.add)} cannot be read, so it cannot be compared with the other one"
            )
        if file.live is None:
            after = self._rows(stray.by)
            if after is not None and stray_rows <= after:
                return _Resolution(
                    what,
                    f"Version {at} ({by}) replaced it with one that marks the same rows and more, and that has been "
                    "removed since.",
                )
            return _Resolution(
                "the file that replaced it has been removed, and it is unknown whether its rows are elsewhere"
            )
        now = file.rows if file.rows is not None else self._rows(file.live)
        if now is None:
            return _Resolution(
                "the deletion vector of the other file cannot be read, so the two cannot be compared"
            )
        if stray_rows <= now:
            return _Resolution(
                what,
                f"Version {at} ({by}) added the file again, and its deletion vector now marks the same rows and more.",
            )
        return self._merged(stray, stray_rows, now)

    def _merged(self, stray: SupersededFile, stray_rows: BitMap64, now: BitMap64) -> "_Resolution":
        """Compare two deletion vectors that do not contain each other: two commits that did not know of each other."""
        at, first = stray.at, stray.origin
        after = self._rows(stray.by)
        base = BitMap64() if stray.remove is None else self._rows(stray.remove)
        if after is None or base is None:
            return _Resolution("a deletion vector needed to trace the origin of the two cannot be read")
        operations = {None if first is None else first.operation, at.operation}
        overlap = (after - base) & (stray_rows - base)
        if not operations <= _ROW_WISE or (overlap and operations != {"DELETE"}):
            return _Resolution(
                f"neither of the deletion vectors, of {len(stray_rows)} and {len(now)} rows, contains the other, and the "
                f"commits that wrote them ({', '.join(sorted(each or 'unknown' for each in operations))}) do not "
                "show that the rows of both are deleted"
            )
        if not self._snapshot.dv_enabled:
            return _Resolution(
                "the table has delta.enableDeletionVectors=false, so no deletion vector may be written; set it to "
                "true for the repair"
            )
        assert first is not None  # noqa: S101 - it has an operation
        merged = now | stray_rows
        return _Resolution(
            f"Gives the file a deletion vector of {len(merged)} rows: those of both.",
            f"Versions {first.version} ({first.operation}) and {at.version} ({at.operation}) deleted rows of the "
            "file without knowing of each other, and both were committed.",
            merged,
        )

    # --- what the log says of a file ------------------------------------------------------------------------

    def _statistics(self, file: _File, found: set[str]) -> None:
        live, wrong = file.live, found.intersection(_OF_STATISTICS)
        if live is None or live.deletion_vector is None or not wrong:
            return
        cardinality = len(file.rows) if file.rows is not None else live.deletion_vector.cardinality
        num_rows = self._checked.counts.get(live.path)
        if num_rows is not None:
            if cardinality > num_rows:
                return  # the vector does not belong to this file
            stats = statistics.recounted(live.stats, num_rows)
            what = f"Writes numRecords={num_rows} into the file's statistics, and tightBounds=false."
            why = f"The file's footer has {num_rows} rows."
        elif "vector-loosens-bounds" in wrong:
            try:
                stats = statistics.widen(live.stats, deleted_records=cardinality)
            except (CorruptLog, CorruptTable):
                return
            what, why = (
                "Writes tightBounds=false into the file's statistics.",
                "The bounds hold, but rows are deleted, so they may not be reached.",
            )
        else:
            return
        file.becomes = replace(file.becomes or live, stats=stats)
        for invariant in wrong:
            if invariant != "vector-within-file" or num_rows is not None:
                file.done[invariant] = ("correct-statistics", what, why)

    def _row_ids(self, file: _File) -> None:
        live, snapshot = file.live, self._snapshot
        has_ids = live is None or (
            live.base_row_id is not None and live.default_row_commit_version is not None
        )
        if has_ids or not row_tracking.gives_ids(snapshot):
            return
        becomes = file.becomes
        try:
            row_tracking.high_water_mark(snapshot)
        except CorruptLog as error:
            file.left["row-ids"] = error.message.rstrip(".")
            return
        if becomes is None or num_records(becomes) is None:
            file.left["row-ids"] = "the log does not have the file's number of rows"
            return
        file.done["row-ids"] = (
            "assign-row-ids",
            "Adds the file again with row ids.",
            "None of the file's rows has a row id, and no row ids above the high-water mark were assigned.",
        )

    def _features(self) -> None:
        walk = self._log.walk
        if walk is not None and walk.lacks_vector_feature:
            protocol = upgraded(self._snapshot.protocol, ["deletionVectors"])
            self._plan.protocol = None if protocol == self._snapshot.protocol else protocol

    # --- reading and reporting ------------------------------------------------------------------------------

    def _rows(self, file: AddFile | RemoveFile) -> BitMap64 | None:
        """Return the deleted rows of a file, None if its deletion vector cannot be read."""
        vector = file.deletion_vector
        if vector is None:
            return BitMap64()
        name = (file.path, vector.unique_id)
        if name not in self._read:
            try:
                deleted_rows = storage.read_deletion_vectors(
                    self._snapshot.location,
                    [(file.path, vector)],
                    table=self._table.name,
                    version=self._snapshot.version,
                    is_allowed=self._table.roots.allows,
                )
                self._read[name] = deleted_rows[file.path]
            except (CorruptDeletionVector, LocationNotAllowed):
                self._read[name] = None
        return self._read[name]

    def _report(self, finding: Finding, file: _File | None) -> None:
        if finding.invariant == "vector-feature" and self._plan.protocol is not None:
            self._plan.repairs.append(
                Repair(
                    finding,
                    "add-table-feature",
                    finding.file,
                    "Adds the table feature deletionVectors to the protocol.",
                    "Files have deletion vectors, and readers without support for them would return deleted rows.",
                )
            )
            return
        done = None if file is None else file.done.get(finding.invariant)
        reason = None if file is None else file.left.get(finding.invariant)
        if done is not None:
            action, what, why = done
            self._plan.repairs.append(Repair(finding, action, finding.file, what, why))
        if done is None or reason is not None:
            reason = reason or _BY_HAND.get(finding.invariant, "there is more than one possible fix")
            self._plan.left.append(Unrepaired(finding, _sentence(reason)))


_OF_FILES: Final = frozenset({*_STRAY, *_OF_STATISTICS, "readable-vector", "data-file", "row-ids"})


@dataclass(frozen=True, slots=True)
class _Resolution:
    """The decision about a path that is live twice.

    Attributes:
        what: the fix; without ``why``, the reason why there is none.
        union: the deleted rows, if they are those of both.
    """

    what: str
    why: str = ""
    union: BitMap64 | None = None


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."
