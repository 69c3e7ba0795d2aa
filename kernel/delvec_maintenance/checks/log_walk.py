"""Checks the invariants of a log, each version against the previous one (PROTOCOL.md, "Action Reconciliation").

Unlike replay, which raises on invalid actions, this reports every problem and continues.

Tested in `tests/integration/service/maintenance/test_check.py`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final

from delvec_errors import CorruptDeletionVector, DelvecError
from delvec_kernel.actions.actions import (
    Action,
    AddFile,
    Cdc,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    first_of,
)
from delvec_kernel.deletion_vectors.deletion_vector import is_file_name
from delvec_kernel.features.table_features import reader_features, writer_features
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.locations import canonical_log_path
from delvec_kernel.snapshot.replay import ReplayState
from delvec_kernel.table_properties import IN_COMMIT_TIMESTAMPS, is_true
from delvec_maintenance.checks.findings import Finding, Severity, vector_findings
from delvec_maintenance.checks.stray_files import Origin, StrayFiles, vector_id, vector_text

__all__ = ["LogWalk", "empty_vectors"]

_EMPTY_VECTOR: Final = re.compile(rb'"deletionVector"\s*:\s*\{\s*\}')
_DELETION_VECTORS: Final = "deletionVectors"
_ROW_TRACKING: Final = "rowTracking"
_MAX_REPORTED: Final = 20


def empty_vectors(version: int, name: str, commit: bytes) -> Iterator[Finding]:
    """Report deletion vectors in a commit file that are an empty object."""
    count = len(_EMPTY_VECTOR.findall(commit))
    if count:
        yield Finding(
            "no-empty-vector",
            "warning",
            version,
            name,
            f"{count} actions have an empty object as their deletion vector: Delvec treats it as none, but "
            "other readers may fail; rewrite the files with OPTIMIZE, and update the writer.",
        )


class LogWalk:
    """Follows a log commit by commit and reports findings.

    Args:
        state: before the first commit: of a checkpoint, or empty.
        ledger_paths: paths, relative to the table, of data files and deletion vector files to look for in the log.

    Attributes:
        referenced: the members of ``ledger_paths`` that the commits refer to.
        strays: files that are live by mistake.
        fixed: findings that no longer hold, and the version that fixed each.
    """

    def __init__(self, state: ReplayState, ledger_paths: AbstractSet[str] = frozenset()) -> None:
        self._base: LiveFiles = state.live
        self._changed: dict[str, AddFile | None] = {}
        self._known: dict[str, AddFile] = {}
        self._protocol = state.protocol
        self._metadata = state.metadata
        self._txns = {app: txn.version for app, txn in state.txns.items()}
        self._stamp: int | None = None
        self._wanted = ledger_paths
        self.referenced: set[str] = set()
        self.strays = StrayFiles()
        self.fixed: dict[Finding, int] = {}
        self._of_pairs: dict[str, list[Finding]] = {}
        self._of_adds: dict[str, list[Finding]] = {}
        self._of_protocol: list[Finding] = []

    @property
    def num_files(self) -> int:
        """The number of live files so far."""
        lost = sum(add is None for key, add in self._changed.items() if key in self._known)
        new = sum(add is not None for key, add in self._changed.items() if key not in self._known)
        return self._base.counts.num_files - lost + new

    def follow(self, version: int, actions: Sequence[Action]) -> list[Finding]:
        """Check the next version, apply it, and return the findings."""
        before = self._metadata
        for action in actions:
            match action:
                case Protocol():
                    self._protocol = action
                case Metadata():
                    self._metadata = action
                case _:
                    pass
        if self._of_protocol and self._knows_vectors():
            self._note_fixed(self._of_protocol, version)
            self._of_protocol = []
        findings = [*self._applications(version, actions), *self._times(version, actions, before)]
        findings += self._files(version, actions)
        return findings

    def file(self, key: str) -> AddFile | None:
        """Return the current state of a file by canonical path, or None if it is not live."""
        return self._changed[key] if key in self._changed else self._base.find(key)

    @property
    def lacks_vector_feature(self) -> bool:
        """Whether files have deletion vectors but the protocol lacks the feature."""
        return any(finding not in self.fixed for finding in self._of_protocol)

    def _note_fixed(self, findings: Iterable[Finding], version: int) -> None:
        for finding in findings:
            self.fixed.setdefault(finding, version)

    def differences(self, live: LiveFiles, version: int, what: str) -> Iterator[Finding]:
        """Report up to 20 differences between these live files and the result of the commits.

        Args:
            live: the files.
            version: the last version followed.
            what: the origin of ``live``, for messages.
        """
        advice = (
            "restore the damaged checkpoint or compacted log file from a backup, or delete it if all "
            "earlier commits are still there."
        )
        if live.counts.num_files != self.num_files:
            yield Finding(
                "checkpoint-agrees",
                "error",
                version,
                None,
                f"According to the commits, version {version} has {self.num_files} live files; according to "
                f"{what}, it has {live.counts.num_files}; {advice}",
            )
        live_files = live.find_all(self._changed)
        differing = (
            key
            for key, add in self._changed.items()
            if (add is None) != (key not in live_files)
            or (add is not None and vector_id(add) != vector_id(live_files[key]))
        )
        for key in islice(differing, _MAX_REPORTED):
            add, other = self._changed[key], live_files.get(key)
            says = "is gone" if add is None else f"is live with {vector_text(add)}"
            reads = "is gone" if other is None else f"is live with {vector_text(other)}"
            yield Finding(
                "checkpoint-agrees",
                "error",
                version,
                key,
                f"According to the commits up to version {version}, file '{key}' {says}; according to "
                f"{what}, it {reads}; {advice}",
            )

    # --- files ------------------------------------------------------------------------------------------

    def _files(self, version: int, actions: Sequence[Action]) -> Iterator[Finding]:
        adds: dict[str, AddFile] = {}
        removes: dict[str, RemoveFile] = {}
        for action in actions:
            if isinstance(action, Cdc):
                self.referenced |= {action.path} & self._wanted
            if not isinstance(action, AddFile | RemoveFile):
                continue
            try:
                key = canonical_log_path(action.path, self._base.location)
            except DelvecError as error:
                yield _error(
                    "readable-commit",
                    version,
                    action.path,
                    f"has an invalid path: {error.message} Restore the commit from a backup.",
                )
                continue
            self._refer(action)
            of_kind: dict[str, AddFile] | dict[str, RemoveFile]
            of_kind = adds if isinstance(action, AddFile) else removes
            if key in of_kind:
                yield _error(
                    "one-action-per-file",
                    version,
                    action.path,
                    f"has two '{action.key}' actions, and readers disagree on which one counts; restore the "
                    "table to the version before.",
                )
            of_kind[key] = action  # type: ignore[assignment]
        live = self._look_up(adds.keys() | removes.keys())
        at = Origin.of(version, first_of(CommitInfo, actions))
        writes_rows = not adds.keys() <= removes.keys()
        for key in dict.fromkeys([*removes, *adds]):
            add, remove, old = adds.get(key), removes.get(key), live.get(key)
            of_pair = list(self._pair(version, key, add, remove, old))
            self.strays.follow(key, add, remove, old, at, writes_rows=writes_rows)
            yield from of_pair
            self._note_pair(version, key, of_pair)
            if add is not None:
                of_add = list(self._added(version, add))
                yield from of_add
                self._note_fixed(self._of_adds.pop(key, ()), version)
                if of_add:
                    self._of_adds[key] = of_add
                self._changed[key] = add
            elif old is None or remove is None or vector_id(remove) == vector_id(old):
                self._note_fixed(self._of_adds.pop(key, ()), version)
                self._changed[key] = None

    def _note_pair(self, version: int, key: str, findings: Iterable[Finding]) -> None:
        """Remember the findings about a path until none of its files are live by mistake."""
        if key not in self.strays:
            self._note_fixed(self._of_pairs.pop(key, ()), version)
            return
        errors = [each for each in findings if each.severity == "error"]
        if errors:
            self._of_pairs.setdefault(key, []).extend(errors)

    def _look_up(self, keys: Iterable[str]) -> dict[str, AddFile]:
        """Return the live files among these paths."""
        fresh = [key for key in keys if key not in self._changed]
        found = self._base.find_all(fresh) if fresh and self._base.members else {}
        self._known |= found
        live = dict(found)
        for key in keys:
            add = self._changed.get(key)
            if add is not None:
                live[key] = add
        return live

    def _refer(self, action: AddFile | RemoveFile) -> None:
        if not self._wanted:
            return
        names = {action.path}
        try:
            vector = action.deletion_vector and action.deletion_vector.relative_path()
        except CorruptDeletionVector:
            vector = None  # reported when the deletion vector is read
        self.referenced |= (names | ({vector} if vector else set())) & self._wanted

    def _pair(
        self, version: int, key: str, add: AddFile | None, remove: RemoveFile | None, old: AddFile | None
    ) -> Iterator[Finding]:
        """Report conflicts between a version's actions on one path and the state before."""
        if remove is not None and not self.strays.is_superseded(key, remove):
            if old is None and not _protects_dv_file(remove):
                yield Finding(
                    "remove-of-live-file",
                    "warning",
                    version,
                    remove.path,
                    f"Version {version} removes '{remove.path}', which was not live. Readers ignore this, "
                    "so nothing needs repair, but check the program that wrote it.",
                )
            elif old is not None and vector_id(remove) != vector_id(old):
                yield _error(
                    "remove-with-its-vector",
                    version,
                    remove.path,
                    f"is removed with {vector_text(remove)}, but was live with {vector_text(old)}; readers handle "
                    "this differently, and rows may appear twice: restore the table to the version before.",
                )
        if add is None:
            return
        if remove is not None and vector_id(remove) == vector_id(add):
            yield _error(
                "one-action-per-file",
                version,
                add.path,
                f"is added and removed with the same deletion vector ({vector_text(add)}); readers disagree on whether it "
                "is live: restore the table to the version before.",
            )
        elif remove is None and old is not None and vector_id(old) != vector_id(add):
            yield _error(
                "one-live-file-per-path",
                version,
                add.path,
                f"is added with {vector_text(add)} while it is live with {vector_text(old)}, which nothing removes; "
                "by the protocol its rows appear twice: restore the table to the version before.",
            )

    def _added(self, version: int, add: AddFile) -> Iterator[Finding]:
        if add.deletion_vector is not None:
            yield from self._vector_feature(version, add.path)
            yield from vector_findings(version, add.path, add.stats, add.deletion_vector)
        gives_ids = self._protocol is not None and _ROW_TRACKING in writer_features(self._protocol)
        if gives_ids and not _is_true(self._metadata, "delta.rowTrackingSuspended"):
            lacking = [
                name
                for name, value in (
                    ("baseRowId", add.base_row_id),
                    ("defaultRowCommitVersion", add.default_row_commit_version),
                )
                if value is None
            ]
            if lacking:
                yield Finding(
                    "row-ids",
                    "error" if _is_true(self._metadata, "delta.enableRowTracking") else "warning",
                    version,
                    add.path,
                    f"File '{add.path}' of version {version} is added without {' and '.join(lacking)}, "
                    "which row tracking requires; backfill row tracking with the engine that enabled it.",
                )

    def _vector_feature(self, version: int, path: str) -> Iterator[Finding]:
        protocol = self._protocol
        if protocol is None:
            return
        if not self._knows_vectors():
            finding = _error(
                "vector-feature",
                version,
                path,
                "has a deletion vector, but the protocol does not list 'deletionVectors' for readers and "
                "writers: a reader without support for them returns deleted rows; add the feature to the "
                "table.",
            )
            self._of_protocol.append(finding)
            yield finding

    def _knows_vectors(self) -> bool:
        protocol = self._protocol
        return (
            protocol is not None
            and _DELETION_VECTORS in reader_features(protocol)
            and _DELETION_VECTORS in writer_features(protocol)
        )

    # --- everything else --------------------------------------------------------------------------------

    def _applications(self, version: int, actions: Sequence[Action]) -> Iterator[Finding]:
        for action in actions:
            if not isinstance(action, Txn):
                continue
            before = self._txns.get(action.app_id)
            if before is not None and action.version <= before:
                yield Finding(
                    "application-version",
                    "warning",
                    version,
                    None,
                    f"Version {version} sets application '{action.app_id[:100]}' to {action.version}, after "
                    f"{before}: its rows may have been written twice; compare them with their source.",
                )
            self._txns[action.app_id] = action.version

    def _times(self, version: int, actions: Sequence[Action], before: Metadata | None) -> Iterator[Finding]:
        if not _stamped(self._metadata):
            self._stamp = None
            return
        first = actions[0] if actions else None
        stamp = first.in_commit_timestamp if isinstance(first, CommitInfo) else None
        advice = "time travel by timestamp is unreliable from here on; use versions."
        if stamp is None:
            message = f"Version {version} does not begin with a commitInfo that has an in-commit timestamp; {advice}"
            yield Finding("in-commit-timestamp", "warning", version, None, message)
        elif self._stamp is not None and stamp <= self._stamp and _stamped(before):
            message = (
                f"Version {version} has the timestamp {stamp}, but the version before it has {self._stamp}; "
                f"{advice}"
            )
            yield Finding("in-commit-timestamp", "warning", version, None, message)
        self._stamp = self._stamp if stamp is None else stamp


def _stamped(metadata: Metadata | None) -> bool:
    return _is_true(metadata, IN_COMMIT_TIMESTAMPS)


def _is_true(metadata: Metadata | None, name: str) -> bool:
    return metadata is not None and is_true(metadata.configuration, name)


def _protects_dv_file(remove: RemoveFile) -> bool:
    """Whether it is a tombstone of a deletion vector file, which keeps VACUUM without the feature from deleting that."""
    return remove.deletion_vector is None and not remove.data_change and is_file_name(remove.path)


def _error(invariant: str, version: int, path: str, what: str) -> Finding:
    severity: Severity = "error"
    return Finding(invariant, severity, version, path, f"File '{path}' of version {version} {what}")
