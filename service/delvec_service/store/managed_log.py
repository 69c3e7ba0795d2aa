"""The files of a table whose commits another catalog decides on: its log, completed by what the catalog has ratified.

Readers see one log: the published versions, the staged files of those that the catalog lists, and nothing newer than the
catalog's latest version. A commit is staged, proposed, and published once it is ratified. Whatever the catalog answers, the
name of the staged file in its list decides whose a version is: an answer may be lost, repeated, stale or wrong.

Tested in `tests/integration/service/catalog_client/test_managed_log.py`.
"""

import hashlib
import os
import random
import re
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any, Final

from delvec_errors import (
    CorruptLog,
    DelvecError,
    MissingLogFile,
    ServiceUnavailable,
    StorageError,
    TooManyRequests,
)
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import CommitInfo, DomainMetadata, Metadata, Protocol, first_of
from delvec_kernel.log.commit_file import parse_commit
from delvec_kernel.log.log_segment import commit_name, commit_path
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.logs import logger
from delvec_service.store.commit_coordinator import (
    STAGED,
    CommitCoordinator,
    Maintenance,
    Proposal,
    ProposalAnswer,
    Ratified,
    RatifiedCommit,
    TableChange,
)
from delvec_service.store.objects import ObjectMeta, ObjectStore

__all__ = ["ManagedLog"]

_LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(rf"{_LOG}/(\d{{20}})\.json", re.ASCII)
_VERSION: Final = re.compile(r"(?<!\d)\d{20}(?!\d)", re.ASCII)
_PROPOSALS: Final = 4
_PAUSE_SECONDS: Final = 0.2
_ABOUT_THE_TABLE: Final = (b'{"commitInfo"', b'{"protocol"', b'{"metaData"', b'{"domainMetadata"')
"""How lines begin that the catalog has to know; all others are about files."""


