"""Checks a log: every readable version, from the oldest to the newest.

Tested in `tests/integration/service/maintenance/test_check.py`.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from delvec_errors import CorruptTable, InvalidLocation, LocationNotAllowed
from delvec_kernel.log.commit_file import parse_commit
from delvec_kernel.log.log_segment import LogCheckpoint, LogListing, commit_name
from delvec_kernel.snapshot.replay import ReplayState
from delvec_maintenance.checks.findings import Finding, Severity
from delvec_maintenance.checks.log_walk import LogWalk, empty_vectors
from delvec_service.snapshots.log_reader import LogReader

__all__ = ["CleanedUpError", "LogCheck"]

_READ_AHEAD: Final = 16


class CleanedUpError(Exception):
    """A commit was deleted between listing and reading."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class LogCheck:
    """Follows a log; where it is broken, it continues at the next checkpoint.

    Args:
        reader: the log.
        listing: all of it.
        ledger_paths: paths to search for; :attr:`referenced` has those that some version names.

    Attributes:
        commits: number of commits read.
        findings: in the order of versions.
        walk: at the newest version, None if that could not be reached.

    Raises:
        CleanedUpError: the log was cleaned up in the meantime.
        StorageError: storage did not answer.
    """

    def __init__(self, reader: LogReader, listing: LogListing, ledger_paths: frozenset[str]) -> None:
        self.listing = listing
        self.commits = 0
        self.findings: list[Finding] = []
        self.walk: LogWalk | None = None
        self.referenced: set[str] = set()
        self._reader = reader
        self._wanted = ledger_paths
        self._newest_checkpoint = max(listing.checkpoints, default=None)
        self._fixed: dict[Finding, int] = {}
        self._run()
        self.findings = [
            found.as_fixed_in(self._fixed[found]) if found in self._fixed else found
            for found in self.findings
        ]

    def _run(self) -> None:
        broken_version: int | None = -1
        if self.listing.earliest == 0:
            broken_version = self._follow(LogWalk(self._reader.nothing(), self._wanted), 0)
        for version, checkpoint in sorted(self.listing.checkpoints.items()):
            if broken_version is None:
                return
            if version >= broken_version:
                walk = self._begin(checkpoint)
                if walk is not None:
                    broken_version = self._follow(walk, version + 1)
        if self.listing.earliest is None:
            self._gap(0)

    def _begin(self, checkpoint: LogCheckpoint) -> LogWalk | None:
        """Start at a checkpoint, which stands for commits that are gone."""
        state = self._checkpoint(checkpoint, is_needed=checkpoint.version == self._newest_checkpoint)
        return None if state is None else LogWalk(state, self._wanted)

    def _compare(self, walk: LogWalk, checkpoint: LogCheckpoint) -> None:
        state = self._checkpoint(checkpoint, is_needed=False)
        if state is not None:
            self.findings += walk.differences(state.live, checkpoint.version, checkpoint.name)

    def _checkpoint(self, checkpoint: LogCheckpoint, *, is_needed: bool) -> ReplayState | None:
        try:
            return self._reader.checkpoint(checkpoint)
        except (CorruptTable, InvalidLocation, LocationNotAllowed) as error:
            message = error.message
        # Damage that other checkpoints or the commits make up for.
        severity: Severity = "error" if is_needed else "warning"
        found = Finding("readable-checkpoint", severity, checkpoint.version, checkpoint.name, message)
        self.findings.append(found)
        return None

    def _follow(self, walk: LogWalk, first: int) -> int | None:
        """Follow the log as far as possible; return the version that breaks it, or None at its end."""
        listed = self.listing.commits
        present = list(range(first, self.listing.latest + 1))
        gap = next((version for version in present if version not in listed), None)
        for version, data in self._read(present if gap is None else range(first, gap)):
            name = commit_name(version)
            where = self._reader.where(version, name)
            self.commits += 1
            try:
                actions = parse_commit(data, where)
            except CorruptTable as error:
                self._finding("readable-commit", version, name, error.message)
                self._leave(walk)
                return version
            self.findings += empty_vectors(version, name, data)
            self.findings += walk.follow(version, actions)
            if version == self._newest_checkpoint:
                self._compare(walk, self.listing.checkpoints[version])
        self._leave(walk)
        if gap is not None:
            self._gap(gap)
            return gap
        self.walk = walk
        return None

    def _leave(self, walk: LogWalk) -> None:
        self.referenced |= walk.referenced
        self._fixed |= walk.fixed

    def _read(self, versions: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        def get(version: int) -> tuple[int, bytes]:
            name = commit_name(version)
            try:
                return version, self._reader.objects.get(f"_delta_log/{name}")
            except FileNotFoundError as error:
                raise CleanedUpError(name) from error

        if self._reader.objects.location.startswith(("file:", "memory:")):
            yield from map(get, versions)
            return
        with ThreadPoolExecutor(_READ_AHEAD, "delvec-log") as pool:
            for start in range(0, len(versions), _READ_AHEAD):
                yield from pool.map(get, versions[start : start + _READ_AHEAD])

    def _gap(self, first: int) -> None:
        there = [version for version in self.listing.commits if version > first]
        last = min(there, default=self.listing.latest + 1) - 1
        missing = commit_name(first) if first == last else f"{commit_name(first)} to {commit_name(last)}"
        self._finding(
            "version-gap",
            first,
            commit_name(first),
            f"The log of table '{self._reader.table}' lacks {missing}; restore it from a backup.",
        )

    def _finding(self, invariant: str, version: int, name: str, message: str) -> None:
        """Report a break in the log: an error, unless a later checkpoint makes up for it."""
        if any(checkpoint >= version for checkpoint in self.listing.checkpoints):
            message += "The newest version can be read without it, from a checkpoint."
            self.findings.append(Finding(invariant, "warning", version, name, message))
        else:
            self.findings.append(Finding(invariant, "error", version, name, message))
