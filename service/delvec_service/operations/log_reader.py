"""Reading a log from storage: listings, commits and checkpoints of one table."""

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from delvec.protocol.errors import DelvecError, MissingLogFile, NotADeltaTable
from delvec_service.delta.actions import CommitInfo
from delvec_service.delta.checkpoint import CheckpointPart, read_checkpoint
from delvec_service.delta.commit_file import parse_commit
from delvec_service.delta.live_files import LiveFiles
from delvec_service.delta.log_json import LogFile
from delvec_service.delta.log_segment import ListedFile, LogCheckpoint, LogListing, commit_name
from delvec_service.delta.replay import Commit, ReplayState
from delvec_service.store.objects import ObjectStore

__all__ = ["LogReader"]

_LOG: Final = "_delta_log"
_CONCURRENT: Final = 16
_FEW: Final = 4


@dataclass(frozen=True)
class LogReader:
    """One table's log.

    Attributes:
        objects: the table's files.
        table: the name that errors give.
    """

    objects: ObjectStore
    table: str

    def list_all(self) -> LogListing:
        """List the whole log.

        Raises:
            NotADeltaTable: there is none.
        """
        listing = LogListing(self.objects.list_from(_LOG))
        if not listing:
            raise NotADeltaTable(
                f"There is no Delta table at {self.objects.location}: it has no {_LOG} with a commit in it.",
                location=self.objects.location,
            )
        return listing

    def list_recent(self) -> LogListing:
        """List the log from the newest checkpoint on, if its hint can be trusted, else the whole log.

        Raises:
            NotADeltaTable: there is no log.
        """
        hint = self._last_checkpoint()
        if hint is not None:
            listing = self.list_after(hint)
            # A hint is written after the checkpoint and may outlive it: what counts is what is there.
            if listing.checkpoints:
                return listing
        return self.list_all()

    def list_after(self, version: int) -> LogListing:
        """List the files of ``version`` and of the versions after it."""
        return LogListing(self.objects.list_from(_LOG, start_after=f"{version:020d}"))

    def where(self, version: int, name: str) -> LogFile:
        """Return how errors name a file of this log."""
        return LogFile(self.table, version, name)

    def commit(self, version: int) -> Commit:
        """Read one commit.

        Raises:
            MissingLogFile: it was there a moment ago, or should be.
            CorruptLog: it cannot be read.
        """
        where = LogFile(self.table, version, commit_name(version))
        return Commit(where, parse_commit(self._get(where), where))

    def commits(self, versions: Sequence[int]) -> list[Commit]:
        """Read commits, several at once where that saves time; in the order asked for.

        Raises:
            MissingLogFile: one is not there.
            CorruptLog: one cannot be read.
        """
        return list(self.each(versions))

    def each(self, versions: Sequence[int]) -> Iterator[Commit]:
        """Yield commits in the order asked for, a few read ahead."""
        if len(versions) < _FEW or self.objects.location.startswith(("file:", "memory:")):
            yield from map(self.commit, versions)
            return
        with ThreadPoolExecutor(min(_CONCURRENT, len(versions)), "delvec-log") as pool:
            for start in range(0, len(versions), _CONCURRENT):
                yield from pool.map(self.commit, versions[start : start + _CONCURRENT])

    def commit_info(self, version: int) -> CommitInfo | None:
        """Return a commit's commitInfo, if it has one."""
        infos = (action for action in self.commit(version).actions if isinstance(action, CommitInfo))
        return next(infos, None)

    def checkpoint(self, checkpoint: LogCheckpoint) -> ReplayState:
        """Read a checkpoint with all its parts and sidecars.

        Raises:
            MissingLogFile: a part or a sidecar is not there.
            CorruptLog: one cannot be read.
        """
        parts = self._parts(
            (LogFile(self.table, checkpoint.version, file.name), f"{_LOG}/{file.name}")
            for file in checkpoint.files
        )
        sidecars = [sidecar for part in parts for sidecar in part.sidecars]
        parts += self._parts(
            (LogFile(self.table, checkpoint.version, sidecar.path), _sidecar_path(sidecar.path))
            for sidecar in sidecars
        )
        where = LogFile(self.table, checkpoint.version, checkpoint.files[0].name)
        batches = [batch for part in parts for batch in part.batches]
        actions = [action for part in parts for action in part.actions]
        return ReplayState.from_checkpoint(batches, actions, where, self.objects.location)

    def nothing(self) -> ReplayState:
        """Return the state before the first commit."""
        return ReplayState(LiveFiles(self.objects.location))

    def head(self, version: int) -> ListedFile | None:
        """Return what is known of a commit's file without reading it, or None if it does not exist."""
        return self.objects.head(f"{_LOG}/{commit_name(version)}")

    def _parts(self, wanted: Iterable[tuple[LogFile, str]]) -> list[CheckpointPart]:
        return [read_checkpoint(self._get(where, path), where) for where, path in wanted]

    def _get(self, where: LogFile, path: str | None = None) -> bytes:
        try:
            return self.objects.get(f"{_LOG}/{where.name}" if path is None else path)
        except FileNotFoundError as error:
            raise MissingLogFile(
                f"The log of table '{self.table}' lacks {where.name}, which version {where.version} needs; "
                "restore that file from a backup.",
                table=self.table,
                version=where.version,
                file=where.name,
            ) from error

    def _last_checkpoint(self) -> int | None:
        """Return the version that ``_last_checkpoint`` names; anything wrong with it means there is no hint."""
        try:
            hint = json.loads(self.objects.get(f"{_LOG}/_last_checkpoint"))
            version = hint["version"]
        except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError, DelvecError):
            return None
        usable = isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 2**63
        return version if usable else None


def _sidecar_path(path: str) -> str:
    """Return where a sidecar is: a bare name lies in ``_sidecars``."""
    return path if "/" in path else f"{_LOG}/_sidecars/{path}"