class ManagedLog(ObjectStore):
    """The files of one table of another catalog.

    Args:
        coordinator: the table in its catalog.
        location: and the rest: see :class:`ObjectStore`.
        options: see :class:`ObjectStore`.
    """

    is_local = False  # a version appears as a whole, and may appear after its writer gave up
    is_coordinated = True

    def __init__(self, coordinator: CommitCoordinator, location: str, **options: Any) -> None:
        super().__init__(location, **options)
        self._coordinator = coordinator

    @property
    def catalog_id(self) -> str:
        """The id by which the table's metadata names the catalog's table."""
        return self._coordinator.table_id

    def allows(self, maintenance: Maintenance) -> bool:
        """Whether the catalog leaves this to its clients."""
        return maintenance in self._coordinator.known().allowed

    def unpublished(self) -> frozenset[str]:
        """Return the names of staged commits that are versions. Raises as :meth:`publish`."""
        return frozenset(commit.file_name for commit in self._coordinator.latest().commits.values())

    # --- reading ------------------------------------------------------------------------------------------

    def list_from(self, prefix: str, start_after: str = "") -> list[ObjectMeta]:
        """List a directory; of the log only what the catalog has ratified.

        Raises:
            MissingLogFile: neither the log nor the catalog has the version that the catalog says is the newest.
            CatalogUnavailable: or a sibling: the catalog does not answer.
            StorageError: storage did not answer.
        """
        if prefix.rstrip("/") != _LOG:
            return super().list_from(prefix, start_after)
        ratified_log = self._coordinator.latest()  # first: what is published meanwhile is in both
        files: dict[str, ObjectMeta] = {}
        for file in super().list_from(prefix, start_after):
            versions = [int(digits) for digits in _VERSION.findall(file.name)]
            if max(versions, default=0) <= ratified_log.latest:
                is_commit = bool(versions) and file.name == commit_name(versions[0])
                files[file.name] = self._as_listed(versions[0], file) if is_commit else file
        for version, commit in ratified_log.commits.items():
            if (name := commit_name(version)) > start_after:
                files[name] = self._as_staged(version, commit)
        newest = commit_name(ratified_log.latest)
        if newest > start_after and newest not in files:
            self._coordinator.doubt()
            raise MissingLogFile(
                f"The catalog says that version {ratified_log.latest} is the newest of the table at {self.location}, but "
                "neither the log nor the catalog has it. Ask the catalog's operator.",
                version=ratified_log.latest,
                file=newest,
            )
        return sorted(files.values(), key=lambda meta: os.fsencode(meta.name))

    def get(self, path: str) -> bytes:
        """Return a whole file; for a version that is only ratified, its staged file. Raises as :class:`ObjectStore`."""
        version = _version_of(path)
        if version is None:
            return super().get(path)
        commit = self._ratified(version).commits.get(version)
        if commit is not None:
            try:
                return self._staged_bytes(version, commit)
            except FileNotFoundError:
                pass  # published since, and cleaned up
        return super().get(path)

    def head(self, path: str) -> ObjectMeta | None:
        """Return a file's listing entry; raises as :class:`ObjectStore`."""
        version = _version_of(path)
        if version is None:
            return super().head(path)
        try:
            commit = self._ratified(version).commits.get(version)
        except FileNotFoundError:
            return None
        if commit is not None:
            return self._as_staged(version, commit)
        file = super().head(path)
        return None if file is None else self._as_listed(version, file)

    def _ratified(self, version: int) -> Ratified:
        """Return an answer of the catalog that is new enough for a version.

        Raises:
            FileNotFoundError: the version is not ratified.
        """
        ratified = self._coordinator.known()
        if version > ratified.latest:
            ratified = self._coordinator.latest()
        if version > ratified.latest:
            raise FileNotFoundError(commit_path(version))
        return ratified

    def _as_staged(self, version: int, commit: RatifiedCommit) -> ObjectMeta:
        modified = self._coordinator.times.setdefault(version, commit.modified_ms)
        return ObjectMeta(commit_name(version), commit.size, modified)

    def _as_listed(self, version: int, file: ObjectMeta) -> ObjectMeta:
        """Return a published version as it was listed before, so that it is not taken for another."""
        modified = self._coordinator.times.get(version)
        return file if modified is None else replace(file, last_modified_ms=modified, e_tag=None)

    def _staged_bytes(self, version: int, commit: RatifiedCommit) -> bytes:
        data = super().get(f"{STAGED}/{commit.file_name}")
        if len(data) != commit.size:
            raise CorruptLog(
                f"The staged commit '{commit.file_name}' of the table at {self.location} has {len(data)} bytes, but "
                f"{commit.size} according to the catalog: another program has replaced it. Restore it from a backup.",
                version=version,
                file=commit.file_name,
            )
        return data

    # --- commits ------------------------------------------------------------------------------------------

    def commit(self, version: int, data: bytes, before: Snapshot | None) -> bool:
        """Create a version: stage it, have it ratified, and publish it.

        Returns:
            False if another commit has the version, or if it is free and the catalog wants the commit to start anew.

        Raises:
            StorageError: the version may exist, or may appear later.
            ServiceUnavailable: the catalog cannot be reached; nothing was committed.
            TooManyRequests: the catalog accepts no commits now; nothing was committed.
            DelvecError: the catalog refused the commit.
        """
        change, timestamp = _about_the_table(data, version, before)
        if (change.protocol or change.metadata) and (before is None or before.version != version - 1):
            return False  # what it changes is known once the version before is read again
        attempt = _Attempt(self._proposal(version, timestamp, data, change), data)
        for number in range(_PROPOSALS):
            if number:
                time.sleep(random.uniform(0.5, 1) * _PAUSE_SECONDS * 2**number)  # noqa: S311 - spreads load
            answer = attempt.answered(self._coordinator.propose(attempt.proposal))
            if answer.outcome == "full":
                self._publish_quietly()
            is_ours = self._is_ours(attempt, answer)
            if is_ours:
                self._publish_quietly()
            if is_ours is not None:
                return is_ours
            if answer.outcome == "refused":
                break
        return attempt.undecided(self.location)

    def publish(self, version: int) -> None:
        """Publish the ratified versions up to one, and report it.

        Raises:
            FileNotFoundError: the version is not ratified.
            CatalogUnavailable: or a sibling: the catalog does not answer.
            CorruptLog: the log has another commit as one of the versions.
            StorageError: storage did not answer.
        """
        versions = sorted(number for number in self._ratified(version).commits if number <= version)
        for number in versions:
            if not self.put_if_absent(commit_path(number), self.get(commit_path(number))):
                raise CorruptLog(
                    f"The log at {self.location} has another commit as version {number} than the one that the catalog "
                    "ratified: a writer that ignores the catalog created it. Move that log entry away.",
                    version=number,
                    file=commit_name(number),
                )
        if versions:
            self._coordinator.published(versions[-1])

    def _publish_quietly(self) -> None:
        try:
            self.publish(self._coordinator.known().latest)
        except (DelvecError, FileNotFoundError) as error:
            # The versions are ratified, and readers that ask the catalog find them; the next commit publishes them.
            logger.warning("ratified versions not published", location=self.location, reason=str(error))

    def _proposal(self, version: int, timestamp: int, data: bytes, change: TableChange) -> Proposal:
        """Stage a commit. Its name follows from its content, so the same commit is the same proposal."""
        unique = uuid.UUID(bytes=hashlib.sha256(data).digest()[:16], version=4)
        name = f"{version:020}.{unique}.json"
        path = f"{STAGED}/{name}"
        if not self.put_if_absent(path, data):
            raise StorageError(
                f"The staged commit {path} of the table at {self.location} exists with other content."
            )
        file = super().head(path)
        modified = time.time_ns() // 1_000_000 if file is None else file.last_modified_ms
        return Proposal(version, timestamp, RatifiedCommit(name, len(data), modified), change)

    def _is_ours(self, attempt: "_Attempt", answer: ProposalAnswer) -> bool | None:
        """Return whether the version is the proposed one; None if nobody has it, or it is unknown who."""
        proposal = attempt.proposal
        if answer.ratified is not None and proposal.version in answer.ratified.commits:
            return self._has(proposal, answer.ratified)
        try:
            ratified = self._coordinator.latest()
            if proposal.version > ratified.latest:
                return None
            if proposal.version in ratified.commits:
                return self._has(proposal, ratified)
            return super().get(commit_path(proposal.version)) == attempt.data
        except (DelvecError, FileNotFoundError) as error:
            attempt.doubts(error)
            return None

    @staticmethod
    def _has(proposal: Proposal, ratified: Ratified) -> bool:
        return ratified.commits[proposal.version].file_name == proposal.commit.file_name


@dataclass
class _Attempt:
    """A proposal, and what its answers left open.

    Attributes:
        last: the last answer.
        doubt: why the version may exist although nobody has it.
    """

    proposal: Proposal
    data: bytes
    last: ProposalAnswer | None = None
    doubt: str = ""

    def answered(self, answer: ProposalAnswer) -> ProposalAnswer:
        self.last = answer
        if answer.outcome in ("unknown", "accepted"):
            self.doubt = "" if answer.error is None else answer.error.message
            self.doubt = self.doubt or "It accepted the commit, and does not list it."
        return answer

    def doubts(self, error: Exception) -> None:
        if self.last is not None and self.last.outcome not in ("refused", "unsent", "full"):
            self.doubt = self.doubt or str(error)

    def undecided(self, location: str) -> bool:
        """Return False if the version is certainly free; raises what :meth:`ManagedLog.commit` does."""
        assert self.last is not None  # noqa: S101 - there was a proposal
        version = self.proposal.version
        if self.doubt:
            raise StorageError(
                f"The catalog did not say whether it has ratified version {version} of the table at {location} as "
                f"'{self.proposal.commit.file_name}'. {self.doubt}",
                version=version,
            )
        if self.last.outcome == "unsent":
            raise ServiceUnavailable(
                f"The catalog of the table at {location} cannot be reached, so nothing was committed. {self.last.error}"
            )
        if self.last.outcome == "full":
            raise TooManyRequests(
                f"The catalog of the table at {location} accepts no commits now; nothing was committed. {self.last.error}"
            )
        if self.last.error is not None and self.last.outcome == "refused":
            raise self.last.error
        return False


def _version_of(path: str) -> int | None:
    match = _COMMIT.fullmatch(path)
    return None if match is None else int(match.group(1))


def _about_the_table(data: bytes, version: int, before: Snapshot | None) -> tuple[TableChange, int]:
    """Return what a commit of Delvec's changes about the table, and its in-commit timestamp."""
    lines = [line for line in data.splitlines() if line.startswith(_ABOUT_THE_TABLE)]
    actions = parse_commit(b"\n".join(lines), LogFile("", version, commit_name(version)))
    info = first_of(CommitInfo, actions)
    timestamp = None if info is None else info.in_commit_timestamp
    change = TableChange(
        first_of(Protocol, actions),
        first_of(Metadata, actions),
        [action for action in actions if isinstance(action, DomainMetadata)],
        None if before is None else before.metadata,
    )
    return change, time.time_ns() // 1_000_000 if timestamp is None else timestamp
